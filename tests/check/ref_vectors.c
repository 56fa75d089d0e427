/* References: interaction of a sample's vectors, pooled lookup, gradients of tables. */
#include "ref.h"

typedef struct window {
    int64_t begin, end;
} window;

/* Elements of output j: j s - L <= i < j s - L + s, those that exist. */
static window pool_window(int64_t w, int64_t stride, int64_t j)
{
    int64_t n = (w + stride - 1) / stride, left = (n * stride - w) / 2;
    window k = {j * stride - left, j * stride - left + stride};
    if (k.begin < 0) k.begin = 0;
    if (k.end > w) k.end = w;
    return k;
}

static int64_t width_from_1(int n, const ref_slot *slots)
{
    int64_t w = 0;
    for (int i = 1; i < n; i++) w += slots[i].width;
    return w;
}

/* Element i of the vectors 1 … one after the other. */
static double element(const ref_slot *slots, int64_t i)
{
    int k = 1;
    for (; i >= slots[k].width; k++) i -= slots[k].width;
    return slots[k].v[i];
}

static void put(double *out, double *tol, int64_t *at, double value, double bound)
{
    out[*at] = value;
    if (tol) tol[*at] = bound;
    ++*at;
}

void ref_interact_forward(dlrm_interaction kind, int pool_stride, int n, const ref_slot *slots, double operands,
                          double *out, double *tol)
{
    int64_t at = 0, w = width_from_1(n, slots);
    if (kind == DLRM_POOL)
        for (int64_t j = 0; j * pool_stride < w; j++) {
            window k = pool_window(w, pool_stride, j);
            double sum = 0, magnitude = 0, count = (double)(k.end - k.begin);
            for (int64_t i = k.begin; i < k.end; i++) {
                sum += element(slots, i);
                magnitude += fabs(element(slots, i));
            }
            put(out, tol, &at, sum / count, ref_bound(pool_stride, 0, magnitude / count, sum / count));
        }
    for (int d = 0; d < slots[0].width; d++) put(out, tol, &at, slots[0].v[d], 0);
    for (int i = 1; kind == DLRM_CAT && i < n; i++)
        for (int d = 0; d < slots[i].width; d++) put(out, tol, &at, slots[i].v[d], 0);
    for (int i = 1; kind == DLRM_DOT && i < n; i++)
        for (int j = 0; j < i; j++) {
            double sum = 0, magnitude = 0;
            for (int d = 0; d < slots[i].width; d++) {
                sum += slots[i].v[d] * slots[j].v[d];
                magnitude += fabs(slots[i].v[d] * slots[j].v[d]);
            }
            put(out, tol, &at, sum, ref_bound(slots[i].width, operands, magnitude, sum));
        }
}

static void dot_backward(int n, const ref_slot *slots, const double *d_out, double operands)
{
    const int D = slots[0].width;
    for (int i = 0; i < n; i++)
        for (int d = 0; slots[i].grad && d < D; d++) {
            double sum = i == 0 ? d_out[d] : 0, magnitude = fabs(sum);
            for (int j = 0; j < n; j++) {
                if (j == i) continue;
                int64_t high = i > j ? i : j, low = i > j ? j : i;
                double term = d_out[D + high * (high - 1) / 2 + low] * slots[j].v[d];
                sum += term;
                magnitude += fabs(term);
            }
            slots[i].grad[d] = sum;
            if (slots[i].tol) slots[i].tol[d] = ref_bound(n, operands, magnitude, sum);
        }
}

static void pool_backward(int pool_stride, int n, const ref_slot *slots, const double *d_out)
{
    int64_t w = width_from_1(n, slots), outputs = (w + pool_stride - 1) / pool_stride;
    for (int64_t j = 0; j < outputs; j++) {
        window k = pool_window(w, pool_stride, j);
        double g = d_out[j] / (double)(k.end - k.begin);
        int slot = 1;
        int64_t first = 0;
        for (int64_t i = k.begin; i < k.end; i++) {
            for (; i - first >= slots[slot].width; slot++) first += slots[slot].width;
            if (!slots[slot].grad) continue;
            slots[slot].grad[i - first] = g;
            if (slots[slot].tol) slots[slot].tol[i - first] = ref_bound(1, 0, fabs(g), g);
        }
    }
    for (int d = 0; slots[0].grad && d < slots[0].width; d++) {
        slots[0].grad[d] = d_out[outputs + d];
        if (slots[0].tol) slots[0].tol[d] = 0;
    }
}

