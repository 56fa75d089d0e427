#include "train/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "backend/cpu/gemm.h"
#include "train/course.h"
#include "train/device.h"
#include "train/tensorboard.h"
#include "train/vocabularies.h"

enum { KEPT_STEPS = 1 << 20, BAR_WIDTH = 24, RANKS_SHOWN = 16 };
static const double BAR_EVERY_S = 0.2;

/* What one rank has to say at the end. */
typedef struct rank_end {
    int64_t samples, table_bytes, file_bytes, sent_bytes, peak_bytes, peak_resident, clamped;
    double seconds[DLRM_PHASES];
    dlrm_device_use device;
    dlrm_cache_use cache;
} rank_end;

struct dlrm_report {
    dlrm_session *s;
    dlrm_jsonl jsonl; /* rank 0 */
    dlrm_tensorboard board;
    dlrm_mlperf mlperf;
    dlrm_device_meter *meter;
    dlrm_vocabularies vocabularies;
    bool bar;
    float *step_ms; /* rank 0: of the last KEPT_STEPS steps */
    float *sorted;  /* rank 0: scratch, as many */
    int64_t capacity, steps, samples, own_samples;
    int saved, not_saved; /* checkpoints */
    double stall_s, save_s;
    double total_s, wait_s, bar_at;
    /* since the last line */
    int64_t window_steps, window_samples, losses;
    double window_s, window_wait_s, loss_sum;
    double phases_at[DLRM_PHASES]; /* seconds when it began */
    dlrm_cache_use cache_at;       /* when it began */
};

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* The config's path may have any bytes, a message may be cut anywhere, and JSON has UTF-8: of a text that is not, what is beyond
 * ASCII becomes '?'. */
static json_t *text(const char *s)
{
    json_t *v = json_string(s);
    if (v) return v;
    char *plain = strdup(s);
    for (char *c = plain; c && *c; c++)
        if (*c & 0x80) *c = '?';
    v = json_string(plain);
    free(plain);
    return v;
}

static void write_event(dlrm_report *r, json_t *event)
{
    dlrm_tensorboard_write(&r->board, event);
    dlrm_mlperf_write(&r->mlperf, event);
    dlrm_jsonl_write(&r->jsonl, event);
}

static json_t *model_json(const dlrm_session *s)
{
    const dlrm_model_spec *m = &s->spec;
    return json_pack("{s:i,s:i,s:i,s:s,s:i,s:I,s:I}", "tables", m->n_tables, "inputs", m->n_inputs, "dense_features",
                     m->dense_features, "interaction", dlrm_interaction_text(m->interaction), "interaction_width",
                     m->interaction_width, "embedding_parameters", (json_int_t)m->table_elements, "mlp_parameters",
                     (json_int_t)m->mlp_elements);
}

/* Each table's rank; null where it is in slices. */
static json_t *owners_json(const dlrm_session *s)
{
    json_t *owners = json_array();
    for (int t = 0; t < s->spec.n_tables; t++) {
        const int first = s->place.first_slice[t], slices = s->place.first_slice[t + 1] - first;
        json_array_append_new(owners, slices == 1 ? json_integer(s->place.slices[first].owner) : json_null());
    }
    return owners;
}

/* The predicted work of each rank, appended. */
static dlrm_status append_work(const dlrm_session *s, json_t *ranks)
{
    for (int p = 0; p < s->comm->ranks; p++) {
        dlrm_work w;
        TRY(dlrm_work_of(s, p, &w));
        json_array_append_new(ranks, json_pack("{s:i,s:i,s:i,s:o,s:I,s:I,s:I,s:I,s:I,s:I}", "rank", p, "tables", w.tables, "inputs",
                                               w.inputs, "tables_ms", number(w.tables_ms), "samples", (json_int_t)w.samples, "table_bytes", (json_int_t)w.table_bytes,
                                               "state_bytes", (json_int_t)w.state_bytes, "memory_bytes", (json_int_t)w.memory_bytes,
                                               "file_bytes", (json_int_t)w.file_bytes, "sent_bytes_per_step", (json_int_t)w.sent_bytes));
    }
    return DLRM_OK;
}

