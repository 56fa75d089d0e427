/* The step's collectives over NCCL, on the queue beside the compute queue: a collective starts when what is
 * before it on that queue has run, and finish makes the queue wait for it. Sums of gradients follow the tree of
 * base/tree.h, as on CPU: each rank gets its segment of all ranks' partial sums, adds them in tree order, and sends the
 * total to all. A thread watches for errors and for collectives that do not end. */
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cuda_internal.h"
#include "engine.h"

enum { TICKETS = 32 };

typedef struct nccl_exchange {
    dlrm_backend *be;
    ncclComm_t comm;
    cudaStream_t stream; /* the backend's */
    cudaEvent_t done[2 * TICKETS]; /* ticket t: done[t % TICKETS]; the upper half: in steps that are being recorded */
    _Atomic double since[TICKETS];
    int recorded;
    _Atomic int64_t started;
    int n_ranges, n_nodes; /* nodes: of this rank */
    dlrm_range range[DLRM_MAX_RANGES];
    dlrm_reduce layout[DLRM_MAX_RANGES];
    cuda_peers *peers; /* NULL: no memory is shared */
    bool asked;        /* whether it can be */
    float *received; /* [nodes of all ranks][this rank's longest segment] */
    double timeout_s;
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock;
    pthread_cond_t stop_signal;
    bool stop;
} nccl_exchange;

static void must(const nccl_exchange *n, ncclResult_t code, const char *what)
{
    if (code != ncclSuccess && code != ncclInProgress) cuda_die(cuda_of(n->be), what, ncclGetErrorString(code));
}

static void cuda(const nccl_exchange *n, cudaError_t code, const char *what)
{
    cuda_must(cuda_of(n->be), code, what);
}

/* --- watching --- */

static void give_up(nccl_exchange *n, dlrm_comm *comm, const char *why)
{
    dlrm_comm_last_words(comm, why);
    cuda_peers_stop(n->peers);
    ncclCommAbort(n->comm);
    _exit(DLRM_E_RUNTIME);
}

static void check_health(nccl_exchange *n, dlrm_comm *comm)
{
    ncclResult_t error = ncclSuccess;
    char text[400];
    if (ncclCommGetAsyncError(n->comm, &error) == ncclSuccess && error != ncclSuccess && error != ncclInProgress) {
        snprintf(text, sizeof text, "NCCL: %s (%s); another rank has stopped or died", ncclGetErrorString(error),
                 ncclGetLastError(n->comm));
        give_up(n, comm, text);
    }
    int64_t last = n->started;
    for (int64_t t = last > TICKETS / 2 ? last - TICKETS / 2 : 0; t < last; t++) {
        double waited = dlrm_now() - n->since[t % TICKETS];
        if (waited < n->timeout_s || cudaEventQuery(n->done[t % TICKETS]) != cudaErrorNotReady) continue;
        snprintf(text, sizeof text, "an exchange between GPUs has waited longer than parallel.timeout_s (%g s); another rank has "
                 "stopped or died", n->timeout_s);
        give_up(n, comm, text);
    }
}

static void *watch(void *arg)
{
    dlrm_exchange *x = arg;
    nccl_exchange *n = x->impl;
    cudaSetDevice(cuda_of(n->be)->device);
    double awake = dlrm_now();
    pthread_mutex_lock(&n->lock);
    while (!n->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200 * 1000 * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&n->stop_signal, &n->lock, &until);
        const double slept = dlrm_now() - awake;
        if (slept > 1 && slept > n->timeout_s / 2) /* this rank stood still itself, maybe the whole job */
            for (int t = 0; t < TICKETS; t++) n->since[t] = dlrm_now();
        awake = dlrm_now();
        if (!n->stop) check_health(n, x->comm);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* --- collectives --- */

/* From now on the watch awaits what the stream has got so far. */
static int start_watch(nccl_exchange *n, cudaStream_t stream)
{
    int64_t t = n->started;
    cuda(n, cudaEventRecord(n->done[t % TICKETS], stream), "an event");
    n->since[t % TICKETS] = dlrm_now();
    n->started = t + 1;
    return (int)(t % TICKETS);
}

/* An event in a recording is no more than an order of things in it, and may not be asked about. */
static int end(nccl_exchange *n)
{
    if (!cuda_of(n->be)->recording) return start_watch(n, n->stream);
    const int ticket = TICKETS + n->recorded++ % TICKETS;
    cuda(n, cudaEventRecord(n->done[ticket], n->stream), "an event");
    return ticket;
}

static void copy(nccl_exchange *n, void *to, const void *from, int64_t bytes)
{
    if (bytes > 0) cuda(n, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, n->stream), "an exchange");
}

