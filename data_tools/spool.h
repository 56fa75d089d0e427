/* Parsed rows between the text pass and the column pass: one temporary file of blocks, each of which holds some rows
 * column by column, so that any columns can be read alone. Rows that keep their order go into a block per chunk of
 * text. Training rows that are to be shuffled are dealt to buckets by the top bits of a key that is a bijection of the
 * row's number: sorted by key, all rows are in a random order that depends on the seed alone. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "rows.h"

enum { DLRM_TRAIN, DLRM_TEST, DLRM_VALIDATION, DLRM_OUT_SPLITS };

typedef struct dlrm_block {
    int64_t offset;
    int64_t place; /* where the first row stands in its split; of a bucket's block: where the bucket starts */
    int32_t rows;
    int32_t group; /* a split whose rows keep their order, or DLRM_OUT_SPLITS + bucket */
} dlrm_block;

typedef struct dlrm_spool dlrm_spool;

typedef struct dlrm_spool_args {
    const char *path;
    int n_ids, dense_bytes;
    int threads;
    bool shuffle;
    uint64_t seed;
    int bucket_bits;    /* shuffle: 2^bits buckets … */
    int64_t block_rows; /* … that are written so many rows at a time */
} dlrm_spool_args;

/* Memory that the buckets' buffers take. */
int64_t dlrm_spool_memory(const dlrm_spool_args *a);
dlrm_status dlrm_spool_open(const dlrm_spool_args *a, dlrm_spool **out) DLRM_MUST_USE;
void dlrm_spool_close(dlrm_spool **s); /* removes the file */

/* Rows [begin, end) of a chunk; `thread` is the caller's number. */
dlrm_status dlrm_spool_add(dlrm_spool *s, int thread, int split, const dlrm_rows *rows, int64_t begin,
                           int64_t end) DLRM_MUST_USE;
/* All rows are in: writes what the buckets still hold, orders the blocks by group and place. */
dlrm_status dlrm_spool_finish(dlrm_spool *s) DLRM_MUST_USE;

int64_t dlrm_spool_rows(const dlrm_spool *s, int split);
int64_t dlrm_spool_blocks(const dlrm_spool *s, const dlrm_block **blocks);
int64_t dlrm_spool_bytes(const dlrm_spool *s);
int64_t dlrm_spool_width(const dlrm_spool *s, int part); /* bytes of a row's part */
int64_t dlrm_spool_row_bytes(const dlrm_spool *s);
/* One part of a block's rows. */
dlrm_status dlrm_spool_read(dlrm_spool *s, const dlrm_block *b, int part, void *out) DLRM_MUST_USE;
/* Gives a block's disk space back where the file system can; it is not read again. */
void dlrm_spool_release(dlrm_spool *s, const dlrm_block *b);
