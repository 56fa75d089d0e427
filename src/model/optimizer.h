/* What an optimizer keeps, and its settings for one step. */
#pragma once
#include "backend/backend.h"
#include "config/config.h"

int dlrm_optimizer_states(const dlrm_optimizer_config *o);     /* arrays of state: 0, 1 or 2 */
bool dlrm_optimizer_rowwise(const dlrm_optimizer_config *o);   /* one value a row, not an element */
float dlrm_optimizer_initial(const dlrm_optimizer_config *o);  /* what state starts at */
/* t: updates made with this one, from 1. sparse: torch.optim.SparseAdam's place of eps, else torch.optim.Adam's. */
dlrm_rule dlrm_optimizer_rule(const dlrm_optimizer_config *o, double rate, int64_t t, bool sparse);
