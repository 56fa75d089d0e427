/* MPI behind comm.h: start and end, agreement, small collectives, exchange. The watchdog thread never calls MPI: it
 * prints and leaves, which makes the launcher end the other ranks. */
#include "comm/comm.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

enum { MESSAGE_BYTES = 1 << 30, TAG = 7, BACKGROUND_TAG = 8 };
#define START_TIMEOUT "DLRM_START_TIMEOUT_S"

/* An all-to-all of blocks. */
typedef struct blocks {
    const char *send;
    char *recv;
    const int64_t *send_at, *recv_at;
    int tag;
    MPI_Request *requests; /* [2 * ranks] */
} blocks;

struct dlrm_comm_impl {
    MPI_Comm comm, host; /* all ranks; those on this host */
    MPI_Win host_memory;
    _Atomic(atomic_bool *) spoken; /* in memory that the host's ranks share: has one of them said why the job ends? */
    MPI_Request *requests; /* [2 * ranks], twice */
    blocks background; /* the one in flight */
    int in_flight;     /* its messages */
    bool more;         /* rounds after these */
    int *counts, *at;      /* [ranks]: of allgatherv */
    MPI_Request pulse;
    int64_t pulse_value, pulse_result;
    /* watchdog */
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock;
    pthread_cond_t stop_signal;
    bool stop;
    double timeout_s;
    const char *timeout_name;
    _Atomic(const char *) running; /* the collective, or NULL */
    _Atomic double since;
    _Atomic int rank;
};

static void check(int code, const char *call)
{
    if (code == MPI_SUCCESS) return;
    char why[MPI_MAX_ERROR_STRING] = "", text[MPI_MAX_ERROR_STRING + 200];
    int n = 0;
    MPI_Error_string(code, why, &n);
    snprintf(text, sizeof text, "dlrm-train: %s failed: %s", call, why);
    dlrm_error_line(text);
    MPI_Abort(MPI_COMM_WORLD, DLRM_E_RUNTIME);
    _exit(DLRM_E_RUNTIME);
}

static void enter(dlrm_comm *c, const char *what)
{
    c->impl->since = dlrm_now();
    c->impl->running = what;
}

static void leave(dlrm_comm *c)
{
    c->impl->running = NULL;
}

void dlrm_comm_last_words(dlrm_comm *c, const char *why)
{
    enum { LAUNCHER_ENDS_OTHERS_S = 10 };
    char text[600];
    snprintf(text, sizeof text, "dlrm-train: rank %d: %s", c->impl->rank, why);
    atomic_bool *spoken = c->impl->spoken; /* NULL: before MPI's start is over, and in its end */
    if (!spoken || !atomic_exchange(spoken, true))
        dlrm_error_line(text);
    else
        sleep(LAUNCHER_ENDS_OTHERS_S);
}

