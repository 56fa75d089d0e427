/* Tables in the host's memory, with a cache of their rows and without: a run of steps, each batch fed and sorted while the one
 * before is worked on, gives what the same tables on the device give, in every bit. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"

enum { TABLES = 4, INPUTS = 5, B = 24, STEPS = 40, KINDS = 4 };
static const struct {
    int64_t rows;
    int dim;
} tables[TABLES] = {{900, 8}, {37, 8}, {2000, 5}, {60, 4}};
static const struct {
    int table, hotness;
    bool variable, mean;
} inputs[INPUTS] = {{0, 3, true, true}, {1, 1, false, false}, {2, 2, false, false}, {3, 4, true, false}, {0, 1, false, false}};
static const struct {
    dlrm_dtype type;
    dlrm_rule rule;
    int states;
    bool rowwise, cached;
    const char *text;
} kinds[KINDS] = {
    {DLRM_FP32, {.name = DLRM_SGD, .lr = 0.1f}, 0, false, true, "sgd, cached"},
    {DLRM_FP32, {.name = DLRM_ROWWISE_ADAGRAD, .lr = 0.1f, .epsilon = 1e-3f}, 1, true, true, "rowwise adagrad, cached"},
    {DLRM_BF16, {.name = DLRM_ADAM, .lr = 0.01f, .epsilon = 1e-8f, .beta1 = 0.9f, .beta2 = 0.999f, .adam_rate = 0.01f, .adam_root = 1}, 2, false,
     true, "adam, bf16 tables, cached"},
    {DLRM_FP32, {.name = DLRM_ADAGRAD, .lr = 0.1f, .epsilon = 1e-3f}, 1, false, false, "adagrad, where they lie"},
};

typedef struct side {
    dlrm_shard shard;
    dlrm_table_shard table[TABLES];
    dlrm_shard_input input[INPUTS];
    dlrm_cache_pool pools[3];
    dlrm_bags on[2][INPUTS]; /* by slot */
    void *pooled, *to_dense;
    float *to_labels;
} side;

static size_t state_size(int kind, int t)
{
    return (size_t)tables[t].rows * (kinds[kind].rowwise ? 1 : (size_t)tables[t].dim) * sizeof(float);
}

/* Tables 0 and 2 are home; their pools have room for the rows of two batches, and a few. */
static void open_side(harness *h, int kind, bool home, float *const *w, float *const (*s)[2], side *x)
{
    dlrm_backend *be = h_backend(h);
    *x = (side){.shard = {.dtype = kinds[kind].type, .wire = DLRM_FP32, .n_tables = TABLES, .n_inputs = INPUTS, .max_batch = B, .tables = x->table,
                          .inputs = x->input, .pools = x->pools, .rowwise = kinds[kind].rowwise},
                .pools = {{.dim = 8, .rows = 2 * B * 4 + 9}, {.dim = 5, .rows = 2 * B * 2}}};
    x->shard.n_pools = home && kinds[kind].cached ? 2 : 0;
    for (int t = 0; t < TABLES; t++) {
        dlrm_table_shard *to = &x->table[t];
        const int64_t n = tables[t].rows * tables[t].dim;
        const size_t element = dlrm_dtype_bytes(kinds[kind].type);
        *to = (dlrm_table_shard){.rows = tables[t].rows, .dim = tables[t].dim, .stream = (uint64_t)t * 77, .row_elements = tables[t].dim,
                                 .home = home && t % 2 == 0};
        dlrm_status (*alloc)(dlrm_backend *, int64_t, size_t, const char *, void *) = to->home ? be->ops->alloc_host : be->ops->alloc;
        if (alloc(be, n, element, "table", &to->weight) != DLRM_OK) h_fail(h, "%s", dlrm_error_message());
        be->ops->upload(be, to->weight, w[t], (size_t)n * element);
        for (int k = 0; k < kinds[kind].states; k++) {
            if (alloc(be, (int64_t)state_size(kind, t), 1, "state", &to->state[k]) != DLRM_OK) h_fail(h, "%s", dlrm_error_message());
            be->ops->upload(be, to->state[k], s[t][k], state_size(kind, t));
        }
    }
    for (int j = 0; j < INPUTS; j++) {
        x->input[j] = (dlrm_shard_input){.table = inputs[j].table, .hotness = inputs[j].hotness, .vectors = 1, .variable = inputs[j].variable,
                                         .mean = inputs[j].mean, .column = (int)x->shard.width};
        x->shard.width += tables[inputs[j].table].dim;
    }
    x->pooled = h_output_as(h, "pooled", DLRM_FP32, B * x->shard.width);
    x->to_dense = h_act_output(h, "dense", B, H_DENSE);
    x->to_labels = h_output(h, "labels", B);
    if (be->ops->shard_open(be, &x->shard) != DLRM_OK) h_fail(h, "shard_open: %s", dlrm_error_message());
}