static void send_to(nccl_exchange *n, const void *p, int64_t bytes, int peer)
{
    if (bytes > 0) must(n, ncclSend(p, (size_t)bytes, ncclChar, peer, n->comm, n->stream), "an exchange");
}

static void receive_from(nccl_exchange *n, void *p, int64_t bytes, int peer)
{
    if (bytes > 0) must(n, ncclRecv(p, (size_t)bytes, ncclChar, peer, n->comm, n->stream), "an exchange");
}

static int nccl_blocks_start(dlrm_exchange *x, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    nccl_exchange *n = x->impl;
    const int R = x->comm->ranks, me = x->comm->rank;
    cuda_fork(cuda_of(n->be));
    copy(n, (char *)recv + recv_at[me], (const char *)send + send_at[me], send_at[me + 1] - send_at[me]);
    must(n, ncclGroupStart(), "an exchange");
    for (int k = 1; k < R; k++) {
        int source = (me - k + R) % R, target = (me + k) % R;
        receive_from(n, (char *)recv + recv_at[source], recv_at[source + 1] - recv_at[source], source);
        send_to(n, (const char *)send + send_at[target], send_at[target + 1] - send_at[target], target);
    }
    must(n, ncclGroupEnd(), "an exchange");
    x->comm->bytes_sent += send_at[R] - (send_at[me + 1] - send_at[me]);
    return end(n);
}

static int nccl_gather_start(dlrm_exchange *x, void *blocks, const int64_t *at)
{
    nccl_exchange *n = x->impl;
    const int R = x->comm->ranks, me = x->comm->rank;
    char *base = blocks;
    cuda_fork(cuda_of(n->be));
    must(n, ncclGroupStart(), "an exchange");
    for (int k = 1; k < R; k++) {
        int source = (me - k + R) % R, target = (me + k) % R;
        receive_from(n, base + at[source], at[source + 1] - at[source], source);
        send_to(n, base + at[me], at[me + 1] - at[me], target);
    }
    must(n, ncclGroupEnd(), "an exchange");
    x->comm->bytes_sent += (at[me + 1] - at[me]) * (R - 1);
    return end(n);
}

static dlrm_status nccl_share(dlrm_exchange *x, int64_t bytes, const char *what, void **blocks)
{
    nccl_exchange *n = x->impl;
    if (!n->asked) TRY(cuda_peers_open(n->be, x->comm, &n->peers));
    n->asked = true;
    if (n->peers) return cuda_peers_share(n->peers, bytes, what, blocks);
    for (int p = 0; p < x->comm->ranks; p++) blocks[p] = NULL;
    return DLRM_OK;
}

static int nccl_meet_start(dlrm_exchange *x, int64_t bytes)
{
    nccl_exchange *n = x->impl;
    cuda_fork(cuda_of(n->be));
    cuda_peers_meet(n->peers);
    x->comm->bytes_sent += bytes;
    return end(n);
}

static int64_t segment(const dlrm_reduce *r, int rank)
{
    return r->segment[rank + 1] - r->segment[rank];
}

