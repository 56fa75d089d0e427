/* Embedding tables: pooled lookup, and the update of the rows a batch touched. For the update each table's (row, bag)
 * pairs are radix-sorted by row; the sort is stable and the pairs start in (sample, input, position) order, so a row's
 * gradients are summed in an order that the batch alone fixes. One read and one write per touched row. */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"

enum { PIECE = 2048, MAX_DIGIT = 11, AHEAD = 8, SUM_BLOCK = 256 };

/* One of the bags that each sample has. */
typedef struct sample_bag {
    int input, number; /* of the shard; of that input's bags */
    int column;        /* of its vector in a row of the pooled matrix */
} sample_bag;

/* A table's part of the work space. A pair is row << bag_bits | bag, bag = sample * n_bags + k for the k-th of a sample's
 * bags that look into this table. */
typedef struct table_work {
    int n_bags;
    sample_bag *bags;
    uint64_t *pairs, *other;
    int64_t count, capacity;
    int bag_bits, row_bits;
    int64_t pieces; /* of the update */
} table_work;

typedef struct shard_work {
    table_work *tables;
    int64_t *first_piece; /* [n_tables+1] */
    float **row;          /* [threads]: three rows of scratch each */
} shard_work;

static int bits_for(uint64_t values)
{
    int bits = 0;
    while (bits < 64 && values > (uint64_t)1 << bits) bits++;
    return bits;
}

static dlrm_status list_bags(const dlrm_shard *s, int table, table_work *w)
{
    int n = 0;
    for (int j = 0; j < s->n_inputs; j++)
        if (s->inputs[j].table == table) n += s->inputs[j].vectors;
    TRY(dlrm_alloc(n, sizeof *w->bags, "embedding work space", &w->bags));
    for (int j = 0; j < s->n_inputs; j++) {
        const dlrm_shard_input *in = &s->inputs[j];
        if (in->table != table) continue;
        for (int k = 0; k < in->vectors; k++) w->bags[w->n_bags++] = (sample_bag){j, k, in->column + k * s->tables[table].dim};
        w->capacity += s->max_batch * in->vectors * in->hotness;
    }
    return DLRM_OK;
}

dlrm_status cpu_shard_open(dlrm_backend *be, dlrm_shard *s)
{
    const cpu_impl *c = cpu_of(be);
    shard_work *w;
    TRY(dlrm_alloc(1, sizeof *w, "embedding work space", &s->work));
    w = s->work;
    TRY(dlrm_alloc(s->n_tables, sizeof *w->tables, "embedding work space", &w->tables));
    TRY(dlrm_alloc(s->n_tables + 1, sizeof *w->first_piece, "embedding work space", &w->first_piece));
    TRY(dlrm_alloc(c->threads, sizeof *w->row, "embedding work space", &w->row));
    int max_dim = 1;
    for (int t = 0; t < s->n_tables; t++) {
        table_work *tw = &w->tables[t];
        if (s->tables[t].dim > max_dim) max_dim = s->tables[t].dim;
        TRY(list_bags(s, t, tw));
        tw->bag_bits = bits_for((uint64_t)s->max_batch * (uint64_t)tw->n_bags);
        tw->row_bits = bits_for((uint64_t)s->tables[t].rows);
        if (tw->bag_bits + tw->row_bits > 64)
            return FAIL(DLRM_E_INPUT, "a table of %lld rows and %d bags a sample is too large for a batch of %lld samples",
                        (long long)s->tables[t].rows, tw->n_bags, (long long)s->max_batch);
        TRY(dlrm_alloc(tw->capacity, sizeof *tw->pairs, "sorted ids", &tw->pairs));
        TRY(dlrm_alloc(tw->capacity, sizeof *tw->other, "sorted ids", &tw->other));
    }
    for (int t = 0; t < c->threads; t++) TRY(dlrm_alloc(3 * max_dim, sizeof(float), "embedding work space", &w->row[t]));
    return DLRM_OK;
}

void cpu_shard_close(dlrm_backend *be, dlrm_shard *s)
{
    shard_work *w = s->work;
    if (!w) return;
    for (int t = 0; w->tables && t < s->n_tables; t++) {
        dlrm_free(&w->tables[t].bags);
        dlrm_free(&w->tables[t].pairs);
        dlrm_free(&w->tables[t].other);
    }
    for (int t = 0; w->row && t < cpu_of(be)->threads; t++) dlrm_free(&w->row[t]);
    dlrm_free(&w->tables);
    dlrm_free(&w->first_piece);
    dlrm_free(&w->row);
    dlrm_free(&s->work);
}

