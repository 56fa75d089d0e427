/* Everything a run holds, opened in order from the config and closed in reverse. Collective: all ranks leave by the same
 * door. */
#pragma once
#include "data/dataset.h"
#include "model/model.h"
#include "train/machine.h"
#include "train/resume.h"

typedef struct dlrm_session {
    dlrm_config cfg;
    bool from_files;
    dlrm_feature_spec files;
    dlrm_model_spec spec;
    dlrm_dataset *data;
    dlrm_comm *comm;
    double opened_at;     /* when that began, in seconds since 1970 */
    int ranks;            /* comm's, or those that are planned for */
    const dlrm_machine *machine; /* of each of them, in a plan; else NULL */
    int threads;          /* of this rank */
    int64_t batch, eval_batch; /* of the config, at most the split's rows */
    dlrm_reader_args train_args, eval_args;
    bool *wanted_by;      /* [ranks][n_inputs] */
    bool *own_only;       /* [n_inputs] */
    bool weights_only;    /* no training: evaluation, prediction */
    int lock;             /* rank 0 of a training: on the folder of checkpoints; -1: none */
    dlrm_resume from;     /* the checkpoint that the run goes on from */
    int64_t first_step, first_batch; /* steps made before this run, and batches read, counted over epochs: equal, unless the batch
                                        size changed */
    dlrm_placement place;
    int device;           /* CUDA: which of the host's GPUs; -1: CPU */
    int64_t host_room;    /* as in dlrm_backend */
    dlrm_backend be;      /* opened by dlrm_session_open_model */
    dlrm_model model;
} dlrm_session;

typedef enum dlrm_purpose {
    DLRM_TO_CHECK, /* or to plan */
    DLRM_TO_TRAIN, /* has the folder of checkpoints to itself, from before it looks for the newest one there */
    DLRM_TO_SCORE  /* evaluation, prediction: weights alone */
} dlrm_purpose;

/* Config, data, checkpoint to go on from, and placement: what --check needs. */
dlrm_status dlrm_session_open(const char *config, int n_overrides, char *const *overrides, dlrm_comm *comm, dlrm_purpose purpose,
                              dlrm_session *out) DLRM_MUST_USE;
/* The same for so many ranks of this machine, by one process: what only they could do is not tried. machine: borrowed. */
dlrm_status dlrm_session_open_plan(const char *config, int n_overrides, char *const *overrides, dlrm_comm *comm, int ranks,
                                   const dlrm_machine *machine, dlrm_session *out) DLRM_MUST_USE;
/* Backend and model with its initial or loaded weights, or the checkpoint's state. */
dlrm_status dlrm_session_open_model(dlrm_session *s) DLRM_MUST_USE;
void dlrm_session_close(dlrm_session *s);

bool dlrm_session_has_test(const dlrm_session *s);
int64_t dlrm_session_scored_rows(const dlrm_session *s); /* of the test split */
int64_t dlrm_session_epoch_batches(const dlrm_session *s); /* of an epoch of training */
int64_t dlrm_session_max_batch(const dlrm_session *s);     /* samples of the largest batch, of training or evaluation */
