#include "train/evaluate.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/step.h"
#include "train/signals.h"
#include "train/vocabularies.h"

enum { LOSSES_AT_A_TIME = 256 };

dlrm_status dlrm_evaluator_open(dlrm_session *s, dlrm_evaluator *e)
{
    *e = (dlrm_evaluator){.s = s};
    const int64_t rows = dlrm_session_scored_rows(s);
    int64_t batches = (rows + s->eval_batch - 1) / s->eval_batch;
    TRY(dlrm_auc_open(batches * (s->model.max_own < rows ? s->model.max_own : rows), &e->auc));
    TRY(dlrm_losses_open(s->comm, &s->be, LOSSES_AT_A_TIME, &e->losses));
    TRY(dlrm_alloc(s->model.max_own, sizeof *e->logits, "logits", &e->logits));
    return dlrm_batches_open(s, &s->eval_args, &e->batches);
}

void dlrm_evaluator_close(dlrm_evaluator *e)
{
    dlrm_batches_close(&e->batches);
    dlrm_auc_close(&e->auc);
    dlrm_losses_close(&e->losses);
    dlrm_free(&e->logits);
}

/* The next batch forward, while the ids of the one after it travel; its logits on the host. All ranks stop together at bad
 * data, and where a training was asked to end: then *signal is set, and the batch is not computed. */
static dlrm_status forward(dlrm_session *s, dlrm_batches *batches, float *logits, const dlrm_batch **out, bool *last, int *signal)
{
    enum { SIGNAL_BITS = 8 };
    const dlrm_batch *batch = *out = dlrm_batches_next(batches, last);
    DLRM_ASSERT(batch);
    dlrm_comm_pulse_start(s->comm, (int64_t)batch->status << SIGNAL_BITS | dlrm_signals_seen());
    const int64_t pulse = dlrm_comm_pulse_finish(s->comm);
    if (pulse >> SIGNAL_BITS)
        return dlrm_comm_agree(s->comm, batch->status == DLRM_OK ? DLRM_OK : FAIL(batch->status, "%s", batch->message));
    *signal = (int)pulse;
    if (pulse) return DLRM_OK;
    if (!*last) dlrm_batches_ahead(batches);
    dlrm_feed(&s->model, DLRM_EVAL_STAGE, batch, false);
    dlrm_forward(&s->model, DLRM_EVAL_STAGE);
    s->be.ops->download(&s->be, logits, s->model.logits, (size_t)batch->own * sizeof *logits);
    return DLRM_OK;
}

static void flush(dlrm_evaluator *e, double *loss_sum)
{
    int n = dlrm_losses_flush(&e->losses, e->s->comm, &e->s->model.reduce);
    for (int i = 0; i < n; i++) *loss_sum += e->losses.mean[i] * (double)e->losses.samples[i];
}

static dlrm_status evaluate(dlrm_evaluator *e, dlrm_evaluation *out)
{
    dlrm_session *s = e->s;
    double loss_sum = 0;
    int64_t positives;
    bool last = false;
    dlrm_auc_reset(e->auc);
    while (!last) {
        const dlrm_batch *batch;
        TRY(forward(s, &e->batches, e->logits, &batch, &last, &out->signal));
        if (out->signal) return DLRM_OK;
        dlrm_auc_add(e->auc, batch->own, e->logits, batch->labels);
        dlrm_forward_loss(&s->model, dlrm_losses_add(&e->losses, batch->size));
        if (dlrm_losses_full(&e->losses)) flush(e, &loss_sum);
    }
    flush(e, &loss_sum);
    TRY(dlrm_auc_compute(e->auc, s->comm, &out->auc, &out->samples, &positives));
    out->loss = loss_sum / (double)out->samples;
    return DLRM_OK;
}

dlrm_status dlrm_evaluator_run(dlrm_evaluator *e, dlrm_evaluation *out)
{
    const int64_t sent = e->s->comm->bytes_sent; /* the books are training's */
    dlrm_status st = evaluate(e, out);
    e->s->comm->bytes_sent = sent;
    return st;
}

/* --- predict --- */

enum { NPY_HEADER = 128, NPY_MAGIC = 10 };
#define NPY_SHAPE "{'descr': '<f4', 'fortran_order': False, 'shape': ("

static void make_header(int64_t rows, char out[NPY_HEADER + 1])
{
    char shape[80];
    snprintf(shape, sizeof shape, NPY_SHAPE "%lld,), }", (long long)rows);
    memcpy(out, "\x93NUMPY\1\0\166\0", NPY_MAGIC); /* version 1.0, 118 bytes follow */
    snprintf(out + NPY_MAGIC, NPY_HEADER + 1 - NPY_MAGIC, "%-117s\n", shape);
}

/* Does a file lie there that is neither empty nor begins as predictions do? */
static bool is_other_file(const char *path)
{
    char found[NPY_HEADER + 1] = "", own[NPY_HEADER + 1];
    long long rows = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false; /* none, or what cannot be written says so */
    const ssize_t n = pread(fd, found, NPY_HEADER, 0);
    close(fd);
    (void)!sscanf(found + NPY_MAGIC, NPY_SHAPE "%lld", &rows);
    make_header(rows, own);
    return n > 0 && memcmp(found, own, (size_t)n) != 0;
}

