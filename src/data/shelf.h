/* Rows of one file, or of files side by side, that are taken in shuffled order: of each lane the window at hand is in
 * memory, read in whole blocks. */
#pragma once
#include "data/shuffle.h"

typedef struct dlrm_shelf {
    int64_t row_bytes;
    int first_lane, end_lane;
    int64_t lane_bytes; /* of a window */
    char *rows;         /* [lanes][window] */
    int64_t *key;       /* [lanes]: of the window that is there */
} dlrm_shelf;

/* For samples that are in lanes [first, end). */
dlrm_status dlrm_shelf_open(const dlrm_shuffle *s, int first_lane, int end_lane, int64_t row_bytes,
                            dlrm_shelf *out) DLRM_MUST_USE;
void dlrm_shelf_close(dlrm_shelf *h); /* copes with {0} */
int64_t dlrm_shelf_memory(int64_t rows, int64_t batch_size, int first_lane, int end_lane, int64_t row_bytes);

/* Rows of samples [i, i+n) of the planned batch, side by side. `read` reads a run of rows, row_bytes each. */
dlrm_status dlrm_shelf_take(dlrm_shelf *h, const dlrm_shuffle *s, int64_t i, int64_t n, dlrm_read_run *read, void *ctx,
                            void *out) DLRM_MUST_USE;