static void *watch(void *arg)
{
    dlrm_comm *c = arg;
    struct dlrm_comm_impl *m = c->impl;
    double awake = dlrm_now();
    pthread_mutex_lock(&m->lock);
    while (!m->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200 * 1000 * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&m->stop_signal, &m->lock, &until);
        const char *what = m->running;
        const double slept = dlrm_now() - awake;
        if (slept > 1 && slept > m->timeout_s / 2) m->since = dlrm_now(); /* this rank stood still itself, maybe the whole job */
        awake = dlrm_now();
        /* Ranks that wait for the same silent rank notice together: hosts speak in turn, with time for the launcher to end
         * the job after the first. */
        double turn = m->rank < 30 ? m->rank : 30;
        if (what && dlrm_now() - m->since > m->timeout_s + turn) {
            char why[200];
            snprintf(why, sizeof why, "%s has waited longer than %s (%g s); another rank has stopped or died", what, m->timeout_name,
                     m->timeout_s);
            dlrm_comm_last_words(c, why);
            _exit(DLRM_E_RUNTIME);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* What they tell each process: how many there are, and its number. */
static const char *const launchers[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

/* The launcher's number of this process, before MPI knows it. */
static int launcher_rank(void)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *size = getenv(launchers[i][0]), *number = getenv(launchers[i][1]);
        if (size && number && atoi(size) > 1) return atoi(number);
    }
    return 0;
}

/* A launcher that started several processes which MPI does not see as one job. *rank becomes the launcher's number of this
 * process, so that only its first one speaks. */
static dlrm_status check_launcher(int ranks, int *rank)
{
    for (int i = 0; i < LAUNCHERS && ranks == 1; i++) {
        const char *v = getenv(launchers[i][0]);
        if (v && atoi(v) > 1) {
            *rank = launcher_rank();
            return FAIL(DLRM_E_USAGE,
                        "the launcher started %s processes (%s) but MPI sees one: each would train alone. Start with the "
                        "mpirun of the MPI that dlrm-train was built with",
                        v, launchers[i][0]);
        }
    }
    return DLRM_OK;
}

static void share_host_memory(struct dlrm_comm_impl *m)
{
    MPI_Aint bytes;
    int unit, rank;
    void *at;
    check(MPI_Comm_rank(m->host, &rank), "MPI_Comm_rank");
    check(MPI_Win_allocate_shared(rank == 0 ? sizeof *m->spoken : 0, 1, MPI_INFO_NULL, m->host, &at, &m->host_memory),
          "MPI_Win_allocate_shared");
    check(MPI_Win_shared_query(m->host_memory, 0, &bytes, &unit, &at), "MPI_Win_shared_query");
    m->spoken = at;
    if (rank == 0) atomic_init(m->spoken, false);
    check(MPI_Barrier(m->host), "MPI_Barrier");
}

/* How long ranks are waited for before the config says it. */
static dlrm_status start_timeout(double *seconds)
{
    const char *text = getenv(START_TIMEOUT);
    char *end;
    *seconds = 300;
    if (!text) return DLRM_OK;
    const double v = strtod(text, &end);
    if (!*text || *end || !(v >= 0.001 && v <= 1e9))
        return FAIL(DLRM_E_USAGE, START_TIMEOUT ": found \"%s\", expected a number of seconds from 0.001 to 1e+09", text);
    *seconds = v;
    return DLRM_OK;
}

static dlrm_status start_watchdog(dlrm_comm *c)
{
    struct dlrm_comm_impl *m = c->impl;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->stop_signal, NULL);
    if (pthread_create(&m->thread, NULL, watch, c) != 0) return FAIL(DLRM_E_RUNTIME, "cannot start the watchdog thread");
    m->thread_runs = true;
    return DLRM_OK;
}

static void stop_watchdog(struct dlrm_comm_impl *m)
{
    if (!m->thread_runs) return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->stop_signal);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->thread_runs = false;
}

dlrm_status dlrm_comm_open(int *argc, char ***argv, dlrm_comm *out)
{
    int level;
    *out = (dlrm_comm){0};
    TRY(dlrm_alloc(1, sizeof *out->impl, "communicator", &out->impl));
    struct dlrm_comm_impl *m = out->impl;
    const dlrm_status st = start_timeout(&m->timeout_s);
    m->timeout_name = START_TIMEOUT;
    m->rank = launcher_rank();
    TRY(start_watchdog(out));
    enter(out, "the start of MPI");
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        return FAIL(DLRM_E_RUNTIME, "MPI_Init_thread failed (thread level %d)", level);
    check(MPI_Comm_dup(MPI_COMM_WORLD, &m->comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &m->host), "MPI_Comm_split_type");
    share_host_memory(m);
    MPI_Comm_rank(m->comm, &out->rank);
    MPI_Comm_size(m->comm, &out->ranks);
    leave(out);
    m->rank = out->rank;
    m->pulse = MPI_REQUEST_NULL;
    dlrm_log_init(out->rank);
    TRY(st);
    TRY(check_launcher(out->ranks, &out->rank));
    TRY(dlrm_alloc(4 * out->ranks, sizeof *m->requests, "communicator", &m->requests));
    TRY(dlrm_alloc(out->ranks, sizeof *m->counts, "communicator", &m->counts));
    TRY(dlrm_alloc(out->ranks, sizeof *m->at, "communicator", &m->at));
    return DLRM_OK;
}

void dlrm_comm_set_timeout(dlrm_comm *c, double seconds)
{
    pthread_mutex_lock(&c->impl->lock);
    c->impl->timeout_s = seconds;
    c->impl->timeout_name = "parallel.timeout_s";
    pthread_mutex_unlock(&c->impl->lock);
}

void dlrm_comm_close(dlrm_comm *c)
{
    struct dlrm_comm_impl *m = c->impl;
    int started;
    MPI_Initialized(&started);
    if (started && m) {
        enter(c, "the end of MPI");
        pthread_mutex_lock(&m->lock);
        m->spoken = NULL;
        pthread_mutex_unlock(&m->lock);
        MPI_Win_free(&m->host_memory);
        MPI_Comm_free(&m->host);
        MPI_Comm_free(&m->comm);
    }
    if (started) MPI_Finalize();
    if (!m) return;
    stop_watchdog(m);
    dlrm_free(&m->requests);
    dlrm_free(&m->counts);
    dlrm_free(&m->at);
    dlrm_free(&c->impl);
}

