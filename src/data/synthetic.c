/* The synthetic source. The hidden model is logistic: a weight for each dense value, which it sees squashed, and one
 * for each (feature, id); it is shared by both splits. Its score is brought to mean 0 and deviation 1 over a sample of
 * rows of their own, and then to an AUC near 0.8 and 27 % of positive labels, whatever the tables' sizes. */
#include "data/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/source.h"

enum {
    SAMPLE = DLRM_SPLITS, /* a third set of rows, from which the hidden model's scale is taken */
    SETS,
    SAMPLE_ROWS = 2048,
    BLOCK = 256, /* rows scored at a time */
};
static const double positives = 0.27, steepness = 1.4; /* 1.4 standard deviations of the logit: AUC 0.80 */

/* Keys drawn for a table whose rows are dynamic are of so many times as many as have a row at a time, under the same law. */
enum { KEYS_PER_ROW = 8 };

typedef struct feature {
    int64_t rows;          /* different ids */
    uint64_t key_salt;     /* of the table */
    bool keys;
    int hotness;
    bool variable;
    double exponent, span; /* of the power law */
    uint64_t ids[SETS], bags[SETS], weights;
} feature;

typedef struct dlrm_synthetic {
    uint64_t seed;
    double alpha;
    bool lognormal, planted;
    int n_dense, n_features;
    feature *features;
    double *dense_weights;
    uint64_t dense[SETS], labels[SETS];
    double mean, scale, bias; /* p = 1 / (1 + exp(-(bias + scale * (score - mean)))) */
} dlrm_synthetic;

/* What scoring a block of rows needs beside the rows. */
typedef struct scratch {
    float *dense;
    dlrm_ids bags; /* with room for ids and for keys */
} scratch;

/* --- inputs --- */

/* A key for each id, another for every table: one to one, over all 64 bits. */
static int64_t key_of(const feature *f, uint64_t id)
{
    uint64_t h = (id + f->key_salt) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    h ^= h >> 29;
    int64_t key;
    memcpy(&key, &h, sizeof key);
    return key;
}

/* `count` ids, or keys, from number `first` of the feature's stream on, into number `at` of the bags and what follows. */
static void draw_ids(const dlrm_synthetic *s, const feature *f, int set, uint64_t first, int64_t count, dlrm_ids *out, int64_t to)
{
    dlrm_u32x4 bits = {{0}};
    for (int64_t i = 0; i < count; i++) {
        uint64_t at = first + (uint64_t)i;
        if (i == 0 || at % 2 == 0) bits = dlrm_philox(s->seed, f->ids[set], at / 2);
        double u = dlrm_unit_double(bits.v[at % 2 * 2], bits.v[at % 2 * 2 + 1]);
        double x = s->alpha == 1.0 ? exp(u * f->span) : pow(u * f->span + 1.0, f->exponent);
        int64_t id = (int64_t)x - 1; /* x >= 1 */
        if (id >= f->rows) id = f->rows - 1;
        if (f->keys)
            out->keys[to + i] = key_of(f, (uint64_t)id);
        else
            out->ids[to + i] = (uint32_t)id;
    }
}

/* The bags of rows [first, first+n). */
static void draw_bags(const dlrm_synthetic *s, const feature *f, int set, int64_t first, int64_t n, dlrm_ids *out)
{
    if (!f->variable) {
        out->count = n * f->hotness;
        draw_ids(s, f, set, (uint64_t)first * (uint64_t)f->hotness, out->count, out, 0);
        return;
    }
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t row = (uint64_t)(first + i);
        dlrm_u32x4 bits = dlrm_philox(s->seed, f->bags[set], row);
        int64_t length = (int64_t)(dlrm_unit_double(bits.v[0], bits.v[1]) * (f->hotness + 1));
        out->offsets[i] = at;
        draw_ids(s, f, set, row * (uint64_t)f->hotness, length, out, at);
        at += length;
    }
    out->offsets[n] = out->count = at;
}

