/* Tables with all kinds of inputs, every optimizer, as a step goes: a batch is fed and sorted, looked up and updated,
 * and the next one fed and sorted meanwhile. Of some cases with an optimizer of whole rows, these have other columns elsewhere. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "ref.h"

enum { MOST_TABLES = 5, MOST_INPUTS = 8, RULES = 6, TYPES = 6, DENSE = H_DENSE, STEP = 4711 };
static const struct {
    dlrm_dtype table, wire;
    const char *text;
} types[TYPES] = {{DLRM_FP32, DLRM_FP32, "fp32 tables, fp32 vectors"}, {DLRM_BF16, DLRM_FP32, "bf16 tables, fp32 vectors"},
                  {DLRM_FP16, DLRM_BF16, "fp16 tables, bf16 vectors"}, {DLRM_FP32, DLRM_BF16, "fp32 tables, bf16 vectors"},
                  {DLRM_BF16, DLRM_BF16, "bf16 tables, bf16 vectors"}, {DLRM_FP32, DLRM_FP16, "fp32 tables, fp16 vectors"}};
typedef enum ids {
    UNIFORM,
    HOT_ROW,
    EDGES,
    FEW
} ids; /* HOT_ROW: all the same; EDGES: first and last; FEW: of 3 rows */

/* APART: each id of a bag is a vector of its own; MEAN_APART: a part of a mean, which is not divided. */
typedef enum pooling { SUM, MEAN, APART, MEAN_APART } pooling;

typedef struct embedding_case {
    int64_t B, max_batch;
    int n_tables, n_inputs;
    struct {
        int64_t rows;
        int dim;
    } tables[MOST_TABLES];
    struct {
        int table, hotness; /* of all a sample's vectors */
        bool variable;
        pooling pooling;
    } inputs[MOST_INPUTS];
    ids data;
    const char *why;
    bool partial; /* bags are parts of longer ones; every other mean is not to be divided by the lookup, and fp32 beside 16-bit vectors */
} embedding_case;

static const embedding_case cases[] = {
    {1, 1, 1, 1, {{1, 1}}, {{0, 1, false, SUM}}, UNIFORM, "smallest", false},
    {1, 64, 1, 1, {{1, 16}}, {{0, 3, true, MEAN}}, UNIFORM, "one row; batch 1 in room for 64", false},
    {7, 7, 1, 1, {{100, 17}}, {{0, 1, false, SUM}}, UNIFORM, "odd width: the scalar tail", false},
    {5,
     9,
     2,
     3,
     {{9, 3}, {4, 8}},
     {{0, 2, false, SUM}, {1, 1, false, MEAN}, {0, 4, true, SUM}},
     UNIFORM,
     "a shared table", false},
    {40,
     40,
     3,
     4,
     {{50, 4}, {1000, 64}, {3, 1}},
     {{0, 6, true, MEAN}, {1, 10, true, SUM}, {2, 3, false, MEAN}, {1, 5, true, MEAN}},
     UNIFORM,
     "empty bags, means, widths", false},
    {0, 4, 1, 1, {{10, 8}}, {{0, 2, false, SUM}}, UNIFORM, "no sample", false},
    {64,
     64,
     1,
     1,
     {{10, 16}},
     {{0, 8, true, SUM}},
     HOT_ROW,
     "all bags hit one row; sums of more than a block of 256", false},
    {512,
     512,
     1,
     2,
     {{30, 8}},
     {{0, 5, false, SUM}, {0, 3, true, MEAN}},
     HOT_ROW,
     "one row through several pieces of 2048", false},
    {300, 300, 2, 2, {{20, 128}, {7, 36}}, {{0, 10, false, MEAN}, {1, 9, true, SUM}}, FEW, "three rows, long runs", false},
    {270,
     300,
     2,
     3,
     {{2000, 128}, {31, 36}},
     {{0, 100, false, SUM}, {1, 1, false, MEAN}, {1, 27, true, MEAN}},
     UNIFORM,
     "bags of very different lengths", false},
    {2048, 2048, 1, 1, {{5000, 4}}, {{0, 1, false, SUM}}, UNIFORM, "exactly one piece", false},
    {2049, 3000, 1, 1, {{300, 5}}, {{0, 1, false, SUM}}, UNIFORM, "one pair more than a piece; runs across its end", false},
    {100, 128, 1, 1, {{(1 << 17) + 1, 1}}, {{0, 4, false, SUM}}, EDGES, "first and last row of many", false},
    {33,
     33,
     5,
     5,
     {{12, 4}, {1, 16}, {40000, 2}, {2, 4}, {129, 12}},
     {{4, 1, false, SUM}, {3, 1, false, SUM}, {2, 1, false, SUM}, {1, 1, false, SUM}, {0, 1, false, SUM}},
     UNIFORM,
     "inputs not in the order of the tables", false},
    {16, 16, 2, 1, {{5, 4}, {6, 4}}, {{1, 2, true, SUM}}, UNIFORM, "a table without inputs", false},
    {40,
     64,
     3,
     4,
     {{50, 4}, {1000, 64}, {3, 3}},
     {{0, 6, true, MEAN}, {1, 10, true, SUM}, {2, 3, true, MEAN}, {1, 1, true, MEAN}},
     UNIFORM,
     "parts of bags",
     true},
    {40,
     64,
     2,
     4,
     {{50, 4}, {300, 17}},
     {{0, 3, false, APART}, {1, 5, false, APART}, {0, 2, false, SUM}, {1, 1, false, APART}},
     UNIFORM,
     "unpooled", false},
    {130, 130, 1, 2, {{20, 64}}, {{0, 10, false, APART}, {0, 100, false, APART}}, FEW, "unpooled, long runs", false},
    {45,
     64,
     3,
     4,
     {{50, 4}, {1000, 64}, {3, 3}},
     {{0, 6, true, MEAN_APART}, {1, 10, true, APART}, {2, 3, true, MEAN}, {1, 2, true, APART}},
     UNIFORM,
     "parts of bags, each id apart",
     true},
};
enum { SHAPES = sizeof cases / sizeof *cases };

