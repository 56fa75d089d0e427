/* The folder of checkpoints: what is in it, and how one more comes to be. A checkpoint is made as .step_N.part, brought to
 * disk and renamed last; one that goes is renamed to .step_N.gone first. So whatever has the name step_N is complete, and
 * what a killed run left behind is known by its name. All of this is one rank's work. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    DLRM_CHECKPOINT_NAME_BYTES = 40,
    DLRM_CHECKPOINT_PATH_BYTES = 4200 /* of a folder's path, as the config has it, and a name */
};

/* step_000001200; hidden: .step_000001200.part */
void dlrm_checkpoint_name(int64_t step, bool part, char out[DLRM_CHECKPOINT_NAME_BYTES]);

typedef struct dlrm_checkpoint_entry {
    char name[DLRM_CHECKPOINT_NAME_BYTES];
    int64_t serial, step;
} dlrm_checkpoint_entry;

/* The complete checkpoints by serial, newest first; *list: a new array (dlrm_alloc). A folder that is not there has none. One
 * with a damaged manifest is DLRM_E_INPUT; with `damaged` given it is left out, and named there ("": none). */
dlrm_status dlrm_checkpoints_list(const char *path, char *damaged, size_t bytes, dlrm_checkpoint_entry **list, int *n) DLRM_MUST_USE;

/* Takes the folder, which is there, for this process, until the lock is closed: a second run there would undo the
 * first one's work. Waits so many seconds for a run that is about to end; *taken: it did. Where the file system has no locks:
 * *lock = -1. */
dlrm_status dlrm_checkpoints_lock(const char *path, double seconds, int *lock, bool *taken) DLRM_MUST_USE;
/* Removes what killed runs left; their names, joined, for one line ("": none). What cannot be removed stays, with a warning. */
dlrm_status dlrm_checkpoints_clean(const char *path, char *removed, size_t bytes) DLRM_MUST_USE;

/* A new .step_N.part, empty. */
dlrm_status dlrm_checkpoint_begin(const char *path, int64_t step) DLRM_MUST_USE;
/* Writes the manifest, brings all to disk, gives it its name. An older checkpoint of this step gives way in the same moment. */
dlrm_status dlrm_checkpoint_commit(const char *path, int64_t step, const char *manifest) DLRM_MUST_USE;
/* Removes .step_N.part and says nothing. */
void dlrm_checkpoint_abandon(const char *path, int64_t step);
/* Takes all but the `keep` newest out of the list: the names go, and at last, which may take long, the files. */
dlrm_status dlrm_checkpoints_retire(const char *path, int64_t keep) DLRM_MUST_USE;
dlrm_status dlrm_checkpoints_sweep(const char *path) DLRM_MUST_USE;