static int nccl_reduce_start(dlrm_exchange *x, int range, float *nodes)
{
    nccl_exchange *n = x->impl;
    const dlrm_reduce *r = &n->layout[range];
    const int R = x->comm->ranks, me = x->comm->rank, mine = n->n_nodes, all = r->first_node[R];
    const int64_t length = segment(r, me), bytes = sizeof(float);
    const int64_t stride = n->range[range].stride;
    float *base = nodes + n->range[range].from;
    cuda_fork(cuda_of(n->be));
    for (int i = 0; i < mine; i++)
        copy(n, n->received + (r->first_node[me] + i) * length, base + i * stride + r->segment[me], length * bytes);
    must(n, ncclGroupStart(), "a sum of gradients");
    for (int k = 1; k < R; k++) {
        int source = (me - k + R) % R, target = (me + k) % R;
        for (int i = r->first_node[source]; i < r->first_node[source + 1]; i++)
            receive_from(n, n->received + i * length, length * bytes, source);
        for (int i = 0; i < mine; i++) send_to(n, base + i * stride + r->segment[target], segment(r, target) * bytes, target);
    }
    must(n, ncclGroupEnd(), "a sum of gradients");
    if (length > 0) cuda(n, dlrm_cuda_tree_sum(n->received, length, length, all, r->levels, n->stream), "a sum of gradients");
    copy(n, base + r->segment[me], n->received, length * bytes);
    must(n, ncclGroupStart(), "a sum of gradients");
    for (int k = 1; k < R; k++) {
        int source = (me - k + R) % R, target = (me + k) % R;
        receive_from(n, base + r->segment[source], segment(r, source) * bytes, source);
        send_to(n, base + r->segment[me], length * bytes, target);
    }
    must(n, ncclGroupEnd(), "a sum of gradients");
    x->comm->bytes_sent += dlrm_reduce_bytes(r, me, R);
    return end(n);
}

static void nccl_finish(dlrm_exchange *x, int ticket)
{
    nccl_exchange *n = x->impl;
    cuda(n, cudaStreamWaitEvent(cuda_of(n->be)->compute.stream, n->done[ticket], 0), "an event");
}

static void nccl_recorded_ran(dlrm_exchange *x)
{
    nccl_exchange *n = x->impl;
    start_watch(n, cuda_of(n->be)->compute.stream);
}

/* --- one rank: nothing moves --- */

static int alone_blocks_start(dlrm_exchange *x, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    (void)x, (void)send, (void)send_at, (void)recv, (void)recv_at;
    return 0;
}

static int alone_gather_start(dlrm_exchange *x, void *blocks, const int64_t *at)
{
    (void)x, (void)blocks, (void)at;
    return 0;
}

static int alone_reduce_start(dlrm_exchange *x, int range, float *nodes)
{
    (void)x, (void)range, (void)nodes;
    return 0;
}

static void alone_finish(dlrm_exchange *x, int ticket)
{
    (void)x, (void)ticket;
}

static void alone_recorded_ran(dlrm_exchange *x)
{
    (void)x;
}

static void alone_close(dlrm_exchange *x)
{
    (void)x;
}

static const dlrm_exchange_ops alone_ops = {
    .name = "none",
    .blocks_start = alone_blocks_start,
    .gather_start = alone_gather_start,
    .reduce_start = alone_reduce_start,
    .finish = alone_finish,
    .recorded_ran = alone_recorded_ran,
    .close = alone_close,
};

/* --- opening and closing --- */

static void nccl_close(dlrm_exchange *x)
{
    nccl_exchange *n = x->impl;
    if (!n) return;
    if (n->thread_runs) {
        pthread_mutex_lock(&n->lock);
        n->stop = true;
        pthread_cond_signal(&n->stop_signal);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->thread, NULL);
    }
    if (n->stream) cudaStreamSynchronize(n->stream);
    cuda_steps_forget(cuda_of(n->be)); /* a communicator lives on while recordings have its collectives */
    if (n->comm) ncclCommDestroy(n->comm);
    for (int i = 0; i < 2 * TICKETS; i++)
        if (n->done[i]) cudaEventDestroy(n->done[i]);
    cuda_peers_close(&n->peers);
    cuda_release(n->be, &n->received);
    for (int k = 0; k < n->n_ranges; k++) dlrm_reduce_close(&n->layout[k]);
    dlrm_free(&x->impl);
}