static dlrm_status start_event(dlrm_report *r)
{
    const dlrm_session *s = r->s;
    json_t *ranks = json_array();
    dlrm_status st = append_work(s, ranks);
    if (st != DLRM_OK) {
        json_decref(ranks);
        return st;
    }
    json_t *event = json_pack("{s:s,s:s,s:o,s:i,s:i,s:s,s:s,s:s,s:b,s:I,s:I,s:I,s:I,s:o,s:s,s:o,s:i,s:I,s:o}", "event", "start", "version",
                             DLRM_VERSION, "config", text(s->cfg.path), "ranks", s->comm->ranks, "threads", s->threads, "device",
                             s->be.ops->name, "exchange", dlrm_embedding_exchange_name(&s->model.emb, &s->model.exchange), "gemm", dlrm_gemm_name,
                             "deterministic", (int)s->cfg.train.deterministic, "batch_size",
                             (json_int_t)s->batch, "steps", (json_int_t)dlrm_course_steps(s), "train_rows",
                             (json_int_t)dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT), "test_rows",
                             (json_int_t)dlrm_dataset_rows(s->data, DLRM_TEST_SPLIT), "model", model_json(s), "strategy",
                             dlrm_strategy_text(s->cfg.parallel.strategy), "table_owner", owners_json(s), "replicated_tables", s->place.replicated_tables, "replicated_parameters",
                             (json_int_t)s->place.replicated_elements, "per_rank", ranks);
    if (r->vocabularies.n > 0) json_object_set_new(event, "vocabularies", dlrm_vocabularies_start_json(&r->vocabularies));
    write_event(r, event);
    return DLRM_OK;
}

static void start_lines(const dlrm_session *s)
{
    const dlrm_model_spec *m = &s->spec;
    const double element = (double)dlrm_dtype_bytes(s->cfg.train.embedding_dtype); /* bytes, of a table */
    dlrm_info("dlrm-train %s: %d rank%s x %d thread%s, %s (%s)%s", DLRM_VERSION, s->comm->ranks, s->comm->ranks > 1 ? "s" : "", s->threads,
              s->threads > 1 ? "s" : "", s->be.ops->name, dlrm_gemm_name, s->cfg.train.deterministic ? ", deterministic" : "");
    dlrm_info("model: %d tables, %d inputs, %.3f M embedding + %.3f M MLP parameters (%.2f GiB), %s interaction", m->n_tables, m->n_inputs,
              (double)m->table_elements * 1e-6, (double)m->mlp_elements * 1e-6,
              ((double)m->table_elements * element + (double)m->mlp_elements * 4) / (1 << 30), dlrm_interaction_text(m->interaction));
    for (int p = 0; p < s->comm->ranks; p++) {
        if (p == RANKS_SHOWN && s->comm->ranks > RANKS_SHOWN + 1) {
            dlrm_info("  … and %d more ranks", s->comm->ranks - p);
            break;
        }
        dlrm_info("  rank %d: %d tables, %.1f MiB (%s)", p, s->place.tables[p], (double)s->place.elements[p] * element / (1 << 20),
                  dlrm_strategy_text(s->cfg.parallel.strategy));
    }
    if (s->place.replicated_tables)
        dlrm_info("  every rank: %d tables, %.1f MiB", s->place.replicated_tables,
                  (double)s->place.replicated_elements * element / (1 << 20));
    dlrm_info("data: %lld training rows, %lld test rows; batch %lld, %lld steps", (long long)dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT),
              (long long)dlrm_dataset_rows(s->data, DLRM_TEST_SPLIT), (long long)s->batch, (long long)dlrm_course_steps(s));
}

