/* Internal to data: what a dataset is made of. A source fills batches for one reader; the reader owns their memory, the
 * thread and the order. */
#pragma once
#include "data/dataset.h"
#include "data/row_files.h"

typedef struct dlrm_source_ops {
    /* A split's files opened, scratch memory taken. args->wanted stays valid until close. */
    dlrm_status (*open)(const dlrm_dataset *d, const dlrm_reader_args *args, void **state);
    /* b: first_row, size, begin, own and the pointers are set, clamped is 0; adds the file bytes read to *bytes. Calls
     * no MPI and allocates nothing. */
    dlrm_status (*fill)(void *state, dlrm_batch *b, int64_t *bytes);
    void (*close)(void **state); /* copes with half-built and NULL */
    dlrm_status (*epoch_bytes)(const dlrm_dataset *d, const dlrm_reader_args *args, int64_t *bytes);
    int64_t (*shuffle_memory)(const dlrm_dataset *d, const dlrm_reader_args *args); /* of rows in memory while shuffled; NULL: cannot */
    bool packs; /* fills labels, dense and packed (pack.h) for own samples, and no inputs; else inputs, and not packed */
    bool keeps; /* batches are dear to make again: a reader may keep a whole epoch */
} dlrm_source_ops;

struct dlrm_dataset {
    const dlrm_model_spec *spec;
    const dlrm_source_ops *source;
    int64_t rows[DLRM_SPLITS]; /* 0: no such split */
    dlrm_feature_spec files;   /* split_binary: the caller's, but for rows and `categorical`, which is our own */
    dlrm_row_files row_files;  /* of a row format */
    dlrm_index_check check;
    uint64_t seed;
    struct dlrm_synthetic *synthetic;
};

extern const dlrm_source_ops dlrm_split_binary_source, dlrm_row_source, dlrm_synthetic_source;

/* Rows and batches of an epoch. */
typedef struct dlrm_epoch {
    int64_t rows, batches;
} dlrm_epoch;
dlrm_epoch dlrm_epoch_of(const dlrm_dataset *d, const dlrm_reader_args *args);
/* Samples of an epoch that are a rank's own; of a batch, at most: a short last one can be cut so that it has one more. */
int64_t dlrm_epoch_own(const dlrm_dataset *d, const dlrm_reader_args *args);
int64_t dlrm_epoch_most_own(const dlrm_dataset *d, const dlrm_reader_args *args);
/* Lanes that a rank's own samples are in (data/shuffle.h), and the rows that are read for them in an epoch. */
void dlrm_epoch_lanes(const dlrm_dataset *d, const dlrm_reader_args *args, int *first, int *end);
int64_t dlrm_epoch_lane_rows(const dlrm_dataset *d, const dlrm_reader_args *args);

dlrm_status dlrm_synthetic_make(const dlrm_config *cfg, const dlrm_model_spec *spec, struct dlrm_synthetic **out)
    DLRM_MUST_USE;
void dlrm_synthetic_free(struct dlrm_synthetic **s);