static void close_side(harness *h, side *x)
{
    dlrm_backend *be = h_backend(h);
    be->ops->shard_close(be, &x->shard);
    for (int t = 0; t < TABLES; t++) {
        void (*release)(dlrm_backend *, void *) = x->table[t].home ? be->ops->release_host : be->ops->release;
        release(be, &x->table[t].weight);
        for (int k = 0; k < 2; k++) release(be, &x->table[t].state[k]);
    }
}

/* Most ids are low, as in life; each batch lists some that none before has. */
static void draw_bags(harness *h, dlrm_bags *bags)
{
    for (int j = 0; j < INPUTS; j++) {
        const int64_t rows = tables[inputs[j].table].rows;
        uint32_t *ids = h_host(h, B * inputs[j].hotness, sizeof *ids);
        int64_t *offsets = h_host(h, B + 1, sizeof *offsets);
        for (int b = 0; b < B; b++) {
            offsets[b + 1] = offsets[b] + (inputs[j].variable ? h_integer(h, inputs[j].hotness + 1) : inputs[j].hotness);
            for (int64_t i = offsets[b]; i < offsets[b + 1]; i++)
                ids[i] = (uint32_t)(h_integer(h, 4) ? h_integer(h, rows < 20 ? rows : 20) : h_integer(h, rows));
        }
        bags[j] = (dlrm_bags){.ids = ids, .offsets = inputs[j].variable ? offsets : NULL, .count = offsets[B]};
    }
}

static void feed(harness *h, side *x, int step, const dlrm_bags *bags, const float *dense, const float *labels)
{
    dlrm_backend *be = h_backend(h);
    const dlrm_feed_args a = {.shard = &x->shard, .slot = step % 2, .B = B, .b = B, .dense_features = H_DENSE, .dense = dense, .labels = labels,
                              .bags = bags, .to_dense = x->to_dense, .to_labels = x->to_labels, .to_bags = x->on[step % 2]};
    const dlrm_lookup_args sort = {.shard = &x->shard, .B = B, .bags = x->on[step % 2], .slot = step % 2};
    be->ops->feed(be, &a);
    be->ops->sort(be, &sort);
}

static void work(harness *h, side *x, int kind, int step, const float *d_pooled)
{
    dlrm_backend *be = h_backend(h);
    const dlrm_lookup_args lookup = {.shard = &x->shard, .B = B, .bags = x->on[step % 2], .pooled = x->pooled};
    const dlrm_update_args update = {.shard = &x->shard, .B = B, .bags = x->on[step % 2], .rule = kinds[kind].rule, .step = (uint64_t)step + 1,
                                     .slot = step % 2, .d_pooled = d_pooled};
    be->ops->lookup(be, &lookup);
    be->ops->update(be, &update);
}

static void compare_tables(harness *h, int kind, const side *a, const side *b)
{
    dlrm_backend *be = h_backend(h);
    for (int t = 0; t < TABLES; t++)
        for (int k = -1; k < kinds[kind].states; k++) {
            const size_t bytes = k < 0 ? (size_t)(tables[t].rows * tables[t].dim) * dlrm_dtype_bytes(kinds[kind].type) : state_size(kind, t);
            char *x = h_host(h, (int64_t)bytes, 1), *y = h_host(h, (int64_t)bytes, 1);
            be->ops->download(be, x, k < 0 ? a->table[t].weight : a->table[t].state[k], bytes);
            be->ops->download(be, y, k < 0 ? b->table[t].weight : b->table[t].state[k], bytes);
            if (memcmp(x, y, bytes) != 0) h_fail(h, "table %d differs in %s %d", t, k < 0 ? "weights" : "state", k);
        }
}

