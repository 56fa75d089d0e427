/* Rows of tables cut by columns, under an optimizer that keeps one value for a whole row (rowwise_adagrad): each owner of columns
 * keeps that value, and the mean square of the row's gradient is over all columns. So before the update each owner of a table
 * sends the others its columns' sums of squares, row by row. All have the same ids in the same sorted order, so a row's place is
 * that of its first id there, and nothing but the sums travels. They are of base/squares.h, so that every owner, and an owner of
 * the whole table in deterministic mode, gets the same total. */
#pragma once
#include "backend/backend.h"
#include "comm/exchange.h"
#include "config/config.h"
#include "model/placement.h"

typedef struct dlrm_shared_rows {
    bool any;             /* does some rank share rows? Then all take part in the exchange */
    int64_t *peer_at;     /* what the shard's tables point into */
    int64_t *block_at;    /* [ranks+1]: each rank's places, per sample */
    int64_t *bytes_at;    /* the same of the batch at hand */
    dlrm_squares *own, *peers; /* backend memory: what is sent, and received */
} dlrm_shared_rows;

/* Before anything is opened: sums that a rank sends, and receives, at most, for each sample of the global batch. */
int64_t dlrm_shared_rows_places(const dlrm_model_spec *spec, const dlrm_placement *place, const dlrm_optimizer_config *opt, int rank);
/* Sets the peers of the shard's tables. slices: [shard->n_tables] their numbers in the placement. */
dlrm_status dlrm_shared_rows_open(dlrm_backend *be, const dlrm_model_spec *spec, const dlrm_placement *place,
                                  const dlrm_optimizer_config *opt, int rank, dlrm_shard *shard, const int *slices,
                                  dlrm_shared_rows *out) DLRM_MUST_USE;
void dlrm_shared_rows_close(dlrm_backend *be, dlrm_shared_rows *s);
/* Makes the sums and exchanges them, for this update. Collective. */
void dlrm_shared_rows_exchange(dlrm_backend *be, dlrm_shared_rows *s, dlrm_exchange *x, dlrm_update_args *a);
