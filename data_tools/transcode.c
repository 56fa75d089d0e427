#include "transcode.h"

#include <pthread.h>

#include "base/mem.h"

enum { SLOTS = 3, SLOT_BYTES = 4 << 20 };

int64_t dlrm_stretch_rows(const dlrm_shape *s)
{
    int64_t n = SLOT_BYTES / dlrm_stretch_row_bytes(s);
    return n < 64 ? 64 : n;
}

dlrm_status dlrm_transcode_form(dlrm_dense_form from, dlrm_format to, int wanted, dlrm_dense_form *out)
{
    const char *format = dlrm_format_names[to];
    bool counts_only = to == DLRM_FORMAT_TEXT || to == DLRM_FORMAT_MLPERF_BIN;
    if (counts_only && wanted >= 0 && wanted != DLRM_FORM_COUNTS)
        return FAIL(DLRM_E_USAGE, "--dense: %s, expected counts, which is what %s holds", dlrm_form_names[wanted], format);
    if (to == DLRM_FORMAT_SPLIT_BINARY && wanted == DLRM_FORM_COUNTS)
        return FAIL(DLRM_E_USAGE, "--dense: counts, expected log1 or log3, as split_binary holds logarithms");
    if (counts_only)
        *out = DLRM_FORM_COUNTS;
    else if (wanted >= 0)
        *out = (dlrm_dense_form)wanted;
    else
        *out = to == DLRM_FORMAT_SPLIT_BINARY && from == DLRM_FORM_COUNTS ? DLRM_FORM_LOG1 : from;
    if (from == DLRM_FORM_FLOATS && *out != DLRM_FORM_FLOATS)
        return FAIL(DLRM_E_USAGE, "nothing says how the dense values were made, and %s wants %s: say it with --from-dense log1 or log3",
                    format, dlrm_form_names[*out]);
    return DLRM_OK;
}

typedef struct passage {
    dlrm_row_source *from;
    const char *path;
    dlrm_row_sink *to;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool failed, done;     /* done: nothing more will be read */
    int64_t read, written; /* stretches */
    int64_t all_rows;
    dlrm_stretch slots[SLOTS];
    int split[SLOTS];
} passage;

/* Both wait for their turn; false: there will be none. */
static bool wait_for_slot(passage *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->read - p->written == SLOTS && !p->failed) pthread_cond_wait(&p->changed, &p->lock);
    bool go_on = !p->failed;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

static bool wait_for_rows(passage *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->read == p->written && !p->failed && !p->done) pthread_cond_wait(&p->changed, &p->lock);
    bool go_on = !p->failed && p->read > p->written;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

static void step(passage *p, int64_t *count)
{
    pthread_mutex_lock(&p->lock);
    ++*count;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static dlrm_status read_all(passage *p)
{
    const dlrm_shape *shape = &p->from->shape;
    for (int split = 0; split < DLRM_OUT_SPLITS; split++)
        for (int64_t row = 0, n; row < p->from->rows[split]; row += n) {
            if (!wait_for_slot(p)) return DLRM_OK;
            dlrm_stretch *slot = &p->slots[p->read % SLOTS];
            p->split[p->read % SLOTS] = split;
            n = p->from->rows[split] - row < slot->capacity ? p->from->rows[split] - row : slot->capacity;
            TRY(p->from->read(p->from, split, row, n, slot));
            TRY(dlrm_dense_recode(shape->form, p->to->shape.form, shape, p->path, slot));
            step(p, &p->read);
        }
    return DLRM_OK;
}

static dlrm_status write_all(passage *p)
{
    int64_t rows = 0, row_bytes = 4 * (1 + p->to->shape.n_dense + p->to->shape.n_ids);
    while (wait_for_rows(p)) {
        const dlrm_stretch *slot = &p->slots[p->written % SLOTS];
        TRY(p->to->write(p->to, p->split[p->written % SLOTS], slot));
        rows += slot->n;
        step(p, &p->written);
        dlrm_tool_progress("converting", rows * row_bytes, p->all_rows * row_bytes);
    }
    return DLRM_OK;
}

static dlrm_status passage_job(void *shared, int thread, const atomic_bool *stop)
{
    (void)stop;
    passage *p = shared;
    dlrm_status st = thread == 0 ? read_all(p) : write_all(p);
    pthread_mutex_lock(&p->lock);
    p->failed |= st != DLRM_OK;
    p->done |= thread == 0;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return st;
}

dlrm_status dlrm_transcode(dlrm_row_source *from, const char *path, dlrm_row_sink *to)
{
    passage p = {.from = from, .path = path, .to = to, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    dlrm_status st = DLRM_OK;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) p.all_rows += from->rows[i];
    for (int i = 0; st == DLRM_OK && i < SLOTS; i++) st = dlrm_stretch_open(&from->shape, dlrm_stretch_rows(&from->shape), &p.slots[i]);
    dlrm_tool_progress_begin();
    if (st == DLRM_OK) st = dlrm_tool_run(2, passage_job, &p);
    for (int i = 0; i < SLOTS; i++) dlrm_stretch_close(&p.slots[i]);
    return st == DLRM_OK ? to->finish(to) : st;
}