static void draw_dense(const dlrm_synthetic *s, int set, int64_t first, int64_t n, float *out)
{
    uint64_t at = (uint64_t)first * (uint64_t)s->n_dense;
    for (int64_t i = 0; i < n * s->n_dense; i++, at++)
        out[i] = s->lognormal ? (float)exp(dlrm_rng_normal(s->seed, s->dense[set], at))
                              : 100.0f * dlrm_rng_uniform(s->seed, s->dense[set], at);
}

/* --- the hidden model --- */

/* x / (x + median), then mean 0 and deviation 1: the logistic function of a standard normal, or of [0, 100) evenly. */
static double squash(const dlrm_synthetic *s, double x)
{
    return s->lognormal ? (x / (x + 1.0) - 0.5) / 0.2082763 : (x / (x + 50.0) - 0.4506939) / 0.1777529;
}

/* Close to a standard normal: four uniform numbers' sum. */
static double weight_of_id(const dlrm_synthetic *s, const feature *f, int64_t id)
{
    dlrm_u32x4 u = dlrm_philox(s->seed, f->weights, (uint64_t)id);
    double sum = 0.0;
    for (int k = 0; k < 4; k++) sum += dlrm_unit_float(u.v[k]);
    return (sum - 2.0) * 1.7320508075688772;
}

/* Adds a feature's part, of samples [first, first+n) of the bags: the sum of its ids' weights over the root of their number,
 * so that long bags do not rule. */
static void score_bags(const dlrm_synthetic *s, const feature *f, const dlrm_ids *bags, int64_t first, int64_t n, double *score)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = f->variable ? bags->offsets[first + i] : (first + i) * f->hotness;
        int64_t end = f->variable ? bags->offsets[first + i + 1] : at + f->hotness;
        double sum = 0.0;
        for (int64_t k = at; k < end; k++) sum += weight_of_id(s, f, f->keys ? bags->keys[k] : bags->ids[k]);
        if (end > at) score[i] += sum / sqrt((double)(end - at));
    }
}

/* The scores of rows [first, first+n), n <= BLOCK, from the batch that has them or, where the batch lacks a feature (or
 * is NULL), drawn again. `at`: the first row's place among the batch's own samples. */
static void score_rows(const dlrm_synthetic *s, int set, int64_t first, int64_t n, const dlrm_batch *b, int64_t at,
                       scratch *x, double *score)
{
    memset(score, 0, (size_t)n * sizeof *score);
    if (!s->planted) return; /* and the scale is 0 */
    const float *dense = b ? b->dense + at * s->n_dense : x->dense;
    if (!b) draw_dense(s, set, first, n, x->dense);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < s->n_dense; k++) score[i] += s->dense_weights[k] * squash(s, dense[i * s->n_dense + k]);
    for (int j = 0; j < s->n_features; j++) {
        const feature *f = &s->features[j];
        const dlrm_ids *bags = b && (b->inputs[j].ids || b->inputs[j].keys) ? &b->inputs[j] : &x->bags;
        int64_t sample = bags == &x->bags ? 0 : b->begin + at - bags->first;
        if (bags == &x->bags) draw_bags(s, f, set, first, n, &x->bags);
        score_bags(s, f, bags, sample, n, score);
    }
}

static double probability(const dlrm_synthetic *s, double score)
{
    return 1.0 / (1.0 + exp(-(s->bias + s->scale * (score - s->mean))));
}

static void scratch_free(scratch *x)
{
    dlrm_free(&x->dense);
    dlrm_free(&x->bags.ids);
    dlrm_free(&x->bags.keys);
    dlrm_free(&x->bags.offsets);
}

static dlrm_status scratch_make(const dlrm_synthetic *s, scratch *x)
{
    int most = 0;
    for (int j = 0; j < s->n_features; j++)
        if (s->features[j].hotness > most) most = s->features[j].hotness;
    *x = (scratch){0};
    TRY(dlrm_alloc((int64_t)BLOCK * s->n_dense, sizeof *x->dense, "synthetic rows", &x->dense));
    TRY(dlrm_alloc((int64_t)BLOCK * most, sizeof *x->bags.ids, "synthetic rows", &x->bags.ids));
    TRY(dlrm_alloc((int64_t)BLOCK * most, sizeof *x->bags.keys, "synthetic rows", &x->bags.keys));
    return dlrm_alloc(BLOCK + 1, sizeof *x->bags.offsets, "synthetic rows", &x->bags.offsets);
}

