/* Tables that lie on every rank: each rank looks up its own samples alone, so that no vector travels. What travels is
 * what an update needs to be the same everywhere:
 *  - by default, the gradient of every row, summed over the rank's samples, and then over ranks as the MLPs' gradients
 *    are. Where a rule changes rows that have a gradient of 0, a mark tells whether a row was listed at all: a column of
 *    ones behind each vector's gradients, summed with them.
 *  - in deterministic mode, the vectors' gradients themselves. Every rank gets those of the whole batch and makes the
 *    update that a single owner of the table would make, whose order of sums does not depend on the number of ranks. */
#pragma once
#include "comm/exchange.h"
#include "model/tables.h"

typedef struct dlrm_replicated {
    dlrm_tables tables;
    bool gathers;            /* deterministic mode */
    bool marked;
    size_t value_bytes;      /* of an element of a vector */
    void *pooled;            /* [own, W] */
    void *d_pooled;          /* [own, d_width], or [B, W] where it gathers */
    int64_t d_width;
    dlrm_shard sums;         /* by default: tables whose rows are gradients, one after the other in memory */
    float *values;
    int64_t n_values;        /* to be reduced over ranks; 0 where it gathers */
    dlrm_bags *own_bags;     /* [shard inputs] of the batch at hand: the own samples' */
    int64_t *gather_at;      /* [ranks+1], bytes */
    int64_t B, begin, own;   /* of the batch at hand */
    int ticket;
} dlrm_replicated;

/* Before anything is opened: the width of a row of gradients, and values to be reduced. */
void dlrm_replicated_measure(const dlrm_model_spec *spec, const dlrm_placement *place, const dlrm_optimizer_config *opt,
                             bool deterministic, int64_t *d_width, int64_t *n_values);
dlrm_status dlrm_replicated_open(dlrm_backend *be, const dlrm_model_spec *spec, const dlrm_placement *place,
                                 const dlrm_config *cfg, int64_t max_batch, int64_t max_own, dlrm_replicated *out) DLRM_MUST_USE;
void dlrm_replicated_close(dlrm_backend *be, dlrm_replicated *r);
/* Takes the ids of a batch into a stage; sorts them if an update will follow. */
void dlrm_replicated_feed(dlrm_backend *be, dlrm_replicated *r, int stage, const dlrm_batch *batch, bool train);
/* sample_at: [ranks+1] first sample of each rank. */
void dlrm_replicated_begin(dlrm_replicated *r, const int64_t *sample_at, int rank, int ranks);
void dlrm_replicated_lookup(dlrm_backend *be, dlrm_replicated *r, int stage);
/* Where a vector of an input lies, and its gradients go; i: number of a shard input. */
dlrm_vector_slot dlrm_replicated_slot(const dlrm_replicated *r, int i, int vector);
/* Of the own samples: [own, d_width]. */
const void *dlrm_replicated_gradients(const dlrm_replicated *r);
/* After the vectors' gradients are there. range: of the exchange, for n_values. */
void dlrm_replicated_exchange(dlrm_backend *be, dlrm_replicated *r, dlrm_exchange *x, int range, int stage);
void dlrm_replicated_update(dlrm_backend *be, dlrm_replicated *r, dlrm_exchange *x, int stage, const dlrm_rule *rule,
                            int64_t step);
