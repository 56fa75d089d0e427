#include "checkpoint/save.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/same_folder.h"

static const double SNAPSHOT_SHARE = 0.75 /* of the memory that the host has left */;

struct dlrm_saver {
    dlrm_saver_args args;
    dlrm_model *model;
    dlrm_comm *comm;
    int64_t serial;
    dlrm_piece_file *file;
    int64_t all_bytes; /* of all ranks' files */
    char *snapshot;    /* this rank's pieces, or NULL */
    bool pinned;       /* it is page-locked */
    char *chunk;       /* [DLRM_PIECE_CHUNK, or the longest row] */
    int64_t chunk_bytes;
    dlrm_piece_file_facts *facts; /* [ranks] */

    /* of the save under way */
    bool under_way;
    json_t *run;
    dlrm_manifest manifest;
    dlrm_save_result result;
    double started_at, stall;
    char path[PATH_MAX]; /* of this rank's file */

    /* rank 0: older checkpoints' files are removed beside the training */
    bool sweeping;
    pthread_t sweeper;
    dlrm_status swept;
    char why_not[1200];

    /* what the writing came to; the thread's until it is joined, but for the atomics */
    bool threaded, lost;
    pthread_t thread;
    atomic_bool done;
    _Atomic int64_t progress; /* counts what was written, to notice a disk that hangs */
    dlrm_status status;
    bool created, finite;
    char message[1200], not_finite[400];
};

/* --- opening --- */

/* Rank 0's part. */
static dlrm_status take_folder(dlrm_saver *s)
{
    char removed[600], damaged[600];
    int n;
    dlrm_checkpoint_entry *list;
    const char *path = s->args.path;
    TRY(dlrm_checkpoints_clean(path, removed, sizeof removed));
    if (removed[0]) dlrm_info("%s: removed what a killed run left: %s", path, removed);
    TRY(dlrm_checkpoints_list(path, damaged, sizeof damaged, &list, &n));
    if (damaged[0]) dlrm_warn("%s: damaged, so neither to be resumed nor removed when its turn comes: %s", path, damaged);
    s->serial = n ? list[0].serial : 0;
    const dlrm_status st = s->serial < DLRM_MOST_SERIAL ? DLRM_OK
                                                        : FAIL(DLRM_E_INPUT, "%s/%s/" DLRM_MANIFEST_NAME ": 'serial' is %lld, which no later checkpoint "
                                                               "could follow", path, list[0].name, (long long)s->serial);
    dlrm_free(&list);
    return st;
}

static dlrm_status open_folder(dlrm_saver *s)
{
    TRY(dlrm_comm_agree(s->comm, s->comm->rank == 0 ? take_folder(s) : DLRM_OK));
    return dlrm_same_folder_check(s->comm, "checkpoint.path", s->args.path);
}

static dlrm_status take_memory(dlrm_saver *s)
{
    int n, n_saved;
    int64_t bytes, row = DLRM_PIECE_CHUNK;
    dlrm_piece *pieces;
    TRY(dlrm_pieces_list(s->model, true, &pieces, &n));
    dlrm_status st = dlrm_piece_file_plan(n, pieces, &s->file);
    dlrm_free(&pieces);
    TRY(st);
    const dlrm_piece *saved = dlrm_piece_file_pieces(s->file, &n_saved, &bytes);
    for (int i = 0; i < n_saved; i++)
        if (dlrm_piece_row_bytes(&saved[i]) > row) row = dlrm_piece_row_bytes(&saved[i]);
    s->chunk_bytes = row;
    TRY(dlrm_alloc(row, 1, "a checkpoint's chunk", &s->chunk));
    return dlrm_alloc(s->comm->ranks, sizeof *s->facts, "a checkpoint's files", &s->facts);
}

