/* A DLRM on one rank: its tensors and work space. step.h trains it. */
#pragma once
#include "comm/exchange.h"
#include "model/cross.h"
#include "model/embedding.h"
#include "model/mlp.h"

extern const char *const dlrm_phase_names[DLRM_PHASES];

/* Batches that are in the backend's memory at a time. Training alternates between the first two, so that one can be on
 * its way while the other is worked on; the last is evaluation's. */
enum { DLRM_EVAL_STAGE = DLRM_STAGES - 1 };

typedef struct dlrm_stage {
    int64_t B, own;       /* samples: of the global batch, of this rank */
    int64_t *sample_at;   /* [ranks+1]: first sample of each rank */
    dlrm_cut cut;
    void *dense;          /* [max_own, dense_features] */
    float *labels;        /* [max_own] */
    int64_t recorded_sent; /* bytes that the step recorded for this stage sends */
} dlrm_stage;

/* The parts of the parameters, and the replicated tables, whose gradients are complete, and reduced, at different times. */
enum { DLRM_RANGE_BOTTOM, DLRM_RANGE_TOP /* and the cross layers */, DLRM_RANGE_REPLICATED, DLRM_RANGES };

/* Opens the exchange that goes with the backend. */
typedef dlrm_status (*dlrm_exchange_opener)(const dlrm_exchange_args *args, dlrm_exchange *out);

typedef struct dlrm_model {
    const dlrm_config *cfg;
    const dlrm_model_spec *spec;
    dlrm_backend *be;
    dlrm_comm *comm;
    const dlrm_placement *place;
    dlrm_embedding emb;
    dlrm_params params;
    dlrm_mlp bottom, top;
    dlrm_cross cross;         /* of interaction dcn; else no layers */
    dlrm_exchange exchange;
    dlrm_reduce reduce;       /* the layout of sums over ranks, for losses */
    int64_t max_batch, max_own; /* samples of all ranks, of this rank, at most */
    void *x, *dx;             /* [max_own, interaction_width]: output of the interaction op and its gradient */
    int n_slots;
    dlrm_vector_slot *slots;  /* [n_slots]: the bottom output, then the inputs' vectors or their parts */
    dlrm_stage stages[DLRM_STAGES];
    const dlrm_stage *at;     /* the batch at hand */
    const void *features;     /* [own, interaction_width]: input of the top MLP, after a forward pass */
    const float *logits;      /* [own], after a forward pass */
    bool scaled;              /* losses are scaled: dlrm_scale */
    int64_t updates;          /* optimizer updates made so far */
} dlrm_model;

/* max_batch: the largest global batch that will be trained or evaluated. What is pointed to is borrowed. */
dlrm_status dlrm_model_open(const dlrm_config *cfg, const dlrm_model_spec *spec, const dlrm_placement *place, dlrm_backend *be,
                            dlrm_comm *comm, int64_t max_batch, dlrm_model *out) DLRM_MUST_USE;
/* Collective, once every rank has opened its model. */
dlrm_status dlrm_model_open_exchange(dlrm_model *m, dlrm_exchange_opener open) DLRM_MUST_USE;
void dlrm_model_close(dlrm_model *m);
/* Initial values of a fresh run, each a function of (seed, the tensor's name, element) alone. Weights of layers: normal, standard
 * deviation √(2/(in+out)); biases: √(1/out), of cross layers 0; tables: dlrm_tables_init. */
dlrm_status dlrm_model_init(dlrm_model *m) DLRM_MUST_USE;
