/* Evaluation over the test split: loss and exact AUC. It reads weights and writes none, so training goes on with the same
 * bits as without it. Everything is allocated when it is opened. Collective. */
#pragma once
#include "train/auc.h"
#include "train/batches.h"
#include "train/losses.h"
#include "train/session.h"

typedef struct dlrm_evaluator {
    dlrm_session *s;
    dlrm_batches batches; /* endless: each evaluation takes one epoch */
    dlrm_auc *auc;
    dlrm_losses losses;
    float *logits;       /* [max_own] host */
} dlrm_evaluator;

typedef struct dlrm_evaluation {
    double auc, loss; /* NaN: one class only */
    int64_t samples;
    int signal; /* not 0: it asked the training to end, and the rest is not set */
} dlrm_evaluation;

dlrm_status dlrm_evaluator_open(dlrm_session *s, dlrm_evaluator *out) DLRM_MUST_USE;
void dlrm_evaluator_close(dlrm_evaluator *e);
dlrm_status dlrm_evaluator_run(dlrm_evaluator *e, dlrm_evaluation *out) DLRM_MUST_USE;

/* --predict: one probability per row of the test split, in input order, as a float32 .npy; each rank writes its rows. */
dlrm_status dlrm_predict(dlrm_session *s, const char *path) DLRM_MUST_USE;