static dlrm_status open_log(dlrm_report *r, bool append)
{
    static const dlrm_jsonl_kind kind = {"log.jsonl", "", "{\"event\":\"", "events"};
    const dlrm_config *cfg = &r->s->cfg;
    if (r->s->comm->rank != 0) return DLRM_OK;
    TRY(dlrm_jsonl_open(cfg, &kind, cfg->log.jsonl, append, &r->jsonl));
    TRY(dlrm_mlperf_open(r->s, append, &r->mlperf));
    TRY(dlrm_jsonl_check_apart(cfg, &r->jsonl, &r->mlperf.log));
    TRY(dlrm_tensorboard_open(cfg, &r->board));
    int64_t steps = dlrm_course_steps(r->s) - r->s->first_step;
    r->capacity = steps < 1 ? 1 : steps < KEPT_STEPS ? steps : KEPT_STEPS;
    TRY(dlrm_alloc(r->capacity, sizeof *r->step_ms, "step times", &r->step_ms));
    TRY(dlrm_alloc(r->capacity, sizeof *r->sorted, "step times", &r->sorted));
    TRY(start_event(r));
    if (r->s->from.folder[0])
        write_event(r, json_pack("{s:s,s:s,s:I,s:I,s:I,s:i}", "event", "resume", "checkpoint", r->s->from.folder, "step",
                                 (json_int_t)r->s->from.manifest.progress.step, "epoch", (json_int_t)r->s->from.manifest.progress.epoch, "row",
                                 (json_int_t)r->s->from.manifest.progress.row, "ranks_before", r->s->from.manifest.ranks));
    return DLRM_OK;
}

dlrm_status dlrm_report_open(dlrm_session *s, bool append, dlrm_report **out)
{
    dlrm_report *r;
    TRY(dlrm_comm_agree(s->comm, dlrm_alloc(1, sizeof *r, "report", out)));
    r = *out;
    r->s = s;
    r->jsonl.fd = r->mlperf.log.fd = r->board.fd = -1;
    r->bar = s->cfg.log.progress == 1 || (s->cfg.log.progress < 0 && dlrm_log_is_terminal());
    TRY(dlrm_vocabularies_open(s, &r->vocabularies));
    TRY(dlrm_comm_agree(s->comm, open_log(r, append)));
    TRY(dlrm_comm_agree(s->comm, dlrm_device_meter_open(s->device, &r->meter)));
    start_lines(s);
    return DLRM_OK;
}

void dlrm_report_close(dlrm_report **rp)
{
    dlrm_report *r = *rp;
    if (!r) return;
    dlrm_jsonl_close(&r->jsonl);
    dlrm_mlperf_close(&r->mlperf);
    dlrm_tensorboard_close(&r->board);
    dlrm_device_meter_close(&r->meter);
    dlrm_vocabularies_close(&r->vocabularies);
    dlrm_free(&r->step_ms);
    dlrm_free(&r->sorted);
    dlrm_free(rp);
}

dlrm_mlperf *dlrm_report_mlperf(dlrm_report *r)
{
    return &r->mlperf;
}

static void eta_text(double seconds, char *buf, size_t bytes)
{
    int64_t t = (int64_t)(seconds + 0.5);
    if (t >= 3600)
        snprintf(buf, bytes, "%lldh%02dm", (long long)(t / 3600), (int)(t / 60 % 60));
    else if (t >= 60)
        snprintf(buf, bytes, "%dm%02ds", (int)(t / 60), (int)(t % 60));
    else
        snprintf(buf, bytes, "%ds", (int)t);
}

static void show_bar(dlrm_report *r, int64_t step)
{
    char bar[BAR_WIDTH + 1], eta[32];
    int64_t steps = dlrm_course_steps(r->s);
    int full = (int)(BAR_WIDTH * step / steps);
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    eta_text(r->total_s / (double)r->steps * (double)(steps - step), eta, sizeof eta);
    dlrm_progress("[%s] %lld/%lld  eta %s", bar, (long long)step, (long long)steps, eta);
}

