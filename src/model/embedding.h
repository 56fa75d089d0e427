/* The embeddings of all ranks as one rank sees them: its own slices of tables, and the exchange that turns "my slices'
 * vectors for all samples" into "all vectors for my samples", and gradients back. Both sides work in the layout that
 * travels: the lookup writes what is sent, the interaction reads what arrived (by slot offsets), so nothing is copied.
 * Replicated tables stand beside the exchange (replicated.h). */
#pragma once
#include "model/replicated.h"

typedef struct dlrm_embedding {
    const dlrm_model_spec *spec;
    const dlrm_placement *place;
    dlrm_tables own;
    dlrm_replicated replicated;
    size_t value_bytes;     /* of an element of a vector */
    void *pooled;           /* [B, W own]: block by block what each rank needs */
    void *received;         /* from each rank p: [own samples, W_p]; with one rank it is `pooled` itself */
    void *d_received, *d_pooled; /* the same for gradients */
    int64_t *send_at, *recv_at; /* [ranks+1], bytes */
} dlrm_embedding;

dlrm_status dlrm_embedding_open(dlrm_backend *be, const dlrm_comm *c, const dlrm_model_spec *spec, const dlrm_placement *place,
                                const dlrm_config *cfg, int64_t max_batch, int64_t max_own, dlrm_embedding *out) DLRM_MUST_USE;
void dlrm_embedding_close(dlrm_backend *be, dlrm_embedding *e);
/* Values of a fresh run. */
void dlrm_embedding_init(dlrm_backend *be, dlrm_embedding *e, uint64_t seed);
/* Held by this rank. */
void dlrm_embedding_bytes(const dlrm_embedding *e, const dlrm_optimizer_config *opt, int64_t *tables, int64_t *state);
/* The values of a slice of the placement: NULL if this rank does not hold it. */
const dlrm_table_shard *dlrm_embedding_slice(const dlrm_embedding *e, int slice);

/* Lays out the exchange for a batch. sample_at: [ranks+1] first sample of each rank. */
void dlrm_embedding_begin(dlrm_embedding *e, const int64_t *sample_at, int rank);
void dlrm_embedding_lookup(dlrm_backend *be, dlrm_embedding *e, int64_t B, int stage);
/* Tickets of the exchange; with one rank nothing moves. range: of the exchange, for the replicated tables' gradients. */
int dlrm_embedding_exchange(dlrm_embedding *e, dlrm_exchange *x); /* pooled -> received */
int dlrm_embedding_exchange_gradients(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int range, int stage);
/* When the exchange of gradients has finished. stage: in which the batch's rows were sorted; step: from 1, for random
 * roundings. */
void dlrm_embedding_update(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int64_t B, int stage, const dlrm_rule *rule,
                           int64_t step);
/* Fills slots[1 … n_inputs]: where each input's vectors of the own samples lie, and their gradients go. */
void dlrm_embedding_slots(const dlrm_embedding *e, dlrm_vector_slot *slots);
