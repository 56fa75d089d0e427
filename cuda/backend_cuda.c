/* The CUDA backend: which GPU, queues, events, small ops, the op table. Ops are enqueued on three streams (compute, feed,
 * and beside for collectives and what runs with them) and return at once; the host waits only where it needs a result or its memory back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cuda_internal.h"
#include "engine.h"
#include "linear_kernels.h"

void cuda_die(const cuda_impl *c, const char *what, const char *why)
{
    char text[600];
    snprintf(text, sizeof text, "GPU %d: %s failed: %s", c->device, what, why);
    dlrm_error_line(text);
    _exit(DLRM_E_RUNTIME);
}

void cuda_must(const cuda_impl *c, cudaError_t code, const char *what)
{
    if (code != cudaSuccess) cuda_die(c, what, cudaGetErrorString(code));
}

/* --- which GPU --- */

int dlrm_cuda_devices(char *why, size_t bytes)
{
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess && n > 0) return n;
    snprintf(why, bytes, "%s", code == cudaSuccess ? "none is visible" : cudaGetErrorString(code));
    return 0;
}

/* A layer of width 1 gives fp32, as logits are; what would read it as activations is refused. */
static dlrm_status check_narrow(const dlrm_config *cfg)
{
    const char *type = dlrm_dtype_text(cfg->train.precision);
    const dlrm_int_list *stacks[] = {&cfg->model.bottom_mlp, &cfg->model.top_mlp};
    for (int k = 0; k < 2; k++)
        for (int l = 0; l < stacks[k]->n - k; l++) /* the last of top is the logit */
            if (stacks[k]->v[l] == 1)
                return dlrm_config_fail(cfg, k ? "model.top_mlp" : "model.bottom_mlp", "layer %d is 1 wide, whose output would be fp32 and "
                                        "not %s; expected at least 2, or precision fp32 or tf32", l, type);
    if (cfg->model.top_mlp.n == 0)
        return dlrm_config_fail(cfg, "model.top_mlp", "found no layers, whose logits would be rounded to %s; expected at least one", type);
    if (cfg->model.interaction == DLRM_DCN && cfg->model.cross_rank == 1)
        return dlrm_config_fail(cfg, "model.cross.rank", "is 1, whose products would be fp32 and not %s; expected at least 2", type);
    return DLRM_OK;
}

dlrm_status dlrm_cuda_check(const dlrm_config *cfg, int device)
{
    struct cudaDeviceProp p;
    cudaError_t code = cudaGetDeviceProperties(&p, device);
    if (code != cudaSuccess) return FAIL(DLRM_E_RUNTIME, "GPU %d: %s", device, cudaGetErrorString(code));
    if (!dlrm_cuda_has_code(device))
        return FAIL(DLRM_E_RUNTIME, "GPU %d (%s) has compute capability %d.%d, for which this build has no code; build with -Dgpu_arch=%d%d",
                    device, p.name, p.major, p.minor, p.major, p.minor);
    if (p.major < 8 && (cfg->train.precision == DLRM_BF16 || cfg->train.precision == DLRM_TF32))
        return dlrm_config_fail(cfg, "train.precision", "is %s, which GPU %d (%s) cannot do; expected fp32",
                                cfg->train.precision == DLRM_BF16 ? "bf16" : "tf32", device, p.name);
    if (cfg->optimizer.dense.name == DLRM_ROWWISE_ADAGRAD)
        return dlrm_config_fail(cfg, "optimizer.dense.name", "is rowwise_adagrad, which is for tables; on a GPU expected sgd, adagrad or adam");
    if (cfg->train.precision == DLRM_BF16 || cfg->train.precision == DLRM_FP16) TRY(check_narrow(cfg));
    return DLRM_OK;
}

/* --- order of the queues --- */

void cuda_feed_first(const dlrm_backend *be)
{
    cuda_impl *c = be->impl;
    int least, greatest;
    cuda_must(c, cudaDeviceGetStreamPriorityRange(&least, &greatest), "the feed's queue");
    cuda_must(c, cudaStreamSynchronize(c->feed.stream), "the feed's queue");
    cuda_must(c, cudaStreamDestroy(c->feed.stream), "the feed's queue");
    cuda_must(c, cudaStreamCreateWithPriority(&c->feed.stream, cudaStreamNonBlocking, greatest < least ? least - 1 : least), "the feed's queue");
}