static void run(harness *h, int kind, char *label, size_t bytes)
{
    dlrm_backend *be = h_backend(h);
    side near, far;
    float *w[TABLES], *s[TABLES][2] = {{0}};
    dlrm_bags bags[STEPS + 1][INPUTS];
    dlrm_cache_use use;
    int64_t listed = 0;
    snprintf(label, bytes, "tables in the host's memory, %s", kinds[kind].text);
    for (int t = 0; t < TABLES; t++) {
        const int64_t n = tables[t].rows * tables[t].dim;
        /* bf16: any 16 bits of small numbers */
        w[t] = h_draw(h, n, SIGNED);
        for (int k = 0; k < 2; k++) s[t][k] = h_draw(h, n, POSITIVE);
        if (kinds[kind].type != DLRM_FP32) {
            uint16_t *narrow = (uint16_t *)w[t];
            for (int64_t i = 0; i < n; i++) narrow[i] = (uint16_t)(0x3C00 + i % 256);
        }
    }
    open_side(h, kind, false, w, s, &near);
    open_side(h, kind, true, w, s, &far);
    const float *dense = h_draw(h, B * H_DENSE, SIGNED), *labels = h_draw(h, B, POSITIVE);
    for (int i = 0; i <= STEPS; i++) draw_bags(h, bags[i]);
    const int64_t n = B * near.shard.width;
    const float *d_pooled = h_input_as(h, "d_pooled", DLRM_FP32, h_draw(h, n, SIGNED), n);
    /* the CPU keeps one batch sorted: each side alone, and the next batch after the update */
    side *sides[] = {&near, &far};
    double *pooled[2][STEPS];
    for (int k = 0; k < 2; k++) {
        feed(h, sides[k], 0, bags[0], dense, labels);
        for (int i = 0; i < STEPS; i++) {
            be->ops->slot_begin(be, i % 2);
            work(h, sides[k], kind, i, d_pooled);
            be->ops->slot_end(be, i % 2);
            feed(h, sides[k], i + 1, bags[i + 1], dense, labels);
            pooled[k][i] = h_fetch(h, sides[k]->pooled);
        }
        be->ops->write_back(be, &sides[k]->shard);
    }
    for (int i = 0; i < STEPS; i++)
        if (memcmp(pooled[0][i], pooled[1][i], (size_t)n * sizeof(double)) != 0) h_fail(h, "vectors of step %d differ", i);
    compare_tables(h, kind, &near, &far);
    be->ops->cache_use(be, &near.shard, &use);
    if (use.listed || use.found) h_fail(h, "a cache without tables was used");
    be->ops->cache_use(be, &far.shard, &use);
    for (int i = 0; i <= STEPS; i++) { /* different rows of the tables that are home */
        for (int t = 0; t < TABLES; t += 2)
            for (int64_t row = 0; row < tables[t].rows; row++) {
                bool listed_here = false;
                for (int j = 0; j < INPUTS; j++)
                    for (int64_t e = 0; inputs[j].table == t && e < bags[i][j].count; e++) listed_here |= bags[i][j].ids[e] == row;
                listed += listed_here;
            }
    }
    if (be->apart && kinds[kind].cached && (use.listed != listed || use.found <= listed / 2 || use.found >= listed))
        h_fail(h, "of %lld rows %lld were counted, and %lld in the cache", (long long)listed, (long long)use.listed, (long long)use.found);
    close_side(h, &near);
    close_side(h, &far);
}

const family home_family = {"home", {SLOT(alloc_host), SLOT(release_host), SLOT(write_back), SLOT(cache_use)}, false, KINDS, run};
