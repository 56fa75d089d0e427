/* The embeddings of all ranks as one rank sees them: its own slices of tables, and the exchange that turns "my slices'
 * vectors for all samples" into "all vectors for my samples", and gradients back. Both sides work in the layout that
 * travels: the lookup writes what is sent, the interaction reads what arrived (by slot offsets), so nothing is copied. The parts
 * of a vector that column slices give are slots side by side; where that will not do (interaction: dot; row slices, whose
 * parts are added), they are put together first. Replicated tables stand beside the exchange (replicated.h). */
#pragma once
#include "model/replicated.h"

/* One of the vectors that a part of the placement gives. */
typedef struct dlrm_part_vector {
    int part, vector;
} dlrm_part_vector;

typedef struct dlrm_embedding {
    const dlrm_model_spec *spec;
    const dlrm_placement *place;
    int rank;
    dlrm_tables own;
    dlrm_replicated replicated;
    size_t value_bytes;     /* of an element of a vector */
    void *pooled;           /* [B, W own]: block by block what each rank needs */
    void *received;         /* from each rank p: [own samples, W_p]; with one rank it is `pooled` itself */
    void *d_received, *d_pooled; /* the same for gradients */
    /* Where ranks can write into each other's memory, lookups and the interaction write to where vectors and gradients are needed,
     * and nothing is sent: `pooled` and `d_received` are NULL, and these the ranks' `received` and `d_pooled`. */
    bool direct;
    void **all_received, **all_d_pooled; /* [ranks] */
    dlrm_bags *some_bags;   /* [own inputs] of one rank's samples */
    const int64_t *sample_at; /* [ranks+1] first sample of each rank, of the batch at hand */
    /* Vectors of tables that are cut, where the interaction must have them whole, or their parts are sums. */
    dlrm_join_args join;    /* of the batch at hand */
    dlrm_join_part *join_parts;     /* [join.n_parts] */
    dlrm_join_vector *join_vectors; /* [join.n_vectors] */
    dlrm_part_vector *joined_part; /* [join.n_parts] */
    int *joined_input;      /* [join.n_vectors]: number in the model */
    int64_t *send_at, *recv_at; /* [ranks+1], bytes */
} dlrm_embedding;

dlrm_status dlrm_embedding_open(dlrm_backend *be, const dlrm_comm *c, const dlrm_model_spec *spec, const dlrm_placement *place,
                                const dlrm_config *cfg, int64_t max_batch, int64_t max_own, dlrm_embedding *out) DLRM_MUST_USE;
/* Memory for the vectors. scaled: losses are, so that own samples' gradients are looked at before they are sent: they have to be here.
 * Collective. */
dlrm_status dlrm_embedding_connect(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int64_t max_batch, int64_t max_own,
                                   bool scaled) DLRM_MUST_USE;
void dlrm_embedding_close(dlrm_backend *be, dlrm_embedding *e);
/* Values of a fresh run. */
void dlrm_embedding_init(dlrm_backend *be, dlrm_embedding *e, uint64_t seed);
/* Of the weights that this rank holds. */
int64_t dlrm_embedding_bytes(const dlrm_embedding *e);
/* The values of a slice of the placement: NULL if this rank does not hold it. */
const dlrm_table_shard *dlrm_embedding_slice(const dlrm_embedding *e, int slice);

/* How vectors get to other ranks: the exchange's name, or "direct". */
const char *dlrm_embedding_exchange_name(const dlrm_embedding *e, const dlrm_exchange *x);

/* Lays out the exchange for the batch in a stage. sample_at: [ranks+1] first sample of each rank. */
void dlrm_embedding_begin(dlrm_embedding *e, int stage, const int64_t *sample_at);
void dlrm_embedding_lookup(dlrm_backend *be, dlrm_embedding *e, int64_t B, int stage);
/* Tickets of the exchange; with one rank nothing moves. range: of the exchange, for the replicated tables' gradients. */
int dlrm_embedding_exchange(dlrm_embedding *e, dlrm_exchange *x); /* pooled -> received */
/* flag: of dlrm_overflow_args, for the own samples' gradients; NULL: not wanted. */
int dlrm_embedding_exchange_gradients(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int range, int stage, int64_t own,
                                      float *flag);
/* What arrived has been read, and the next may arrive. The exchange of gradients says so, too. */
void dlrm_embedding_release(dlrm_embedding *e, dlrm_exchange *x);
/* Once the vectors have arrived. */
void dlrm_embedding_join(dlrm_backend *be, dlrm_embedding *e);
/* When the exchange of gradients has finished. stage: in which the batch's rows were sorted; step: from 1, for random
 * roundings. */
void dlrm_embedding_update(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int64_t B, int stage, const dlrm_rule *rule,
                           int64_t step);
/* Fills slots[1 …]: where each input's vectors of the own samples lie, whole or in parts, and their gradients go. Those of one
 * input that lie side by side are one slot, but for interaction: dot. Returns the number of slots, at most 1 + the placement's
 * vectors. */
int dlrm_embedding_slots(const dlrm_embedding *e, dlrm_vector_slot *slots);
/* Before anything is opened: elements of a sample's joined vectors. */
int64_t dlrm_embedding_joined_width(const dlrm_model_spec *spec, const dlrm_placement *place);
