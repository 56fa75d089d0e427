#include "train/trainer.h"

#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/step.h"
#include "model/weights.h"
#include "train/course.h"
#include "train/evaluate.h"
#include "train/report.h"
#include "train/saving.h"
#include "train/schedule.h"
#include "train/signals.h"

enum { MAX_WINDOW = 256 /* losses kept before ranks join them */, UNSAVED = 4 /* exit code */ };

typedef struct trainer {
    dlrm_session *s;
    dlrm_batches batches;
    const dlrm_batch *batch; /* the next step's; NULL: none yet */
    bool fed;                /* it has been taken to the backend, */
    int stage;               /* where it is there */
    double wait;             /* for data, since the last step */
    dlrm_losses losses;
    bool evaluates;
    dlrm_evaluator evaluator;
    dlrm_report *report;
    dlrm_mlperf *mlperf;
    dlrm_saving saving;
    int64_t steps, step, clamped;
    double rate, embedding_rate, loss;
    double auc;     /* of the latest evaluation; NaN: none yet */
    bool evaluated; /* after the latest step */
    int signal;     /* that all ranks agreed to end at, or 0 */
} trainer;

static dlrm_status open_own(trainer *t)
{
    dlrm_session *s = t->s;
    int64_t window = s->cfg.log.every_steps > 0 && s->cfg.log.every_steps < MAX_WINDOW ? s->cfg.log.every_steps : MAX_WINDOW;
    TRY(dlrm_losses_open(s->comm, &s->be, (int)window, &t->losses));
    TRY(dlrm_batches_open(s, &s->train_args, &t->batches));
    t->evaluates = dlrm_course_evaluations(s) > 0;
    return t->evaluates ? dlrm_evaluator_open(s, &t->evaluator) : DLRM_OK;
}

/* A loss that is no number: whose samples gave it, and what is left. */
static dlrm_status fail_loss(trainer *t, int64_t step, int i)
{
    const int rank = dlrm_losses_culprit(&t->losses, &t->s->model.reduce, t->s->comm->ranks, i);
    char whose[60] = "", left[4300] = "nothing is saved";
    dlrm_mem_freeze(false);
    if (dlrm_saving_finish(&t->saving, t->report) != DLRM_OK) dlrm_warn("%s", dlrm_error_message()); /* of an earlier, good step */
    if (rank >= 0) snprintf(whose, sizeof whose, " (first in rank %d's samples)", rank);
    if (t->saving.latest[0]) snprintf(left, sizeof left, "this is not saved, the last checkpoint is %s", t->saving.latest);
    return FAIL(DLRM_E_RUNTIME, "step %lld: the loss is %f%s; %s. A lower learning rate or a longer warm-up may help", (long long)step, t->loss,
                whose, left);
}

/* With loss scaling a step whose loss is no number was skipped: it counts for nothing, unless the scale shows that no step
 * has been good for long. */
static bool was_skipped(trainer *t)
{
    const float least = 0x1p-16f;
    dlrm_scale scale;
    if (!t->s->model.scaled) return false;
    t->s->be.ops->scale_get(&t->s->be, &scale);
    return scale.scale >= least;
}

/* Losses noted since the last time go to the report; a loss that is no number ends the run. */
static dlrm_status join_losses(trainer *t)
{
    int n = dlrm_losses_flush(&t->losses, t->s->comm, &t->s->model.reduce);
    for (int i = 0; i < n; i++) {
        t->loss = t->losses.mean[i];
        if (!isfinite(t->loss) && was_skipped(t)) continue;
        dlrm_report_loss(t->report, t->loss);
        if (!isfinite(t->loss)) return fail_loss(t, t->step - n + 1 + i, i);
    }
    return DLRM_OK;
}

