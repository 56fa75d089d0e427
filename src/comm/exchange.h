/* The collectives of a training step over a backend's memory: blocks of vectors to and from all ranks, and the sums of
 * the replicated parameters' gradients. start is called when what is sent has been computed (or queued); the transport
 * may return at once and work beside the ops that follow. finish makes ops called later see the result. */
#pragma once
#include "comm/reduce.h"

typedef struct dlrm_exchange dlrm_exchange;

typedef struct dlrm_exchange_ops {
    const char *name;
    bool beside; /* what start starts runs beside the ops that follow; else it has run when start returns */
    /* Blocks by rank as dlrm_comm_alltoallv: offsets in bytes, [ranks+1], host. Returns a ticket for finish. */
    int (*blocks_start)(dlrm_exchange *, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at);
    /* In place: everyone's block goes to all. Returns a ticket. */
    int (*gather_start)(dlrm_exchange *, void *blocks, const int64_t *at);
    /* Memory that all ranks' ops may write into: blocks[p] is rank p's, of `bytes` bytes that may differ by rank, as seen from here;
     * zeroed, freed by close. Where the ranks' devices cannot reach each other blocks are NULL, on every rank. Once, and with several
     * ranks. Collective. */
    dlrm_status (*share)(dlrm_exchange *, int64_t bytes, const char *what, void **blocks);
    /* What each rank's ops up to here, those beside the queue included, have written into shared memory is there; `bytes` of it have
     * left this rank. Returns a ticket. */
    int (*meet_start)(dlrm_exchange *, int64_t bytes);
    /* One of the ranges given at opening; nodes: [this rank's nodes][stride], the total ends in node 0. Returns a ticket. */
    int (*reduce_start)(dlrm_exchange *, int range, float *nodes);
    void (*finish)(dlrm_exchange *, int ticket);
    /* The backend has just run a step that it recorded, collectives included: to be watched like one of them. */
    void (*recorded_ran)(dlrm_exchange *);
    void (*close)(dlrm_exchange *);
} dlrm_exchange_ops;

struct dlrm_exchange {
    const dlrm_exchange_ops *ops;
    dlrm_comm *comm;
    void *impl;
};

enum { DLRM_MAX_RANGES = 3 };

/* Elements [from, from+n) of a node's gradients, which are reduced apart. */
typedef struct dlrm_range {
    int64_t from, n;
    int64_t stride; /* elements from one node to the next */
} dlrm_range;

typedef struct dlrm_exchange_args {
    struct dlrm_backend *be; /* whose memory this is */
    dlrm_comm *comm;
    int n_ranges;
    dlrm_range range[DLRM_MAX_RANGES];
    bool deterministic;
    int chunks;
    double timeout_s; /* a collective that takes longer ends the job */
} dlrm_exchange_args;

/* Over MPI and shared memory, for host memory: all done in start. */
dlrm_status dlrm_mpi_exchange_open(const dlrm_exchange_args *args, dlrm_exchange *out) DLRM_MUST_USE;