static const dlrm_rule rules[RULES] = {
    {.name = DLRM_SGD, .lr = 0.5f},
    {.name = DLRM_SGD, .lr = 0.125f, .momentum = 0.9f},
    {.name = DLRM_ADAGRAD, .lr = 0.05f, .epsilon = 1e-10f},
    {.name = DLRM_ROWWISE_ADAGRAD, .lr = 0.05f, .epsilon = 1e-3f},
    {.name = DLRM_ADAM,
     .lr = 0.01f,
     .epsilon = 1e-8f,
     .beta1 = 0.9f,
     .beta2 = 0.999f,
     .adam_rate = 0.0116f,
     .adam_root = 1},
    {.name = DLRM_SGD}, /* row_sums: no rule */
};
static const char *const rule_names[RULES] = {"sgd", "momentum", "adagrad", "rowwise adagrad", "adam", "row sums"};
enum { ROW_SUMS = RULES - 1 };

static int64_t draw_id(harness *h, ids kind, int64_t rows)
{
    int64_t row = h_integer(h, rows);
    switch (kind) {
    case UNIFORM:
        return row;
    case HOT_ROW:
        return rows - 1;
    case EDGES:
        return row % 2 ? rows - 1 : 0;
    case FEW:
        return row % 3 * (rows - 1) / 2;
    }
    return 0;
}

/* Host memory for batches: one pinned block, handed out piece by piece. */
typedef struct arena {
    char *block;
    size_t bytes, used;
} arena;

static void *take(arena *a, int64_t n, size_t size)
{
    void *p = a->block + a->used;
    a->used += ((size_t)n * size + 63) / 64 * 64;
    DLRM_ASSERT(a->used <= a->bytes);
    return p;
}

static void arena_open(harness *h, const embedding_case *c, int batches, arena *a)
{
    size_t bytes = 4096 + (size_t)c->B * (DENSE + 1) * sizeof(float);
    for (int j = 0; j < c->n_inputs; j++) bytes += (size_t)((c->B + 1) * (2 * c->inputs[j].hotness + 2)) * sizeof(int64_t) + 192;
    *a = (arena){.bytes = bytes * (size_t)batches};
    a->block = h_host(h, (int64_t)a->bytes, 1);
    if (h_backend(h)->ops->pin(h_backend(h), a->block, a->bytes) != DLRM_OK) h_fail(h, "pin: %s", dlrm_error_message());
}