void cuda_fork(const cuda_impl *c)
{
    cuda_must(c, cudaEventRecord(c->forked, c->compute.stream), "an event");
    cuda_must(c, cudaStreamWaitEvent(c->beside.stream, c->forked, 0), "an event");
}

static void cuda_feed_wait(dlrm_backend *be)
{
    cuda_must(cuda_of(be), cudaEventSynchronize(cuda_of(be)->copied), "copying a batch");
}

static void cuda_slot_begin(dlrm_backend *be, int slot)
{
    cuda_impl *c = cuda_of(be);
    (void)slot; /* whatever was fed last is fed */
    cuda_must(c, cudaEventRecord(c->fed, c->feed.stream), "an event");
    cuda_must(c, cudaStreamWaitEvent(c->compute.stream, c->fed, 0), "an event");
}

static void cuda_slot_end(dlrm_backend *be, int slot)
{
    cuda_impl *c = cuda_of(be);
    cuda_must(c, cudaEventRecord(c->done[slot], c->compute.stream), "an event");
}

/* Books lap `i` of the ring on its phase; waits for it if need be. */
static void settle(cuda_impl *c, int64_t i)
{
    float ms = 0;
    if (i == 0 || c->lap_phase[i % LAPS] == DLRM_PHASES) return;
    cuda_must(c, cudaEventSynchronize(c->lap[i % LAPS]), "a step");
    cuda_must(c, cudaEventElapsedTime(&ms, c->lap[(i - 1) % LAPS], c->lap[i % LAPS]), "timing");
    c->seconds[c->lap_phase[i % LAPS]] += 1e-3 * ms;
    c->lap_phase[i % LAPS] = DLRM_PHASES;
}

static void cuda_lap(dlrm_backend *be, dlrm_phase phase)
{
    cuda_impl *c = cuda_of(be);
    if (c->recording) {
        cuda_recorded_lap(c, phase);
        return;
    }
    /* the event after the one to be overwritten is measured from it */
    if (c->laps >= LAPS) settle(c, c->laps - LAPS + 1);
    c->lap_phase[c->laps % LAPS] = phase;
    cuda_must(c, cudaEventRecord(c->lap[c->laps % LAPS], c->compute.stream), "an event");
    c->laps++;
}

static void cuda_laps(dlrm_backend *be, double *seconds)
{
    cuda_impl *c = cuda_of(be);
    for (int64_t i = c->laps > LAPS ? c->laps - LAPS + 1 : 1; i < c->laps; i++) settle(c, i);
    memcpy(seconds, c->seconds, sizeof c->seconds);
    cuda_recorded_laps(c, seconds);
}

/* --- small ops --- */

static void cuda_loss(dlrm_backend *be, const dlrm_loss_args *a)
{
    cuda_impl *c = cuda_of(be);
    DLRM_ASSERT(dlrm_cuda_loss_work(a->cut) <= c->loss_work_size);
    const dlrm_cut *cut = cuda_constant_of(c, &c->compute, a->cut, sizeof *a->cut);
    cuda_must(c, dlrm_cuda_loss(a->logits, a->labels, a->d_logits, a->scale, c->step, cut, a->cut, c->loss_work,
                                cuda_loss_place(c, a->loss, a->cut->n_nodes), c->compute.stream), "loss");
}

static dlrm_status cuda_weights_open(dlrm_backend *be, int64_t n, float **weights)
{
    cuda_impl *c = cuda_of(be);
    c->n_weights = n;
    TRY(cuda_alloc(be, n, sizeof(float), "MLP weights", weights));
    c->weights = *weights;
    if (be->act != DLRM_FP32) TRY(cuda_alloc(be, n, be->act_bytes, "MLP weights", &c->weights_copy));
    return cuda_matmuls_weights(be, n);
}

static void cuda_weights_changed(dlrm_backend *be)
{
    cuda_impl *c = cuda_of(be);
    if (c->weights_copy)
        cuda_must(c, dlrm_cuda_convert_rows(c->weights, DLRM_FP32, c->n_weights, c->weights_copy, be->act, c->n_weights, 1, c->n_weights,
                                            c->compute.stream), "weights");
}

static void cuda_dense_update(dlrm_backend *be, const dlrm_dense_update_args *a)
{
    cuda_impl *c = cuda_of(be);
    cuda_use_dense(c, &a->rule);
    cuda_must(c, dlrm_cuda_dense_update(a->n, a->w, a->g, a->state[0], a->state[1], a->rule.name, a->rule.momentum != 0, c->step,
                                        c->weights_copy, be->act, c->compute.stream), "dense update");
}

