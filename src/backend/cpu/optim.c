/* Update rules, dense parameters, and tables' initial values. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

DLRM_HOT static void sgd(float lr, int64_t n, float *w, const float *g)
{
    for (int64_t i = 0; i < n; i++) w[i] -= lr * g[i];
}

DLRM_HOT static void momentum(float lr, float mu, int64_t n, float *w, const float *g, float *m)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = mu * m[i] + g[i];
        w[i] -= lr * m[i];
    }
}

DLRM_HOT static void adagrad(float lr, float eps, int64_t n, float *w, const float *g, float *a)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] += g[i] * g[i];
        w[i] -= lr * g[i] / (sqrtf(a[i]) + eps);
    }
}

DLRM_HOT static void adam(const dlrm_rule *r, int64_t n, float *w, const float *g, float *m, float *v)
{
    const float b1 = r->beta1, b2 = r->beta2, rate = r->adam_rate, root = r->adam_root, eps = r->epsilon;
    for (int64_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * g[i];
        v[i] = b2 * v[i] + (1 - b2) * (g[i] * g[i]);
        w[i] -= rate * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

/* With the bin of the largest known, both parts of a term are truncations of a double, and sums of so few whole numbers are exact
 * in one: loops that vectorise. */
DLRM_HOT dlrm_squares cpu_exact_squares(int64_t n, const float *g)
{
    enum { EXACT = 1 << 12 /* terms below 2^40 whose sum is below 2^53 */ };
    dlrm_squares sum = {0};
    uint32_t top = 0; /* the bits of the largest magnitude */
    float largest;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &g[i], sizeof bits);
        bits &= INT32_MAX;
        top = bits > top ? bits : top;
    }
    memcpy(&largest, &top, sizeof top);
    dlrm_squares_add(&sum, largest);
    sum.high = sum.low = 0;
    if (sum.bin == DLRM_SQUARES_INFINITE) return sum;
    const double unit = ldexp(1.0, DLRM_SQUARES_OFFSET - (int)sum.bin * DLRM_SQUARES_STEP);
    for (int64_t at = 0; at < n; at += EXACT) {
        const int64_t end = n - at < EXACT ? n : at + EXACT;
        double high = 0, low = 0;
#pragma omp simd reduction(+ : high, low)
        for (int64_t i = at; i < end; i++) {
            const double x = (double)g[i] * g[i] * unit, whole = trunc(x);
            high += whole;
            low += trunc((x - whole) * 0x1p40);
        }
        sum.high += (uint64_t)high;
        sum.low += (uint64_t)low;
    }
    return sum;
}

double cpu_sum_squares(int64_t n, const float *g, bool exact)
{
    const dlrm_squares squares = exact ? cpu_exact_squares(n, g) : (dlrm_squares){0};
    double sum = 0;
    for (int64_t i = 0; !exact && i < n; i++) sum += (double)g[i] * g[i];
    return exact ? dlrm_squares_value(&squares) : sum;
}

void cpu_rowwise_apply(const dlrm_rule *r, int64_t n, float *w, const float *g, float *a, float mean_square)
{
    *a += mean_square;
    sgd(r->lr / (sqrtf(*a) + r->epsilon), n, w, g);
}

void cpu_rule_apply(const dlrm_rule *r, int64_t n, float *w, const float *g, float *s0, float *s1)
{
    switch (r->name) {
    case DLRM_SGD:
        if (r->momentum != 0)
            momentum(r->lr, r->momentum, n, w, g, s0);
        else
            sgd(r->lr, n, w, g);
        break;
    case DLRM_ADAGRAD: adagrad(r->lr, r->epsilon, n, w, g, s0); break;
    case DLRM_ROWWISE_ADAGRAD: DLRM_ASSERT(!"a rule of whole rows"); break;
    case DLRM_ADAM: adam(r, n, w, g, s0, s1); break;
    }
}

