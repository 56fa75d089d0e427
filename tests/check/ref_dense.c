/* References: linear layers, loss, update rules. */
#include <stdlib.h>
#include <string.h>

#include "ref.h"

void ref_linear_forward(int64_t b, int64_t in, int64_t out, const double *x, const double *w, const double *bias,
                        bool relu, double operands, double *y, double *tol)
{
    for (int64_t s = 0; s < b; s++)
        for (int64_t o = 0; o < out; o++) {
            double sum = bias ? bias[o] : 0, magnitude = fabs(sum);
            for (int64_t i = 0; i < in; i++) {
                double term = x[s * in + i] * w[o * in + i];
                sum += term;
                magnitude += fabs(term);
            }
            y[s * out + o] = relu && sum < 0 ? 0 : sum;
            if (tol) tol[s * out + o] = ref_bound(in + 1, operands, magnitude, sum);
        }
}

void ref_linear_weight_gradient(int64_t b, int64_t in, int64_t out, const double *x, const double *dz, double operands,
                                double *dw, double *tol_w, double *dbias, double *tol_bias)
{
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i <= in; i++) { /* the bias is the weight of an input that is always 1 */
            double sum = 0, magnitude = 0;
            for (int64_t s = 0; s < b; s++) {
                double term = dz[s * out + o] * (i < in ? x[s * in + i] : 1);
                sum += term;
                magnitude += fabs(term);
            }
            *(i < in ? &dw[o * in + i] : &dbias[o]) = sum;
            if (tol_w) *(i < in ? &tol_w[o * in + i] : &tol_bias[o]) = ref_bound(b, operands, magnitude, sum);
        }
}

void ref_linear_input_gradient(int64_t b, int64_t in, int64_t out, const double *x, bool x_is_relu, const double *w,
                               const double *dz, const double *before, double operands, double *dx, double *tol)
{
    for (int64_t s = 0; s < b; s++)
        for (int64_t i = 0; i < in; i++) {
            double sum = before ? before[s * in + i] : 0, magnitude = fabs(sum);
            for (int64_t o = 0; o < out; o++) {
                double term = dz[s * out + o] * w[o * in + i];
                sum += term;
                magnitude += fabs(term);
            }
            bool dead = x_is_relu && x[s * in + i] == 0;
            dx[s * in + i] = dead ? 0 : sum;
            if (tol) tol[s * in + i] = dead ? 0 : ref_bound(before ? out + 1 : out, operands, magnitude, sum);
        }
}

void ref_cross_forward(int64_t n, const double *x0, const double *x, const double *z, double *y, double *tol)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x0[i] * z[i] + x[i];
        if (tol) tol[i] = ref_bound(2, 0, fabs(x0[i] * z[i]) + fabs(x[i]), y[i]);
    }
}

void ref_cross_backward(int64_t n, const double *x0, const double *z, const double *dy, const double *before, bool x_is_x0,
                        double *dz, double *tol_z, double *dx0, double *tol_x0)
{
    for (int64_t i = 0; i < n; i++) {
        const double through = x_is_x0 ? dy[i] : 0, old = before ? before[i] : 0;
        dz[i] = x0[i] * dy[i];
        dx0[i] = z[i] * dy[i] + through + old;
        if (tol_z) tol_z[i] = ref_bound(1, 0, 0, dz[i]);
        if (tol_x0) tol_x0[i] = ref_bound(3, 0, fabs(z[i] * dy[i]) + fabs(through) + fabs(old), dx0[i]);
    }
}

double ref_loss(double z, double y)
{
    return fmax(z, 0) - z * y + log1p(exp(-fabs(z)));
}

double ref_loss_gradient(double z, double y, double scale, double *tol)
{
    double p = z >= 0 ? 1 / (1 + exp(-z)) : exp(z) / (1 + exp(z)), g = (p - y) * scale;
    if (tol) *tol = ref_bound(3, 0, (p + y) * scale, g);
    return g;
}

