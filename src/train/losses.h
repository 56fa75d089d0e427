/* Losses of steps, kept per rank and joined now and then. add() notes this rank's partial sums of a step; flush()
 * (collective) returns each noted step's mean loss over the global batch, summed in the order of the tree. */
#pragma once
#include "backend/backend.h"
#include "comm/reduce.h"

typedef struct dlrm_losses {
    dlrm_backend *be;
    int capacity, n;
    double *noted; /* [capacity][DLRM_MAX_NODES], backend memory */
    int flushed;        /* steps of the last flush */
    double *mine, *all; /* [capacity][DLRM_MAX_NODES], [ranks] of those */
    int64_t *samples;   /* [capacity] */
    double *mean;       /* [capacity]: what flush leaves */
} dlrm_losses;

dlrm_status dlrm_losses_open(const dlrm_comm *c, dlrm_backend *be, int capacity, dlrm_losses *out) DLRM_MUST_USE;
void dlrm_losses_close(dlrm_losses *l);
bool dlrm_losses_full(const dlrm_losses *l);
/* Where the next step's partial sums go (at most DLRM_MAX_NODES), backend memory. B: samples of the global batch. */
double *dlrm_losses_add(dlrm_losses *l, int64_t B);
/* Returns how many steps were noted; l->mean and l->samples hold them until the next add. */
int dlrm_losses_flush(dlrm_losses *l, dlrm_comm *c, const dlrm_reduce *r);
/* After flush: the lowest rank whose own samples gave no finite loss in the i-th of the noted steps; -1: none did. */
int dlrm_losses_culprit(const dlrm_losses *l, const dlrm_reduce *r, int ranks, int i);
