/* The replicated parameters (MLPs and cross layers), all in one array, so that gradients are reduced, and weights updated, in one go. */
#pragma once
#include "backend/backend.h"

typedef struct dlrm_param {
    char name[64];       /* bottom.0.weight, cross.0.v, … */
    int n_dims;
    int64_t dims[2];     /* [out, in] or [out] */
    int64_t pitch;       /* elements from one row to the next; what is beyond a row, and rows beyond `out`, are 0 */
    int64_t offset, size; /* elements, those included */
    double init_std;     /* initial values: normal with this standard deviation */
} dlrm_param;

/* A backward pass in two parts, for where others wait for the first: the gradients of what came in, with those of the biases;
 * those of the weights. */
typedef enum dlrm_backward_part {
    DLRM_BACKWARD_INPUTS = 1,
    DLRM_BACKWARD_WEIGHTS = 2,
    DLRM_BACKWARD_ALL = DLRM_BACKWARD_INPUTS | DLRM_BACKWARD_WEIGHTS
} dlrm_backward_part;

typedef struct dlrm_params {
    int n;
    dlrm_param *list;
    int64_t size;    /* elements of all */
    float *w;        /* [size], backend memory */
    float *g;        /* [nodes][size]: partial gradients by node of the cut */
    int64_t flag;    /* with loss scaling: the element, behind all parameters, whose gradient tells of an overflow; else -1 */
    float *state[2]; /* [size] or NULL */
} dlrm_params;
