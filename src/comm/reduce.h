/* Gradients of replicated parameters, summed over ranks in the order of the tree (base/tree.h), never by a float
 * all-reduce: each rank gets its segment of every rank's partial sums, adds them in tree order, and sends the total to
 * all. The same bits on every rank and, in deterministic mode, for any number of ranks. */
#pragma once
#include "base/tree.h"
#include "comm/comm.h"

typedef struct dlrm_reduce {
    int64_t n;      /* elements */
    int64_t stride; /* from one node to the next in dlrm_reduce_run; n unless changed after opening */
    int *first_node, *levels; /* node numbers by rank [ranks+1]; level of each node of all ranks */
    int64_t *segment, *send_at, *recv_at; /* [ranks+1] */
    float *send, *recv;
    double *sums; /* [nodes of all ranks] */
} dlrm_reduce;

/* The arithmetic alone: enough for dlrm_reduce_bytes and dlrm_reduce_fold_f64, for any number of ranks. */
dlrm_status dlrm_reduce_layout(int ranks, int64_t n, bool deterministic, int chunks, dlrm_reduce *out) DLRM_MUST_USE;
dlrm_status dlrm_reduce_open(const dlrm_comm *c, int64_t n, bool deterministic, int chunks, dlrm_reduce *out) DLRM_MUST_USE;
void dlrm_reduce_close(dlrm_reduce *r);
/* nodes: [this rank's nodes], n elements each, `stride` apart; the total ends in nodes[0 … n). */
void dlrm_reduce_run(dlrm_reduce *r, dlrm_comm *c, float *nodes);
/* partial: [ranks][stride] doubles, rank p's nodes at p*stride; returns their total. */
double dlrm_reduce_fold_f64(const dlrm_reduce *r, int ranks, const double *partial, int stride);
/* Bytes that a rank sends per run: for --check. */
int64_t dlrm_reduce_bytes(const dlrm_reduce *r, int rank, int ranks);
