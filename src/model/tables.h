/* Slices of tables on one rank: those of one owner (a rank, or DLRM_EVERY_RANK), with the parts of vectors that they
 * give, ready for the ops of embeddings. */
#pragma once
#include "config/config.h"
#include "data/dataset.h"
#include "backend/backend.h"
#include "model/host_tables.h"
#include "model/shared_rows.h"
#include "model/translate.h"

typedef struct dlrm_tables {
    const dlrm_model_spec *spec;
    const dlrm_placement *place;
    dlrm_shard shard;
    dlrm_host_tables host;          /* which of them lie in the host's memory */
    int *slice, *part;              /* numbers in the placement of the shard's tables and inputs */
    dlrm_bags *bags[DLRM_STAGES];   /* [shard inputs] of the batch in each stage */
    dlrm_vocabulary *vocabularies;  /* [shard tables] of those whose rows are dynamic; else {0} */
    dlrm_translation *translations; /* [shard inputs] by table, in order: of the batch at hand */
    dlrm_translation_job *jobs;     /* [shard tables]: their parts of those */
    /* Of slices by rows: the bags of the ids that lie here, made from the batch's, as rows of the slice. Of keys: their rows. */
    uint32_t **ids[DLRM_STAGES];    /* [shard inputs]; NULL: bags are the batch's own */
    int64_t **offsets[DLRM_STAGES];
    int64_t **whole;                /* [shard inputs] offsets of whole bags of fixed length; NULL: not needed */
    void *room;                     /* what those three point into */
    dlrm_shared_rows shared;        /* with the peers of tables cut by columns */
} dlrm_tables;

/* Memory for the weights and the optimizer's state, as the config says. max_batch: samples that the shard's ops will see, at most. */
dlrm_status dlrm_tables_open(dlrm_backend *be, const dlrm_model_spec *spec, const dlrm_placement *place, int owner,
                             const dlrm_config *cfg, int64_t max_batch, dlrm_tables *out) DLRM_MUST_USE;
void dlrm_tables_close(dlrm_backend *be, dlrm_tables *t);
/* Values of a fresh run: uniform ±√(1/rows), a function of (seed, table name, element) alone. */
void dlrm_tables_init(dlrm_backend *be, dlrm_tables *t, uint64_t seed);
/* Of the weights. */
int64_t dlrm_tables_bytes(const dlrm_tables *t);
/* Notes where a batch's ids are, for its way into a stage, picks out those of slices by rows, and looks up the rows of keys.
 * learn: it is a batch of training, and vocabularies learn from it. */
void dlrm_tables_bags(dlrm_tables *t, int stage, const dlrm_ids *inputs, bool learn);
/* The bags from sample `begin` on. */
dlrm_bags dlrm_bags_from(const dlrm_shard_input *in, const dlrm_bags *all, int64_t begin);
/* Rows that the latest batch gave to other keys become as new: initial weights, initial state. Before its step. */
void dlrm_tables_renew(dlrm_backend *be, dlrm_tables *t, const dlrm_optimizer_config *opt, uint64_t seed);
/* After the vocabularies' entries have been read: dlrm_vocabulary_loaded. */
dlrm_status dlrm_tables_loaded(dlrm_tables *t, const char *from, int64_t now) DLRM_MUST_USE;
/* The vocabulary of this table of the model; NULL: it has none, or none here. */
dlrm_vocabulary *dlrm_tables_vocabulary(const dlrm_tables *t, int table);
/* Bytes of what is picked out and of keys' rows, of all stages, for a rank's slices; and of vocabularies. */
int64_t dlrm_tables_room(const dlrm_model_spec *spec, const dlrm_placement *place, int owner, int64_t max_batch);
