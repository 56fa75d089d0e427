/* A DLRM on one rank: its tensors and work space. step.h trains it. */
#pragma once
#include "comm/reduce.h"
#include "model/embedding.h"
#include "model/mlp.h"

/* Where a step's time goes. */
typedef enum dlrm_phase {
    DLRM_PHASE_DATA,        /* waiting for the reader */
    DLRM_PHASE_LOOKUP,      /* lookup, pooling, sorting of ids */
    DLRM_PHASE_EXCHANGE,    /* vectors, their gradients, the MLPs' gradients */
    DLRM_PHASE_MLP,
    DLRM_PHASE_INTERACTION,
    DLRM_PHASE_UPDATE,
    DLRM_PHASES
} dlrm_phase;
extern const char *const dlrm_phase_names[DLRM_PHASES];

typedef struct dlrm_model {
    const dlrm_config *cfg;
    const dlrm_model_spec *spec;
    dlrm_backend *be;
    dlrm_comm *comm;
    dlrm_placement place;
    dlrm_embedding emb;
    dlrm_params params;
    dlrm_mlp bottom, top;
    dlrm_reduce reduce;
    int64_t max_own;          /* samples of this rank, at most */
    float *dense, *labels;    /* [max_own, dense_features], [max_own] */
    float *x, *dx;            /* [max_own, interaction_width]: input of the top MLP and its gradient */
    dlrm_vector_slot *slots;  /* [1 + n_inputs] */
    /* the batch at hand */
    int64_t B, own;
    int64_t *sample_at;       /* [ranks+1]: first sample of each rank */
    dlrm_cut cut;
    const float *logits;      /* [own], after a forward pass */
    int64_t updates;          /* optimizer updates made so far */
    double seconds[DLRM_PHASES];
} dlrm_model;

/* max_batch: the largest global batch that will be trained or evaluated. `spec`, `cfg`, `be`, `comm` are borrowed. */
dlrm_status dlrm_model_open(const dlrm_config *cfg, const dlrm_model_spec *spec, dlrm_backend *be, dlrm_comm *comm,
                            int64_t max_batch, dlrm_model *out) DLRM_MUST_USE;
void dlrm_model_close(dlrm_model *m);
/* Initial values of a fresh run (design.md section 5). */
dlrm_status dlrm_model_init(dlrm_model *m) DLRM_MUST_USE;

/* The names, shapes and places of a model's MLP parameters (list, n, size), without memory for their values. */
dlrm_status dlrm_params_layout(const dlrm_model_spec *spec, dlrm_params *out) DLRM_MUST_USE;
