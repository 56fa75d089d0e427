/* Feature interaction, a sample at a time. dot works on blocks of 4 x 16 products in registers, over the vectors laid
 * out transposed (forward) or as they are (backward). */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <string.h>

typedef float vec8 __attribute__((vector_size(32), aligned(4), may_alias));
enum { ROWS = 4, COLS = 16 }; /* a register block */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t cpu_interact_scratch(int slots, int max_width)
{
    int64_t padded = round_up(slots, COLS);
    return padded * max_width + padded * padded;
}

static const float *vector(const dlrm_vector_slot *v, int64_t s)
{
    return (const float *)v->data + s * v->stride;
}

static float *gradient(const dlrm_vector_slot *v, int64_t s)
{
    return (float *)v->grad + s * v->grad_stride;
}

/* vt[d][padded]: the slots' vectors of sample s, transposed; z = lower triangle of their products, row by row. */
DLRM_HOT static void dot_forward(const dlrm_vector_slot *slots, int n, int D, int64_t s, float *vt, float *z)
{
    const int64_t padded = round_up(n, COLS);
    for (int i = 0; i < n; i++) {
        const float *v = vector(&slots[i], s);
        for (int d = 0; d < D; d++) vt[d * padded + i] = v[d];
    }
    for (int i0 = 0; i0 < n; i0 += ROWS)
        for (int j0 = 0; j0 < i0 + ROWS - 1; j0 += COLS) {
            vec8 acc[ROWS][2] = {0};
            for (int d = 0; d < D; d++) {
                const float *row = vt + d * padded;
                vec8 a = *(const vec8 *)(row + j0), b = *(const vec8 *)(row + j0 + 8);
#pragma GCC unroll 4
                for (int i = 0; i < ROWS; i++) {
                    acc[i][0] += row[i0 + i] * a;
                    acc[i][1] += row[i0 + i] * b;
                }
            }
            for (int i = i0; i < i0 + ROWS && i < n; i++)
                for (int j = j0; j < i && j < j0 + COLS; j++)
                    z[(int64_t)i * (i - 1) / 2 + j] = acc[i - i0][(j - j0) / 8][(j - j0) % 8];
        }
}

/* grad of slot i = sum over j of S[i][j] v_j, S the symmetric matrix of the products' gradients. */
DLRM_HOT static void dot_backward(const dlrm_vector_slot *slots, int n, int D, int64_t s, const float *dz, float *S)
{
    const int64_t padded = round_up(n, COLS);
    for (int i = 0; i < n; i++) {
        S[i * padded + i] = 0;
        for (int j = 0; j < i; j++) S[i * padded + j] = S[j * padded + i] = dz[(int64_t)i * (i - 1) / 2 + j];
    }
    for (int i = n; i < round_up(n, ROWS); i++) memset(S + i * padded, 0, (size_t)n * sizeof *S);
    for (int i0 = 0; i0 < n; i0 += ROWS) {
        int d0 = 0;
        for (; d0 + COLS <= D; d0 += COLS) {
            vec8 acc[ROWS][2] = {0};
            for (int j = 0; j < n; j++) {
                const float *v = vector(&slots[j], s) + d0;
                vec8 a = *(const vec8 *)v, b = *(const vec8 *)(v + 8);
#pragma GCC unroll 4
                for (int i = 0; i < ROWS; i++) {
                    acc[i][0] += S[(i0 + i) * padded + j] * a;
                    acc[i][1] += S[(i0 + i) * padded + j] * b;
                }
            }
            for (int i = i0; i < i0 + ROWS && i < n; i++) {
                if (!slots[i].grad) continue;
                float *g = gradient(&slots[i], s) + d0;
                *(vec8 *)g = acc[i - i0][0];
                *(vec8 *)(g + 8) = acc[i - i0][1];
            }
        }
        for (int i = i0; i < i0 + ROWS && i < n && d0 < D; i++) {
            if (!slots[i].grad) continue;
            float *g = gradient(&slots[i], s);
            for (int d = d0; d < D; d++) g[d] = 0;
            for (int j = 0; j < n; j++) {
                const float *v = vector(&slots[j], s);
                for (int d = d0; d < D; d++) g[d] += S[i * padded + j] * v[d];
            }
        }
    }
}

/* The windows of pooling: output j is the mean of x[begin … end). Keras' `same` padding. */
typedef struct window {
    int64_t begin, end;
} window;

static window pool_window(int64_t w, int64_t stride, int64_t j)
{
    int64_t n = (w + stride - 1) / stride, left = (n * stride - w) / 2, begin = j * stride - left, end = begin + stride;
    return (window){begin < 0 ? 0 : begin, end > w ? w : end};
}