void ref_interact_backward(dlrm_interaction kind, int pool_stride, bool slot0_is_relu, int n, const ref_slot *slots,
                           const double *d_out, double operands)
{
    int64_t at = 0;
    if (kind == DLRM_DOT) dot_backward(n, slots, d_out, operands);
    if (kind == DLRM_POOL) pool_backward(pool_stride, n, slots, d_out);
    for (int i = 0; kind == DLRM_CAT && i < n; at += slots[i++].width)
        for (int d = 0; slots[i].grad && d < slots[i].width; d++) {
            slots[i].grad[d] = d_out[at + d];
            if (slots[i].tol) slots[i].tol[d] = 0;
        }
    for (int d = 0; slot0_is_relu && slots[0].grad && d < slots[0].width; d++)
        if (slots[0].v[d] == 0) {
            slots[0].grad[d] = 0;
            if (slots[0].tol) slots[0].tol[d] = 0;
        }
}

/* Ids of vector k of sample s. */
static window bag(const dlrm_shard_input *in, const dlrm_bags *bags, int64_t s, int k)
{
    const int64_t n = s * in->vectors + k;
    if (bags->offsets) return (window){bags->offsets[n], bags->offsets[n + 1]};
    return (window){n * in->hotness, (n + 1) * in->hotness};
}

/* What a mean divides by. */
static int64_t divisor(const dlrm_bags *bags, int64_t s, window k)
{
    return bags->whole ? bags->whole[s + 1] - bags->whole[s] : k.end - k.begin;
}

void ref_lookup(const dlrm_shard *shard, const double *const *weight, int64_t B, const dlrm_bags *bags, double *pooled,
                double *tol)
{
    for (int64_t s = 0; s < B; s++)
        for (int j = 0; j < shard->n_inputs; j++) {
            const dlrm_shard_input *in = &shard->inputs[j];
            const int dim = shard->tables[in->table].dim;
            for (int e = 0; e < in->vectors * dim; e++) {
                const window k = bag(in, &bags[j], s, e / dim);
                const int64_t n = k.end - k.begin, at = s * shard->width + in->column + e;
                double sum = 0, magnitude = 0, by = in->mean && !in->undivided && n > 0 ? (double)divisor(&bags[j], s, k) : 1;
                for (int64_t i = k.begin; i < k.end; i++) {
                    double v = weight[in->table][(int64_t)bags[j].ids[i] * dim + e % dim] / by;
                    sum += v;
                    magnitude += fabs(v);
                }
                pooled[at] = sum;
                if (tol) tol[at] = n <= 1 && by == 1 ? 0 : ref_bound(n + (in->mean ? 2 : 0), 0, magnitude, sum);
            }
        }
}

void ref_table_gradient(const dlrm_shard *shard, int t, int64_t B, const dlrm_bags *bags, const double *d_pooled,
                        double *g, double *error, int64_t *touched)
{
    const int dim = shard->tables[t].dim;
    for (int64_t s = 0; s < B; s++)
        for (int j = 0; j < shard->n_inputs; j++) {
            const dlrm_shard_input *in = &shard->inputs[j];
            for (int v = 0; in->table == t && v < in->vectors; v++) {
                const window k = bag(in, &bags[j], s, v);
                const double by = in->mean ? (double)divisor(&bags[j], s, k) : 1;
                for (int64_t i = k.begin; i < k.end; i++) {
                    int64_t row = bags[j].ids[i];
                    touched[row]++;
                    for (int d = 0; d < dim; d++) {
                        double term = d_pooled[s * shard->width + in->column + v * dim + d] / by;
                        g[row * dim + d] += term;
                        if (error) error[row * dim + d] += fabs(term); /* the magnitude, for now */
                    }
                }
            }
        }
    for (int64_t row = 0; error && row < shard->tables[t].rows; row++)
        for (int d = 0; d < dim; d++)
            error[row * dim + d] *=
                touched[row] == 0 ? 0 : 2 * sqrt((double)touched[row] + 2) * 0x1p-24; /* + 2: the means' */
}
