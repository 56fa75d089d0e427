/* Whether the model fits: asked before anything large is taken, since Linux would kill a process that takes too much
 * without a word, and a GPU would refuse in the middle. */
#pragma once
#include "model/host_tables.h"
#include "train/session.h"

/* Which tables lie in the host's memory beside a GPU; budget -1: none, as on a CPU always. */
dlrm_host_tables_args dlrm_memory_host_tables(const dlrm_session *s);
/* Bytes of a rank's tables with their state that lie there, and of the cache for them on the device; 0, 0 where the budget is too small. */
dlrm_status dlrm_memory_home(const dlrm_session *s, int rank, int64_t *home, int64_t *cache) DLRM_MUST_USE;
/* DLRM_E_INPUT: the budget is too small for some rank, as a run would say it of the one that needs most. */
dlrm_status dlrm_memory_check_budget(const dlrm_session *s) DLRM_MUST_USE;
/* Collective. What tables and optimizer state of each rank may take, of the rank with the least memory: nine tenths of its GPU's or
 * of its share of its host's; with tables in the host's memory beside a GPU, what these may take of that. 0: no bound is known. */
dlrm_status dlrm_memory_budget(const dlrm_session *s, int64_t *bytes) DLRM_MUST_USE;
/* Collective. Refuses a model that needs more than the ranks' hosts have left (CPU: all that a rank needs), or a rank's
 * GPU (tables and optimizer state; whatever else does not fit is named when it is allocated). The message has what is
 * needed, what there is, and the largest tables. */
dlrm_status dlrm_memory_check(dlrm_session *s) DLRM_MUST_USE;
