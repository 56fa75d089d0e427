/* What rows look like: collected stretch by stretch, printed by info and verify. */
#pragma once
#include "row_source.h"

typedef struct dlrm_dense_stats {
    double min, max, sum;
    int64_t zeros;
} dlrm_dense_stats;

typedef struct dlrm_id_stats {
    int64_t ids, zeros, empty_bags;
    uint32_t min, max;
    int32_t longest; /* bag */
    int64_t least_key, largest_key; /* of keys, for which the least and largest id are any */
} dlrm_id_stats;

typedef struct dlrm_stats {
    int64_t rows[DLRM_OUT_SPLITS], positives[DLRM_OUT_SPLITS];
    dlrm_dense_stats *dense; /* [n_dense] */
    dlrm_id_stats *ids;      /* [n_features] */
} dlrm_stats;

dlrm_status dlrm_stats_open(const dlrm_shape *s, dlrm_stats *out) DLRM_MUST_USE;
void dlrm_stats_clear(dlrm_stats *s);
void dlrm_stats_add(dlrm_stats *s, const dlrm_shape *shape, int split, const dlrm_stretch *rows);
/* The format, its rows and features, what was collected; `all`: every row was looked at. */
void dlrm_stats_print(const dlrm_stats *s, const dlrm_row_source *from, const char *path, bool all);
/* Adds findings that only show over many rows. */
dlrm_status dlrm_stats_judge(const dlrm_stats *s, const dlrm_row_source *from, const char *path, dlrm_findings *to) DLRM_MUST_USE;
