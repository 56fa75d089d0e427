/* The folder that log.tensorboard names: every number of the log's step and eval events as a scalar called EVENT/FIELD (of a map,
 * EVENT/FIELD/KEY; of a list of tables, EVENT/FIELD/TABLE/KEY), in TensorBoard's event files (records of length, data and their masked
 * CRC-32C; the data are protocol buffers). Each run begins a file of its own, since TensorBoard reads all that are in a folder. A log that
 * cannot be written any more ends with a warning, and training goes on. */
#pragma once
#include <jansson.h>
#include <limits.h>

#include "config/config.h"

typedef struct dlrm_tensorboard {
    int fd; /* -1: none, or it has ended */
    char path[PATH_MAX];
} dlrm_tensorboard;

/* Makes the folder, and a file in it. DLRM_E_INPUT with the key's name where that cannot be. log.tensorboard: null opens none. */
dlrm_status dlrm_tensorboard_open(const dlrm_config *cfg, dlrm_tensorboard *out) DLRM_MUST_USE;
/* Of other events than step and eval nothing. The event stays the caller's. */
void dlrm_tensorboard_write(dlrm_tensorboard *t, const json_t *event);
void dlrm_tensorboard_close(dlrm_tensorboard *t);
