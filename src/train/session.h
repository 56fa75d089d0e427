/* Everything a run holds, opened in order from the config and closed in reverse. Collective: all ranks leave by the same
 * door. */
#pragma once
#include "data/dataset.h"
#include "model/model.h"

typedef struct dlrm_session {
    dlrm_config cfg;
    bool from_files;
    dlrm_feature_spec files;
    dlrm_model_spec spec;
    dlrm_dataset *data;
    dlrm_comm *comm;
    int threads;          /* of this rank */
    int64_t batch, eval_batch; /* of the config, at most the split's rows */
    dlrm_reader_args train_args, eval_args;
    bool *wanted_by;      /* [ranks][n_inputs] */
    dlrm_placement place;
    int device;           /* CUDA: which of the host's GPUs; -1: CPU */
    dlrm_backend be;      /* opened by dlrm_session_open_model */
    dlrm_model model;
} dlrm_session;

/* Config, data and placement: what --check needs. */
dlrm_status dlrm_session_open(const char *config, int n_overrides, char *const *overrides, dlrm_comm *comm,
                              dlrm_session *out) DLRM_MUST_USE;
/* Backend and model with its initial or loaded weights. */
dlrm_status dlrm_session_open_model(dlrm_session *s) DLRM_MUST_USE;
void dlrm_session_close(dlrm_session *s);

bool dlrm_session_has_test(const dlrm_session *s);
/* Steps that the config asks for, and evaluations on the way if nothing stops them early. */
int64_t dlrm_session_steps(const dlrm_session *s);
int64_t dlrm_session_evaluations(const dlrm_session *s);
/* Is an evaluation due after this step (from 1)? */
bool dlrm_session_evaluates(const dlrm_session *s, int64_t step);
