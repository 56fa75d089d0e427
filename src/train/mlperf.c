#include "train/mlperf.h"

#include <string.h>

#include "base/log.h"
#include "train/course.h"

static const dlrm_jsonl_kind kind = {"log.mlperf", ":::MLLOG ", ":::MLLOG {", "MLPerf's lines"};

/* --- lines --- */

/* Takes value and metadata. */
static void put(dlrm_mlperf *m, double at, const char *type, const char *key, json_t *value, json_t *metadata)
{
    dlrm_jsonl_write(&m->log, json_pack("{s:s,s:I,s:s,s:s,s:o,s:o}", "namespace", "", "time_ms", (json_int_t)(1e3 * at), "event_type", type,
                                        "key", key, "value", value, "metadata", metadata));
}

static void point(dlrm_mlperf *m, const char *key, json_t *value)
{
    put(m, dlrm_now_since_1970(), "POINT_IN_TIME", key, value, json_object());
}

static void number(dlrm_mlperf *m, const char *key, double value)
{
    point(m, key, json_real(value));
}

static void count(dlrm_mlperf *m, const char *key, int64_t value)
{
    point(m, key, json_integer((json_int_t)value));
}

static void interval(dlrm_mlperf *m, const char *type, const char *key, json_t *metadata)
{
    put(m, dlrm_now_since_1970(), type, key, json_null(), metadata);
}

/* Where the training is after this step. */
static json_t *progress(const dlrm_mlperf *m, int64_t step)
{
    const dlrm_session *s = m->s;
    const int64_t at = dlrm_course_position(s, step), per_epoch = dlrm_session_epoch_batches(s);
    const int64_t rows = dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT), epochs = at / per_epoch;
    return json_pack("{s:f,s:I,s:I}", "epoch_num", (double)at / (double)per_epoch, "samples_count",
                     (json_int_t)(epochs * rows + at % per_epoch * s->batch), "step_num", (json_int_t)step);
}

/* The epoch that this step is of. */
static json_t *epoch(const dlrm_mlperf *m, int64_t step)
{
    return json_pack("{s:I}", "epoch_num", (json_int_t)((dlrm_course_position(m->s, step) - 1) / dlrm_session_epoch_batches(m->s) + 1));
}

/* --- settings --- */

/* The MLPs' value, beside which stands the tables' where it is another one. Takes both. */
static void both(dlrm_mlperf *m, const char *key, json_t *dense, json_t *tables)
{
    put(m, dlrm_now_since_1970(), "POINT_IN_TIME", key, dense,
        json_equal(dense, tables) ? json_object() : json_pack("{s:O}", "embedding", tables));
    json_decref(tables);
}

static void optimizer_number(dlrm_mlperf *m, const char *key, double dense, double tables)
{
    both(m, key, json_real(dense), json_real(tables));
}

static void optimizer(dlrm_mlperf *m)
{
    const dlrm_optimizer_config *dense = &m->s->cfg.optimizer.dense, *tables = &m->s->cfg.optimizer.embedding;
    const dlrm_schedule_config *schedule = &m->s->cfg.optimizer.schedule;
    both(m, "opt_name", json_string(dlrm_optimizer_text(dense->name)), json_string(dlrm_optimizer_text(tables->name)));
    optimizer_number(m, "opt_base_learning_rate", dense->learning_rate, tables->learning_rate);
    number(m, "opt_weight_decay", 0);
    if (tables->name != dense->name) tables = dense; /* its numbers are those of another rule */
    if (dense->name == DLRM_ADAGRAD) {
        number(m, "opt_adagrad_learning_rate_decay", 0);
        optimizer_number(m, "opt_adagrad_initial_accumulator_value", dense->initial_accumulator, tables->initial_accumulator);
        optimizer_number(m, "opt_adagrad_epsilon", dense->epsilon, tables->epsilon);
    } else if (dense->name == DLRM_ADAM) {
        optimizer_number(m, "opt_adam_beta_1", dense->beta1, tables->beta1);
        optimizer_number(m, "opt_adam_beta_2", dense->beta2, tables->beta2);
        optimizer_number(m, "opt_adam_epsilon", dense->epsilon, tables->epsilon);
    } else {
        number(m, "sgd_opt_base_learning_rate", dense->learning_rate);
        optimizer_number(m, "sgd_opt_momentum", dense->momentum, tables->momentum);
        number(m, "sgd_opt_learning_rate_decay_poly_power", schedule->decay_power);
        count(m, "sgd_opt_learning_rate_decay_steps", schedule->decay_steps);
        count(m, "lr_decay_start_steps", schedule->decay_start_step);
    }
    count(m, "opt_learning_rate_warmup_steps", schedule->warmup_steps);
    count(m, "opt_learning_rate_decay_start_step", schedule->decay_start_step);
    count(m, "opt_learning_rate_decay_steps", schedule->decay_steps);
}

