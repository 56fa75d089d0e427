/* Do all ranks have the same config and data? Each reads its own host's files, and where these are copies one may be another. */
#pragma once
#include "train/session.h"

/* Collective, once config, model and data are open. DLRM_E_INPUT names the first key, table, feature or number of rows that differs from
 * rank 0's, the rank and both values. */
dlrm_status dlrm_same_ranks_check(dlrm_session *s) DLRM_MUST_USE;
