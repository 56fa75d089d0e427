/* The CPU backend: memory is the host's, ops run to their end where they are called. */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "base/log.h"
#include "base/mem.h"

static dlrm_status cpu_alloc(dlrm_backend *be, int64_t count, size_t size, const char *what, void *out)
{
    (void)be;
    return dlrm_alloc(count, size, what, out);
}

static void cpu_release(dlrm_backend *be, void *p)
{
    (void)be;
    dlrm_free(p);
}

static void cpu_upload(dlrm_backend *be, void *to, const void *from_host, size_t bytes)
{
    (void)be;
    memcpy(to, from_host, bytes);
}

static void cpu_download(dlrm_backend *be, void *to_host, const void *from, size_t bytes)
{
    (void)be;
    memcpy(to_host, from, bytes);
}

static dlrm_status cpu_pin(dlrm_backend *be, void *p, size_t bytes)
{
    (void)be, (void)p, (void)bytes;
    return DLRM_OK;
}

static void cpu_unpin(dlrm_backend *be, void *p)
{
    (void)be, (void)p;
}

/* The ids stay where the reader has them. */
static void cpu_feed(dlrm_backend *be, const dlrm_feed_args *a)
{
    (void)be;
    if (a->b > 0) {
        memcpy(a->to_dense, a->dense, (size_t)(a->b * a->dense_features) * sizeof *a->dense);
        memcpy(a->to_labels, a->labels, (size_t)a->b * sizeof *a->labels);
    }
    for (int j = 0; j < a->shard->n_inputs; j++) a->to_bags[j] = a->bags[j];
}

/* Ops have run when they return: nothing to wait for. */
static void cpu_feed_wait(dlrm_backend *be)
{
    (void)be;
}

static void cpu_slot(dlrm_backend *be, int slot)
{
    (void)be, (void)slot;
}

static dlrm_step_mode cpu_step_begin(dlrm_backend *be, const dlrm_step *step)
{
    (void)be, (void)step;
    return DLRM_STEP_RUN;
}

static void cpu_step_end(dlrm_backend *be)
{
    (void)be;
}

static dlrm_status cpu_weights_open(dlrm_backend *be, int64_t n, float **weights)
{
    (void)be;
    return dlrm_alloc(n, sizeof **weights, "MLP weights", weights);
}

static void cpu_weights_changed(dlrm_backend *be)
{
    (void)be;
}

static void cpu_lap(dlrm_backend *be, dlrm_phase phase)
{
    cpu_impl *c = cpu_of(be);
    double now = dlrm_now();
    if (phase < DLRM_PHASES) c->seconds[phase] += now - c->lap;
    c->lap = now;
}

static void cpu_laps(dlrm_backend *be, double *seconds)
{
    memcpy(seconds, cpu_of(be)->seconds, sizeof cpu_of(be)->seconds);
}

static void cpu_write_back(dlrm_backend *be, const dlrm_shard *s)
{
    (void)be, (void)s;
}

static void cpu_cache_use(dlrm_backend *be, const dlrm_shard *s, dlrm_cache_use *use)
{
    (void)be, (void)s;
    *use = (dlrm_cache_use){0};
}

static void cpu_fill(dlrm_backend *be, float *p, int64_t n, float value)
{
#pragma omp parallel for num_threads(cpu_of(be)->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) p[i] = value;
}

static void cpu_close(dlrm_backend *be)
{
    cpu_impl *c = cpu_of(be);
    if (!c) return;
    for (int t = 0; c->scratch && t < c->threads; t++) dlrm_free(&c->scratch[t]);
    for (int t = 0; c->wide && t < c->threads; t++) dlrm_free(&c->wide[t]);
    dlrm_free(&c->scratch);
    dlrm_free(&c->wide);
    dlrm_free(&be->impl);
}

static const dlrm_backend_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .release = cpu_release,
    .alloc_host = cpu_alloc,
    .release_host = cpu_release,
    .upload = cpu_upload,
    .download = cpu_download,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .feed = cpu_feed,
    .feed_wait = cpu_feed_wait,
    .slot_begin = cpu_slot,
    .slot_end = cpu_slot,
    .step_begin = cpu_step_begin,
    .step_end = cpu_step_end,
    .linear_forward = cpu_linear_forward,
    .linear_backward = cpu_linear_backward,
    .cross_forward = cpu_cross_forward,
    .cross_backward = cpu_cross_backward,
    .interact_forward = cpu_interact_forward,
    .interact_backward = cpu_interact_backward,
    .join_forward = cpu_join_forward,
    .join_backward = cpu_join_backward,
    .loss = cpu_loss,
    .shard_open = cpu_shard_open,
    .shard_close = cpu_shard_close,
    .lookup = cpu_lookup,
    .sort = cpu_sort,
    .update = cpu_update,
    .row_sums = cpu_row_sums,
    .row_squares = cpu_row_squares,
    .rows_update = cpu_rows_update,
    .write_back = cpu_write_back,
    .cache_use = cpu_cache_use,
    .weights_open = cpu_weights_open,
    .weights_changed = cpu_weights_changed,
    .dense_update = cpu_dense_update,
    .find_overflow = cpu_find_overflow,
    .settle_scale = cpu_settle_scale,
    .scale_set = cpu_scale_set,
    .scale_get = cpu_scale_get,
    .table_init = cpu_table_init,
    .rows_renew = cpu_rows_renew,
    .fill = cpu_fill,
    .lap = cpu_lap,
    .laps = cpu_laps,
    .close = cpu_close,
};

dlrm_status dlrm_cpu_backend_open(const dlrm_backend_args *args, dlrm_backend *out)
{
    dlrm_status st;
    DLRM_ASSERT(args->precision == DLRM_FP32);
    *out = (dlrm_backend){.ops = &cpu_ops, .act = DLRM_FP32, .act_bytes = sizeof(float), .row_multiple = 1};
    TRY(dlrm_alloc(1, sizeof(cpu_impl), "CPU backend", &out->impl));
    cpu_impl *c = cpu_of(out);
    c->threads = args->threads;
    c->pinned = args->pinned;
    c->max_width = args->max_width;
    c->seed = args->seed;
    while (1 << c->levels < args->max_leaves) c->levels++;
    c->levels++;
    c->scratch_floats = (int64_t)c->levels * CPU_WEIGHT_TILE * (c->max_width + 1);
    int64_t interact = cpu_interact_scratch(args->max_slots, args->max_vector);
    if (interact > c->scratch_floats) c->scratch_floats = interact;
    TRY_TO(fail, st, dlrm_alloc(c->threads, sizeof *c->scratch, "CPU backend", &c->scratch));
    TRY_TO(fail, st, dlrm_alloc(c->threads, sizeof *c->wide, "CPU backend", &c->wide));
    for (int t = 0; t < c->threads; t++) {
        TRY_TO(fail, st, dlrm_alloc(c->scratch_floats, sizeof(float), "CPU backend's scratch", &c->scratch[t]));
        TRY_TO(fail, st, dlrm_alloc(args->max_slots, sizeof *c->wide[t], "CPU backend's scratch", &c->wide[t]));
    }
    omp_set_num_threads(c->threads);
    dlrm_gemm_init();
    return DLRM_OK;
fail:
    cpu_close(out);
    return st;
}
