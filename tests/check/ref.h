/* Double-precision references of the ops, and how far an implementation with fp32 sums may be from them: per element,
 * from the op, 2 (√k u Σ|terms| + u |result|) for a result that is a sum of k terms, u the unit roundoff of fp32; where
 * the hardware rounds the operands of a product, by `operands` relative to it, 2 operands Σ|terms| more; 0 for what is
 * only copied. `tol` may be NULL. */
#pragma once
#include <math.h>

#include "backend/backend.h"

static inline double ref_bound(int64_t k, double operands, double magnitude, double result)
{
    const double u = 0x1p-24, smallest = 0x1p-149;
    return 2 * ((sqrt((double)k) * u + operands) * magnitude + u * fabs(result)) + smallest;
}

/* bias NULL: none. */
void ref_linear_forward(int64_t b, int64_t in, int64_t out, const double *x, const double *w, const double *bias,
                        bool relu, double operands, double *y, double *tol);
/* dw, dbias: over samples [0, b). */
void ref_linear_weight_gradient(int64_t b, int64_t in, int64_t out, const double *x, const double *dz, double operands,
                                double *dw, double *tol_w, double *dbias, double *tol_bias);
/* before: what dx is added to, or NULL. */
void ref_linear_input_gradient(int64_t b, int64_t in, int64_t out, const double *x, bool x_is_relu, const double *w,
                               const double *dz, const double *before, double operands, double *dx, double *tol);

/* n elements of y = x0 z + x, and their gradients; before: what dx0 is added to, or NULL. */
void ref_cross_forward(int64_t n, const double *x0, const double *x, const double *z, double *y, double *tol);
void ref_cross_backward(int64_t n, const double *x0, const double *z, const double *dy, const double *before, bool x_is_x0,
                        double *dz, double *tol_z, double *dx0, double *tol_x0);

/* One sample's vectors. */
typedef struct ref_slot {
    int width;
    const double *v;
    double *grad, *tol; /* backward; NULL: not wanted */
} ref_slot;

void ref_interact_forward(dlrm_interaction kind, int pool_stride, int n, const ref_slot *slots, double operands,
                          double *out, double *tol);
void ref_interact_backward(dlrm_interaction kind, int pool_stride, bool slot0_is_relu, int n, const ref_slot *slots,
                           const double *d_out, double operands);

/* Loss of one sample and its derivative by the logit, times scale. */
double ref_loss(double z, double y);
double ref_loss_gradient(double z, double y, double scale, double *tol);

/* Tables: shapes from `shard`, bags in host memory. weight[t]: [rows, dim]. */
void ref_lookup(const dlrm_shard *shard, const double *const *weight, int64_t B, const dlrm_bags *bags, double *pooled,
                double *tol);
/* Gradient of table t: g += sum over the occurrences of each row; error += its rounding in fp32; touched +=
 * occurrences. The arrays start as zeros. */
void ref_table_gradient(const dlrm_shard *shard, int t, int64_t B, const dlrm_bags *bags, const double *d_pooled,
                        double *g, double *error, int64_t *touched);

/* x in bf16 or fp16, up or down by random bits: |x| in units of the last place, plus the upper bits as a fraction, as many
 * as x in fp32 has too many, without its own fraction; at most the largest number. */
double ref_round_randomly(dlrm_dtype type, double x, uint32_t bits);

/* An update of n elements in place (with rowwise_adagrad one row, and s0 is one value). error: of g; tolerances: what
 * it and the update's own roundings do. s0, s1: NULL where the rule has no such state. */
void ref_update(const dlrm_rule *rule, int64_t n, const double *g, const double *error, double *w, double *s0,
                double *s1, double *tol_w, double *tol_s0, double *tol_s1);