static void cuda_table_init(dlrm_backend *be, const dlrm_table_init_args *a)
{
    const cuda_impl *c = cuda_of(be);
    cuda_must(c, dlrm_cuda_slice_init(a, c->compute.stream), "table init");
}

static void cuda_fill(dlrm_backend *be, float *p, int64_t n, float value)
{
    cuda_must(cuda_of(be), dlrm_cuda_fill(p, n, value, cuda_of(be)->compute.stream), "fill");
}

/* --- loss scaling --- */

static void find_nonfinite(const cuda_impl *c, const void *p, dlrm_dtype type, int64_t n)
{
    cuda_must(c, dlrm_cuda_find_nonfinite(p, type, n, &c->step->found, c->compute.stream), "looking for an overflow");
}

static void cuda_find_overflow(dlrm_backend *be, const dlrm_overflow_args *a)
{
    const cuda_impl *c = cuda_of(be);
    for (int k = 0; k < 2; k++) find_nonfinite(c, a->part[k].p, a->type, a->part[k].n);
    cuda_must(c, dlrm_cuda_raise_flag(c->step, a->flag, c->compute.stream), "looking for an overflow");
}

static void cuda_settle_scale(dlrm_backend *be, const dlrm_settle_args *a)
{
    const cuda_impl *c = cuda_of(be);
    find_nonfinite(c, a->g, DLRM_FP32, a->n);
    cuda_must(c, dlrm_cuda_settle_scale(c->step, a, c->compute.stream), "the loss scale");
}

static void cuda_scale_set(dlrm_backend *be, const dlrm_scale *s)
{
    const cuda_impl *c = cuda_of(be);
    dlrm_cuda_step step;
    cuda_download(be, &step, c->step, sizeof step);
    step.loss_scale = s->scale;
    step.unscale = 1 / s->scale;
    step.good = s->good;
    step.skipped = s->skipped;
    step.skip = step.found = 0;
    cuda_upload(be, c->step, &step, sizeof step);
}

static void cuda_scale_get(dlrm_backend *be, dlrm_scale *s)
{
    dlrm_cuda_step step;
    cuda_download(be, &step, cuda_of(be)->step, sizeof step);
    *s = (dlrm_scale){.scale = step.loss_scale, .good = step.good, .skipped = step.skipped};
}

/* --- opening and closing --- */

static void cuda_close(dlrm_backend *be)
{
    cuda_impl *c = cuda_of(be);
    if (!c) return;
    cudaDeviceSynchronize();
    cuda_matmuls_close(be);
    cuda_steps_close(be);
    dlrm_free(&c->slots);
    cuda_release(be, &c->raw_dense);
    cuda_release(be, &c->weights_copy);
    cuda_release(be, &c->step);
    cuda_release(be, &c->loss_work);
    for (int i = 0; i < LAPS; i++)
        if (c->lap[i]) cudaEventDestroy(c->lap[i]);
    for (int i = 0; i < DLRM_STAGES; i++)
        if (c->done[i]) cudaEventDestroy(c->done[i]);
    if (c->fed) cudaEventDestroy(c->fed);
    if (c->copied) cudaEventDestroy(c->copied);
    if (c->forked) cudaEventDestroy(c->forked);
    cuda_queue_close(be, &c->beside);
    cuda_queue_close(be, &c->feed);
    cuda_queue_close(be, &c->compute);
    dlrm_free(&be->impl);
}

static const dlrm_backend_ops cuda_ops = {
    .name = "cuda",
    .alloc = cuda_alloc,
    .release = cuda_release,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .upload = cuda_upload,
    .download = cuda_download,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .feed = cuda_feed,
    .feed_wait = cuda_feed_wait,
    .slot_begin = cuda_slot_begin,
    .slot_end = cuda_slot_end,
    .step_begin = cuda_step_begin,
    .step_end = cuda_step_end,
    .linear_forward = cuda_linear_forward,
    .linear_backward = cuda_linear_backward,
    .cross_forward = cuda_cross_forward,
    .cross_backward = cuda_cross_backward,
    .join_forward = cuda_join_forward,
    .join_backward = cuda_join_backward,
    .interact_forward = cuda_interact_forward,
    .interact_backward = cuda_interact_backward,
    .loss = cuda_loss,
    .shard_open = cuda_shard_open,
    .shard_close = cuda_shard_close,
    .lookup = cuda_lookup,
    .sort = cuda_sort,
    .update = cuda_update,
    .row_sums = cuda_row_sums,
    .row_squares = cuda_row_squares,
    .rows_update = cuda_rows_update,
    .write_back = cuda_write_back,
    .cache_use = cuda_cache_use,
    .weights_open = cuda_weights_open,
    .weights_changed = cuda_weights_changed,
    .dense_update = cuda_dense_update,
    .find_overflow = cuda_find_overflow,
    .settle_scale = cuda_settle_scale,
    .scale_set = cuda_scale_set,
    .scale_get = cuda_scale_get,
    .table_init = cuda_table_init,
    .rows_renew = cuda_rows_renew,
    .fill = cuda_fill,
    .lap = cuda_lap,
    .laps = cuda_laps,
    .close = cuda_close,
};

