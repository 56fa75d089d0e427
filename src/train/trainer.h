/* The training loop: batches, steps, evaluations, log, export. Collective. */
#pragma once
#include "train/session.h"

dlrm_status dlrm_train(dlrm_session *s) DLRM_MUST_USE;
/* --eval: the weights of checkpoint.init_from on the test split. */
dlrm_status dlrm_train_eval_only(dlrm_session *s) DLRM_MUST_USE;