static int64_t vectors_width(const dlrm_interact_args *a)
{
    int64_t w = 0;
    for (int i = 1; i < a->n_slots; i++) w += a->slots[i].width;
    return w;
}

static void pool_forward(const dlrm_interact_args *a, int64_t s, float *x, float *out)
{
    int64_t w = 0;
    for (int i = 1; i < a->n_slots; w += a->slots[i++].width)
        memcpy(x + w, vector(&a->slots[i], s), (size_t)a->slots[i].width * sizeof *x);
    int64_t n = (w + a->pool_stride - 1) / a->pool_stride;
    for (int64_t j = 0; j < n; j++) {
        window k = pool_window(w, a->pool_stride, j);
        float sum = 0;
        for (int64_t i = k.begin; i < k.end; i++) sum += x[i];
        out[j] = sum / (float)(k.end - k.begin);
    }
    if (a->slots[0].width)
        memcpy(out + n, vector(&a->slots[0], s), (size_t)a->slots[0].width * sizeof *x);
}

static void pool_backward(const dlrm_interact_args *a, int64_t s, float *dx, const float *d_out)
{
    int64_t w = vectors_width(a), n = (w + a->pool_stride - 1) / a->pool_stride;
    for (int64_t j = 0; j < n; j++) {
        window k = pool_window(w, a->pool_stride, j);
        float g = d_out[j] / (float)(k.end - k.begin);
        for (int64_t i = k.begin; i < k.end; i++) dx[i] = g;
    }
    w = 0;
    for (int i = 1; i < a->n_slots; w += a->slots[i++].width)
        memcpy(gradient(&a->slots[i], s), dx + w, (size_t)a->slots[i].width * sizeof *dx);
    const dlrm_vector_slot *v = &a->slots[0];
    if (v->grad) memcpy(gradient(v, s), d_out + n, (size_t)v->width * sizeof *dx);
}

static void cat_forward(const dlrm_interact_args *a, int64_t s, float *out)
{
    for (int i = 0; i < a->n_slots; out += a->slots[i++].width)
        if (a->slots[i].width)
            memcpy(out, vector(&a->slots[i], s), (size_t)a->slots[i].width * sizeof *out);
}

static void cat_backward(const dlrm_interact_args *a, int64_t s, const float *d_out)
{
    for (int i = 0; i < a->n_slots; d_out += a->slots[i++].width)
        if (a->slots[i].grad)
            memcpy(gradient(&a->slots[i], s), d_out, (size_t)a->slots[i].width * sizeof *d_out);
}

void cpu_interact_forward(dlrm_backend *be, const dlrm_interact_args *a)
{
    const cpu_impl *c = cpu_of(be);
    const int D = a->slots[0].width;
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t s = 0; s < a->b; s++) {
        float *scratch = c->scratch[omp_get_thread_num()], *out = (float *)a->out + s * a->out_width;
        switch (a->kind) {
        case DLRM_DOT:
            memcpy(out, vector(&a->slots[0], s), (size_t)D * sizeof *out);
            dot_forward(a->slots, a->n_slots, D, s, scratch, out + D);
            break;
        case DLRM_POOL: pool_forward(a, s, scratch, out); break;
        case DLRM_CAT:
        case DLRM_DCN: cat_forward(a, s, out); break;
        }
    }
}

/* Slot 0 of dot also passes straight through; a slot 0 that came out of a ReLU has no gradient where it is 0. */
static void finish_slot0(const dlrm_interact_args *a, int64_t s, const float *d_out)
{
    const dlrm_vector_slot *v = &a->slots[0];
    if (!v->grad) return;
    float *g = gradient(v, s);
    const float *x = vector(v, s);
    if (a->kind == DLRM_DOT)
        for (int d = 0; d < v->width; d++) g[d] += d_out[d];
    if (a->slot0_is_relu)
        for (int d = 0; d < v->width; d++) g[d] = x[d] > 0 ? g[d] : 0;
}

void cpu_interact_backward(dlrm_backend *be, const dlrm_interact_args *a)
{
    const cpu_impl *c = cpu_of(be);
    const int D = a->slots[0].width;
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t s = 0; s < a->b; s++) {
        float *scratch = c->scratch[omp_get_thread_num()];
        const float *d_out = (const float *)a->d_out + s * a->out_width;
        switch (a->kind) {
        case DLRM_DOT: dot_backward(a->slots, a->n_slots, D, s, d_out + D, scratch); break;
        case DLRM_POOL: pool_backward(a, s, scratch, d_out); break;
        case DLRM_CAT:
        case DLRM_DCN: cat_backward(a, s, d_out); break;
        }
        finish_slot0(a, s, d_out);
    }
}
