/* The files of a split-binary data set, a column each, and their values' way to the batch. Files are mapped, and values converted and
 * checked where the page cache has them, past the caches, for a batch is larger than they are. Where that does not do (no map, a file that
 * has become shorter, a value that is not valid, shuffled rows), bytes go through a buffer that stays in the second-level cache, and what
 * is wrong gets its message by who reads. DLRM_E_INPUT names the file. */
#pragma once
#include "data/map.h"
#include "data/shelf.h"
#include "data/source.h"
#include "data/stream.h"

enum {
    DLRM_SPLIT_BLOCK = 64 << 10, /* bytes that are read at a time */
    DLRM_SPLIT_ALIGNED = 4       /* rows of them, or a multiple */
};

typedef struct dlrm_split_column {
    const char *path;
    int fd; /* -1: not read by this rank */
    int64_t row_bytes;
    dlrm_map map;     /* where rows are in order */
    dlrm_shelf shelf; /* where rows are shuffled */
} dlrm_split_column;

typedef struct dlrm_split_reader {
    const dlrm_model_spec *spec;
    const dlrm_feature_spec *files;
    dlrm_index_check check;
    dlrm_split_column label, dense, *ids, *offsets; /* ids, offsets: [n_inputs] */
    int64_t *n_ids;      /* [n_inputs] of the whole file, where hotness varies */
    char *block;         /* [DLRM_SPLIT_BLOCK], or as many as DLRM_SPLIT_ALIGNED rows take */
    bool shuffled;
    dlrm_shuffle order;
    int64_t *bags;       /* [DLRM_SHUFFLE_BLOCK+1] offsets of a run of rows, where hotness varies and rows are shuffled */
    const dlrm_batch *b; /* being filled */
    int64_t *bytes;      /* of it */
} dlrm_split_reader;

dlrm_status dlrm_split_column_open(const dlrm_split_reader *r, const char *path, int64_t row_bytes, dlrm_split_column *c) DLRM_MUST_USE;
void dlrm_split_column_close(dlrm_split_column *c);
/* Bytes [at, at+bytes) of the file; and the rows that samples [i, i+n) of the batch are. */
dlrm_status dlrm_split_column_read(dlrm_split_reader *r, const dlrm_split_column *c, int64_t at, int64_t bytes, void *out) DLRM_MUST_USE;
dlrm_status dlrm_split_column_read_rows(dlrm_split_reader *r, dlrm_split_column *c, int64_t i, int64_t n, void *out) DLRM_MUST_USE;
/* So many rows fit into the block. */
int64_t dlrm_split_rows_at_a_time(int64_t row_bytes);
/* The row of the file that sample i of the batch is. */
int64_t dlrm_split_row(const dlrm_split_reader *r, int64_t i);

/* Of values to the batch: how, and of what type they are in the file. */
typedef struct dlrm_split_passage {
    dlrm_stream_values *stream;
    dlrm_elem dtype;
    int64_t rows;    /* of ids: the table's */
    const void *raw; /* of a mapped file: what is on its way, [n], and where to */
    int64_t n;
    void *out;
    bool good;
} dlrm_split_passage;

/* n values from byte `at` of the file. False: they have to be read, and so will all that follow. */
bool dlrm_split_pass_mapped(dlrm_split_reader *r, dlrm_split_column *c, dlrm_split_passage *p, int64_t at, int64_t n, void *out);
/* n values that have been read into the block. False: some are not valid. */
bool dlrm_split_pass_read(const dlrm_split_reader *r, const dlrm_split_passage *p, int64_t n, void *out);
