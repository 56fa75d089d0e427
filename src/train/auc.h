/* Exact area under the ROC curve over all ranks: ties counted half, 64/128-bit integer counts, one division at the end,
 * so any number of ranks and any order of samples give the same bits. No rank ever holds all scores. */
#pragma once
#include <stdint.h>

#include "base/status.h"
#include "comm/comm.h"

typedef struct dlrm_auc dlrm_auc;
/* Room for `capacity` samples of this rank: 8 bytes each. */
dlrm_status dlrm_auc_open(int64_t capacity, dlrm_auc **out) DLRM_MUST_USE;
void dlrm_auc_close(dlrm_auc **a);
void dlrm_auc_reset(dlrm_auc *a);
/* score: any float (NaN: the result is NaN); label 0 or 1. -0.0 equals 0.0. */
void dlrm_auc_add(dlrm_auc *a, int64_t n, const float *scores, const float *labels);
/* Collective; allocates while it runs, up to 24 bytes for each different score. Adds nothing and forgets nothing: more
 * samples may follow, or dlrm_auc_reset. *auc: NaN where all samples are of one class. Samples and positives over all
 * ranks. */
dlrm_status dlrm_auc_compute(dlrm_auc *a, dlrm_comm *comm, double *auc, int64_t *samples,
                             int64_t *positives) DLRM_MUST_USE;