/* Has the next batch read. */
static void fetch(trainer *t)
{
    dlrm_session *s = t->s;
    bool epoch_end;
    s->be.ops->feed_wait(&s->be);
    double start = dlrm_now();
    t->batch = dlrm_batches_next(&t->batches, &epoch_end);
    t->wait += dlrm_now() - start;
    DLRM_ASSERT(t->batch);
    t->fed = false;
}

/* Takes it to the backend, where it is in place by the time its step runs. */
static void feed(trainer *t)
{
    t->stage = (t->stage + 1) % DLRM_SORTED;
    dlrm_feed(&t->s->model, t->stage, t->batch, true);
    t->fed = true;
}

/* Ids of the next batch travel while the step runs. */
static void send_ahead(trainer *t)
{
    double start = dlrm_now();
    dlrm_batches_ahead(&t->batches);
    t->wait += dlrm_now() - start;
}

static bool is_line_due(const trainer *t)
{
    const int64_t every = t->s->cfg.log.every_steps;
    return (every > 0 && t->step % every == 0) || t->step == t->steps || t->signal;
}

/* What a rank has to tell all others of, the most urgent first: the largest counts. */
enum { SIGNAL_BITS = 8 };
static int64_t pulse_of(dlrm_status status, int signal, int saving)
{
    return ((int64_t)status << (SIGNAL_BITS + DLRM_SAVING_BITS)) | (signal << DLRM_SAVING_BITS) | saving;
}

/* Does anything between this step and the next look at what the training has come to, or write of it? Vocabularies learn from a
 * batch as it is fed, so the next one has to wait then. */
static bool is_looked_at(trainer *t, int saving)
{
    const dlrm_session *s = t->s;
    return s->spec.n_vocabularies > 0 && (t->signal || is_line_due(t) || dlrm_course_evaluates(s, t->step) ||
                                          dlrm_saving_due(&t->saving, t->step, saving));
}

/* One step, and the next batch fetched and fed while it runs. Whether every rank's batch is good is asked while the step runs: a
 * bad batch holds zeros, and then the job ends, so what the step did with them does not matter. *saving: what the ranks
 * said of checkpoints. */
static dlrm_status step(trainer *t, int *saving)
{
    dlrm_session *s = t->s;
    dlrm_model *m = &s->model;
    double start = dlrm_now();
    if (!t->batch) fetch(t);
    if (!t->fed) feed(t);
    const dlrm_batch *batch = t->batch;
    dlrm_comm_pulse_start(s->comm, pulse_of(batch->status, dlrm_signals_seen(), dlrm_saving_pulse(&t->saving)));
    t->step++;
    t->evaluated = false;
    t->rate = dlrm_schedule_rate(&s->cfg.optimizer.schedule, s->cfg.optimizer.dense.learning_rate, t->step);
    t->embedding_rate = dlrm_schedule_rate(&s->cfg.optimizer.schedule, s->cfg.optimizer.embedding.learning_rate, t->step);
    if (t->step < t->steps) send_ahead(t);
    dlrm_train_step(m, t->stage, t->rate, t->embedding_rate, dlrm_losses_add(&t->losses, batch->size));
    t->clamped += batch->clamped;
    int64_t samples = batch->size;
    const int64_t pulse = dlrm_comm_pulse_finish(s->comm);
    if (pulse >= pulse_of(DLRM_E_INPUT, 0, 0))
        return dlrm_comm_agree(s->comm, batch->status == DLRM_OK ? DLRM_OK : FAIL(batch->status, "%s", batch->message));
    t->signal = (int)(pulse >> DLRM_SAVING_BITS);
    *saving = (int)(pulse & ((1 << DLRM_SAVING_BITS) - 1));
    if (t->step < t->steps) fetch(t);
    if (t->step < t->steps && !is_looked_at(t, *saving)) feed(t);
    dlrm_report_step(t->report, t->step, samples, dlrm_now() - start, t->wait);
    t->wait = 0;
    return DLRM_OK;
}

