/* The checkpoint that a run goes on from: found, and compared with the config, before anything large is opened. */
#pragma once
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

typedef struct dlrm_resume {
    char folder[DLRM_CHECKPOINT_PATH_BYTES]; /* "": none, a fresh run */
    dlrm_manifest manifest;
} dlrm_resume;

/* Collective. By checkpoint.resume. weights_only: for evaluation, where only the model must be the same. */
dlrm_status dlrm_resume_find(const dlrm_config *cfg, const dlrm_model_spec *spec, int64_t train_rows, dlrm_comm *comm, bool weights_only,
                             dlrm_resume *out) DLRM_MUST_USE;
void dlrm_resume_clear(dlrm_resume *r);
