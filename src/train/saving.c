#include "train/saving.h"

#include <string.h>

#include "base/log.h"
#include "checkpoint/same_run.h"

dlrm_status dlrm_saving_open(dlrm_session *s, dlrm_saving *v)
{
    const dlrm_config *cfg = &s->cfg;
    const char *path = cfg->checkpoint.path;
    *v = (dlrm_saving){.s = s, .saved_at = dlrm_now(), .saved_step = -1};
    if (s->from.folder[0]) snprintf(v->latest, sizeof v->latest, "%s", s->from.folder);
    if (!path) return DLRM_OK;
    const bool on_the_way = cfg->checkpoint.every_steps > 0 || cfg->checkpoint.every_minutes > 0;
    dlrm_saver_args a = {.path = path, .keep = cfg->checkpoint.keep, .snapshot = on_the_way, .timeout_s = cfg->parallel.timeout_s};
    TRY(dlrm_saver_open(&a, &s->model, &v->saver));
    v->run = dlrm_run_json(cfg, &s->spec, dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT));
    TRY(dlrm_comm_agree(s->comm, v->run ? dlrm_manifest_check_room(v->run) : FAIL(DLRM_E_RUNTIME, "no memory for a checkpoint's manifest")));
    /* The checkpoint that is resumed need not be saved again, if it is one of these. */
    const size_t n = strlen(path);
    if (!strncmp(s->from.folder, path, n) && s->from.folder[n] == '/' && !strchr(s->from.folder + n + 1, '/')) v->saved_step = s->first_step;
    return DLRM_OK;
}

void dlrm_saving_close(dlrm_saving *v)
{
    dlrm_saver_close(&v->saver);
    json_decref(v->run);
    v->run = NULL;
}

/* The minutes are counted by rank 0. */
int dlrm_saving_pulse(dlrm_saving *v)
{
    const double minutes = v->s->cfg.checkpoint.every_minutes;
    if (!v->saver) return DLRM_SAVING_IDLE;
    if (v->s->comm->rank == 0 && minutes > 0 && dlrm_now() - v->saved_at >= 60 * minutes) return DLRM_SAVING_DUE;
    return dlrm_saver_busy(v->saver) ? DLRM_SAVING_BUSY : DLRM_SAVING_IDLE;
}

bool dlrm_saving_due(const dlrm_saving *v, int64_t step, int pulse)
{
    const int64_t every = v->s->cfg.checkpoint.every_steps;
    return v->saver && step != v->saved_step && (pulse == DLRM_SAVING_DUE || (every > 0 && step % every == 0));
}

dlrm_status dlrm_saving_finish(dlrm_saving *v, dlrm_report *r)
{
    dlrm_save_result result;
    if (!v->saver || !dlrm_saver_under_way(v->saver)) return DLRM_OK;
    TRY(dlrm_saver_finish(v->saver, &result));
    if (result.saved) snprintf(v->latest, sizeof v->latest, "%s", result.folder);
    v->failed |= !result.saved;
    dlrm_report_checkpoint(r, &result);
    return DLRM_OK;
}

dlrm_status dlrm_saving_poll(dlrm_saving *v, dlrm_report *r, int pulse)
{
    return pulse == DLRM_SAVING_IDLE ? dlrm_saving_finish(v, r) : DLRM_OK;
}

dlrm_status dlrm_saving_save(dlrm_saving *v, dlrm_report *r, const dlrm_train_state *state, bool background)
{
    if (!v->saver || state->step == v->saved_step) return dlrm_saving_finish(v, r);
    TRY(dlrm_saving_finish(v, r));
    v->saved_at = dlrm_now();
    v->saved_step = state->step;
    TRY(dlrm_saver_start(v->saver, state, v->run, background));
    return background && dlrm_saver_in_background(v->saver) ? DLRM_OK : dlrm_saving_finish(v, r);
}
