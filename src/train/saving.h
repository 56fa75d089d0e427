/* When checkpoints are saved: every so many steps or minutes, at a signal, and at the end. Collective, where not said
 * otherwise. Without checkpoint.path nothing is saved and all of this does nothing. */
#pragma once
#include "train/report.h"

typedef struct dlrm_saving {
    dlrm_session *s;
    dlrm_saver *saver;      /* NULL: nothing is saved */
    json_t *run;
    double saved_at;        /* when the last save began */
    int64_t saved_step;     /* of the last save, or of the checkpoint that the run goes on from; -1: none */
    char latest[DLRM_CHECKPOINT_PATH_BYTES]; /* checkpoint; "": none yet */
    bool failed;            /* a save was not made */
} dlrm_saving;

dlrm_status dlrm_saving_open(dlrm_session *s, dlrm_saving *out) DLRM_MUST_USE;
void dlrm_saving_close(dlrm_saving *v); /* not collective */

/* What this rank says of checkpoints in the pulse of a step; the largest of all ranks counts. Not collective. */
enum { DLRM_SAVING_IDLE, DLRM_SAVING_BUSY /* still writes the last one */, DLRM_SAVING_DUE, DLRM_SAVING_BITS = 2 };
int dlrm_saving_pulse(dlrm_saving *v);

/* After a step, given what the pulse said: is a checkpoint to be saved now? */
bool dlrm_saving_due(const dlrm_saving *v, int64_t step, int pulse);
/* Finishes the last save, if every rank has written its part; `pulse`: as above. */
dlrm_status dlrm_saving_poll(dlrm_saving *v, dlrm_report *r, int pulse) DLRM_MUST_USE;
/* Saves, after the last save has been finished. Not background: it has been made when this returns. */
dlrm_status dlrm_saving_save(dlrm_saving *v, dlrm_report *r, const dlrm_train_state *state, bool background) DLRM_MUST_USE;
/* Finishes a save that is under way. */
dlrm_status dlrm_saving_finish(dlrm_saving *v, dlrm_report *r) DLRM_MUST_USE;