static int64_t bag_begin(const dlrm_bags *b, const dlrm_shard_input *in, int64_t bag)
{
    return b->offsets ? b->offsets[bag] : bag * in->hotness;
}

/* Ids of the bag that a mean is over. */
static int64_t whole_length(const dlrm_bags *b, int64_t sample, int64_t length)
{
    return b->whole ? b->whole[sample + 1] - b->whole[sample] : length;
}

/* --- lookup --- */

DLRM_HOT static void add_scaled_f32(float *into, const float *row, float by, int dim)
{
    for (int d = 0; d < dim; d++) into[d] += by * row[d];
}

DLRM_HOT static void add_scaled_bf16(float *restrict into, const uint16_t *restrict row, float by, int dim)
{
    for (int d = 0; d < dim; d++) into[d] += by * dlrm_float_of_bf16(row[d]);
}

DLRM_HOT static void add_scaled_f16(float *restrict into, const uint16_t *restrict row, float by, int dim)
{
    for (int d = 0; d < dim; d++) into[d] += by * dlrm_float_of_f16(row[d]);
}

static void add_scaled(dlrm_dtype type, float *into, const void *row, float by, int dim)
{
    if (type == DLRM_BF16)
        add_scaled_bf16(into, row, by, dim);
    else if (type == DLRM_FP16)
        add_scaled_f16(into, row, by, dim);
    else
        add_scaled_f32(into, row, by, dim);
}

DLRM_HOT static void scale_row(float *v, float by, int dim)
{
    for (int d = 0; d < dim; d++) v[d] *= by;
}

static void prefetch(const void *row, size_t bytes)
{
    const char *p = row, *end = p + (bytes < 256 ? bytes : 256);
    for (; p < end; p += 64) __builtin_prefetch(p);
}

static dlrm_dtype lookup_type(const dlrm_lookup_args *a, const dlrm_shard_input *in)
{
    return in->exact ? DLRM_FP32 : a->shard->wire;
}

/* sum: a row of scratch, for vectors that do not travel as fp32. */
static void lookup_input(const dlrm_lookup_args *a, const dlrm_shard_input *in, const dlrm_bags *bags, int64_t begin,
                         int64_t end, float *sum)
{
    const dlrm_table_shard *t = &a->shard->tables[in->table];
    const int dim = t->dim, vectors = in->vectors;
    const dlrm_dtype type = a->shard->dtype, wire = lookup_type(a, in);
    const size_t row_bytes = (size_t)dim * dlrm_dtype_bytes(type), wire_bytes = dlrm_dtype_bytes(wire);
    const size_t sample_bytes = (size_t)a->shard->width * dlrm_dtype_bytes(a->shard->wire);
    const char *weight = t->weight;
    char *const first = (char *)a->pooled + (size_t)in->column * dlrm_dtype_bytes(a->shard->wire);
    for (int64_t s = begin; s < end; s++)
        for (int k = 0; k < vectors; k++) {
            char *out = first + (size_t)s * sample_bytes + (size_t)(k * dim) * wire_bytes;
            float *v = wire == DLRM_FP32 ? (float *)out : sum;
            const int64_t bag = s * vectors + k;
            int64_t i = bag_begin(bags, in, bag), stop = bag_begin(bags, in, bag + 1), n = stop - i;
            if (i + AHEAD < bags->count) prefetch(weight + bags->ids[i + AHEAD] * row_bytes, row_bytes);
            if (n == 0) {
                memset(out, 0, (size_t)dim * wire_bytes);
                continue;
            }
            const int64_t whole = in->mean && !in->undivided ? whole_length(bags, s, n) : 1;
            if (n == 1 && whole == 1 && type == wire) {
                memcpy(out, weight + bags->ids[i] * row_bytes, row_bytes);
                continue;
            }
            dlrm_widen(type, weight + bags->ids[i++] * row_bytes, dim, v);
            for (; i < stop; i++) {
                if (i + AHEAD < bags->count) prefetch(weight + bags->ids[i + AHEAD] * row_bytes, row_bytes);
                add_scaled(type, v, weight + bags->ids[i] * row_bytes, 1, dim);
            }
            if (whole > 1) scale_row(v, 1.0f / (float)whole, dim);
            dlrm_narrow(wire, v, dim, out);
        }
}

