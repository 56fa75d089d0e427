/* The column pass: from spooled rows to split-binary files. Every block is read once per group of columns whose
 * vocabularies fit into memory together; a bucket of shuffled rows is sorted by key, which fixes each row's place. */
#pragma once
#include <stdint.h>

#include "split_binary.h"
#include "spool.h"

typedef struct dlrm_emit_args {
    dlrm_spool *spool;      /* finished */
    int n_ids, dense_bytes; /* of a row */
    int bucket_bits;
    char (*vocab_path)[DLRM_PATH_MAX]; /* [n_ids] */
    const int64_t *vocab_n;            /* [n_ids] */
    int threads;
    int64_t memory;     /* bytes that this pass may take: some 200 times block_rows times threads, at the very least */
    int64_t block_rows; /* no block has more */
    dlrm_columns *out;
} dlrm_emit_args;

typedef struct dlrm_emit_result {
    int64_t *unknown; /* [n_ids], the caller's: ids that were neither missing nor in the vocabulary */
    int64_t positives[DLRM_OUT_SPLITS];
    int groups;         /* times that the blocks were gone through */
    int64_t bytes_read; /* of the spool */
} dlrm_emit_result;

dlrm_status dlrm_emit(const dlrm_emit_args *args, dlrm_emit_result *result) DLRM_MUST_USE;
