/* Do all ranks have the same config, data and weights? Each reads its own host's files, and where these are copies one may be another. */
#pragma once
#include "train/session.h"

/* Collective, once config, model and data are open. DLRM_E_INPUT names the first key, table, feature or number of rows that differs from
 * rank 0's, the rank and both values. */
dlrm_status dlrm_same_ranks_check(dlrm_session *s) DLRM_MUST_USE;
/* Collective, once weights have been read from this path: the MLPs' parameters, of which every rank reads all, have the same bits as rank
 * 0's. DLRM_E_INPUT names the path and the rank. */
dlrm_status dlrm_same_ranks_check_weights(dlrm_session *s, const char *path) DLRM_MUST_USE;
