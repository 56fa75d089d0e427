/* Collectives on host memory over MPI. Every function is collective over all ranks unless said otherwise. A failing MPI
 * call ends the job (nothing sensible can follow). Counts are 64-bit; calls that exceed MPI's int are cut up. While a
 * collective runs, or MPI starts or ends, a watchdog thread counts: beyond a timeout it prints which one, on which rank, and ends
 * the job. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlrm_comm {
    int rank, ranks;
    struct dlrm_comm_impl *impl;
    int64_t bytes_sent; /* by this rank to other ranks in exchanges and reductions (not control messages) */
} dlrm_comm;

/* Starts MPI. The timeout is $DLRM_START_TIMEOUT_S, or 300 s, until it is set. DLRM_E_USAGE: that is no number; or the launcher
 * announces several ranks (OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_STEP_NUM_TASKS) but MPI sees one. */
dlrm_status dlrm_comm_open(int *argc, char ***argv, dlrm_comm *out) DLRM_MUST_USE;
void dlrm_comm_set_timeout(dlrm_comm *c, double seconds);
void dlrm_comm_close(dlrm_comm *c);
/* From any thread: says why this rank leaves, which makes the launcher end the others. If another rank on this host has said
 * so already it says nothing, and gives the launcher time. The caller then leaves. */
void dlrm_comm_last_words(dlrm_comm *c, const char *why);

/* All ranks leave by the same door: DLRM_OK if all were; else every rank returns the code of the lowest failing rank and
 * has its message in the error slot. */
dlrm_status dlrm_comm_agree(dlrm_comm *c, dlrm_status mine) DLRM_MUST_USE;

/* Ranks on this host, this one's number among them, and a sum over them. */
int dlrm_comm_local_ranks(dlrm_comm *c);
int dlrm_comm_local_rank(dlrm_comm *c);
int64_t dlrm_comm_local_sum_i64(dlrm_comm *c, int64_t value);

void dlrm_comm_barrier(dlrm_comm *c);
void dlrm_comm_bcast(dlrm_comm *c, void *data, int64_t bytes, int root);
/* recv [ranks][bytes]. */
void dlrm_comm_allgather(dlrm_comm *c, const void *send, int64_t bytes, void *recv);
void dlrm_comm_sum_i64(dlrm_comm *c, int64_t *values, int64_t n); /* in place */
/* Blocks by rank: block p of send is bytes [send_at[p], send_at[p+1]), offsets have ranks+1 entries. */
void dlrm_comm_alltoallv(dlrm_comm *c, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at);
/* The same, started now and finished later; other calls may come in between, changes to the memory may not. One in
 * flight. */
void dlrm_comm_alltoallv_start(dlrm_comm *c, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at);
void dlrm_comm_alltoallv_finish(dlrm_comm *c);
/* In place: rank p's bytes, or elements, [at[p], at[p+1]) go to everyone. */
void dlrm_comm_allgatherv(dlrm_comm *c, void *data, const int64_t *at);
void dlrm_comm_allgatherv_f32(dlrm_comm *c, float *data, const int64_t *at);
/* The per-step pulse: a small maximum started now, finished later, overlapping the step. One in flight. */
void dlrm_comm_pulse_start(dlrm_comm *c, int64_t value);
int64_t dlrm_comm_pulse_finish(dlrm_comm *c); /* the largest value */

/* Long work that takes the ranks differently long: every rank calls some(ctx, &done), for about DLRM_WORK_S each time, until it
 * says done or fails, and ranks that are done wait for the others. They meet after each call, so that one that hangs is
 * noticed within the timeout, and one that has more to do is not taken for it. Ends as dlrm_comm_agree. */
#define DLRM_WORK_S 0.5
dlrm_status dlrm_comm_work(dlrm_comm *c, dlrm_status (*some)(void *ctx, bool *done), void *ctx) DLRM_MUST_USE;
