/* Tables with all kinds of inputs, every optimizer, as a step goes: a batch is fed and sorted, looked up and updated,
 * and the next one fed and sorted meanwhile. Of some cases with an optimizer of whole rows, these have other columns elsewhere. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "embedding_case.h"
#include "ref.h"

enum { RULES = 6, TYPES = 6, SHAPES = EMBEDDING_SHAPES, DENSE = H_DENSE, STEP = 4711 };
static const struct {
    dlrm_dtype table, wire;
    const char *text;
} types[TYPES] = {{DLRM_FP32, DLRM_FP32, "fp32 tables, fp32 vectors"}, {DLRM_BF16, DLRM_FP32, "bf16 tables, fp32 vectors"},
                  {DLRM_FP16, DLRM_BF16, "fp16 tables, bf16 vectors"}, {DLRM_FP32, DLRM_BF16, "fp32 tables, bf16 vectors"},
                  {DLRM_BF16, DLRM_BF16, "bf16 tables, bf16 vectors"}, {DLRM_FP32, DLRM_FP16, "fp32 tables, fp16 vectors"}};

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
    const embedding_case *c = &h_embedding_cases[shape];
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
    h_make_shard(h, c, rule, type, wire, &shard, w, s);
    h_arena_open(h, c, 2, &host);
    h_make_batch(h, c, &host, &now);
    const size_t now_bytes = host.used;
    h_make_batch(h, c, &host, &next);
    const int64_t n = c->B * shard.width;
    const float *d_pooled = h_draw_as(h, wire, n, SIGNED);
    void *pooled = h_output_as(h, "pooled", wire, n);

    sharing shared = {0};
    const bool shares = rule->name == DLRM_ROWWISE_ADAGRAD && shape % 2 == 0;
    if (shares) share_rows(h, c, &shard, &shared);
    if (be->ops->shard_open(be, &shard) != DLRM_OK) h_fail(h, "shard_open: %s", dlrm_error_message());
    h_feed(h, c, &shard, slot, &now);
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
    h_keep_copy(h, c, &now, &dense, &labels);
    memset(host.block, 0xEE, now_bytes); /* as the reader does: its next batch goes there */
    h_feed(h, c, &shard, other, &next);
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