static dlrm_status evaluate(trainer *t)
{
    dlrm_evaluation e;
    dlrm_mem_freeze(false);
    dlrm_mlperf_eval_start(t->mlperf, t->step);
    TRY(dlrm_evaluator_run(&t->evaluator, &e));
    dlrm_mem_freeze(true);
    t->signal = e.signal;
    if (e.signal) return DLRM_OK;
    dlrm_report_evaluation(t->report, t->step, &e);
    t->auc = e.auc;
    t->evaluated = true;
    return DLRM_OK;
}

static bool target_reached(const trainer *t)
{
    return t->s->cfg.eval.target_auc > 0 && t->evaluated && t->auc >= t->s->cfg.eval.target_auc;
}

/* Joins the losses so far, and tells of them in a line if it is time for one or there will be no other. */
static dlrm_status tell(trainer *t, bool line)
{
    dlrm_status st = join_losses(t);
    if (line || st != DLRM_OK) dlrm_report_line(t->report, t->step, t->steps, t->loss, t->rate, t->embedding_rate);
    return st;
}

/* Saves what the training has come to. The losses of all steps up to here are known and finite first. */
static dlrm_status save(trainer *t, bool background)
{
    const int64_t position = dlrm_course_position(t->s, t->step), per_epoch = dlrm_session_epoch_batches(t->s);
    dlrm_train_state state = {.step = t->step, .updates = t->s->model.updates, .epoch = position / per_epoch,
                              .row = position % per_epoch * t->s->batch, .evaluated = t->evaluated, .auc = t->auc};
    TRY(join_losses(t));
    if (t->s->model.scaled) {
        dlrm_scale scale;
        t->s->be.ops->scale_get(&t->s->be, &scale);
        state.loss_scale = (double)scale.scale;
        state.good_steps = scale.good;
        state.skipped_steps = scale.skipped;
    }
    dlrm_report_losses(t->report, &state.loss_sum, &state.losses);
    dlrm_mem_freeze(false);
    TRY(dlrm_saving_save(&t->saving, t->report, &state, background));
    dlrm_mem_freeze(true);
    return DLRM_OK;
}

static dlrm_status poll_save(trainer *t, int saving)
{
    dlrm_mem_freeze(false);
    TRY(dlrm_saving_poll(&t->saving, t->report, saving));
    dlrm_mem_freeze(true);
    return DLRM_OK;
}

/* Takes up what the checkpoint says, and the evaluation that it was saved before. */
static dlrm_status resume(trainer *t)
{
    const dlrm_train_state *state = &t->s->from.manifest.progress;
    t->auc = NAN;
    if (!t->s->from.folder[0]) return DLRM_OK;
    t->step = state->step;
    t->auc = state->auc;
    t->evaluated = state->evaluated;
    dlrm_report_set_losses(t->report, state->loss_sum, state->losses);
    if (t->step >= t->steps)
        dlrm_info("note: this training of %lld steps has ended before; train.epochs or train.steps makes it longer, checkpoint.resume=never begins "
                  "anew", (long long)t->steps);
    return !t->evaluated && dlrm_course_evaluates(t->s, t->step) ? evaluate(t) : DLRM_OK;
}

/* After a signal the evaluation that is due, or was under way, is left to the run that goes on: there may be little time. */
static dlrm_status loop(trainer *t)
{
    dlrm_mem_freeze(true);
    TRY(resume(t));
    while (t->step < t->steps && !t->signal && !target_reached(t)) {
        int saving = DLRM_SAVING_IDLE;
        dlrm_mlperf_step_start(t->mlperf, t->step + 1);
        TRY(step(t, &saving));
        dlrm_mlperf_step_stop(t->mlperf, t->step);
        const bool line = is_line_due(t);
        if (line || dlrm_losses_full(&t->losses)) TRY(tell(t, line));
        if (dlrm_course_evaluates(t->s, t->step) && !t->signal) TRY(evaluate(t));
        if ((target_reached(t) || t->signal) && !line) TRY(tell(t, true)); /* a signal that ended the evaluation */
        if (dlrm_saving_due(&t->saving, t->step, saving))
            TRY(save(t, true));
        else
            TRY(poll_save(t, saving));
    }
    dlrm_mlperf_run_stop(t->mlperf, t->step, !t->signal && (t->s->cfg.eval.target_auc == 0 || target_reached(t)));
    return save(t, false);
}