dlrm_status dlrm_comm_agree(dlrm_comm *c, dlrm_status mine)
{
    int64_t worst = mine == DLRM_OK ? 0 : c->ranks - c->rank; /* the lowest failing rank has the largest */
    enter(c, "an agreement");
    check(MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT64_T, MPI_MAX, c->impl->comm), "MPI_Allreduce");
    leave(c);
    if (worst == 0) return DLRM_OK;
    int root = c->ranks - (int)worst;
    struct {
        int code;
        char text[4096];
    } message = {mine, ""};
    if (root == c->rank) snprintf(message.text, sizeof message.text, "%s", dlrm_error_message());
    dlrm_comm_bcast(c, &message, sizeof message, root);
    return FAIL((dlrm_status)message.code, "%s", message.text);
}

int dlrm_comm_local_ranks(dlrm_comm *c)
{
    int n;
    check(MPI_Comm_size(c->impl->host, &n), "MPI_Comm_size");
    return n;
}

int dlrm_comm_local_rank(dlrm_comm *c)
{
    int n;
    check(MPI_Comm_rank(c->impl->host, &n), "MPI_Comm_rank");
    return n;
}

int64_t dlrm_comm_local_sum_i64(dlrm_comm *c, int64_t value)
{
    enter(c, "a sum over a host");
    check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, c->impl->host), "MPI_Allreduce");
    leave(c);
    return value;
}

void dlrm_comm_barrier(dlrm_comm *c)
{
    enter(c, "a barrier");
    check(MPI_Barrier(c->impl->comm), "MPI_Barrier");
    leave(c);
}

void dlrm_comm_bcast(dlrm_comm *c, void *data, int64_t bytes, int root)
{
    enter(c, "a broadcast");
    for (int64_t at = 0; at < bytes; at += MESSAGE_BYTES) {
        int64_t n = bytes - at < MESSAGE_BYTES ? bytes - at : MESSAGE_BYTES;
        check(MPI_Bcast((char *)data + at, (int)n, MPI_BYTE, root, c->impl->comm), "MPI_Bcast");
    }
    leave(c);
}

void dlrm_comm_allgather(dlrm_comm *c, const void *send, int64_t bytes, void *recv)
{
    DLRM_ASSERT(bytes <= INT_MAX);
    enter(c, "an all-gather");
    check(MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, c->impl->comm), "MPI_Allgather");
    leave(c);
}

void dlrm_comm_allgatherv_f32(dlrm_comm *c, float *data, const int64_t *at)
{
    struct dlrm_comm_impl *m = c->impl;
    if (c->ranks == 1) return;
    DLRM_ASSERT(at[c->ranks] <= INT_MAX);
    for (int p = 0; p < c->ranks; p++) {
        m->at[p] = (int)at[p];
        m->counts[p] = (int)(at[p + 1] - at[p]);
    }
    enter(c, "an all-gather of gradients");
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, m->counts, m->at, MPI_FLOAT, m->comm), "MPI_Allgatherv");
    leave(c);
    c->bytes_sent += (int64_t)m->counts[c->rank] * 4 * (c->ranks - 1);
}

void dlrm_comm_sum_i64(dlrm_comm *c, int64_t *values, int64_t n)
{
    DLRM_ASSERT(n <= INT_MAX);
    enter(c, "a sum");
    check(MPI_Allreduce(MPI_IN_PLACE, values, (int)n, MPI_INT64_T, MPI_SUM, c->impl->comm), "MPI_Allreduce");
    leave(c);
}

/* Every pair exchanges directly, in rounds of at most MESSAGE_BYTES a message: starts the round that begins at `done`
 * bytes of each block. send_at NULL: all are sent this rank's block of what is received. *more: it is not the last. Returns
 * the number of messages. */
