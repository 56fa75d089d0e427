/* Output folders that appear under their name only when they are complete. */
#pragma once
#include "tool.h"

/* Output folder `path`: work happens in `path.partial`, which commit renames. A partial folder left by an interrupted
 * run is removed by the next begin; one in use by a living process, or not made by this program, is an error, as is a
 * `path` that exists. */
typedef struct dlrm_output {
    char path[DLRM_PATH_MAX], work[DLRM_PATH_MAX];
    int lock;
} dlrm_output;
dlrm_status dlrm_output_begin(const char *path, dlrm_output *out) DLRM_MUST_USE;
dlrm_status dlrm_output_commit(dlrm_output *out) DLRM_MUST_USE;
void dlrm_output_abandon(dlrm_output *out); /* removes the work folder; nothing after commit */
