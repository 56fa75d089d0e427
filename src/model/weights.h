/* A model's weights from and to files: checkpoint.init_from and checkpoint.export. Collective; each rank reads what it
 * holds and writes its share of it, in blocks. */
#pragma once
#include "model/model.h"

/* Every tensor of the model must be there; tensors that the model has not are named once and ignored. */
dlrm_status dlrm_weights_load(dlrm_model *m, const char *path, const char *name_map) DLRM_MUST_USE;
/* Before training: can the folder be made and written, is there room? */
dlrm_status dlrm_weights_check_export(dlrm_model *m, const char *folder) DLRM_MUST_USE;
/* Replaces an older export in the folder as a whole. */
dlrm_status dlrm_weights_export(dlrm_model *m, const char *folder) DLRM_MUST_USE;
