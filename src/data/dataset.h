/* Batches. A dataset has two splits of rows; a reader walks one split in global batches and gives each rank what it
 * needs: labels and dense values of its own samples, and for all samples of the batch the ids of the inputs whose
 * tables it holds, or those of its own samples where a table is replicated. Sources: split-binary files, where a rank reads
 * these columns alone, and a synthetic generator that makes row r the same on any number of ranks (model-parallel input:
 * nothing is exchanged); and row formats, where a rank reads the rows of its own samples alone, and the ids still have to go
 * where they are wanted (data-parallel input: train/id_exchange.h). A reader has a thread that reads, converts and checks
 * ahead. */
#pragma once
#include "config/spec.h"

typedef struct dlrm_ids {
    uint32_t *ids;    /* [count], each in [0, rows of the table) */
    int64_t *keys;    /* in their place where the table's rows are dynamic: [count], as they stand in the data */
    int64_t *offsets; /* variable hotness: [B+1], sample s's bag is ids[offsets[s]] … ids[offsets[s+1]-1]; else NULL and
                         the bag is ids[s*hotness] … */
    int64_t count;
    int64_t first, samples; /* they are of samples [first, first+samples) of the batch, and s counts from there: all, or this
                               rank's own */
} dlrm_ids;

typedef struct dlrm_batch {
    int64_t epoch;       /* from 0 */
    int64_t first_row;   /* of the split; of the epoch's order where rows are shuffled */
    int64_t size;        /* B: samples of the global batch; the last one of a split may be short */
    int64_t begin, own;  /* this rank's samples are [begin, begin+own) */
    float *dense;        /* [own][dense_features] */
    float *labels;       /* [own], 0 or 1 */
    dlrm_ids *inputs;    /* [n_inputs of the model]; only those that the rank holds are filled */
    void *packed;        /* row formats: ids of own samples, a block for each rank (data/pack.h); `inputs` is empty then */
    int64_t clamped;     /* ids set to row 0 under index_check: clamp, in this batch on this rank */
    dlrm_status status;  /* bad data or a failed read: then every value is valid but meaningless (zeros) */
    char message[1024];
} dlrm_batch;

typedef struct dlrm_dataset dlrm_dataset;
typedef struct dlrm_reader dlrm_reader;

typedef struct dlrm_reader_args {
    int split;
    int64_t batch_size;
    int64_t max_rows;        /* 0: all; else the first so many rows are one epoch */
    int64_t first_batch;     /* start here (resume); counted over epochs */
    int64_t epochs;          /* 0: endless */
    bool shuffle;            /* rows in another order each epoch (data/shuffle.h); not with synthetic data */
    bool deterministic;      /* cut of the batch over ranks: dlrm_cut_samples */
    int chunks;
    int rank, ranks;
    const bool *wanted;      /* [n_inputs]: ids needed here */
    const bool *wanted_by;   /* [ranks][n_inputs]: by each rank; row formats need it until the reader is closed */
    const bool *own_only;    /* [n_inputs] or NULL: of those, the ids of the own samples alone */
} dlrm_reader_args;

/* Opens and cross-checks the files, or sets up the generator (synthetic). files: the description of split_binary, else
 * NULL. spec and files are borrowed until close. */
dlrm_status dlrm_dataset_open(const dlrm_config *cfg, const dlrm_model_spec *spec, const dlrm_feature_spec *files,
                              dlrm_dataset **out) DLRM_MUST_USE;
void dlrm_dataset_close(dlrm_dataset **d);
/* Are ids still to be exchanged (dlrm_batch.packed)? */
bool dlrm_dataset_exchanges(const dlrm_dataset *d);
int64_t dlrm_dataset_rows(const dlrm_dataset *d, int split); /* 0: no such split */
/* Bytes that one rank reads per epoch for these args: what --check predicts; 0 for synthetic. DLRM_E_INPUT: a file of offsets,
 * which say how many ids there are, cannot be read. */
dlrm_status dlrm_dataset_epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args, int64_t *bytes) DLRM_MUST_USE;
/* Memory of the batches that a reader with these args holds. */
int64_t dlrm_dataset_reader_memory(const dlrm_dataset *d, const dlrm_reader_args *args);

/* All memory of a reader is taken here, for the largest batch. Starts its thread, which calls no MPI. */
dlrm_status dlrm_reader_open(dlrm_dataset *d, const dlrm_reader_args *args, dlrm_reader **out) DLRM_MUST_USE;
void dlrm_reader_close(dlrm_reader **r);
/* Calls f for each piece of memory that batches may lie in, until one fails; returns its status. */
dlrm_status dlrm_reader_each_block(dlrm_reader *r, dlrm_status (*f)(void *ctx, void *block, size_t bytes), void *ctx)
    DLRM_MUST_USE;
/* The next batch, valid until the next call, with row formats until the next but one; NULL at the end of the last epoch.
 * *epoch_end: this is an epoch's last.
 * Bad data is in batch->status, so that all ranks can agree on it. */
const dlrm_batch *dlrm_reader_next(dlrm_reader *r, bool *epoch_end);
int64_t dlrm_reader_bytes(const dlrm_reader *r); /* file bytes read so far (of batches handed out) */