void cpu_dense_update(dlrm_backend *be, const dlrm_dense_update_args *a)
{
    const int64_t block = 1 << 14;
#pragma omp parallel for schedule(static) num_threads(cpu_of(be)->threads)
    for (int64_t at = 0; at < a->n; at += block) {
        int64_t n = a->n - at < block ? a->n - at : block;
        cpu_rule_apply(&a->rule, n, a->w + at, a->g + at, a->state[0] ? a->state[0] + at : NULL,
                       a->state[1] ? a->state[1] + at : NULL);
    }
}

/* Elements [first, first+n) of the table, as dlrm_rng_uniform; one Philox call for the four elements that share it. */
static void init_run(const dlrm_table_init_args *a, int64_t first, int64_t n, float *to)
{
    const float scale = (float)a->scale;
    const int64_t end = first + n;
    for (int64_t group = first / 4; group < (end + 3) / 4; group++) {
        dlrm_u32x4 u = dlrm_philox(a->seed, a->stream, (uint64_t)group);
        for (int k = 0; k < 4; k++) {
            int64_t i = 4 * group + k;
            if (i >= first && i < end) to[i - first] = (2 * dlrm_unit_float(u.v[k]) - 1) * scale;
        }
    }
}

enum { BLOCK = 4096 };

/* The same, rounded, into n elements of the table's dtype. */
static void init_elements(const dlrm_table_init_args *a, int64_t first, int64_t n, char *to)
{
    for (int64_t i = 0; i < n; i += BLOCK) {
        float values[BLOCK];
        const int64_t m = n - i < BLOCK ? n - i : BLOCK;
        init_run(a, first + i, m, values);
        dlrm_narrow(a->dtype, values, m, to + i * (int64_t)dlrm_dtype_bytes(a->dtype));
    }
}

void cpu_table_init(dlrm_backend *be, const dlrm_table_init_args *a)
{
    const bool solid = a->columns == a->dim && a->row_step == 1; /* else rows do not follow each other in the table */
    const int64_t total = a->rows * a->columns, length = solid ? BLOCK : a->columns, runs = (total + length - 1) / length;
    const int64_t size = (int64_t)dlrm_dtype_bytes(a->dtype);
#pragma omp parallel for schedule(static) num_threads(cpu_of(be)->threads)
    for (int64_t k = 0; k < runs; k++) {
        const int64_t at = k * length, end = total - at < length ? total : at + length;
        const int64_t row = a->first_row + (solid ? 0 : k * a->row_step), first = row * a->dim + a->first_column + (solid ? at : 0);
        init_elements(a, first, end - at, (char *)a->weight + at * size);
    }
}

void cpu_rows_renew(dlrm_backend *be, const dlrm_rows_renew_args *r)
{
    const dlrm_table_init_args *a = &r->init;
    const dlrm_table_shard *t = &r->shard->tables[r->table];
    const int width = r->shard->rowwise ? 1 : t->dim;
#pragma omp parallel for schedule(static) num_threads(cpu_of(be)->threads)
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t row = r->rows[i], first = (a->first_row + row * a->row_step) * a->dim + a->first_column;
        init_elements(a, first, a->columns, (char *)t->weight + row * a->columns * (int64_t)dlrm_dtype_bytes(a->dtype));
        for (int k = 0; k < 2; k++)
            for (int c = 0; t->state[k] && c < width; c++) t->state[k][row * width + c] = r->state_value;
    }
}

/* --- loss scaling: not here, activations are fp32 --- */

void cpu_find_overflow(dlrm_backend *be, const dlrm_overflow_args *a)
{
    (void)be;
    *a->flag = 0;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < a->part[k].n; i++) {
            float v;
            dlrm_widen(a->type, (const char *)a->part[k].p + i * (int64_t)dlrm_dtype_bytes(a->type), 1, &v);
            if (!isfinite(v)) *a->flag = INFINITY;
        }
}

void cpu_settle_scale(dlrm_backend *be, const dlrm_settle_args *a)
{
    (void)be, (void)a;
}

void cpu_scale_set(dlrm_backend *be, const dlrm_scale *s)
{
    (void)be;
    DLRM_ASSERT(s->scale == 1 && s->skipped == 0);
}

void cpu_scale_get(dlrm_backend *be, dlrm_scale *s)
{
    (void)be;
    *s = (dlrm_scale){.scale = 1};
}