/* A batch on the host and, once fed, on the backend. */
typedef struct batch {
    int64_t b; /* own samples */
    float *dense, *labels, *to_labels;
    void *to_dense;
    dlrm_bags bags[MOST_INPUTS], on[MOST_INPUTS];
} batch;

static int vectors_of(const embedding_case *c, int j)
{
    return c->inputs[j].pooling < APART ? 1 : c->inputs[j].hotness;
}

static bool is_mean(const embedding_case *c, int j)
{
    return c->inputs[j].pooling == MEAN || c->inputs[j].pooling == MEAN_APART;
}

/* Variable bags have 0 to hotness ids. */
static dlrm_bags make_bags(harness *h, const embedding_case *c, int j, arena *a)
{
    const int64_t vectors = vectors_of(c, j), n_bags = c->B * vectors, hotness = c->inputs[j].hotness / vectors;
    int64_t *offsets = take(a, n_bags + 1, sizeof *offsets);
    uint32_t *list = take(a, n_bags * hotness, sizeof *list);
    offsets[0] = 0;
    for (int64_t n = 0; n < n_bags; n++) {
        offsets[n + 1] = offsets[n] + (c->inputs[j].variable ? h_integer(h, hotness + 1) : hotness);
        for (int64_t i = offsets[n]; i < offsets[n + 1]; i++) list[i] = (uint32_t)draw_id(h, c->data, c->tables[c->inputs[j].table].rows);
    }
    dlrm_bags bags = {.ids = list, .offsets = c->inputs[j].variable ? offsets : NULL, .count = offsets[n_bags]};
    if (c->partial && is_mean(c, j)) {
        int64_t *whole = take(a, c->B + 1, sizeof *whole);
        whole[0] = 0;
        for (int64_t s = 0; s < c->B; s++)
            whole[s + 1] = whole[s] + offsets[(s + 1) * vectors] - offsets[s * vectors] + h_integer(h, 3);
        bags.whole = whole;
    }
    return bags;
}

static void make_batch(harness *h, const embedding_case *c, arena *a, batch *x)
{
    x->b = (c->B + 1) / 2;
    x->dense = take(a, x->b * DENSE, sizeof(float));
    x->labels = take(a, x->b, sizeof(float));
    if (x->b) memcpy(x->dense, h_draw_act(h, x->b * DENSE, SIGNED), (size_t)(x->b * DENSE) * sizeof(float));
    for (int64_t i = 0; i < x->b; i++) x->labels[i] = (float)h_integer(h, 2);
    x->to_dense = h_act_output(h, "dense", x->b, DENSE);
    x->to_labels = h_output(h, "labels", x->b);
    for (int j = 0; j < c->n_inputs; j++) x->bags[j] = make_bags(h, c, j, a);
}

/* Takes the batch to the backend and sorts it; a copy of the bags for the reference is left in x->bags. */
static void feed(harness *h, const embedding_case *c, dlrm_shard *shard, int slot, batch *x)
{
    dlrm_backend *be = h_backend(h);
    const dlrm_feed_args args = {.shard = shard,
                                 .slot = slot,
                                 .B = c->B,
                                 .b = x->b,
                                 .dense_features = DENSE,
                                 .dense = x->dense,
                                 .labels = x->labels,
                                 .bags = x->bags,
                                 .to_dense = x->to_dense,
                                 .to_labels = x->to_labels,
                                 .to_bags = x->on};
    be->ops->feed(be, &args);
    const dlrm_lookup_args sort = {.shard = shard, .B = c->B, .bags = x->on, .slot = slot};
    be->ops->sort(be, &sort);
}