void cpu_lookup(dlrm_backend *be, const dlrm_lookup_args *a)
{
    const shard_work *w = a->shard->work;
    const int64_t block = 128, blocks = (a->B + block - 1) / block;
#pragma omp parallel for collapse(2) schedule(dynamic, 4) num_threads(cpu_of(be)->threads)
    for (int64_t k = 0; k < blocks; k++)
        for (int j = 0; j < a->shard->n_inputs; j++)
            lookup_input(a, &a->shard->inputs[j], &a->bags[j], k * block, (k + 1) * block < a->B ? (k + 1) * block : a->B,
                         w->row[omp_get_thread_num()]);
}

/* --- sort --- */

static void make_pairs(const dlrm_lookup_args *a, table_work *w)
{
    int64_t n = 0;
    uint64_t bag = 0;
    for (int64_t s = 0; s < a->B; s++)
        for (int k = 0; k < w->n_bags; k++, bag++) {
            const dlrm_shard_input *in = &a->shard->inputs[w->bags[k].input];
            const dlrm_bags *b = &a->bags[w->bags[k].input];
            const int64_t at = s * in->vectors + w->bags[k].number;
            for (int64_t i = bag_begin(b, in, at), end = bag_begin(b, in, at + 1); i < end; i++)
                w->pairs[n++] = (uint64_t)b->ids[i] << w->bag_bits | bag;
        }
    DLRM_ASSERT(n <= w->capacity);
    w->count = n;
}

/* Least significant digit first, over the row's bits alone. */
static void sort_pairs(table_work *w)
{
    int64_t at[1 << MAX_DIGIT];
    int fit = bits_for((uint64_t)w->count) + 1, most = fit < 4 ? 4 : fit > MAX_DIGIT ? MAX_DIGIT : fit;
    int passes = (w->row_bits + most - 1) / most, digit = passes ? (w->row_bits + passes - 1) / passes : 0;
    for (int pass = 0; pass < passes; pass++) {
        const int shift = w->bag_bits + pass * digit;
        const uint64_t mask = ((uint64_t)1 << digit) - 1;
        memset(at, 0, sizeof *at << digit);
        for (int64_t i = 0; i < w->count; i++) at[w->pairs[i] >> shift & mask]++;
        int64_t sum = 0;
        for (uint64_t d = 0; d <= mask; d++) {
            int64_t n = at[d];
            at[d] = sum;
            sum += n;
        }
        for (int64_t i = 0; i < w->count; i++) w->other[at[w->pairs[i] >> shift & mask]++] = w->pairs[i];
        uint64_t *swap = w->pairs;
        w->pairs = w->other;
        w->other = swap;
    }
}

void cpu_sort(dlrm_backend *be, const dlrm_lookup_args *a)
{
    shard_work *w = a->shard->work;
#pragma omp parallel for schedule(dynamic) num_threads(cpu_of(be)->threads)
    for (int t = 0; t < a->shard->n_tables; t++) {
        make_pairs(a, &w->tables[t]);
        sort_pairs(&w->tables[t]);
    }
    for (int t = 0; t < a->shard->n_tables; t++)
        w->first_piece[t + 1] = w->first_piece[t] + (w->tables[t].count + PIECE - 1) / PIECE;
}

/* --- update --- */

/* What a row takes of its bag's gradient. */
static float mean_factor(const dlrm_update_args *a, const sample_bag *of, int64_t s)
{
    const dlrm_shard_input *in = &a->shard->inputs[of->input];
    const dlrm_bags *bags = &a->bags[of->input];
    const int64_t bag = s * in->vectors + of->number;
    return in->mean ? 1.0f / (float)whole_length(bags, s, bag_begin(bags, in, bag + 1) - bag_begin(bags, in, bag)) : 1.0f;
}

/* The gradient of one row from its pairs [i, end): in order, in blocks of SUM_BLOCK so that long runs stay accurate.
 * Returns where it is: `sum`, or the one gradient itself. */