/* Mean and deviation of the scores of a sample, and the bias that gives the wanted share of positives over it. */
static void calibrate(dlrm_synthetic *s, const double *score)
{
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < SAMPLE_ROWS; i++) sum += score[i];
    s->mean = sum / SAMPLE_ROWS;
    for (int i = 0; i < SAMPLE_ROWS; i++) squares += (score[i] - s->mean) * (score[i] - s->mean);
    double deviation = sqrt(squares / SAMPLE_ROWS);
    s->scale = deviation > 1e-9 ? steepness / deviation : 0.0; /* 0: all rows are alike */
    double low = -30.0, high = 30.0;
    for (int k = 0; k < 60; k++) {
        s->bias = (low + high) / 2;
        sum = 0.0;
        for (int i = 0; i < SAMPLE_ROWS; i++) sum += probability(s, score[i]);
        *(sum < positives * SAMPLE_ROWS ? &low : &high) = s->bias;
    }
}

static dlrm_status plant(dlrm_synthetic *s)
{
    double *score, norm = 0.0;
    TRY(dlrm_alloc(s->n_dense, sizeof *s->dense_weights, "the hidden model", &s->dense_weights));
    for (int k = 0; k < s->n_dense; k++) {
        s->dense_weights[k] = dlrm_rng_normal(s->seed, dlrm_rng_stream("synthetic.weights.dense"), (uint64_t)k);
        norm += s->dense_weights[k] * s->dense_weights[k];
    }
    /* Dense values and ids weigh the same together. */
    for (int k = 0; k < s->n_dense; k++) s->dense_weights[k] *= sqrt(s->n_features / norm);
    TRY(dlrm_alloc(SAMPLE_ROWS, sizeof *score, "the hidden model", &score));
    scratch x;
    dlrm_status st = scratch_make(s, &x);
    if (st == DLRM_OK) {
        for (int i = 0; i < SAMPLE_ROWS; i += BLOCK) score_rows(s, SAMPLE, i, BLOCK, NULL, 0, &x, score + i);
        calibrate(s, score);
    }
    scratch_free(&x);
    dlrm_free(&score);
    return st;
}

/* --- set-up --- */

static uint64_t stream(const char *what, int set, int j)
{
    static const char *const set_name[SETS] = {"train", "test", "sample"};
    char name[96];
    snprintf(name, sizeof name, "synthetic.%s.%s.%d", set_name[set], what, j);
    return dlrm_rng_stream(name);
}

static dlrm_status set_up(const dlrm_config *cfg, const dlrm_model_spec *spec, dlrm_synthetic *s)
{
    *s = (dlrm_synthetic){
        .seed = (uint64_t)cfg->train.seed,
        .alpha = cfg->data.synthetic.alpha,
        .lognormal = cfg->data.synthetic.dense_lognormal,
        .planted = cfg->data.synthetic.labels_planted,
        .n_dense = spec->dense_features,
        .n_features = spec->n_inputs,
    };
    TRY(dlrm_alloc(s->n_features, sizeof *s->features, "the synthetic features", &s->features));
    for (int set = 0; set < SETS; set++) {
        s->dense[set] = stream("dense", set, 0);
        s->labels[set] = stream("label", set, 0);
    }
    for (int j = 0; j < s->n_features; j++) {
        const dlrm_input *in = &spec->inputs[j];
        feature *f = &s->features[j];
        const dlrm_table *table = &spec->tables[in->table];
        *f = (feature){.rows = table->rows, .hotness = in->hotness, .variable = in->variable, .keys = table->capacity > 0};
        if (f->keys) f->rows = KEYS_PER_ROW * table->capacity;
        if (f->keys) f->key_salt = dlrm_rng_stream(table->name);
        double g = 1.0 - s->alpha, ids = (double)f->rows + 1.0;
        f->span = g == 0.0 ? log(ids) : pow(ids, g) - 1.0;
        f->exponent = 1.0 / g;
        for (int set = 0; set < SETS; set++) {
            f->ids[set] = stream("ids", set, j);
            f->bags[set] = stream("bag", set, j);
        }
        f->weights = stream("weight", SAMPLE, j);
    }
    return s->planted ? plant(s) : DLRM_OK;
}

