/* What each rank will hold, read and send: arithmetic from config, data and placement, before anything is allocated.
 * --check prints it, the start event carries it, and the end event shows what it was. */
#pragma once
#include "train/session.h"

typedef struct dlrm_work {
    int tables, inputs;
    double tables_ms;     /* of a step: what the cost model expects lookup, exchange and update to take */
    int64_t samples;      /* of the whole run */
    int64_t table_bytes;  /* embedding weights */
    int64_t state_bytes;  /* optimizer state of tables and MLPs */
    int64_t memory_bytes; /* weights, state, activations, exchange, batches read ahead, evaluation; not the few MiB beside them */
    int64_t file_bytes;   /* read in the whole run, evaluations included */
    int64_t sent_bytes;   /* per training step, to other ranks: the mean of the run */
} dlrm_work;

/* The work of any rank; every rank can compute everybody's. */
dlrm_status dlrm_work_of(const dlrm_session *s, int rank, dlrm_work *out) DLRM_MUST_USE;
/* Bytes of a slice of a table: its weights and their optimizer state. */
void dlrm_work_slice(const dlrm_config *cfg, const dlrm_slice *slice, int64_t *weights, int64_t *state);
/* --check: model, placement and the work of each rank, on stdout. */
dlrm_status dlrm_work_print(const dlrm_session *s) DLRM_MUST_USE;
