#include "train/trainer.h"

#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/step.h"
#include "model/weights.h"
#include "train/evaluate.h"
#include "train/report.h"
#include "train/schedule.h"

enum { MAX_WINDOW = 256 /* losses kept before ranks join them */ };

typedef struct trainer {
    dlrm_session *s;
    dlrm_batches batches;
    const dlrm_batch *batch; /* the next step's, fed already; NULL: none yet */
    int stage;               /* where it is */
    double wait;             /* for data, since the last step */
    dlrm_losses losses;
    bool evaluates;
    dlrm_evaluator evaluator;
    dlrm_report *report;
    int64_t steps, step, clamped;
    double rate, embedding_rate, loss;
} trainer;

static dlrm_status open_own(trainer *t)
{
    dlrm_session *s = t->s;
    int64_t window = s->cfg.log.every_steps > 0 && s->cfg.log.every_steps < MAX_WINDOW ? s->cfg.log.every_steps : MAX_WINDOW;
    TRY(dlrm_losses_open(s->comm, &s->be, (int)window, &t->losses));
    TRY(dlrm_batches_open(s, &s->train_args, &t->batches));
    t->evaluates = dlrm_session_evaluations(s) > 0;
    return t->evaluates ? dlrm_evaluator_open(s, &t->evaluator) : DLRM_OK;
}

/* Losses noted since the last time go to the report; a loss that is no number ends the run. */
static dlrm_status join_losses(trainer *t)
{
    int n = dlrm_losses_flush(&t->losses, t->s->comm, &t->s->model.reduce);
    for (int i = 0; i < n; i++) {
        t->loss = t->losses.mean[i];
        dlrm_report_loss(t->report, t->loss);
        if (!isfinite(t->loss))
            return FAIL(DLRM_E_RUNTIME, "step %lld: the loss is %f; nothing is saved. A lower learning rate or a longer warm-up may help",
                        (long long)(t->step - n + 1 + i), t->loss);
    }
    return DLRM_OK;
}

/* Has the next batch read and taken to the backend, where it is in place by the time its step runs. */
static void fetch(trainer *t)
{
    dlrm_session *s = t->s;
    bool epoch_end;
    s->be.ops->feed_wait(&s->be);
    double start = dlrm_now();
    t->batch = dlrm_batches_next(&t->batches, &epoch_end);
    t->wait += dlrm_now() - start;
    DLRM_ASSERT(t->batch);
    t->stage = (t->stage + 1) % DLRM_SORTED;
    dlrm_feed(&s->model, t->stage, t->batch, true);
}

/* Ids of the next batch travel while the step runs. */
static void send_ahead(trainer *t)
{
    double start = dlrm_now();
    dlrm_batches_ahead(&t->batches);
    t->wait += dlrm_now() - start;
}

/* One step, and the next batch fetched while it runs. Whether every rank's batch is good is asked while the step runs: a
 * bad batch holds zeros, and then the job ends, so what the step did with them does not matter. */
static dlrm_status step(trainer *t)
{
    dlrm_session *s = t->s;
    dlrm_model *m = &s->model;
    double start = dlrm_now();
    if (!t->batch) fetch(t);
    const dlrm_batch *batch = t->batch;
    dlrm_comm_pulse_start(s->comm, batch->status);
    t->step++;
    t->rate = dlrm_schedule_rate(&s->cfg.optimizer.schedule, s->cfg.optimizer.dense.learning_rate, t->step);
    t->embedding_rate = dlrm_schedule_rate(&s->cfg.optimizer.schedule, s->cfg.optimizer.embedding.learning_rate, t->step);
    if (t->step < t->steps) send_ahead(t);
    dlrm_train_step(m, t->stage, t->rate, t->embedding_rate, dlrm_losses_add(&t->losses, batch->size));
    t->clamped += batch->clamped;
    int64_t samples = batch->size;
    if (dlrm_comm_pulse_finish(s->comm, NULL) != DLRM_OK)
        return dlrm_comm_agree(s->comm, batch->status == DLRM_OK ? DLRM_OK : FAIL(batch->status, "%s", batch->message), NULL);
    if (t->step < t->steps) fetch(t);
    dlrm_report_step(t->report, t->step, samples, dlrm_now() - start, t->wait);
    t->wait = 0;
    return DLRM_OK;
}

static dlrm_status evaluate(trainer *t, bool *reached)
{
    dlrm_evaluation e;
    dlrm_mem_freeze(false);
    TRY(dlrm_evaluator_run(&t->evaluator, &e));
    dlrm_mem_freeze(true);
    dlrm_report_evaluation(t->report, t->step, &e);
    *reached = t->s->cfg.eval.target_auc > 0 && e.auc >= t->s->cfg.eval.target_auc;
    return DLRM_OK;
}

/* Joins the losses so far, and tells of them in a line if it is time for one or there will be no other. */
static dlrm_status tell(trainer *t, bool line)
{
    dlrm_status st = join_losses(t);
    if (line || st != DLRM_OK) dlrm_report_line(t->report, t->step, t->steps, t->loss, t->rate, t->embedding_rate);
    return st;
}

static dlrm_status loop(trainer *t, const char **why)
{
    const int64_t every = t->s->cfg.log.every_steps;
    bool reached = false;
    dlrm_mem_freeze(true);
    while (t->step < t->steps && !reached) {
        TRY(step(t));
        bool line = (every > 0 && t->step % every == 0) || t->step == t->steps;
        if (line || dlrm_losses_full(&t->losses)) TRY(tell(t, line));
        if (dlrm_session_evaluates(t->s, t->step)) TRY(evaluate(t, &reached));
        if (reached && !line) TRY(tell(t, true));
    }
    *why = reached ? "target AUC reached" : "finished";
    return DLRM_OK;
}

dlrm_status dlrm_train(dlrm_session *s)
{
    trainer t = {.s = s, .steps = dlrm_session_steps(s)};
    const char *why = NULL, *export_to = s->cfg.checkpoint.export_to;
    dlrm_status st;
    if (!dlrm_session_has_test(s)) dlrm_info("note: the data has no test split; nothing is evaluated");
    TRY_TO(done, st, dlrm_comm_agree(s->comm, open_own(&t), NULL));
    if (export_to) TRY_TO(done, st, dlrm_weights_check_export(&s->model, export_to));
    TRY_TO(done, st, dlrm_report_open(s, false, &t.report));
    st = loop(&t, &why);
    dlrm_mem_freeze(false);
    if (st != DLRM_OK) goto done;
    if (export_to) TRY_TO(done, st, dlrm_weights_export(&s->model, export_to));
    int64_t bytes = dlrm_batches_bytes(&t.batches) + dlrm_batches_bytes(&t.evaluator.batches);
    st = dlrm_report_end(t.report, why, bytes, t.clamped);
done:
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
    TRY_TO(done, st, dlrm_comm_agree(s->comm, dlrm_evaluator_open(s, &evaluator), NULL));
    TRY_TO(done, st, dlrm_report_open(s, true, &report));
    TRY_TO(done, st, dlrm_evaluator_run(&evaluator, &e));
    dlrm_report_evaluation(report, 0, &e);
done:
    dlrm_report_close(&report);
    dlrm_evaluator_close(&evaluator);
    return st;
}