void dlrm_synthetic_free(dlrm_synthetic **s)
{
    if (!*s) return;
    dlrm_free(&(*s)->features);
    dlrm_free(&(*s)->dense_weights);
    dlrm_free(s);
}

dlrm_status dlrm_synthetic_make(const dlrm_config *cfg, const dlrm_model_spec *spec, dlrm_synthetic **out)
{
    TRY(dlrm_alloc(1, sizeof **out, "the synthetic data", out));
    dlrm_status st = set_up(cfg, spec, *out);
    if (st != DLRM_OK) dlrm_synthetic_free(out);
    return st;
}

dlrm_status dlrm_synthetic_probabilities(const dlrm_dataset *d, int split, int64_t first, int64_t n, double *out)
{
    const dlrm_synthetic *s = d->synthetic;
    scratch x;
    dlrm_status st = scratch_make(s, &x);
    for (int64_t i = 0; st == DLRM_OK && i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        score_rows(s, split, first + i, m, NULL, 0, &x, out + i);
        for (int64_t k = i; k < i + m; k++) out[k] = probability(s, out[k]);
    }
    scratch_free(&x);
    return st;
}

/* --- the source --- */

typedef struct generator {
    const dlrm_synthetic *s;
    int split;
    scratch x;
} generator;

static void draw_labels(generator *g, dlrm_batch *b)
{
    const dlrm_synthetic *s = g->s;
    double score[BLOCK];
    for (int64_t at = 0; at < b->own; at += BLOCK) {
        int64_t first = b->first_row + b->begin + at, n = b->own - at < BLOCK ? b->own - at : BLOCK;
        score_rows(s, g->split, first, n, b, at, &g->x, score);
        for (int64_t i = 0; i < n; i++)
            b->labels[at + i] =
                dlrm_rng_uniform(s->seed, s->labels[g->split], (uint64_t)(first + i)) < probability(s, score[i]);
    }
}

static dlrm_status fill_batch(void *state, dlrm_batch *b, int64_t *bytes)
{
    generator *g = state;
    const dlrm_synthetic *s = g->s;
    (void)bytes; /* reads no files */
    draw_dense(s, g->split, b->first_row + b->begin, b->own, b->dense);
    for (int j = 0; j < s->n_features; j++)
        if (b->inputs[j].ids || b->inputs[j].keys)
            draw_bags(s, &s->features[j], g->split, b->first_row + b->inputs[j].first, b->inputs[j].samples, &b->inputs[j]);
    draw_labels(g, b);
    return DLRM_OK;
}

static dlrm_status open_generator(const dlrm_dataset *d, const dlrm_reader_args *args, void **state)
{
    generator *g;
    TRY(dlrm_alloc(1, sizeof *g, "a synthetic reader", &g));
    *state = g;
    g->s = d->synthetic;
    g->split = args->split;
    return scratch_make(g->s, &g->x);
}

static void close_generator(void **state)
{
    generator *g = *state;
    if (g) scratch_free(&g->x);
    dlrm_free(state);
}

static dlrm_status epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args, int64_t *bytes)
{
    (void)d, (void)args;
    *bytes = 0;
    return DLRM_OK;
}

const dlrm_source_ops dlrm_synthetic_source = {
    .open = open_generator,
    .fill = fill_batch,
    .close = close_generator,
    .epoch_bytes = epoch_bytes,
    .keeps = true,
};
