/* Shared by the files that read a config: config.c (documents, overrides), values.c (keys by the table), checks.c (keys
 * against each other). */
#pragma once
#include "config/config.h"
#include "config/keys.h"

/* Reads the map `map` (null: an empty one) that stands at `prefix` ("" for the whole config) by the table's rows into
 *  the struct at `base`: unknown keys are errors, absent ones get their defaults. */
dlrm_status dlrm_config_read(dlrm_config *cfg, const dlrm_key_table *t, const dlrm_yaml *map, const char *prefix,
                             void *base) DLRM_MUST_USE;
/* Frees what dlrm_config_read allocated. */
void dlrm_config_clear_values(dlrm_config *cfg);
/* Rules between keys that need no data; resolves what one key takes from another. */
dlrm_status dlrm_config_check(dlrm_config *cfg) DLRM_MUST_USE;
