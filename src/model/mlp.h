/* A stack of linear layers: ReLU after every layer, except the last one of a top MLP. */
#pragma once
#include "config/config.h"
#include "model/params.h"

typedef struct dlrm_mlp {
    int n;            /* layers; 0: the output is the input */
    int in;           /* width of the input */
    dlrm_int_list widths;
    bool last_relu;
    int first_param;  /* layer l: weight at first_param + 2l, bias after it */
    void **y, **dy;   /* [n]: outputs [max_b, width] and their gradients */
} dlrm_mlp;

dlrm_status dlrm_mlp_open(dlrm_backend *be, int in, dlrm_int_list widths, bool last_relu, int first_param, int64_t max_b,
                          dlrm_mlp *out) DLRM_MUST_USE;
void dlrm_mlp_close(dlrm_backend *be, dlrm_mlp *m);
/* x: [b, in]; returns the output [b, width of the last layer]. */
const void *dlrm_mlp_forward(dlrm_backend *be, const dlrm_mlp *m, const dlrm_params *p, const void *x, int64_t b,
                             const dlrm_cut *cut);
/* Where the gradient of the output is to be put (before its ReLU, if it has one); NULL with n 0. */
void *dlrm_mlp_output_gradient(const dlrm_mlp *m);
/* dx: [b, in] =, or NULL. Weights come with the inputs or after them. */
void dlrm_mlp_backward(dlrm_backend *be, const dlrm_mlp *m, const dlrm_params *p, const void *x, void *dx, int64_t b,
                       const dlrm_cut *cut, dlrm_backward_part part);