/* All ranks make a copy, or none. */
static dlrm_status take_snapshot_memory(dlrm_saver *s)
{
    int n;
    int64_t bytes, have = dlrm_mem_available();
    dlrm_piece_file_pieces(s->file, &n, &bytes);
    int64_t need = dlrm_comm_local_sum_i64(s->comm, bytes);
    if (!s->args.snapshot) return DLRM_OK;
    int64_t without = have >= 0 && (double)need > SNAPSHOT_SHARE * (double)have;
    dlrm_comm_sum_i64(s->comm, &without, 1);
    if (without) {
        dlrm_info("checkpoints: no memory for a copy (%.2f GiB on this host, %.2f GiB available): training will wait while they are written",
                  (double)need / (1 << 30), (double)have / (1 << 30));
        return DLRM_OK;
    }
    TRY(dlrm_comm_agree(s->comm, dlrm_alloc(bytes, 1, "the copy that a checkpoint is written from", &s->snapshot)));
    dlrm_backend *be = s->model->be; /* page-locked, a device copies faster into it; that it need be is not said */
    s->pinned = bytes > 0 && be->ops->pin(be, s->snapshot, (size_t)bytes) == DLRM_OK;
    return DLRM_OK;
}

dlrm_status dlrm_saver_open(const dlrm_saver_args *args, dlrm_model *m, dlrm_saver **out)
{
    TRY(dlrm_comm_agree(m->comm, dlrm_alloc(1, sizeof **out, "checkpoints", out)));
    dlrm_saver *s = *out;
    s->args = *args;
    s->model = m;
    s->comm = m->comm;
    TRY(open_folder(s));
    TRY(dlrm_comm_agree(s->comm, take_memory(s)));
    s->all_bytes = dlrm_piece_file_bytes(s->file);
    dlrm_comm_sum_i64(s->comm, &s->all_bytes, 1);
    return take_snapshot_memory(s);
}

static void *sweep_in_background(void *arg)
{
    dlrm_saver *s = arg;
    s->swept = dlrm_checkpoints_sweep(s->args.path);
    if (s->swept != DLRM_OK) snprintf(s->why_not, sizeof s->why_not, "%s", dlrm_error_message());
    return NULL;
}

/* Waits so long for the room that the older ones took. false: they are still being removed. */
static bool end_sweep(dlrm_saver *s, double seconds)
{
    struct timespec until;
    if (!s->sweeping) return true;
    clock_gettime(CLOCK_REALTIME, &until);
    const int64_t end = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += end / 1000000000;
    until.tv_nsec = end % 1000000000;
    if (pthread_timedjoin_np(s->sweeper, NULL, &until) != 0) return false;
    s->sweeping = false;
    if (s->swept != DLRM_OK) dlrm_warn("an old checkpoint stays: %s", s->why_not);
    return true;
}

/* For dlrm_comm_work: the same, for all ranks, as long as a disk may take. */
static dlrm_status sweep_some(void *ctx, bool *done)
{
    dlrm_saver *s = ctx;
    *done = end_sweep(s, DLRM_WORK_S);
    if (*done || dlrm_now() - s->started_at < s->args.timeout_s) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "%s: the disk has not removed old checkpoints for longer than parallel.timeout_s (%g s)", s->args.path,
                s->args.timeout_s);
}

void dlrm_saver_close(dlrm_saver **sp)
{
    dlrm_saver *s = *sp;
    if (!s) return;
    if (s->lost) { /* its thread hangs in the kernel and has all this in use */
        *sp = NULL;
        return;
    }
    if (s->threaded) pthread_join(s->thread, NULL);
    if (!end_sweep(s, s->args.timeout_s)) {
        dlrm_warn("an old checkpoint stays: %s: the disk has not removed it for longer than parallel.timeout_s (%g s)", s->args.path,
                  s->args.timeout_s);
        *sp = NULL; /* as above */
        return;
    }
    if (s->under_way && s->comm->rank == 0) dlrm_checkpoint_abandon(s->args.path, s->result.step);
    json_decref(s->run);
    dlrm_piece_file_close(&s->file);
    if (s->pinned) s->model->be->ops->unpin(s->model->be, s->snapshot);
    dlrm_free(&s->snapshot);
    dlrm_free(&s->chunk);
    dlrm_free(&s->facts);
    dlrm_free(sp);
}

/* --- writing --- */

/* The next rows of the file, from the copy or, with NULL, from the model through a chunk. *more: there were some. */
static dlrm_status write_next(dlrm_saver *s, const char *copy, bool *more)
{
    const dlrm_piece *p;
    int64_t row, n = dlrm_piece_file_next(s->file, s->chunk_bytes, &p, &row);
    bool finite;
    char why[400];
    *more = n > 0;
    if (n == 0) return DLRM_OK;
    if (!copy) dlrm_piece_download(s->model->be, p, row, n, s->chunk);
    TRY(dlrm_piece_file_write(s->file, n, copy ? copy : s->chunk, &finite, why, sizeof why));
    if (!finite && s->finite) snprintf(s->not_finite, sizeof s->not_finite, "%s", why);
    s->finite = s->finite && finite;
    s->progress += n * dlrm_piece_row_bytes(p);
    return DLRM_OK;
}

