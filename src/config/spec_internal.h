/* Shared by spec.c (tables, inputs) and widths.c. */
#pragma once
#include "config/keys.h"
#include "config/spec.h"

typedef struct dlrm_spec_build {
    const dlrm_config *cfg;
    const dlrm_feature_spec *data; /* NULL: synthetic */
    dlrm_model_spec *out;
    int *entry;          /* [n_tables]: the entry of model.tables that each came from; NULL: from_dataset */
    dlrm_table **sorted; /* [n_tables], by name */
    char path[64];
} dlrm_spec_build;

/* "model.tables.3.rows"; valid until the next call. */
const char *dlrm_spec_path(dlrm_spec_build *b, const char *list, int i, const char *key);
/* The width of a table whose own (0: none) and embedding_dim are as written. */
int dlrm_spec_dim(const dlrm_config *cfg, int64_t own, int64_t rows);
/* Widths of vectors, interaction and layers, totals, and their limits. */
dlrm_status dlrm_spec_widths(dlrm_spec_build *b) DLRM_MUST_USE;
