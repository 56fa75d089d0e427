/* Ids on their way from the rank that read a sample to the ranks that look them up. Row formats hold all features of a
 * row together, so a rank reads the rows of its own samples alone, and then sends each rank the ids of the inputs that
 * this rank wants. A block of ids for one rank is, for each of its inputs in order, [own samples][hotness] ids of the
 * input's width: 1, 2, 3 or 4 bytes, as few as the table's last row needs, little-endian; 8 where ids are keys of a table
 * whose rows are dynamic. Inputs of which a rank wants
 * its own samples' ids alone are last in the block that it has for itself, and in no other. Every rank can lay out
 * every other's block from the number of samples alone, so nothing but ids is sent. */
#pragma once
#include "data/dataset.h"

typedef struct dlrm_pack_item {
    int rank, input; /* the ids of `input` for `rank` */
    int width;       /* bytes of an id */
    int64_t at;      /* bytes per sample of all items before, over all ranks */
} dlrm_pack_item;

typedef struct dlrm_pack {
    int ranks, rank, n_items; /* rank: the one that packs */
    dlrm_pack_item *items;    /* by rank, then input */
    int64_t *rank_at;         /* [ranks+1]: bytes per sample of all blocks before a rank's; the last: of a sample */
    int64_t received;         /* bytes per sample of a block from another rank */
    int *of_input, *input_at; /* item numbers by input: of input j, of_input[input_at[j]] … of_input[input_at[j+1]-1] */
} dlrm_pack;

/* What decides: of dlrm_reader_args. */
typedef struct dlrm_pack_args {
    const dlrm_model_spec *spec;
    int ranks, rank;
    const bool *wanted_by; /* [ranks][n_inputs] */
    const bool *own_only;  /* [n_inputs] or NULL: the same inputs on every rank */
} dlrm_pack_args;

dlrm_pack_args dlrm_pack_args_of(const dlrm_model_spec *spec, const dlrm_reader_args *args);
dlrm_status dlrm_pack_open(const dlrm_pack_args *args, dlrm_pack *out) DLRM_MUST_USE;
void dlrm_pack_close(dlrm_pack *p); /* copes with {0} */
/* Bytes of a sample's ids that args->rank packs for ranks [first, end). */
int64_t dlrm_pack_sample_bytes(const dlrm_pack_args *args, int first, int end);

/* 1 … 4. */
int dlrm_pack_width(int64_t rows);
void dlrm_pack_ids(const uint32_t *ids, int64_t n, int width, void *out);
void dlrm_unpack_ids(const void *in, int64_t n, int width, uint32_t *ids);
