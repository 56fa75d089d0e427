/* The order of the rows of an epoch, where data.shuffle is on: every row once, another order in each epoch, a pure
 * function of (seed, epoch, rows, batch size), so it is the same in any format, on any number of ranks, and after
 * resuming anywhere.
 *
 * A batch is cut into 64 lanes [kB/64, (k+1)B/64). A lane has a section of the rows to itself, as long as its samples
 * of all batches; where the first section begins is drawn for each epoch. The section's blocks of 1024 rows come in a
 * random order, and within a window of 8 of them, which are in memory at a time, rows are in a random order. So files
 * are read in whole blocks, a rank reads the lanes of its own samples alone (as long as it has whole lanes: 1, 2, 4 …
 * 64 ranks), and a batch has rows of 64 evenly spread sections, in each from up to 8 random blocks. What it is not: two
 * rows of different sections are never in the same lane. Windows of different lanes end at different batches, so that
 * reading is even. */
#pragma once
#include <stdint.h>

#include "base/status.h"

enum {
    DLRM_LANES = 64,
    DLRM_SHUFFLE_BLOCK = 1024,
    DLRM_SHUFFLE_BLOCKS = 8,
    DLRM_SHUFFLE_WINDOW = DLRM_SHUFFLE_BLOCK * DLRM_SHUFFLE_BLOCKS
};

/* Samples of a batch that come from one window of one lane. */
typedef struct dlrm_shuffle_piece {
    int lane;
    int64_t window, key; /* number in the lane; the same and the epoch */
    int64_t first, n;    /* samples of the batch */
} dlrm_shuffle_piece;

typedef struct dlrm_shuffle {
    int64_t rows, batch_size, epoch, shift;
    uint64_t seed;
    int64_t lane_rows[DLRM_LANES], section[DLRM_LANES + 1]; /* rows, and the first row before the shift */
    int64_t order_at[DLRM_LANES + 1];
    uint32_t *order;    /* of a lane's blocks, from order_at[lane] on */
    uint16_t *permuted; /* [DLRM_LANES][DLRM_SHUFFLE_WINDOW]: places in the window, in the order that they come in */
    int64_t *key;       /* [DLRM_LANES]: of the window that `permuted` is of */
    int64_t begin;      /* the plan is of samples from here on */
    int n_pieces;
    dlrm_shuffle_piece *pieces;
    uint16_t *place; /* of each sample in its window */
} dlrm_shuffle;

/* most: samples that a plan has at most. */
dlrm_status dlrm_shuffle_open(int64_t rows, int64_t batch_size, uint64_t seed, int64_t most,
                              dlrm_shuffle *out) DLRM_MUST_USE;
void dlrm_shuffle_close(dlrm_shuffle *s); /* copes with {0} */
int64_t dlrm_shuffle_memory(int64_t rows, int64_t batch_size, int64_t most);

/* Plans samples [begin, begin+n) of a batch of `size`, the batch's first at `first` in the epoch. Pieces come by lane,
 * then window. */
void dlrm_shuffle_plan(dlrm_shuffle *s, int64_t epoch, int64_t first, int64_t size, int64_t begin, int64_t n);
/* The row that sample i of the planned batch is. */
int64_t dlrm_shuffle_row(const dlrm_shuffle *s, int64_t i);
/* The rows of a window of the planned epoch, in the order of its places: calls read for each run of rows. */
typedef dlrm_status dlrm_read_run(void *ctx, int64_t row, int64_t n, void *out);
dlrm_status dlrm_shuffle_read(const dlrm_shuffle *s, int lane, int64_t window, dlrm_read_run *read, void *ctx,
                              int64_t row_bytes, void *out) DLRM_MUST_USE;
/* Lanes [*first, *end) that samples [begin, begin+n) of a batch of `size` are in. */
void dlrm_shuffle_lanes(int64_t size, int64_t begin, int64_t n, int *first, int *end);
/* Rows of a lane in an epoch. */
int64_t dlrm_shuffle_lane_rows(int64_t rows, int64_t batch_size, int lane);
