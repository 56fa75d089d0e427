/* The step's collectives over MPI, and memory that the ranks of one host share. */
#include "comm/exchange.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "comm/shared.h"

typedef struct mpi_exchange {
    dlrm_shared shared;
    int n_ranges;
    int64_t from[DLRM_MAX_RANGES];
    dlrm_reduce reduce[DLRM_MAX_RANGES];
} mpi_exchange;

static int mpi_blocks_start(dlrm_exchange *x, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    dlrm_comm_alltoallv(x->comm, send, send_at, recv, recv_at);
    return 0;
}

static int mpi_gather_start(dlrm_exchange *x, void *blocks, const int64_t *at)
{
    dlrm_comm_allgatherv(x->comm, blocks, at);
    return 0;
}

static dlrm_status mpi_share(dlrm_exchange *x, int64_t bytes, const char *what, void **blocks)
{
    mpi_exchange *m = x->impl;
    dlrm_shared *s = &m->shared;
    (void)what;
    TRY(dlrm_shared_open(x->comm, bytes, s));
    for (int p = 0; p < x->comm->ranks; p++) blocks[p] = s->blocks ? s->blocks[p] : NULL;
    return DLRM_OK;
}

static int mpi_meet_start(dlrm_exchange *x, int64_t bytes)
{
    atomic_thread_fence(memory_order_seq_cst);
    dlrm_comm_barrier(x->comm);
    atomic_thread_fence(memory_order_seq_cst);
    x->comm->bytes_sent += bytes;
    return 0;
}

static int mpi_reduce_start(dlrm_exchange *x, int range, float *nodes)
{
    mpi_exchange *m = x->impl;
    dlrm_reduce_run(&m->reduce[range], x->comm, nodes + m->from[range]);
    return 0;
}

static void mpi_finish(dlrm_exchange *x, int ticket)
{
    (void)x, (void)ticket;
}

static void mpi_recorded_ran(dlrm_exchange *x)
{
    (void)x;
}

static void mpi_close(dlrm_exchange *x)
{
    mpi_exchange *m = x->impl;
    if (m) dlrm_shared_close(&m->shared);
    for (int k = 0; m && k < m->n_ranges; k++) dlrm_reduce_close(&m->reduce[k]);
    dlrm_free(&x->impl);
}

static const dlrm_exchange_ops mpi_ops = {
    .name = "mpi",
    .blocks_start = mpi_blocks_start,
    .gather_start = mpi_gather_start,
    .share = mpi_share,
    .meet_start = mpi_meet_start,
    .reduce_start = mpi_reduce_start,
    .finish = mpi_finish,
    .recorded_ran = mpi_recorded_ran,
    .close = mpi_close,
};

dlrm_status dlrm_mpi_exchange_open(const dlrm_exchange_args *a, dlrm_exchange *out)
{
    *out = (dlrm_exchange){.ops = &mpi_ops, .comm = a->comm};
    TRY(dlrm_alloc(1, sizeof(mpi_exchange), "exchange", &out->impl));
    mpi_exchange *m = out->impl;
    for (; m->n_ranges < a->n_ranges; m->n_ranges++) {
        const int k = m->n_ranges;
        m->from[k] = a->range[k].from;
        TRY(dlrm_reduce_open(a->comm, a->range[k].n, a->deterministic, a->chunks, &m->reduce[k]));
        m->reduce[k].stride = a->range[k].stride;
    }
    return DLRM_OK;
}