static void keep_copy(harness *h, const embedding_case *c, batch *x, double **dense, double **labels)
{
    *dense = h_widen(h, x->dense, x->b * DENSE);
    *labels = h_widen(h, x->labels, x->b);
    for (int j = 0; j < c->n_inputs; j++) {
        const dlrm_bags from = x->bags[j];
        uint32_t *list = h_host(h, from.count, sizeof *list);
        const int64_t n_bags = c->B * vectors_of(c, j);
        int64_t *offsets = from.offsets ? h_host(h, n_bags + 1, sizeof *offsets) : NULL;
        if (from.count) memcpy(list, from.ids, (size_t)from.count * sizeof *list);
        if (offsets) memcpy(offsets, from.offsets, (size_t)(n_bags + 1) * sizeof *offsets);
        int64_t *whole = from.whole ? h_host(h, c->B + 1, sizeof *whole) : NULL;
        if (whole) memcpy(whole, from.whole, (size_t)(c->B + 1) * sizeof *whole);
        x->bags[j] = (dlrm_bags){.ids = list, .offsets = offsets, .count = from.count, .whole = whole};
    }
}

/* The shard with the tables' weights and state on the backend; host copies in w, s. Of the narrow tables, some are
 * slices that begin within a whole one, and within four elements that share random bits. */
static void make_shard(harness *h, const embedding_case *c, const dlrm_rule *rule, dlrm_dtype type, dlrm_dtype wire, dlrm_shard *shard,
                       float **w, float *(*s)[2])
{
    const int n_states = rule->name == DLRM_ADAM ? 2 : rule->name != DLRM_SGD || rule->momentum != 0;
    *shard = (dlrm_shard){.dtype = type,
                          .wire = wire,
                          .n_tables = c->n_tables,
                          .n_inputs = c->n_inputs,
                          .max_batch = c->max_batch,
                          .tables = h_host(h, c->n_tables, sizeof *shard->tables),
                          .inputs = h_host(h, c->n_inputs, sizeof *shard->inputs)};
    for (int t = 0; t < c->n_tables; t++) {
        const int64_t rows = c->tables[t].rows, n = rows * c->tables[t].dim;
        dlrm_table_shard *table = &shard->tables[t];
        w[t] = h_draw_as(h, type, n, SIGNED);
        *table = (dlrm_table_shard){.weight = h_inout_as(h, "table", type, w[t], n),
                                    .rows = rows,
                                    .dim = c->tables[t].dim,
                                    .stream = dlrm_rng_stream("table") + (uint64_t)t * 1000,
                                    .first_element = t % 2 ? ((int64_t)1 << 33) + 4001 : 0,
                                    .row_elements = c->tables[t].dim + t % 2 * 3};
        for (int k = 0; k < n_states; k++) {
            const int64_t size = rule->name == DLRM_ROWWISE_ADAGRAD ? rows : n;
            s[t][k] =
                h_draw(h, size, k == 0 && (rule->name == DLRM_ADAM || rule->name == DLRM_SGD) ? SIGNED : POSITIVE);
            table->state[k] = h_inout(h, k ? "second state" : "state", s[t][k], size);
        }
    }
    const bool pairs = c->partial && dlrm_dtype_bytes(wire) < sizeof(float);
    for (int j = 0; j < c->n_inputs; j++) {
        shard->width += pairs ? shard->width % 2 : 0;
        shard->inputs[j] = (dlrm_shard_input){.table = c->inputs[j].table,
                                              .hotness = c->inputs[j].hotness / vectors_of(c, j),
                                              .vectors = vectors_of(c, j),
                                              .variable = c->inputs[j].variable,
                                              .mean = is_mean(c, j),
                                              .partial = c->partial,
                                              .undivided = vectors_of(c, j) > 1 || (c->partial && j % 2 == 0),
                                              .exact = pairs && j % 2 == 0,
                                              .column = (int)shard->width};
        shard->width += (int64_t)vectors_of(c, j) * c->tables[c->inputs[j].table].dim * (shard->inputs[j].exact ? 2 : 1);
    }
    shard->width += pairs ? shard->width % 2 : 0;
}