static void settings(dlrm_mlperf *m)
{
    const dlrm_session *s = m->s;
    if (s->spec.interaction == DLRM_DOT) point(m, "submission_benchmark", json_string("dlrm"));
    if (s->spec.interaction == DLRM_DCN) point(m, "submission_benchmark", json_string("dlrm_dcnv2"));
    count(m, "seed", s->cfg.train.seed);
    count(m, "global_batch_size", s->batch);
    count(m, "gradient_accumulation_steps", 1);
    count(m, "train_samples", dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT));
    count(m, "eval_samples", dlrm_session_scored_rows(s));
    optimizer(m);
}

/* --- the run --- */

dlrm_status dlrm_mlperf_open(const dlrm_session *s, bool append, dlrm_mlperf *out)
{
    *out = (dlrm_mlperf){.s = s, .log.fd = -1};
    if (s->weights_only) return DLRM_OK; /* nothing is trained */
    return dlrm_jsonl_open(&s->cfg, &kind, s->cfg.log.mlperf, append, &out->log);
}

void dlrm_mlperf_run_start(dlrm_mlperf *m, double data_at)
{
    if (m->log.fd < 0) return;
    put(m, m->s->opened_at, "INTERVAL_START", "init_start", json_null(), json_object());
    put(m, data_at, "INTERVAL_END", "init_stop", json_null(), json_object());
    put(m, data_at, "INTERVAL_START", "run_start", json_null(), json_object());
    settings(m);
    m->running = true;
}

void dlrm_mlperf_step_start(dlrm_mlperf *m, int64_t step)
{
    if (m->log.fd < 0 || m->in_epoch) return;
    interval(m, "INTERVAL_START", "epoch_start", epoch(m, step));
    m->in_epoch = true;
}

static void stop_epoch(dlrm_mlperf *m, int64_t step)
{
    if (m->in_epoch) interval(m, "INTERVAL_END", "epoch_stop", epoch(m, step));
    m->in_epoch = false;
}

void dlrm_mlperf_step_stop(dlrm_mlperf *m, int64_t step)
{
    if (m->log.fd >= 0 && dlrm_course_position(m->s, step) % dlrm_session_epoch_batches(m->s) == 0) stop_epoch(m, step);
}

void dlrm_mlperf_eval_start(dlrm_mlperf *m, int64_t step)
{
    if (m->log.fd >= 0) interval(m, "INTERVAL_START", "eval_start", progress(m, step));
}

void dlrm_mlperf_write(dlrm_mlperf *m, const json_t *event)
{
    const char *kind_of = json_string_value(json_object_get(event, "event"));
    const int64_t step = (int64_t)json_integer_value(json_object_get(event, "step"));
    if (m->log.fd < 0 || !kind_of) return;
    if (strcmp(kind_of, "step") == 0)
        put(m, dlrm_now_since_1970(), "POINT_IN_TIME", "tracked_stats", json_pack("{s:O}", "throughput", json_object_get(event, "samples_per_s")),
            progress(m, step));
    if (strcmp(kind_of, "eval") != 0) return;
    put(m, dlrm_now_since_1970(), "POINT_IN_TIME", "eval_accuracy", json_incref(json_object_get(event, "auc")), progress(m, step));
    interval(m, "INTERVAL_END", "eval_stop", progress(m, step));
}

void dlrm_mlperf_run_stop(dlrm_mlperf *m, int64_t step, bool success)
{
    if (!m->running) return;
    stop_epoch(m, step);
    m->running = false;
    json_t *metadata = progress(m, step);
    json_object_set_new(metadata, "status", json_string(success ? "success" : "aborted"));
    interval(m, "INTERVAL_END", "run_stop", metadata);
}

void dlrm_mlperf_close(dlrm_mlperf *m)
{
    dlrm_jsonl_close(&m->log);
}
