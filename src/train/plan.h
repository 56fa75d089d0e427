/* --plan: what a run on so many ranks would hold, send and take, without one. */
#pragma once
#include "train/session.h"

enum { DLRM_MOST_PLANNED = 4096 /* ranks */ };

/* Of a session of dlrm_session_open_plan, on stdout: all that --check says, on GPUs where each rank's tables lie, and each rank's predicted
 * times of a step. */
dlrm_status dlrm_plan_print(const dlrm_session *s) DLRM_MUST_USE;
