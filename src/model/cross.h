/* The cross layers of DCNv2 (torchrec's LowRankCrossNet), between the concatenated vectors x_0 and the top MLP:
 *   x_{l+1} = x_0 * (W_l (V_l x_l) + b_l) + x_l,   * element by element, no activation. */
#pragma once
#include "model/params.h"

typedef struct dlrm_cross {
    int n;            /* layers; 0: the output is the input */
    int width, rank;
    int first_param;  /* layer l: v [rank, width] at first_param + 3l, then w [width, rank] and bias [width] */
    void **h, **z, **y; /* [n]: V x [max_b, rank]; W h + bias, after a backward pass its gradient [max_b, width]; outputs */
    void **dh;        /* [n]: [max_b, rank] */
    void *dy;         /* [max_b, width]: gradient of the last output, and on the way down of each before it */
} dlrm_cross;

dlrm_status dlrm_cross_open(dlrm_backend *be, int width, int layers, int rank, int first_param, int64_t max_b,
                            dlrm_cross *out) DLRM_MUST_USE;
void dlrm_cross_close(dlrm_backend *be, dlrm_cross *c);
/* x: [b, width]; returns the output [b, width]. */
const void *dlrm_cross_forward(dlrm_backend *be, const dlrm_cross *c, const dlrm_params *p, const void *x, int64_t b,
                               const dlrm_cut *cut);
/* From the gradient of the output, put into c->dy. dx: [b, width] =, the gradient of x; untouched with n 0. Weights come
 * with the inputs or after them. */
void dlrm_cross_backward(dlrm_backend *be, const dlrm_cross *c, const dlrm_params *p, const void *x, void *dx, int64_t b,
                         const dlrm_cut *cut, dlrm_backward_part part);
