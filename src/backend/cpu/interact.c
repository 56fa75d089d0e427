/* Feature interaction, a sample at a time. dot works on blocks of 4 x 16 products in registers, over the vectors laid
 * out transposed (forward) or as they are (backward). Vectors that do not travel as fp32 are widened to fp32 first, and
 * their gradients narrowed at last. */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <string.h>

#include "base/half.h"

typedef float vec8 __attribute__((vector_size(32), aligned(4), may_alias));
enum { ROWS = 4, COLS = 16 }; /* a register block */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t kernel_scratch(int slots, int max_width)
{
    int64_t padded = round_up(slots, COLS);
    return padded * max_width + padded * padded;
}

int64_t cpu_interact_scratch(int slots, int max_width)
{
    return kernel_scratch(slots, max_width) + 2 * (int64_t)slots * max_width; /* wide vectors and their gradients */
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

/* The same interaction over fp32 vectors of one sample: those of slots 1 … and their gradients in scratch, slot 0's where
 * they are. With vectors that are fp32 already: *a itself. */
static dlrm_interact_args widened(const cpu_impl *c, const dlrm_interact_args *a, int thread)
{
    dlrm_interact_args wide = *a;
    int most = 0;
    if (a->wire == DLRM_FP32) return wide;
    for (int i = 0; i < a->n_slots; i++) most = a->slots[i].width > most ? a->slots[i].width : most;
    float *v = c->scratch[thread] + kernel_scratch(a->n_slots, most), *g = v + (int64_t)a->n_slots * most;
    c->wide[thread][0] = a->slots[0];
    for (int i = 1; i < a->n_slots; i++, v += most, g += most)
        c->wide[thread][i] = (dlrm_vector_slot){.data = v, .width = a->slots[i].width, .grad = a->slots[i].grad ? g : NULL};
    wide.slots = c->wide[thread];
    return wide;
}

static void widen_vectors(const dlrm_interact_args *a, const dlrm_interact_args *wide, int64_t s)
{
    const int64_t size = (int64_t)dlrm_dtype_bytes(a->wire);
    for (int i = 1; a->wire != DLRM_FP32 && i < a->n_slots; i++)
        dlrm_widen(a->wire, (const char *)a->slots[i].data + s * a->slots[i].stride * size, a->slots[i].width, (float *)wide->slots[i].data);
}

static void narrow_gradients(const dlrm_interact_args *a, const dlrm_interact_args *wide, int64_t s)
{
    const int64_t size = (int64_t)dlrm_dtype_bytes(a->wire);
    for (int i = 1; a->wire != DLRM_FP32 && i < a->n_slots; i++)
        if (a->slots[i].grad)
            dlrm_narrow(a->wire, wide->slots[i].grad, a->slots[i].width, (char *)a->slots[i].grad + s * a->slots[i].grad_stride * size);
}

static void forward(const dlrm_interact_args *a, int64_t s, float *scratch)
{
    const int D = a->slots[0].width;
    float *out = (float *)a->out + s * a->out_width;
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

static void backward(const dlrm_interact_args *a, int64_t s, float *scratch)
{
    const int D = a->slots[0].width;
    const float *d_out = (const float *)a->d_out + s * a->out_width;
    switch (a->kind) {
    case DLRM_DOT: dot_backward(a->slots, a->n_slots, D, s, d_out + D, scratch); break;
    case DLRM_POOL: pool_backward(a, s, scratch, d_out); break;
    case DLRM_CAT:
    case DLRM_DCN: cat_backward(a, s, d_out); break;
    }
    finish_slot0(a, s, d_out);
}

void cpu_interact_forward(dlrm_backend *be, const dlrm_interact_args *a)
{
    const cpu_impl *c = cpu_of(be);
#pragma omp parallel num_threads(c->threads)
    {
        const int t = omp_get_thread_num();
        const dlrm_interact_args wide = widened(c, a, t);
#pragma omp for schedule(static)
        for (int64_t s = 0; s < a->b; s++) {
            widen_vectors(a, &wide, s);
            forward(&wide, s, c->scratch[t]);
        }
    }
}

void cpu_interact_backward(dlrm_backend *be, const dlrm_interact_args *a)
{
    const cpu_impl *c = cpu_of(be);
#pragma omp parallel num_threads(c->threads)
    {
        const int t = omp_get_thread_num();
        const dlrm_interact_args wide = widened(c, a, t);
#pragma omp for schedule(static)
        for (int64_t s = 0; s < a->b; s++) {
            widen_vectors(a, &wide, s);
            backward(&wide, s, c->scratch[t]);
            narrow_gradients(a, &wide, s);
        }
    }
}