static dlrm_status write_copy(dlrm_saver *s)
{
    const char *copy = s->snapshot;
    bool more = true;
    TRY(dlrm_piece_file_create(s->file, s->path));
    while (more) {
        int64_t before = s->progress;
        TRY(write_next(s, copy, &more));
        copy += s->progress - before;
    }
    return dlrm_piece_file_finish(s->file, &s->facts[s->comm->rank]);
}

static void *write_in_background(void *arg)
{
    dlrm_saver *s = arg;
    s->status = write_copy(s);
    if (s->status != DLRM_OK) snprintf(s->message, sizeof s->message, "%s", dlrm_error_message());
    s->done = true;
    return NULL;
}

/* For dlrm_comm_work: writes for a while, straight from the model. What fails is kept for finish. */
static dlrm_status write_some(void *ctx, bool *done)
{
    dlrm_saver *s = ctx;
    const double end = dlrm_now() + DLRM_WORK_S;
    bool more = true;
    if (!s->created) s->status = dlrm_piece_file_create(s->file, s->path);
    s->created = true;
    while (s->status == DLRM_OK && more && dlrm_now() < end) s->status = write_next(s, NULL, &more);
    *done = s->status != DLRM_OK || !more;
    if (s->status == DLRM_OK && !more) s->status = dlrm_piece_file_finish(s->file, &s->facts[s->comm->rank]);
    if (s->status != DLRM_OK) snprintf(s->message, sizeof s->message, "%s", dlrm_error_message());
    return DLRM_OK;
}

static void take_snapshot(dlrm_saver *s)
{
    int n;
    int64_t bytes;
    char *to = s->snapshot;
    const dlrm_piece *pieces = dlrm_piece_file_pieces(s->file, &n, &bytes);
    for (int i = 0; i < n; to += dlrm_piece_bytes(&pieces[i]), i++)
        dlrm_piece_download(s->model->be, &pieces[i], 0, pieces[i].part.rows, to);
}

/* --- a save --- */

static dlrm_status begin(dlrm_saver *s)
{
    TRY(dlrm_folder_check_space(s->args.path, (double)s->all_bytes + DLRM_PIECE_CHUNK /* and the manifest */));
    return dlrm_checkpoint_begin(s->args.path, s->result.step);
}

dlrm_status dlrm_saver_start(dlrm_saver *s, const dlrm_train_state *progress, json_t *run, bool background)
{
    char name[DLRM_CHECKPOINT_NAME_BYTES], file[DLRM_RANK_FILE_BYTES];
    DLRM_ASSERT(!s->under_way);
    s->started_at = dlrm_now();
    s->under_way = true;
    dlrm_pieces_settle(s->model);
    json_decref(s->run);
    s->run = json_incref(run);
    s->manifest = (dlrm_manifest){.serial = s->serial + 1, .progress = *progress, .ranks = s->comm->ranks, .files = s->facts, .run = s->run};
    s->result = (dlrm_save_result){.step = progress->step, .bytes = s->all_bytes};
    dlrm_checkpoint_name(progress->step, false, name);
    snprintf(s->result.folder, sizeof s->result.folder, "%.4000s/%s", s->args.path, name);
    dlrm_checkpoint_name(progress->step, true, name);
    dlrm_rank_file_name(s->comm->rank, file);
    snprintf(s->path, sizeof s->path, "%.3900s/%s/%s", s->args.path, name, file);
    s->created = false;
    s->finite = true;
    s->done = false;
    s->message[0] = 0;
    s->status = dlrm_comm_work(s->comm, sweep_some, s);
    if (s->status == DLRM_OK) s->status = dlrm_comm_agree(s->comm, s->comm->rank == 0 ? begin(s) : DLRM_OK);
    if (s->status != DLRM_OK) {
        snprintf(s->message, sizeof s->message, "%s", dlrm_error_message());
    } else if (background && s->snapshot) {
        take_snapshot(s);
        const dlrm_status started = dlrm_thread_start(&s->thread, write_in_background, s, "writes checkpoints");
        s->threaded = started == DLRM_OK;
        TRY(dlrm_comm_agree(s->comm, started));
    } else {
        TRY(dlrm_comm_work(s->comm, write_some, s));
    }
    s->stall = dlrm_now() - s->started_at;
    return DLRM_OK;
}

