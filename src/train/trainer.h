/* The training loop: batches, steps, evaluations, checkpoints, log, export. Collective. */
#pragma once
#include "train/session.h"

/* *exit_code, where the status is DLRM_OK: 0; 4: finished, but a checkpoint was not saved; 128+signal: a signal ended it. */
dlrm_status dlrm_train(dlrm_session *s, int *exit_code) DLRM_MUST_USE;
/* --eval: the weights of a checkpoint or of checkpoint.init_from on the test split. */
dlrm_status dlrm_train_eval_only(dlrm_session *s) DLRM_MUST_USE;