static const dlrm_exchange_ops nccl_ops = {
    .name = "nccl",
    .beside = true,
    .blocks_start = nccl_blocks_start,
    .gather_start = nccl_gather_start,
    .share = nccl_share,
    .meet_start = nccl_meet_start,
    .reduce_start = nccl_reduce_start,
    .finish = nccl_finish,
    .recorded_ran = nccl_recorded_ran,
    .close = nccl_close,
};

static dlrm_status open_layouts(nccl_exchange *n, const dlrm_exchange_args *a)
{
    int64_t longest = 0;
    for (; n->n_ranges < a->n_ranges; n->n_ranges++) {
        const int k = n->n_ranges;
        dlrm_reduce *r = &n->layout[k];
        n->range[k] = a->range[k];
        TRY(dlrm_reduce_layout(a->comm->ranks, a->range[k].n, a->deterministic, a->chunks, r));
        if (segment(r, a->comm->rank) > longest) longest = segment(r, a->comm->rank);
    }
    const int *first = n->layout[0].first_node;
    n->n_nodes = first[a->comm->rank + 1] - first[a->comm->rank];
    return cuda_alloc(a->be, first[a->comm->ranks] * longest, sizeof(float), "gradients of all ranks", &n->received);
}

static dlrm_status open_events(nccl_exchange *n)
{
    cudaError_t code = cudaSuccess;
    n->stream = cuda_of(n->be)->beside.stream;
    for (int i = 0; i < 2 * TICKETS && code == cudaSuccess; i++) code = cudaEventCreateWithFlags(&n->done[i], cudaEventDisableTiming);
    return code == cudaSuccess ? DLRM_OK : FAIL(DLRM_E_RUNTIME, "GPU %d: %s", cuda_of(n->be)->device, cudaGetErrorString(code));
}

dlrm_status dlrm_nccl_exchange_open(const dlrm_exchange_args *a, dlrm_exchange *out)
{
    *out = (dlrm_exchange){.ops = &alone_ops, .comm = a->comm};
    if (a->comm->ranks == 1) return DLRM_OK;
    out->ops = &nccl_ops;
    TRY(dlrm_alloc(1, sizeof(nccl_exchange), "exchange", &out->impl));
    nccl_exchange *n = out->impl;
    ncclUniqueId id;
    n->be = a->be;
    n->timeout_s = a->timeout_s;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->stop_signal, NULL);
    dlrm_status mine = open_layouts(n, a);
    if (mine == DLRM_OK) mine = open_events(n);
    if (mine == DLRM_OK && a->comm->rank == 0 && ncclGetUniqueId(&id) != ncclSuccess)
        mine = FAIL(DLRM_E_RUNTIME, "NCCL: no id for this job: %s", ncclGetLastError(NULL));
    TRY(dlrm_comm_agree(a->comm, mine)); /* all go on, or none */
    dlrm_comm_bcast(a->comm, &id, sizeof id, 0);
    ncclResult_t code = ncclCommInitRank(&n->comm, a->comm->ranks, id, a->comm->rank);
    if (code != ncclSuccess)
        return FAIL(DLRM_E_RUNTIME, "GPU %d: NCCL cannot start: %s (%s)", cuda_of(a->be)->device, ncclGetErrorString(code), ncclGetLastError(NULL));
    if (pthread_create(&n->thread, NULL, watch, out) != 0) return FAIL(DLRM_E_RUNTIME, "cannot start the thread that watches NCCL");
    n->thread_runs = true;
    return DLRM_OK;
}
