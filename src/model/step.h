/* A training step and a forward pass: the one place where the ops of a step stand in order. Collective. */
#pragma once
#include "data/dataset.h"
#include "model/model.h"

/* Takes a batch into a stage, where it stays until the next feed of that stage; `train`: an update will follow. The
 * batch's memory may be reused after the backend's feed_wait, on CPU not before the step or forward pass has returned. */
void dlrm_feed(dlrm_model *m, int stage, const dlrm_batch *batch, bool train);

/* Forward over the batch in a stage. m->logits: [own]. */
void dlrm_forward(dlrm_model *m, int stage);

/* Sum of the losses of this rank's samples, per node of the cut: loss[n_nodes], backend memory. After a forward pass. */
void dlrm_forward_loss(dlrm_model *m, double *loss);

/* Forward, backward, update, with these learning rates. loss: as above, of the weights before the update. */
void dlrm_train_step(dlrm_model *m, int stage, double rate, double embedding_rate, double *loss);