void dlrm_report_step(dlrm_report *r, int64_t step, int64_t samples, double seconds, double wait_seconds)
{
    if (r->step_ms) r->step_ms[r->steps % r->capacity] = (float)(1e3 * seconds);
    r->steps++;
    r->samples += samples;
    r->own_samples += r->s->model.at->own;
    r->total_s += seconds;
    r->wait_s += wait_seconds;
    r->window_steps++;
    r->window_samples += samples;
    r->window_s += seconds;
    r->window_wait_s += wait_seconds;
    if (r->bar && r->s->comm->rank == 0 && dlrm_now() - r->bar_at > BAR_EVERY_S) {
        r->bar_at = dlrm_now();
        show_bar(r, step);
    }
}

void dlrm_report_loss(dlrm_report *r, double loss)
{
    r->loss_sum += loss;
    r->losses++;
}

void dlrm_report_losses(const dlrm_report *r, double *sum, int64_t *n)
{
    *sum = r->loss_sum;
    *n = r->losses;
}

void dlrm_report_set_losses(dlrm_report *r, double sum, int64_t n)
{
    r->loss_sum = sum;
    r->losses = n;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median and 95th percentile of the last n step times, as far as they were kept. */
static void quantiles(dlrm_report *r, int64_t n, double *median, double *p95)
{
    const int64_t kept = n < r->capacity ? n : r->capacity;
    *median = *p95 = NAN;
    if (kept == 0) return;
    for (int64_t i = 0; i < kept; i++) r->sorted[i] = r->step_ms[(r->steps - kept + i) % r->capacity];
    qsort(r->sorted, (size_t)kept, sizeof *r->sorted, by_value);
    *median = r->sorted[(int64_t)(0.5 * (double)(kept - 1) + 0.5)];
    *p95 = r->sorted[(int64_t)(0.95 * (double)(kept - 1) + 0.5)];
}

static json_t *shares_json(const double *seconds, double total)
{
    json_t *shares = json_object();
    for (int k = 0; k < DLRM_PHASES; k++) json_object_set_new(shares, dlrm_phase_names[k], number(total > 0 ? seconds[k] / total : NAN));
    return shares;
}

/* What this rank spent on each phase since the last line. */
static void window_phases(dlrm_report *r, double *seconds)
{
    double now[DLRM_PHASES];
    r->s->be.ops->laps(&r->s->be, now);
    for (int k = 0; k < DLRM_PHASES; k++) {
        seconds[k] = now[k] - r->phases_at[k];
        r->phases_at[k] = now[k];
    }
    seconds[DLRM_PHASE_DATA] = r->window_wait_s;
}

static bool has_cache(const dlrm_session *s)
{
    return s->model.emb.own.shard.n_pools > 0;
}

/* Of rows that batches listed, the share that was on the device before they were wanted. */
static double hit_rate(const dlrm_cache_use *u, int64_t listed_before, int64_t found_before)
{
    return (double)(u->found - found_before) / (double)(u->listed - listed_before);
}

static void add_cache(dlrm_report *r, json_t *event)
{
    dlrm_cache_use now;
    r->s->be.ops->cache_use(&r->s->be, &r->s->model.emb.own.shard, &now);
    json_object_set_new(event, "cache_hit_rate", number(hit_rate(&now, r->cache_at.listed, r->cache_at.found)));
    r->cache_at = now;
}

static void add_scale(dlrm_session *s, json_t *event)
{
    dlrm_scale scale;
    s->be.ops->scale_get(&s->be, &scale);
    json_object_set_new(event, "loss_scale", number((double)scale.scale));
    json_object_set_new(event, "skipped_steps", json_integer((json_int_t)scale.skipped));
}

void dlrm_report_line(dlrm_report *r, int64_t step, int64_t steps, double loss, double rate, double embedding_rate)
{
    double step_ms = 1e3 * r->window_s / (double)r->window_steps, per_s = (double)r->window_samples / r->window_s;
    double mean = r->loss_sum / (double)r->losses;
    dlrm_device_meter_sample(r->meter);
    dlrm_vocabularies_count(&r->vocabularies);
    if (r->s->comm->rank == 0) {
        char eta[32], keys[120];
        double median, p95, phases[DLRM_PHASES];
        quantiles(r, r->window_steps, &median, &p95);
        window_phases(r, phases);
        eta_text(step_ms * 1e-3 * (double)(steps - step), eta, sizeof eta);
        dlrm_vocabularies_text(&r->vocabularies, false, keys, sizeof keys);
        dlrm_info("step %lld/%lld | loss %.5f | %.2f ms/step | %.4g %s samples/s | lr %.4g | eta %s%s%s", (long long)step, (long long)steps,
                  mean, step_ms, per_s >= 1e6 ? per_s * 1e-6 : per_s * 1e-3, per_s >= 1e6 ? "M" : "k", rate, eta, keys[0] ? " | " : "", keys);
        json_t *event = json_pack("{s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "event", "step", "step", (json_int_t)step, "loss",
                                  number(loss), "loss_mean", number(mean), "step_ms", number(step_ms), "step_ms_median", number(median),
                                  "step_ms_p95", number(p95), "samples_per_s", number(per_s), "lr", number(rate), "lr_embedding",
                                  number(embedding_rate), "data_wait_ms", number(1e3 * r->window_wait_s / (double)r->window_steps),
                                  "time_shares", shares_json(phases, r->window_s));
        if (r->s->model.scaled) add_scale(r->s, event);
        if (has_cache(r->s)) add_cache(r, event);
        if (r->vocabularies.n > 0) json_object_set_new(event, "vocabularies", dlrm_vocabularies_json(&r->vocabularies, false));
        write_event(r, event);
    }
    dlrm_vocabularies_begin_window(&r->vocabularies);
    r->window_steps = r->window_samples = r->losses = 0;
    r->window_s = r->window_wait_s = r->loss_sum = 0;
}

void dlrm_report_evaluation(dlrm_report *r, int64_t step, const dlrm_evaluation *e)
{
    const double unknown = dlrm_vocabularies_evaluated(&r->vocabularies);
    char ids[60] = "";
    if (r->s->comm->rank != 0) return;
    if (r->vocabularies.n > 0) snprintf(ids, sizeof ids, " | %.2f %% of ids out of vocabulary", 100 * unknown);
    dlrm_info("evaluation after step %lld | AUC %.6f | loss %.5f | %lld samples%s", (long long)step, e->auc, e->loss, (long long)e->samples, ids);
    json_t *event = json_pack("{s:s,s:I,s:o,s:o,s:I}", "event", "eval", "step", (json_int_t)step, "auc", number(e->auc), "loss",
                              number(e->loss), "samples", (json_int_t)e->samples);
    if (r->vocabularies.n > 0) json_object_set_new(event, "out_of_vocabulary", number(unknown));
    write_event(r, event);
}

void dlrm_report_checkpoint(dlrm_report *r, const dlrm_save_result *c)
{
    r->saved += c->saved;
    r->not_saved += !c->saved;
    r->stall_s += c->stall_s;
    r->save_s += c->save_s;
    if (r->s->comm->rank != 0) return;
    json_t *event = json_pack("{s:s,s:I,s:b,s:s,s:I,s:o,s:o}", "event", "checkpoint", "step", (json_int_t)c->step, "saved", (int)c->saved,
                              "checkpoint", c->folder, "bytes", (json_int_t)c->bytes, "stall_ms", number(1e3 * c->stall_s), "save_ms",
                              number(1e3 * c->save_s));
    if (c->saved) {
        dlrm_info("checkpoint %s | %.1f MiB in %.2f s, training waited %.1f ms", c->folder, (double)c->bytes / (1 << 20), c->save_s,
                  1e3 * c->stall_s);
    } else {
        dlrm_warn("step %lld could not be saved: %s; training goes on, older checkpoints stay", (long long)c->step, c->why);
        json_object_set_new(event, "why", text(c->why));
    }
    write_event(r, event);
}

/* What a rank's embeddings took of a step, in ms: with what waits for them in exchanges, and the sums of the MLPs' gradients. */
static double tables_ms(const dlrm_report *r, const rank_end *e)
{
    const double s = e->seconds[DLRM_PHASE_LOOKUP] + e->seconds[DLRM_PHASE_EXCHANGE] + e->seconds[DLRM_PHASE_UPDATE];
    return r->steps ? 1e3 * s / (double)r->steps : 0;
}

/* The slowest rank as the cost model has it, and as it was. */
static void slowest_ranks(const dlrm_report *r, const rank_end *ranks, int *predicted, int *measured)
{
    *predicted = *measured = 0;
    for (int p = 1; p < r->s->comm->ranks; p++) {
        if (r->s->place.seconds[p] > r->s->place.seconds[*predicted]) *predicted = p;
        if (tables_ms(r, &ranks[p]) > tables_ms(r, &ranks[*measured])) *measured = p;
    }
}

static void end_lines(dlrm_report *r, const char *why, const rank_end *ranks, double median, double p95)
{
    const int R = r->s->comm->ranks;
    char shares[300];
    int64_t peak = 0, clamped = 0;
    int predicted, measured;
    double rest = 100;
    int at = 0;
    for (int k = 0; k < DLRM_PHASES; k++) {
        double share = r->total_s > 0 ? 100 * ranks[0].seconds[k] / r->total_s : 0;
        rest -= share;
        at += snprintf(shares + at, sizeof shares - (size_t)at, "%s %.1f %%, ", dlrm_phase_names[k], share);
    }
    snprintf(shares + at, sizeof shares - (size_t)at, "other %.1f %%", rest > 0 ? rest : 0);
    for (int p = 0; p < R; p++) {
        peak = ranks[p].peak_resident > peak ? ranks[p].peak_resident : peak;
        clamped += ranks[p].clamped;
    }
    dlrm_info("%s after %lld steps, %lld samples in %.1f s of training", why, (long long)r->steps, (long long)r->samples, r->total_s);
    if (r->steps > 0) {
        dlrm_info("step time: median %.2f ms, p95 %.2f ms | %.0f samples/s", median, p95, (double)r->samples / r->total_s);
        dlrm_info("time: %s (rank 0)", shares);
        slowest_ranks(r, ranks, &predicted, &measured);
        dlrm_info("tables of the slowest rank: %.2f ms a step predicted (rank %d), %.2f ms measured (rank %d)",
                  1e3 * r->s->place.seconds[predicted], predicted, tables_ms(r, &ranks[measured]), measured);
    }
    dlrm_info("peak memory of a rank: %.1f MiB", (double)peak / (1 << 20));
    if (r->meter)
        dlrm_info("GPU of rank 0: %.1f GiB in use, %.0f W, busy %.0f %%", (double)ranks[0].device.peak_bytes / (1 << 30), ranks[0].device.watts,
                  100 * ranks[0].device.busy);
    if (ranks[0].cache.listed)
        dlrm_info("tables in host memory: %.2f %% of the rows that batches listed were in the cache (rank 0)",
                  100 * hit_rate(&ranks[0].cache, 0, 0));
    if (r->vocabularies.n > 0) dlrm_info("vocabularies: %s", dlrm_vocabularies_text(&r->vocabularies, true, shares, sizeof shares));
    if (clamped) dlrm_warn("%lld ids were outside their tables and read row 0 (data.index_check: clamp)", (long long)clamped);
}

static json_t *rank_json(const dlrm_report *r, int p, const rank_end *e)
{
    json_t *o = json_pack("{s:i,s:I,s:I,s:I,s:o,s:I,s:I,s:I,s:o}", "rank", p, "samples", (json_int_t)e->samples, "table_bytes",
                     (json_int_t)e->table_bytes, "file_bytes", (json_int_t)e->file_bytes, "sent_bytes_per_step",
                     number(r->steps ? (double)e->sent_bytes / (double)r->steps : 0), "peak_bytes", (json_int_t)e->peak_bytes,
                     "peak_resident_bytes", (json_int_t)e->peak_resident, "clamped_ids", (json_int_t)e->clamped, "time_shares",
                     shares_json(e->seconds, r->total_s));
    json_object_set_new(o, "tables_ms_predicted", number(1e3 * r->s->place.seconds[p]));
    json_object_set_new(o, "tables_ms", number(tables_ms(r, e)));
    if (r->meter) {
        json_object_set_new(o, "device_peak_bytes", json_integer(e->device.peak_bytes));
        json_object_set_new(o, "device_watts", number(e->device.watts));
        json_object_set_new(o, "device_busy", number(e->device.busy));
    }
    if (e->cache.listed) json_object_set_new(o, "cache_hit_rate", number(hit_rate(&e->cache, 0, 0)));
    return o;
}

dlrm_status dlrm_report_end(dlrm_report *r, const char *why, int64_t file_bytes, int64_t clamped)
{
    dlrm_session *s = r->s;
    rank_end mine = {.samples = r->own_samples, .file_bytes = file_bytes, .sent_bytes = s->comm->bytes_sent,
                     .peak_bytes = dlrm_mem_peak_bytes(), .peak_resident = dlrm_mem_peak_resident(), .clamped = clamped};
    rank_end *all;
    dlrm_device_meter_read(r->meter, &mine.device);
    s->be.ops->laps(&s->be, mine.seconds);
    mine.seconds[DLRM_PHASE_DATA] = r->wait_s;
    mine.table_bytes = dlrm_embedding_bytes(&s->model.emb);
    s->be.ops->cache_use(&s->be, &s->model.emb.own.shard, &mine.cache);
    TRY(dlrm_comm_agree(s->comm, dlrm_alloc(s->comm->ranks, sizeof *all, "end of run", &all)));
    dlrm_comm_allgather(s->comm, &mine, sizeof mine, all);
    dlrm_vocabularies_count(&r->vocabularies);
    if (s->comm->rank == 0) {
        json_t *ranks = json_array();
        double median, p95;
        quantiles(r, r->steps, &median, &p95);
        for (int p = 0; p < s->comm->ranks; p++) json_array_append_new(ranks, rank_json(r, p, &all[p]));
        end_lines(r, why, all, median, p95);
        json_t *checkpoints = json_pack("{s:i,s:i,s:f,s:f}", "saved", r->saved, "failed", r->not_saved, "stall_s", r->stall_s, "save_s", r->save_s);
        json_t *event = json_pack("{s:s,s:s,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "event", "end", "why", why, "first_step",
                                  (json_int_t)s->first_step, "steps", (json_int_t)r->steps,
                                  "samples", (json_int_t)r->samples, "step_ms_median", number(median), "step_ms_p95", number(p95),
                                  "samples_per_s", number((double)r->samples / r->total_s), "train_s", number(r->total_s),
                                  "data_wait_share", number(r->wait_s / r->total_s), "checkpoints", checkpoints, "per_rank", ranks);
        if (r->vocabularies.n > 0) json_object_set_new(event, "vocabularies", dlrm_vocabularies_json(&r->vocabularies, true));
        write_event(r, event);
    }
    dlrm_free(&all);
    return DLRM_OK;
}