/* The table's rounding of what an update may have made of its elements: from ref - tol to ref + tol. */
void h_compare_rounded(harness *h, dlrm_dtype type, const dlrm_table_shard *table, uint64_t step, const int64_t *touched,
                       const double *ref, const double *tol)
{
    const int64_t n = table->rows * table->dim;
    double *low = h_doubles(h, n), *high = h_doubles(h, n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / table->dim, e = table->first_element + row * table->row_elements + i % table->dim;
        const uint32_t bits = dlrm_philox(1, table->stream + step, (uint64_t)e / 4).v[e % 4];
        low[i] = touched[row] ? ref_round_randomly(type, ref[i] - tol[i], bits) : ref[i];
        high[i] = touched[row] ? ref_round_randomly(type, ref[i] + tol[i], bits) : ref[i];
    }
    h_compare_between(h, table->weight, low, high);
}

/* --- rows whose other columns lie with two peers --- */

enum { PEERS = 2, PEER_COLUMNS = 5 /* of both together */ };

typedef struct sharing {
    int64_t at[MOST_TABLES][PEERS];
    dlrm_squares *peers; /* host */
    double *own;         /* on the backend */
    int64_t places;      /* of a batch */
} sharing;

static void share_rows(harness *h, const embedding_case *c, dlrm_shard *shard, sharing *s)
{
    int64_t per_sample = 0;
    for (int i = 0; i < PEERS; i++)
        for (int t = 0; t < c->n_tables; t++) {
            s->at[t][i] = per_sample;
            for (int j = 0; j < c->n_inputs; j++) per_sample += c->inputs[j].table == t ? c->inputs[j].hotness : 0;
            shard->tables[t].n_peers = PEERS;
            shard->tables[t].peer_at = s->at[t];
            shard->tables[t].row_elements = shard->tables[t].dim + PEER_COLUMNS;
        }
    s->places = c->B * per_sample;
    s->peers = h_host(h, s->places, sizeof *s->peers);
    for (int64_t i = 0; i < s->places; i++)
        for (int k = 0; k < 2; k++) dlrm_squares_add(&s->peers[i], ldexpf((float)h_integer(h, 1000), (int)h_integer(h, 60) - 50));
    s->own = h_output_doubles(h, "own squares", s->places * (int64_t)(sizeof(dlrm_squares) / sizeof(double)));
}

/* Of a row, its place's number among a table's sorted pairs. */
static int64_t first_pair(const int64_t *touched, int64_t row)
{
    int64_t n = 0;
    for (int64_t r = 0; r < row; r++) n += touched[r];
    return n;
}

/* The row's own squares lie in both places, and its update has g, of columns here, and one more column with what peers told. */
static void check_shared_row(harness *h, const sharing *shared, const dlrm_table_shard *t, int table, int64_t B, const dlrm_rule *rule,
                             int64_t place, const double *g, const double *error, double *w, double *state, double *tol, double *state_tol)
{
    const int dim = t->dim, n = dim + PEER_COLUMNS;
    double *all_g = h_doubles(h, n), *all_error = h_doubles(h, n), *all_w = h_doubles(h, n), *all_tol = h_doubles(h, n), own = 0, bound = 0, told = 0;
    for (int d = 0; d < dim; d++) {
        all_g[d] = g[d];
        all_error[d] = error[d];
        all_w[d] = w[d];
        own += g[d] * g[d];
        bound += 3 * fabs(g[d]) * (error[d] + fabs(g[d]) * 0x1p-24);
    }
    for (int i = 0; i < PEERS; i++) {
        const int64_t at = B * shared->at[table][i] + place;
        dlrm_squares sum;
        h_backend(h)->ops->download(h_backend(h), &sum, (dlrm_squares *)(void *)shared->own + at, sizeof sum);
        if (!(fabs(dlrm_squares_value(&sum) - own) <= bound)) h_fail(h, "own squares of table %d: %g, expected %g", table, dlrm_squares_value(&sum), own);
        told += dlrm_squares_value(&shared->peers[at]);
    }
    all_g[dim] = sqrt(told);
    ref_update(rule, n, all_g, all_error, all_w, state, NULL, all_tol, state_tol, NULL);
    memcpy(w, all_w, (size_t)dim * sizeof *w);
    memcpy(tol, all_tol, (size_t)dim * sizeof *tol);
}