static const float *row_gradient(const dlrm_update_args *a, const table_work *w, int64_t i, int64_t end, int dim,
                                 float *sum, float *block)
{
    const uint64_t mask = ((uint64_t)1 << w->bag_bits) - 1;
    const dlrm_dtype wire = a->shard->wire;
    float *into = end - i > SUM_BLOCK ? block : sum;
    bool first = true;
    for (int64_t at = i; at < end; at++) {
        uint64_t bag = w->pairs[at] & mask;
        int64_t s = (int64_t)(w->n_bags == 1 ? bag : bag / (uint64_t)w->n_bags);
        const sample_bag *of = &w->bags[w->n_bags == 1 ? 0 : bag % (uint64_t)w->n_bags];
        const char *g = (const char *)a->d_pooled + (size_t)(s * a->shard->width + of->column) * dlrm_dtype_bytes(wire);
        float by = mean_factor(a, of, s);
        if (end - i == 1 && by == 1.0f && wire == DLRM_FP32) return (const float *)g;
        if ((at - i) % SUM_BLOCK == 0) memset(into, 0, (size_t)dim * sizeof *into);
        add_scaled(wire, into, g, by, dim);
        if (into == block && ((at - i) % SUM_BLOCK == SUM_BLOCK - 1 || at == end - 1)) {
            if (first)
                memcpy(sum, block, (size_t)dim * sizeof *sum);
            else
                add_scaled_f32(sum, block, 1, dim);
            first = false;
        }
    }
    return sum;
}

static void prefetch_update(const dlrm_update_args *a, const dlrm_table_shard *t, const table_work *w, int64_t at)
{
    if (at >= w->count) return;
    uint64_t pair = w->pairs[at];
    int64_t row = (int64_t)(pair >> w->bag_bits);
    const size_t row_bytes = (size_t)t->dim * dlrm_dtype_bytes(a->shard->dtype);
    prefetch((const char *)t->weight + (size_t)row * row_bytes, row_bytes);
    if (t->state[0]) prefetch(t->state[0] + (a->rule.name == DLRM_ROWWISE_ADAGRAD ? row : row * t->dim), 64);
    if (w->n_bags == 1) {
        int64_t s = (int64_t)(pair & (((uint64_t)1 << w->bag_bits) - 1));
        const size_t size = dlrm_dtype_bytes(a->shard->wire);
        prefetch((const char *)a->d_pooled + (size_t)(s * a->shard->width + w->bags[0].column) * size,
                 (size_t)t->dim * size);
    }
}

/* Applies the rule to a row. One narrower than fp32 is updated in `wide` and rounded by random bits. squares: of the gradient,
 * over the whole row, where the rule asks for it. */
static void update_row(const dlrm_rule *rule, dlrm_dtype type, const dlrm_table_shard *t, int64_t row, const float *g, double squares,
                       uint64_t step, uint64_t seed, float *wide)
{
    const int dim = t->dim;
    char *weight = (char *)t->weight + row * dim * (int64_t)dlrm_dtype_bytes(type);
    float *w = type == DLRM_FP32 ? (float *)weight : wide, *s0 = t->state[0], *s1 = t->state[1];
    if (s0) s0 += rule->name == DLRM_ROWWISE_ADAGRAD ? row : row * dim;
    if (s1) s1 += row * dim;
    dlrm_widen(type, weight, dim, w);
    if (rule->name == DLRM_ROWWISE_ADAGRAD)
        cpu_rowwise_apply(rule, dim, w, g, s0, (float)(squares / (double)(t->n_peers ? t->row_elements : dim)));
    else
        cpu_rule_apply(rule, dim, w, g, s0, s1);
    if (type != DLRM_FP32)
        dlrm_narrow_randomly(type, w, dim, weight, seed, dlrm_rng_at_step(t->stream, step), t->first_element + row * t->row_elements);
}

/* Squares of a row's own columns, into the peers' places. */
static void store_squares(const dlrm_update_args *a, const dlrm_table_shard *t, int64_t first_pair, const float *g)
{
    const dlrm_squares sum = cpu_exact_squares(t->dim, g);
    for (int i = 0; i < t->n_peers; i++) a->own_squares[a->B * t->peer_at[i] + first_pair] = sum;
}

