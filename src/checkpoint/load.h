/* Loading a checkpoint into a model, on any number of ranks and any placement: every rank reads what it holds, in bounded
 * memory, and every byte that it reads is checked. Collective. */
#pragma once
#include "checkpoint/manifest.h"

/* state: the optimizer's, too; for training. Sets the model's count of updates. DLRM_E_INPUT names file and tensor. */
dlrm_status dlrm_checkpoint_load(dlrm_model *m, const char *folder, const dlrm_manifest *manifest, bool state) DLRM_MUST_USE;