static int start_round(dlrm_comm *c, const blocks *b, int64_t done, bool *more)
{
    struct dlrm_comm_impl *m = c->impl;
    int n = 0, me = c->rank;
    *more = false;
    for (int k = 1; k < c->ranks; k++) {
        int source = (me - k + c->ranks) % c->ranks, target = (me + k) % c->ranks;
        const int64_t *to = b->send_at ? b->send_at + target : b->recv_at + me;
        int64_t in = b->recv_at[source + 1] - b->recv_at[source] - done, out = to[1] - to[0] - done;
        *more |= in > MESSAGE_BYTES || out > MESSAGE_BYTES;
        if (in > 0)
            check(MPI_Irecv(b->recv + b->recv_at[source] + done, (int)(in < MESSAGE_BYTES ? in : MESSAGE_BYTES), MPI_BYTE, source,
                            b->tag, m->comm, &b->requests[n++]),
                  "MPI_Irecv");
        if (out > 0)
            check(MPI_Isend(b->send + to[0] + done, (int)(out < MESSAGE_BYTES ? out : MESSAGE_BYTES), MPI_BYTE, target,
                            b->tag, m->comm, &b->requests[n++]),
                  "MPI_Isend");
    }
    return n;
}

static void copy_own(dlrm_comm *c, const blocks *b)
{
    int me = c->rank;
    memcpy(b->recv + b->recv_at[me], b->send + b->send_at[me], (size_t)(b->send_at[me + 1] - b->send_at[me]));
    c->bytes_sent += b->send_at[c->ranks] - b->send_at[0] - (b->send_at[me + 1] - b->send_at[me]);
}

/* Ends the round in flight, and makes those after it. */
static void finish_rounds(dlrm_comm *c, const blocks *b, int in_flight, bool more)
{
    for (int64_t done = MESSAGE_BYTES;; done += MESSAGE_BYTES) {
        check(MPI_Waitall(in_flight, b->requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
        if (!more) return;
        in_flight = start_round(c, b, done, &more);
    }
}

static void exchange(dlrm_comm *c, const blocks *b, const char *what)
{
    bool more;
    enter(c, what);
    const int n = start_round(c, b, 0, &more);
    finish_rounds(c, b, n, more);
    leave(c);
}

void dlrm_comm_alltoallv(dlrm_comm *c, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    const blocks b = {send, recv, send_at, recv_at, TAG, c->impl->requests};
    copy_own(c, &b);
    exchange(c, &b, "an exchange");
}

void dlrm_comm_alltoallv_start(dlrm_comm *c, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    struct dlrm_comm_impl *m = c->impl;
    DLRM_ASSERT(!m->background.send_at);
    m->background = (blocks){send, recv, send_at, recv_at, BACKGROUND_TAG, m->requests + 2 * c->ranks};
    copy_own(c, &m->background);
    m->in_flight = start_round(c, &m->background, 0, &m->more);
}

void dlrm_comm_alltoallv_finish(dlrm_comm *c)
{
    struct dlrm_comm_impl *m = c->impl;
    DLRM_ASSERT(m->background.send_at);
    enter(c, "an exchange in the background");
    finish_rounds(c, &m->background, m->in_flight, m->more);
    leave(c);
    m->background = (blocks){0};
}

void dlrm_comm_allgatherv(dlrm_comm *c, void *data, const int64_t *at)
{
    const blocks b = {data, data, NULL, at, TAG, c->impl->requests};
    exchange(c, &b, "an all-gather");
    c->bytes_sent += (at[c->rank + 1] - at[c->rank]) * (c->ranks - 1);
}

void dlrm_comm_pulse_start(dlrm_comm *c, int64_t value)
{
    struct dlrm_comm_impl *m = c->impl;
    m->pulse_value = value;
    check(MPI_Iallreduce(&m->pulse_value, &m->pulse_result, 1, MPI_INT64_T, MPI_MAX, m->comm, &m->pulse), "MPI_Iallreduce");
}

int64_t dlrm_comm_pulse_finish(dlrm_comm *c)
{
    struct dlrm_comm_impl *m = c->impl;
    enter(c, "the step's pulse");
    check(MPI_Wait(&m->pulse, MPI_STATUS_IGNORE), "MPI_Wait");
    leave(c);
    return m->pulse_result;
}

dlrm_status dlrm_comm_work(dlrm_comm *c, dlrm_status (*some)(void *ctx, bool *done), void *ctx)
{
    enum { FINISHED, BUSY, FAILED };
    dlrm_status st = DLRM_OK;
    bool done = false;
    int64_t worst = BUSY;
    while (worst == BUSY) {
        if (!done) st = some(ctx, &done);
        dlrm_comm_pulse_start(c, st != DLRM_OK ? FAILED : done ? FINISHED : BUSY);
        worst = dlrm_comm_pulse_finish(c);
    }
    return worst == FINISHED ? DLRM_OK : dlrm_comm_agree(c, st);
}