/* Of a whole row, of which the gradient g is here, or what row_squares made of the columns that are. */
static double whole_squares(const dlrm_update_args *a, const dlrm_table_shard *t, int64_t first_pair, const float *g, bool exact)
{
    if (!t->n_peers) return cpu_sum_squares(t->dim, g, exact);
    dlrm_squares sum = a->own_squares[a->B * t->peer_at[0] + first_pair];
    for (int i = 0; i < t->n_peers; i++) dlrm_squares_join(&sum, a->peer_squares[a->B * t->peer_at[i] + first_pair]);
    return dlrm_squares_value(&sum);
}

typedef enum purpose { UPDATE, SUMS /* the gradient itself in place of an update */, SQUARES } purpose;

/* Rows whose first pair lies in [begin, end). */
static void update_piece(const cpu_impl *c, const dlrm_update_args *a, purpose what, int table, int64_t begin, int64_t end, float *scratch)
{
    const dlrm_table_shard *t = &a->shard->tables[table];
    const table_work *w = &((shard_work *)a->shard->work)->tables[table];
    const int dim = t->dim;
    const bool rowwise = a->rule.name == DLRM_ROWWISE_ADAGRAD;
    if (end > w->count) end = w->count;
    int64_t i = begin;
    if (begin > 0)
        while (i < end && w->pairs[i] >> w->bag_bits == w->pairs[begin - 1] >> w->bag_bits) i++;
    while (i < end) {
        int64_t row = (int64_t)(w->pairs[i] >> w->bag_bits), stop = i + 1;
        while (stop < w->count && (int64_t)(w->pairs[stop] >> w->bag_bits) == row) stop++;
        prefetch_update(a, t, w, stop + AHEAD - 1);
        const float *g = row_gradient(a, w, i, stop, dim, scratch, scratch + dim);
        if (what == SUMS)
            memcpy((float *)t->weight + row * dim, g, (size_t)dim * sizeof *g);
        else if (what == SQUARES)
            store_squares(a, t, i, g);
        else
            update_row(&a->rule, a->shard->dtype, t, row, g, rowwise ? whole_squares(a, t, i, g, c->pinned) : 0, a->step, c->seed,
                       scratch + 2 * dim);
        i = stop;
    }
}

static void update(dlrm_backend *be, const dlrm_update_args *a, purpose what)
{
    shard_work *w = a->shard->work;
    const int64_t pieces = w->first_piece[a->shard->n_tables];
#pragma omp parallel for schedule(dynamic) num_threads(cpu_of(be)->threads)
    for (int64_t p = 0; p < pieces; p++) {
        int t = 0;
        while (w->first_piece[t + 1] <= p) t++;
        int64_t begin = (p - w->first_piece[t]) * PIECE;
        if (what == SQUARES && !a->shard->tables[t].n_peers) continue;
        update_piece(cpu_of(be), a, what, t, begin, begin + PIECE, w->row[omp_get_thread_num()]);
    }
}

void cpu_update(dlrm_backend *be, const dlrm_update_args *a)
{
    update(be, a, UPDATE);
}

void cpu_row_sums(dlrm_backend *be, const dlrm_update_args *a)
{
    DLRM_ASSERT(a->shard->dtype == DLRM_FP32);
    update(be, a, SUMS);
}

void cpu_row_squares(dlrm_backend *be, const dlrm_update_args *a)
{
    update(be, a, SQUARES);
}

void cpu_rows_update(dlrm_backend *be, const dlrm_rows_update_args *a)
{
    const float *sums = a->sums;
    const shard_work *w = a->shard->work;
    for (int k = 0; k < a->shard->n_tables; k++) {
        const dlrm_table_shard *t = &a->shard->tables[k];
        const int pitch = dlrm_sums_pitch(t->dim, a->marked);
#pragma omp parallel for schedule(static) num_threads(cpu_of(be)->threads)
        for (int64_t row = 0; row < t->rows; row++) {
            const float *g = sums + row * pitch;
            if (a->marked && g[t->dim] == 0) continue;
            const double squares = a->rule.name == DLRM_ROWWISE_ADAGRAD ? cpu_sum_squares(t->dim, g, cpu_of(be)->pinned) : 0;
            update_row(&a->rule, a->shard->dtype, t, row, g, squares, a->step, cpu_of(be)->seed, w->row[omp_get_thread_num()]);
        }
        sums += t->rows * pitch;
    }
}