static void check_table(harness *h, const dlrm_shard *shard, int t, const dlrm_rule *rule, int64_t B,
                        const dlrm_bags *bags, const double *d_pooled, const float *w, float *const *s, const sharing *shared)
{
    const dlrm_table_shard *table = &shard->tables[t];
    const int64_t n = table->rows * table->dim, per_row = rule->name == DLRM_ROWWISE_ADAGRAD ? 1 : table->dim;
    double *g = h_doubles(h, n), *error = h_doubles(h, n), *ref = h_widen(h, w, n), *tol = h_doubles(h, n), *state[2],
           *state_tol[2];
    int64_t *touched = h_host(h, table->rows, sizeof *touched);
    for (int k = 0; k < 2; k++) {
        state[k] = s[k] ? h_widen(h, s[k], table->rows * per_row) : NULL;
        state_tol[k] = s[k] ? h_doubles(h, table->rows * per_row) : NULL;
    }
    ref_table_gradient(shard, t, B, bags, d_pooled, g, error, touched);
    for (int64_t row = 0; row < table->rows; row++) {
        if (!touched[row]) continue; /* must not have changed: tolerance 0 */
        const int64_t at = row * table->dim, at_state = row * per_row;
        for (int d = 0; rule == &rules[ROW_SUMS] && d < table->dim; d++) {
            ref[at + d] = g[at + d];
            tol[at + d] = error[at + d] + 0x1p-149;
        }
        if (rule == &rules[ROW_SUMS]) continue;
        if (table->n_peers) {
            check_shared_row(h, shared, table, t, B, rule, first_pair(touched, row), g + at, error + at, ref + at, state[0] + at_state, tol + at,
                             state_tol[0] + at_state);
            continue;
        }
        ref_update(rule, table->dim, g + at, error + at, ref + at, state[0] ? state[0] + at_state : NULL,
                   state[1] ? state[1] + at_state : NULL, tol + at, state_tol[0] ? state_tol[0] + at_state : NULL,
                   state_tol[1] ? state_tol[1] + at_state : NULL);
    }
    if (shard->dtype == DLRM_FP32)
        h_compare(h, table->weight, ref, tol);
    else
        h_compare_rounded(h, shard->dtype, table, STEP, touched, ref, tol);
    for (int k = 0; k < 2; k++)
        if (s[k]) h_compare(h, table->state[k], state[k], state_tol[k]);
}