/* All ranks leave with an error; a checkpoint of an earlier, good step that is being written is finished all the same. */
static dlrm_status fail_after_last_save(trainer *t, dlrm_status st)
{
    char why[4200];
    dlrm_mlperf_run_stop(t->mlperf, t->step, false);
    snprintf(why, sizeof why, "%s", dlrm_error_message());
    if (dlrm_saving_finish(&t->saving, t->report) != DLRM_OK) dlrm_warn("%s", dlrm_error_message());
    return FAIL(st, "%s", why);
}

/* What follows a training that went well. */
static dlrm_status finish(trainer *t, int *exit_code)
{
    dlrm_session *s = t->s;
    const char *export_to = s->cfg.checkpoint.export_to;
    char why[60];
    if (t->signal)
        snprintf(why, sizeof why, "ended by %s", dlrm_signal_name(t->signal));
    else
        snprintf(why, sizeof why, "%s", target_reached(t) ? "target AUC reached" : "finished");
    if (export_to && !t->signal) TRY(dlrm_weights_export(&s->model, export_to));
    int64_t bytes = dlrm_batches_bytes(&t->batches) + dlrm_batches_bytes(&t->evaluator.batches);
    *exit_code = t->signal ? 128 + t->signal : t->saving.failed ? UNSAVED : 0;
    return dlrm_report_end(t->report, why, bytes, t->clamped);
}

dlrm_status dlrm_train(dlrm_session *s, int *exit_code)
{
    trainer t = {.s = s, .steps = dlrm_course_steps(s)};
    const double data_at = dlrm_now_since_1970();
    dlrm_status st;
    if (!dlrm_session_has_test(s)) dlrm_info("note: the data has no test split; nothing is evaluated");
    dlrm_signals_catch();
    TRY_TO(done, st, dlrm_comm_agree(s->comm, open_own(&t)));
    if (s->cfg.checkpoint.export_to) TRY_TO(done, st, dlrm_weights_check_export(&s->model, s->cfg.checkpoint.export_to));
    TRY_TO(done, st, dlrm_saving_open(s, &t.saving));
    TRY_TO(done, st, dlrm_report_open(s, s->from.folder[0] != 0, &t.report));
    t.mlperf = dlrm_report_mlperf(t.report);
    dlrm_mlperf_run_start(t.mlperf, data_at);
    st = loop(&t);
    dlrm_mem_freeze(false);
    st = st == DLRM_OK ? finish(&t, exit_code) : fail_after_last_save(&t, st);
done:
    dlrm_signals_release();
    dlrm_saving_close(&t.saving);
    dlrm_report_close(&t.report);
    dlrm_evaluator_close(&t.evaluator);
    dlrm_batches_close(&t.batches);
    dlrm_losses_close(&t.losses);
    return st;
}

dlrm_status dlrm_train_eval_only(dlrm_session *s)
{
    dlrm_evaluator evaluator = {0};
    dlrm_report *report = NULL;
    dlrm_evaluation e;
    dlrm_status st;
    TRY_TO(done, st, dlrm_comm_agree(s->comm, dlrm_evaluator_open(s, &evaluator)));
    TRY_TO(done, st, dlrm_report_open(s, true, &report));
    TRY_TO(done, st, dlrm_evaluator_run(&evaluator, &e));
    dlrm_report_evaluation(report, s->from.manifest.progress.step, &e);
done:
    dlrm_report_close(&report);
    dlrm_evaluator_close(&evaluator);
    return st;
}
