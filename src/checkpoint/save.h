/* Saving: every rank writes the pieces that it holds, in bounded memory. Where the host has room for a copy of them, training
 * stands still only while the copy is made, and a thread writes it; else while all is written. A save has a start and a
 * finish; between the two the training goes on. Collective, unless said otherwise.
 *
 * What the disk refuses is no error of these functions but a result: the training goes on, and the older checkpoints stay.
 * Values that are not finite are one: DLRM_E_RUNTIME, and nothing is saved. */
#pragma once
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

typedef struct dlrm_saver dlrm_saver;

typedef struct dlrm_saver_args {
    const char *path;  /* the folder of checkpoints */
    int64_t keep;
    bool snapshot;     /* take memory for a copy, if there is room */
    double timeout_s;  /* a disk that takes nothing for so long ends the job */
} dlrm_saver_args;

typedef struct dlrm_save_result {
    bool saved;
    char folder[DLRM_CHECKPOINT_PATH_BYTES];
    char why[1200];    /* it was not saved */
    int64_t step, bytes;
    double stall_s;    /* this rank's training stood still */
    double save_s;     /* from the start to the end */
} dlrm_save_result;

/* Rank 0 holds the folder's lock (folder.h). Removes what killed runs left (announced), checks that all ranks see it and can write there. */
dlrm_status dlrm_saver_open(const dlrm_saver_args *args, dlrm_model *m, dlrm_saver **out) DLRM_MUST_USE;
void dlrm_saver_close(dlrm_saver **s); /* not collective */

/* run: of dlrm_run_json. No save is under way. */
dlrm_status dlrm_saver_start(dlrm_saver *s, const dlrm_train_state *progress, json_t *run, bool background) DLRM_MUST_USE;
bool dlrm_saver_under_way(const dlrm_saver *s); /* started and not finished: the same on every rank */
bool dlrm_saver_in_background(const dlrm_saver *s); /* by threads: the same on every rank */
bool dlrm_saver_busy(dlrm_saver *s);            /* this rank has still to write; not collective */
/* Waits for what is still to be written, gives the checkpoint its name, removes the oldest. */
dlrm_status dlrm_saver_finish(dlrm_saver *s, dlrm_save_result *out) DLRM_MUST_USE;
