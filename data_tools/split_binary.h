/* Writes a split-binary folder: train/, test/ (and validation/, which the description leaves out) with one file per
 * feature, and feature_spec.yaml. Rows are written at their place, in any order, by any thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "spool.h"
#include "tool.h"

typedef struct dlrm_columns_shape {
    int n_dense, dense_bytes; /* values a row; bytes of a value: 2 or 4 */
    int n_ids;
    const int64_t *cardinality; /* [n_ids] */
    const int *hotness;         /* [n_ids]: ids a row, the most where it varies; NULL: 1 each */
    const bool *variable;       /* [n_ids]; NULL: none */
    const bool *keys;           /* [n_ids]: of 64 bits, each of which is two ids, low and high half, in hotness, lengths and ids; NULL: none */
    const char *dense;          /* noted as metadata.dense: how the values were made; NULL: not noted */
} dlrm_columns_shape;

/* DeepLearningExamples' rule: the first of 8, 16 and 32 bits whose largest value is above the cardinality. 0: none. */
int dlrm_columns_id_bytes(int64_t cardinality);

typedef struct dlrm_columns dlrm_columns;

/* Makes the files of the splits that have rows, at their full size. */
dlrm_status dlrm_columns_open(const char *folder, const dlrm_columns_shape *shape, const int64_t rows[DLRM_OUT_SPLITS],
                              dlrm_columns **out) DLRM_MUST_USE;
void dlrm_columns_close(dlrm_columns **c); /* without finish: what is there is incomplete */
/* To the disk; writes feature_spec.yaml. */
dlrm_status dlrm_columns_finish(dlrm_columns *c) DLRM_MUST_USE;

dlrm_status dlrm_columns_labels(dlrm_columns *c, int split, int64_t row, int64_t n,
                                const uint8_t *labels) DLRM_MUST_USE;
dlrm_status dlrm_columns_dense(dlrm_columns *c, int split, int64_t row, int64_t n, const void *values) DLRM_MUST_USE;
/* ids: [n][hotness]. `packed` is other room for as many ids of 4 bytes. */
dlrm_status dlrm_columns_ids(dlrm_columns *c, int split, int column, int64_t row, int64_t n, const uint32_t *ids,
                             void *packed) DLRM_MUST_USE;
/* Of a column that varies: the first lengths[i] of the `hotness` ids of each row. Rows in order, from 0, by one thread. */
dlrm_status dlrm_columns_bags(dlrm_columns *c, int split, int column, int64_t row, int64_t n, const int32_t *lengths,
                              const uint32_t *ids, void *packed) DLRM_MUST_USE;
/* Reads back what dlrm_columns_ids wrote there (zeros where it did not). */
dlrm_status dlrm_columns_ids_read(dlrm_columns *c, int split, int column, int64_t row, int64_t n,
                                  uint32_t *ids) DLRM_MUST_USE;