bool dlrm_saver_under_way(const dlrm_saver *s)
{
    return s->under_way;
}

bool dlrm_saver_in_background(const dlrm_saver *s)
{
    return s->threaded;
}

bool dlrm_saver_busy(dlrm_saver *s)
{
    return s->threaded && !s->done;
}

typedef struct waiting {
    dlrm_saver *s;
    int64_t progress;
    double since;
} waiting;

/* For dlrm_comm_work: waits for the thread. */
static dlrm_status wait_some(void *ctx, bool *done)
{
    waiting *w = ctx;
    dlrm_saver *s = w->s;
    const double end = dlrm_now() + DLRM_WORK_S;
    while (dlrm_saver_busy(s) && dlrm_now() < end) nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    *done = !dlrm_saver_busy(s);
    if (s->progress != w->progress) {
        w->progress = s->progress;
        w->since = dlrm_now();
    }
    if (*done || dlrm_now() - w->since < s->args.timeout_s) return DLRM_OK;
    s->lost = true;
    return FAIL(DLRM_E_RUNTIME, "rank %d: %s: the disk has taken nothing for longer than parallel.timeout_s (%g s)", s->comm->rank, s->path,
                s->args.timeout_s);
}

static dlrm_status retire_old(dlrm_saver *s)
{
    TRY(dlrm_checkpoints_retire(s->args.path, s->args.keep));
    TRY(dlrm_thread_start(&s->sweeper, sweep_in_background, s, "removes checkpoints"));
    s->sweeping = true;
    return DLRM_OK;
}

/* Rank 0, after all: the manifest, the name, and the oldest ones go. */
static dlrm_status commit(dlrm_saver *s)
{
    char *text = dlrm_manifest_text(&s->manifest);
    if (!text) return FAIL(DLRM_E_RUNTIME, "no memory for a checkpoint's manifest");
    dlrm_status st = dlrm_checkpoint_commit(s->args.path, s->result.step, text);
    free(text);
    TRY(st);
    if (retire_old(s) != DLRM_OK) dlrm_warn("an old checkpoint stays: %s", dlrm_error_message());
    return DLRM_OK;
}

dlrm_status dlrm_saver_finish(dlrm_saver *s, dlrm_save_result *out)
{
    const double start = dlrm_now();
    waiting w = {.s = s, .progress = -1, .since = start};
    DLRM_ASSERT(s->under_way);
    s->under_way = false;
    TRY(dlrm_comm_work(s->comm, wait_some, &w)); /* fails where a disk hangs: the folder stays as it is */
    if (s->threaded) pthread_join(s->thread, NULL);
    s->threaded = false;
    dlrm_status st = s->finite ? DLRM_OK
                               : FAIL(DLRM_E_RUNTIME, "step %lld, rank %d: %s; nothing is saved. A lower learning rate or a longer warm-up may "
                                      "help", (long long)s->result.step, s->comm->rank, s->not_finite);
    st = dlrm_comm_agree(s->comm, st);
    if (st != DLRM_OK) {
        if (s->comm->rank == 0) dlrm_checkpoint_abandon(s->args.path, s->result.step);
        return st;
    }
    st = dlrm_comm_agree(s->comm, s->status == DLRM_OK ? DLRM_OK : FAIL(s->status, "%s", s->message));
    if (st == DLRM_OK) {
        dlrm_piece_file_facts mine = s->facts[s->comm->rank];
        dlrm_comm_allgather(s->comm, &mine, sizeof mine, s->facts);
        st = dlrm_comm_agree(s->comm, s->comm->rank == 0 ? commit(s) : DLRM_OK);
    }
    s->result.saved = st == DLRM_OK;
    if (st == DLRM_OK)
        s->serial++;
    else
        snprintf(s->result.why, sizeof s->result.why, "%s", dlrm_error_message());
    if (st != DLRM_OK && s->comm->rank == 0) dlrm_checkpoint_abandon(s->args.path, s->result.step);
    s->result.stall_s = s->stall + dlrm_now() - start;
    s->result.save_s = dlrm_now() - s->started_at;
    *out = s->result;
    return DLRM_OK;
}
