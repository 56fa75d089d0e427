/* Whether the model fits: asked before anything large is taken, since Linux would kill a process that takes too much
 * without a word, and a GPU would refuse in the middle. */
#pragma once
#include "train/session.h"

/* Collective. Refuses a model that needs more than the ranks' hosts have left (CPU: all that a rank needs), or a rank's
 * GPU (tables and optimizer state; whatever else does not fit is named when it is allocated). The message has what is
 * needed, what there is, and the largest tables. */
dlrm_status dlrm_memory_check(dlrm_session *s) DLRM_MUST_USE;