static dlrm_status write_header(int fd, const char *path, int64_t rows)
{
    char header[NPY_HEADER + 1];
    make_header(rows, header);
    return dlrm_file_write_at(fd, path, 0, NPY_HEADER, header);
}

static dlrm_status create(const char *path, int64_t mark, int *fd)
{
    struct stat s;
    const bool there = stat(path, &s) == 0;
    if (there && !S_ISREG(s.st_mode) && !S_ISCHR(s.st_mode))
        return FAIL(DLRM_E_INPUT, "--predict: %s: found a %s, expected a file, or a name for a new one", path, dlrm_file_kind(s.st_mode));
    if (there && S_ISREG(s.st_mode) && is_other_file(path))
        return FAIL(DLRM_E_INPUT, "--predict: %s: found a file of something else; expected earlier predictions, an empty file, or a name for a new one",
                    path);
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0666);
    if (*fd < 0) return FAIL(DLRM_E_INPUT, "%s: cannot create: %s", path, strerror(errno));
    return write_header(*fd, path, mark);
}

/* What rank 0 made: a file of this name on a host's own file system may be that of another run. */
static dlrm_status open_made(const char *path, int64_t mark, int *fd)
{
    char found[NPY_HEADER], expected[NPY_HEADER + 1];
    struct stat s;
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0) return FAIL(DLRM_E_INPUT, "--predict: %s: cannot open what rank 0 made (not a shared file system?): %s", path, strerror(errno));
    make_header(mark, expected);
    if (fstat(*fd, &s) == 0 && S_ISCHR(s.st_mode)) return DLRM_OK; /* a device, from which nothing comes back */
    if (pread(*fd, found, NPY_HEADER, 0) == NPY_HEADER && memcmp(found, expected, NPY_HEADER) == 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "--predict: %s: found another file than rank 0 made; expected a folder on a shared file system", path);
}

/* On every rank. Until all have found it its header has a number of rows that no other run's has. */
static dlrm_status open_predictions(dlrm_comm *comm, const char *path, int64_t rows, int *fd)
{
    int64_t mark = (int64_t)(1e9 * dlrm_now_since_1970()) ^ (int64_t)getpid() << 40;
    dlrm_comm_bcast(comm, &mark, sizeof mark, 0);
    TRY(dlrm_comm_agree(comm, comm->rank == 0 ? create(path, mark, fd) : DLRM_OK));
    TRY(dlrm_comm_agree(comm, comm->rank != 0 ? open_made(path, mark, fd) : DLRM_OK));
    return dlrm_comm_agree(comm, comm->rank == 0 ? write_header(*fd, path, rows) : DLRM_OK);
}

static dlrm_status predict_rows(dlrm_session *s, const char *path, int fd, dlrm_batches *batches, float *p)
{
    bool last = false;
    int signal; /* only where it trains */
    while (!last) {
        const dlrm_batch *batch;
        TRY(forward(s, batches, p, &batch, &last, &signal));
        for (int64_t i = 0; i < batch->own; i++) p[i] = 1.0f / (1.0f + expf(-p[i]));
        dlrm_status st = dlrm_file_write_at(fd, path, NPY_HEADER + (batch->first_row + batch->begin) * 4, batch->own * 4, p);
        TRY(dlrm_comm_agree(s->comm, st));
    }
    return DLRM_OK;
}

dlrm_status dlrm_predict(dlrm_session *s, const char *path)
{
    dlrm_status st = DLRM_OK;
    dlrm_batches batches = {0};
    dlrm_vocabularies vocabularies = {0};
    char unknown[60] = "";
    float *p = NULL;
    int fd = -1;
    const int64_t rows = dlrm_session_scored_rows(s);
    TRY_TO(done, st, open_predictions(s->comm, path, rows, &fd));
    st = dlrm_alloc(s->model.max_own, sizeof *p, "predictions", &p);
    if (st == DLRM_OK) st = dlrm_batches_open(s, &s->eval_args, &batches);
    TRY_TO(done, st, dlrm_comm_agree(s->comm, st));
    TRY_TO(done, st, dlrm_vocabularies_open(s, &vocabularies));
    TRY_TO(done, st, predict_rows(s, path, fd, &batches, p));
    if (close(fd) != 0) st = FAIL(DLRM_E_RUNTIME, "%s: cannot write: %s", path, strerror(errno));
    fd = -1;
    TRY_TO(done, st, dlrm_comm_agree(s->comm, st));
    const double share = dlrm_vocabularies_evaluated(&vocabularies);
    if (vocabularies.n > 0) snprintf(unknown, sizeof unknown, "; %.2f %% of ids were out of vocabulary", 100 * share);
    dlrm_info("%lld probabilities in %s%s", (long long)rows, path, unknown);
done:
    if (fd >= 0) close(fd);
    dlrm_batches_close(&batches);
    dlrm_vocabularies_close(&vocabularies);
    dlrm_free(&p);
    return st;
}