/* The fp32 vectors of an input, in the place of twice as many elements; these are then as expected, whatever they are. */
static void check_exact(harness *h, const dlrm_shard *shard, int j, int64_t B, const void *pooled, double *ref, double *tol)
{
    const dlrm_shard_input *in = &shard->inputs[j];
    const int n = in->vectors * shard->tables[in->table].dim;
    const double *elements = h_fetch(h, pooled);
    uint16_t *raw = h_host(h, B * shard->width + 1, sizeof *raw);
    h_backend(h)->ops->download(h_backend(h), raw, pooled, (size_t)(B * shard->width) * sizeof *raw);
    for (int64_t s = 0; s < B; s++) {
        const int64_t at = s * shard->width + in->column;
        for (int d = 0; d < n; d++) {
            float v;
            memcpy(&v, raw + at + 2 * d, sizeof v);
            if (!(fabs((double)v - ref[at + d]) <= tol[at + d]))
                h_fail(h, "input %d, sample %lld, element %d: %g, expected %g +- %g", j, (long long)s, d, (double)v, ref[at + d], tol[at + d]);
        }
        for (int d = 0; d < 2 * n; d++) {
            ref[at + d] = elements[at + d];
            tol[at + d] = 0;
        }
    }
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    /* all rules in fp32, then two of them with each pair of other types */
    const int other_types = number - SHAPES * RULES, pair = other_types / SHAPES;
    const int shape = other_types < 0 ? number / RULES : other_types % SHAPES, kind = other_types < 0 ? 0 : 1 + pair / 2;
    const int which = other_types < 0 ? number % RULES : (shape + kind + 3 * (pair % 2)) % RULES;
    const embedding_case *c = &cases[shape];
    const dlrm_dtype type = which == ROW_SUMS ? DLRM_FP32 : types[kind].table, wire = types[kind].wire;
    const dlrm_rule *rule = &rules[which];
    dlrm_backend *be = h_backend(h);
    const int slot = number % DLRM_SORTED, other = (slot + 1) % DLRM_SORTED;
    snprintf(label, bytes, "%s, %s, B %lld (%s)", rule_names[which], types[kind].text, (long long)c->B, c->why);
    dlrm_shard shard;
    batch now, next;
    arena host;
    float *w[MOST_TABLES], *s[MOST_TABLES][2] = {0};
    double *dense, *labels;
    const double *wide[MOST_TABLES];
    make_shard(h, c, rule, type, wire, &shard, w, s);
    arena_open(h, c, 2, &host);
    make_batch(h, c, &host, &now);
    const size_t now_bytes = host.used;
    make_batch(h, c, &host, &next);
    const int64_t n = c->B * shard.width;
    const float *d_pooled = h_draw_as(h, wire, n, SIGNED);
    void *pooled = h_output_as(h, "pooled", wire, n);

    sharing shared = {0};
    const bool shares = rule->name == DLRM_ROWWISE_ADAGRAD && shape % 2 == 0;
    if (shares) share_rows(h, c, &shard, &shared);
    if (be->ops->shard_open(be, &shard) != DLRM_OK) h_fail(h, "shard_open: %s", dlrm_error_message());
    feed(h, c, &shard, slot, &now);
    be->ops->slot_begin(be, slot);
    const dlrm_lookup_args lookup = {.shard = &shard, .B = c->B, .bags = now.on, .pooled = pooled};
    be->ops->lookup(be, &lookup);
    dlrm_update_args update = {.shard = &shard,
                                     .B = c->B,
                                     .bags = now.on,
                                     .rule = *rule,
                                     .step = STEP,
                                     .slot = slot,
                                     .d_pooled = h_input_as(h, "d_pooled", wire, d_pooled, n)};
    if (shares) {
        update.own_squares = (dlrm_squares *)(void *)shared.own;
        update.peer_squares = h_input(h, "peers' squares", shared.peers, shared.places, sizeof *shared.peers);
        be->ops->row_squares(be, &update);
    }
    if (which == ROW_SUMS)
        be->ops->row_sums(be, &update);
    else
        be->ops->update(be, &update);
    be->ops->slot_end(be, slot);
    be->ops->feed_wait(be);
    keep_copy(h, c, &now, &dense, &labels);
    memset(host.block, 0xEE, now_bytes); /* as the reader does: its next batch goes there */
    feed(h, c, &shard, other, &next);
    be->ops->slot_begin(be, other);
    be->ops->slot_end(be, other);
    be->ops->feed_wait(be);
    be->ops->shard_close(be, &shard);
    be->ops->unpin(be, host.block);
    if (shard.work) h_fail(h, "shard_close left its work space");

    double *ref = h_doubles(h, n), *tol = h_doubles(h, n), *exact = h_doubles(h, now.b * DENSE);
    for (int t = 0; t < c->n_tables; t++) wide[t] = h_widen(h, w[t], c->tables[t].rows * c->tables[t].dim);
    for (int64_t i = 0; i < n; i++) ref[i] = NAN; /* columns that are no input's stay as they were */
    ref_lookup(&shard, wide, c->B, now.bags, ref, tol);
    for (int j = 0; j < c->n_inputs; j++)
        if (shard.inputs[j].exact) check_exact(h, &shard, j, c->B, pooled, ref, tol);
    h_compare(h, pooled, ref, tol);
    h_compare(h, now.to_dense, dense, exact);
    h_compare(h, now.to_labels, labels, exact);
    const double *wide_d = h_widen(h, d_pooled, n);
    for (int t = 0; t < c->n_tables; t++) check_table(h, &shard, t, rule, c->B, now.bags, wide_d, w[t], s[t], &shared);
}

const family embedding_family = {"embedding",
                                 {SLOT(shard_open), SLOT(lookup), SLOT(sort), SLOT(update), SLOT(row_sums), SLOT(row_squares), SLOT(shard_close),
                                  SLOT(feed), SLOT(feed_wait), SLOT(slot_begin), SLOT(slot_end), SLOT(pin),
                                  SLOT(unpin)},
                                 false,
                                 SHAPES *(RULES + 2 * (TYPES - 1)),
                                 run};