static void apply(const dlrm_rule *r, int64_t n, const double *g, double *w, double *s0, double *s1)
{
    const double lr = (double)r->lr, eps = (double)r->epsilon, b1 = (double)r->beta1, b2 = (double)r->beta2;
    if (r->name == DLRM_ROWWISE_ADAGRAD) {
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += g[i] * g[i];
        *s0 += squares / (double)n;
    }
    for (int64_t i = 0; i < n; i++) switch (r->name) {
        case DLRM_SGD:
            if (s0) s0[i] = (double)r->momentum * s0[i] + g[i];
            w[i] -= lr * (s0 ? s0[i] : g[i]);
            break;
        case DLRM_ADAGRAD:
            s0[i] += g[i] * g[i];
            w[i] -= lr * g[i] / (sqrt(s0[i]) + eps);
            break;
        case DLRM_ROWWISE_ADAGRAD:
            w[i] -= lr * g[i] / (sqrt(*s0) + eps);
            break;
        case DLRM_ADAM:
            s0[i] = b1 * s0[i] + (1 - b1) * g[i];
            s1[i] = b2 * s1[i] + (1 - b2) * g[i] * g[i];
            w[i] -= (double)r->adam_rate * s0[i] / (sqrt(s1[i]) * (double)r->adam_root + eps);
            break;
        }
}

double ref_round_randomly(dlrm_dtype type, double x, uint32_t bits)
{
    const int precision = type == DLRM_BF16 ? 8 : 11, least = type == DLRM_BF16 ? -126 : -14;
    const double largest = type == DLRM_BF16 ? 0x1.FEp127 : 65504;
    if (x == 0) return 0;
    const int exponent = ilogb(x) < least ? least : ilogb(x), below = type == DLRM_FP16 && ilogb(x) < least ? least - ilogb(x) : 0;
    const int dropped = 24 - precision + below < 31 ? 24 - precision + below : 31;
    const double unit = ldexp(1, exponent - precision + 1), part = ldexp((double)(bits >> (32 - dropped)), -dropped);
    return copysign(fmin(floor(fabs(x) / unit + part) * unit, largest), x);
}

/* A copy of n values with room, or NULL for NULL. */
static double *copy(const double *v, int64_t n)
{
    double *c = v ? malloc(((size_t)n + 1) * sizeof *c) : NULL;
    if (c) memcpy(c, v, (size_t)n * sizeof *c);
    return c;
}

static void widen_tolerance(int64_t n, const double *old, const double *ref, const double *moved, double *tol)
{
    for (int64_t i = 0; old && i < n; i++) {
        double own = ref_bound(4, 0, fabs(old[i]) + fabs(ref[i] - old[i]), ref[i]),
               by = 2 * fabs(moved[i] - ref[i]) + own;
        if (by > tol[i]) tol[i] = by;
    }
}

/* The rules are not linear: so the tolerance is how far the result moves when the gradient moves by its error, either
 * way, plus the update's own roundings. In momentum and Adam the old state's product is rounded as the gradient's is:
 * as an error of the gradient it is larger by the ratio of their factors. */
void ref_update(const dlrm_rule *rule, int64_t n, const double *g, const double *error, double *w, double *s0,
                double *s1, double *tol_w, double *tol_s0, double *tol_s1)
{
    const int64_t n0 = rule->name == DLRM_ROWWISE_ADAGRAD ? 1 : n;
    double ratio = rule->name == DLRM_ADAM  ? (double)(rule->beta1 / (1 - rule->beta1))
                   : rule->name == DLRM_SGD ? (double)rule->momentum
                                            : 0;
    double *old_w = copy(w, n), *old0 = copy(s0, n0), *old1 = copy(s1, n), *moved = copy(g, n);
    apply(rule, n, g, w, s0, s1);
    for (int64_t i = 0; i < n; i++) tol_w[i] = 0;
    for (int64_t i = 0; s0 && i < n0; i++) tol_s0[i] = 0;
    for (int64_t i = 0; s1 && i < n; i++) tol_s1[i] = 0;
    for (int way = -1; way <= 1; way += 2) {
        double *w2 = copy(old_w, n), *m0 = copy(old0, n0), *m1 = copy(old1, n);
        for (int64_t i = 0; i < n; i++) {
            double state = old0 && ratio > 0 ? ratio * fabs(old0[i]) : 0;
            moved[i] = g[i] + way * copysign(error[i] + 2 * 0x1p-24 * (fabs(g[i]) + state), g[i]);
        }
        apply(rule, n, moved, w2, m0, m1);
        widen_tolerance(n, old_w, w, w2, tol_w);
        widen_tolerance(n0, old0, s0, m0, tol_s0);
        widen_tolerance(n, old1, s1, m1, tol_s1);
        free(w2);
        free(m0);
        free(m1);
    }
    free(old_w);
    free(old0);
    free(old1);
    free(moved);
}
