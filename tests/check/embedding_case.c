#include "embedding_case.h"

#include <string.h>

#include "base/rng.h"

enum { DENSE = H_DENSE };

const embedding_case h_embedding_cases[EMBEDDING_SHAPES] = {
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

static void *take(arena *a, int64_t n, size_t size)
{
    void *p = a->block + a->used;
    a->used += ((size_t)n * size + 63) / 64 * 64;
    DLRM_ASSERT(a->used <= a->bytes);
    return p;
}

void h_arena_open(harness *h, const embedding_case *c, int batches, arena *a)
{
    size_t bytes = 4096 + (size_t)c->B * (DENSE + 1) * sizeof(float);
    for (int j = 0; j < c->n_inputs; j++) bytes += (size_t)((c->B + 1) * (2 * c->inputs[j].hotness + 2)) * sizeof(int64_t) + 192;
    *a = (arena){.bytes = bytes * (size_t)batches};
    a->block = h_host(h, (int64_t)a->bytes, 1);
    if (h_backend(h)->ops->pin(h_backend(h), a->block, a->bytes) != DLRM_OK) h_fail(h, "pin: %s", dlrm_error_message());
}

/* Variable bags have 0 to hotness ids. */
static dlrm_bags make_bags(harness *h, const embedding_case *c, int j, arena *a)
{
    const int64_t vectors = h_vectors_of(c, j), n_bags = c->B * vectors, hotness = c->inputs[j].hotness / vectors;
    int64_t *offsets = take(a, n_bags + 1, sizeof *offsets);
    uint32_t *list = take(a, n_bags * hotness, sizeof *list);
    offsets[0] = 0;
    for (int64_t n = 0; n < n_bags; n++) {
        offsets[n + 1] = offsets[n] + (c->inputs[j].variable ? h_integer(h, hotness + 1) : hotness);
        for (int64_t i = offsets[n]; i < offsets[n + 1]; i++) list[i] = (uint32_t)draw_id(h, c->data, c->tables[c->inputs[j].table].rows);
    }
    dlrm_bags bags = {.ids = list, .offsets = c->inputs[j].variable ? offsets : NULL, .count = offsets[n_bags]};
    if (c->partial && h_is_mean(c, j)) {
        int64_t *whole = take(a, c->B + 1, sizeof *whole);
        whole[0] = 0;
        for (int64_t s = 0; s < c->B; s++)
            whole[s + 1] = whole[s] + offsets[(s + 1) * vectors] - offsets[s * vectors] + h_integer(h, 3);
        bags.whole = whole;
    }
    return bags;
}

void h_make_batch(harness *h, const embedding_case *c, arena *a, batch *x)
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

void h_feed(harness *h, const embedding_case *c, dlrm_shard *shard, int slot, batch *x)
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

void h_keep_copy(harness *h, const embedding_case *c, batch *x, double **dense, double **labels)
{
    *dense = h_widen(h, x->dense, x->b * DENSE);
    *labels = h_widen(h, x->labels, x->b);
    for (int j = 0; j < c->n_inputs; j++) {
        const dlrm_bags from = x->bags[j];
        uint32_t *list = h_host(h, from.count, sizeof *list);
        const int64_t n_bags = c->B * h_vectors_of(c, j);
        int64_t *offsets = from.offsets ? h_host(h, n_bags + 1, sizeof *offsets) : NULL;
        if (from.count) memcpy(list, from.ids, (size_t)from.count * sizeof *list);
        if (offsets) memcpy(offsets, from.offsets, (size_t)(n_bags + 1) * sizeof *offsets);
        int64_t *whole = from.whole ? h_host(h, c->B + 1, sizeof *whole) : NULL;
        if (whole) memcpy(whole, from.whole, (size_t)(c->B + 1) * sizeof *whole);
        x->bags[j] = (dlrm_bags){.ids = list, .offsets = offsets, .count = from.count, .whole = whole};
    }
}

void h_make_shard(harness *h, const embedding_case *c, const dlrm_rule *rule, dlrm_dtype type, dlrm_dtype wire, dlrm_shard *shard,
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
                                              .hotness = c->inputs[j].hotness / h_vectors_of(c, j),
                                              .vectors = h_vectors_of(c, j),
                                              .variable = c->inputs[j].variable,
                                              .mean = h_is_mean(c, j),
                                              .partial = c->partial,
                                              .undivided = h_vectors_of(c, j) > 1 || (c->partial && j % 2 == 0),
                                              .exact = pairs && j % 2 == 0,
                                              .column = (int)shard->width};
        shard->width += (int64_t)h_vectors_of(c, j) * c->tables[c->inputs[j].table].dim * (shard->inputs[j].exact ? 2 : 1);
    }
    shard->width += pairs ? shard->width % 2 : 0;
}
