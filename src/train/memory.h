/* Whether the model fits: asked before anything large is taken, since Linux would kill a process that takes too much
 * without a word, and a GPU would refuse in the middle. */
#pragma once
#include "train/session.h"

/* Collective. What tables and optimizer state of each rank may take, of the rank with the least memory: nine tenths of its GPU's or
 * of its share of its host's. 0: no bound is known, or tables may lie in the host's memory beside a GPU. */
dlrm_status dlrm_memory_budget(const dlrm_session *s, int64_t *bytes) DLRM_MUST_USE;
/* Collective. Refuses a model that needs more than the ranks' hosts have left (CPU: all that a rank needs), or a rank's
 * GPU (tables and optimizer state; whatever else does not fit is named when it is allocated). The message has what is
 * needed, what there is, and the largest tables. */
dlrm_status dlrm_memory_check(dlrm_session *s) DLRM_MUST_USE;
