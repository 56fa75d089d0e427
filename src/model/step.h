/* A training step and a forward pass: the one place where the ops of a step stand in order. Collective. */
#pragma once
#include "model/model.h"

/* Forward over one batch. m->logits: [own]. */
void dlrm_forward(dlrm_model *m, const dlrm_batch *batch);

/* Sum of the losses of this rank's samples, per node of the cut: loss[n_nodes], host. After a forward pass. */
void dlrm_forward_loss(dlrm_model *m, double *loss);

/* Forward, backward, update, with these learning rates. loss: as above, of the weights before the update. */
void dlrm_train_step(dlrm_model *m, const dlrm_batch *batch, double rate, double embedding_rate, double *loss);