static cudaError_t make_streams_and_events(cuda_impl *c)
{
    int least, greatest;
    cudaError_t code = cudaSetDevice(c->device);
    if (code == cudaSuccess) code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (code == cudaSuccess) code = cudaStreamCreateWithPriority(&c->beside.stream, cudaStreamNonBlocking, greatest);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&c->forked, cudaEventDisableTiming);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&c->compute.stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&c->feed.stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&c->copied, cudaEventDisableTiming);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&c->fed, cudaEventDisableTiming);
    for (int i = 0; i < DLRM_STAGES && code == cudaSuccess; i++) code = cudaEventCreateWithFlags(&c->done[i], cudaEventDisableTiming);
    for (int i = 0; i < LAPS && code == cudaSuccess; i++) code = cudaEventCreate(&c->lap[i]);
    return code;
}

static dlrm_status open_rest(dlrm_backend *be, const dlrm_backend_args *args)
{
    cuda_impl *c = cuda_of(be);
    size_t slots = (size_t)args->max_slots * (sizeof(dlrm_cuda_slot) > sizeof(dlrm_cuda_bags) ? sizeof(dlrm_cuda_slot) : sizeof(dlrm_cuda_bags));
    size_t capacity = slots > sizeof(dlrm_cut) ? slots : sizeof(dlrm_cut);
    const dlrm_cuda_step step = {.seed = args->seed, .loss_scale = 1, .unscale = 1};
    dlrm_cut *cut;
    TRY(dlrm_alloc(args->max_slots, sizeof *c->slots, "interaction slots", &c->slots));
    TRY(cuda_queue_open(be, &c->compute, capacity));
    TRY(cuda_queue_open(be, &c->feed, capacity));
    TRY(cuda_queue_open(be, &c->beside, capacity));
    TRY(cuda_alloc(be, 1, sizeof *c->step, "step settings", &c->step));
    cuda_upload(be, c->step, &step, sizeof step);
    TRY(dlrm_alloc(1, sizeof *cut, "a cut", &cut));
    dlrm_cut_make(args->max_batch, 0, 1, args->pinned, args->max_leaves, cut);
    c->loss_work_size = dlrm_cuda_loss_work(cut);
    dlrm_free(&cut);
    TRY(cuda_alloc(be, c->loss_work_size, sizeof(double), "losses", &c->loss_work));
    TRY(cuda_alloc(be, args->max_batch * args->dense_features, sizeof(float), "dense features", &c->raw_dense));
    TRY(cuda_steps_open(be));
    return cuda_matmuls_open(be, args);
}

dlrm_status dlrm_cuda_backend_open(const dlrm_backend_args *args, dlrm_backend *out)
{
    const bool low = args->precision == DLRM_BF16 || args->precision == DLRM_FP16;
    *out = (dlrm_backend){.ops = cuda_with_ranges(&cuda_ops), .act = low ? args->precision : DLRM_FP32, .act_bytes = low ? 2 : 4, .apart = true,
                          .host_room = args->host_room, .row_multiple = 8};
    TRY(dlrm_alloc(1, sizeof(cuda_impl), "CUDA backend", &out->impl));
    cuda_impl *c = cuda_of(out);
    c->device = args->device;
    c->pinned = args->pinned;
    c->precision = args->precision;
    c->seed = args->seed;
    c->operand_bytes = (uint32_t)out->act_bytes;
    cudaError_t code = make_streams_and_events(c);
    dlrm_status st = code == cudaSuccess ? open_rest(out, args) : FAIL(DLRM_E_RUNTIME, "GPU %d: %s", args->device, cudaGetErrorString(code));
    if (st != DLRM_OK) cuda_close(out);
    return st;
}
