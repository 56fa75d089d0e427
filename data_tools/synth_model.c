#include "synth_model.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "mix32.h"

enum {
    SMALL_COLUMN = 1000, /* --scale leaves columns with at most so many ids alone */
    LEAST_IDS = 16,      /* and the row count leaves these */
    HALF_WEIGHT = 32,    /* the id whose weight is half of what it would be as the first */
    CALIBRATION_ROWS = 1 << 14,
    WORDS = 4 * 10, /* random words a row: one per id, one per count, one for the label */
};

/* Distinct values, a missing one counted as a value where there are any; Criteo order. */
static const int64_t cardinalities[2][CRITEO_IDS] = {
    {227605432, 39060, 17295, 7424, 20265, 3,  7122,      1543,     63,        130229467, 3067956, 405282, 10,
     2209,      11938, 155,   4,    976,   14, 292775614, 40790948, 187188510, 590152,    12973,   108,    36},
    {1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
     27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572},
};

/* Shares of empty fields. */
static const double ids_missing[2][CRITEO_IDS] = {
    {0.02, 0, 0, 0, 0, 0, 0, 0, 0, 0.02, 0.02, 0, 0, 0.45, 0, 0.45, 0.45, 0, 0, 0.02, 0.02, 0.02, 0.45, 0, 0, 0},
    {0, 0, 0.03, 0.03, 0, 0.12, 0, 0, 0, 0, 0, 0.03, 0, 0, 0, 0.03, 0, 0, 0.44, 0.44, 0.03, 0.76, 0, 0.03, 0.44, 0.44},
};
static const double counts_missing[2][CRITEO_DENSE] = {
    {0.23, 0.09, 0.24, 0.52, 0.45, 0.08, 0.03, 0, 0, 0.08, 0.45, 0.02, 0.24},
    {0.45, 0, 0.21, 0.22, 0.03, 0.22, 0.04, 0, 0.04, 0.45, 0.04, 0.77, 0.22},
};

/* ln(count + 3) is normal, cut off at the least count. */
static const struct {
    double mean, deviation;
    int32_t least;
} count_shapes[CRITEO_DENSE] = {
    {2.6, 1.1, 0},  {5.2, 1.5, -1}, {2.0, 0.65, 0},  {3.9, 1.5, 0}, {2.4, 1.0, 0}, {1.2, 0.4, 0}, {1.1, 0.13, 0},
    {2.9, 1.8, -1}, {2.0, 0.8, 0},  {1.15, 0.12, 0}, {1.8, 0.5, 0}, {7.9, 2.5, 0}, {2.2, 0.7, 0},
};

static uint32_t share_of_words(double share)
{
    return (uint32_t)(share * 0x1p32);
}

static double normal_quantile(double p)
{
    double low = -9, high = 9;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle * M_SQRT1_2) < p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t column_ids(const dlrm_synth_args *a, int k)
{
    int64_t n = cardinalities[a->shape][k] - (ids_missing[a->shape][k] > 0);
    int64_t most = a->rows > LEAST_IDS ? a->rows : LEAST_IDS;
    if (n > SMALL_COLUMN) n = (int64_t)fmax(SMALL_COLUMN, rint((double)n * a->scale));
    return n < most ? n : most;
}

static void plant_column(const dlrm_synth_args *a, uint64_t stream, int k, dlrm_synth_column *c)
{
    double g = 1 - a->alpha;
    c->n = column_ids(a, k);
    c->missing_below = share_of_words(ids_missing[a->shape][k]);
    c->salt = dlrm_philox(a->seed, stream, (uint64_t)1 << 32).v[0];
    /* alpha 1 is the limit of g -> 0, reached here from so near that no id moves */
    if (fabs(g) < 1e-9) g = 1e-9;
    c->reach = expm1(g * log((double)c->n + 1));
    c->power = 1 / g;
    for (int i = 0; i < DLRM_SYNTH_WEIGHTS; i++)
        c->weight[i] = (float)(dlrm_rng_normal(a->seed, stream, (uint64_t)i) / (1 + (double)i / HALF_WEIGHT));
    c->missing_weight = (float)dlrm_rng_normal(a->seed, stream, DLRM_SYNTH_WEIGHTS);
}

static void plant_count(const dlrm_synth_args *a, uint64_t stream, const double *quantile, int j, dlrm_synth_count *c)
{
    double slope = dlrm_rng_normal(a->seed, stream, 0);
    c->missing_below = share_of_words(counts_missing[a->shape][j]);
    c->missing_term = (float)dlrm_rng_normal(a->seed, stream, 1);
    for (int i = 0; i < DLRM_SYNTH_QUANTILES; i++) {
        double x = rint(exp(count_shapes[j].mean + count_shapes[j].deviation * quantile[i])) - 3;
        c->value[i] = x < count_shapes[j].least ? count_shapes[j].least : (int32_t)x;
        c->term[i] = (float)(slope * (log(c->value[i] + 3.0) - count_shapes[j].mean) / count_shapes[j].deviation);
    }
}

/* What remains of a uniform word that was not below `below`, stretched to [0, 1). */
static double stretch(uint32_t word, uint32_t below)
{
    return ((double)(word - below) + 0.5) / (0x1p32 - below);
}

static double draw(const dlrm_synth_model *m, uint64_t stream, int64_t row, dlrm_criteo_row *out, uint32_t *label_word)
{
    uint32_t words[WORDS];
    for (int i = 0; i < WORDS / 4; i++) {
        dlrm_u32x4 u = dlrm_philox(m->seed, stream, (uint64_t)row * (WORDS / 4) + (uint64_t)i);
        for (int j = 0; j < 4; j++) words[4 * i + j] = u.v[j];
    }
    double logit = m->bias;
    out->dense_missing = out->ids_missing = 0;
    for (int k = 0; k < CRITEO_IDS; k++) {
        const dlrm_synth_column *c = &m->column[k];
        out->ids[k] = 0;
        if (words[k] < c->missing_below) {
            out->ids_missing |= 1u << k;
            logit += c->missing_weight;
            continue;
        }
        double u = stretch(words[k], c->missing_below);
        int64_t id = (int64_t)exp(log(u * c->reach + 1) * c->power) - 1;
        out->ids[k] = (uint32_t)(id < 0 ? 0 : id < c->n ? id : c->n - 1);
        if (id < DLRM_SYNTH_WEIGHTS) logit += c->weight[out->ids[k]];
    }
    for (int j = 0; j < CRITEO_DENSE; j++) {
        const dlrm_synth_count *c = &m->count[j];
        uint32_t word = words[CRITEO_IDS + j];
        out->dense[j] = 0;
        if (word < c->missing_below) {
            out->dense_missing |= 1u << j;
            logit += c->missing_term;
            continue;
        }
        int at = (int)(stretch(word, c->missing_below) * DLRM_SYNTH_QUANTILES);
        out->dense[j] = c->value[at];
        logit += c->term[at];
    }
    *label_word = words[CRITEO_IDS + CRITEO_DENSE];
    return logit;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* The bias at which sample scores, times `scale`, have the wanted mean probability. */
static double find_bias(const double *score, double scale, double rate)
{
    double low = -60, high = 60;
    for (int i = 0; i < 30; i++) {
        double middle = (low + high) / 2, sum = 0;
        for (int r = 0; r < CALIBRATION_ROWS; r += 4) sum += logistic(scale * score[r] + middle);
        if (sum < rate * (CALIBRATION_ROWS / 4))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Expected AUC of the probabilities of ascending scores, for labels drawn with them. */
static double expected_auc(const double *score, double scale, double bias)
{
    double negatives = 0, positives = 0, pairs = 0;
    for (int r = 0; r < CALIBRATION_ROWS; r++) {
        double p = logistic(scale * score[r] + bias);
        pairs += p * (negatives + (1 - p) / 2);
        negatives += 1 - p;
        positives += p;
    }
    return pairs / (positives * negatives);
}

/* Scales all weights so that the model's own AUC and positive rate are those asked for. */
static dlrm_status calibrate(const dlrm_synth_args *a, dlrm_synth_model *m)
{
    double *score, low = 0, high = 8;
    TRY(dlrm_alloc(CALIBRATION_ROWS, sizeof *score, "the planted model", &score));
    for (int r = 0; r < CALIBRATION_ROWS; r++) {
        dlrm_criteo_row row;
        uint32_t word;
        score[r] = draw(m, dlrm_rng_stream("synth/calibration"), r, &row, &word);
    }
    qsort(score, CALIBRATION_ROWS, sizeof *score, ascending);
    for (int i = 0; i < 30; i++) {
        double middle = (low + high) / 2;
        if (expected_auc(score, middle, find_bias(score, middle, a->positive_rate)) < a->auc)
            low = middle;
        else
            high = middle;
    }
    m->bias = find_bias(score, low, a->positive_rate);
    dlrm_free(&score);
    for (int k = 0; k < CRITEO_IDS; k++) {
        for (int i = 0; i < DLRM_SYNTH_WEIGHTS; i++) m->column[k].weight[i] *= (float)low;
        m->column[k].missing_weight *= (float)low;
    }
    for (int j = 0; j < CRITEO_DENSE; j++) {
        for (int i = 0; i < DLRM_SYNTH_QUANTILES; i++) m->count[j].term[i] *= (float)low;
        m->count[j].missing_term *= (float)low;
    }
    return DLRM_OK;
}

dlrm_status dlrm_synth_model_open(const dlrm_synth_args *a, dlrm_synth_model **out)
{
    dlrm_synth_model *m;
    double *quantile;
    *out = NULL;
    TRY(dlrm_alloc(1, sizeof *m, "the planted model", &m));
    dlrm_status st = dlrm_alloc(DLRM_SYNTH_QUANTILES, sizeof *quantile, "the planted model", &quantile);
    if (st == DLRM_OK) {
        m->seed = a->seed;
        m->stream = dlrm_rng_stream("synth/rows");
        for (int i = 0; i < DLRM_SYNTH_QUANTILES; i++) quantile[i] = normal_quantile((i + 0.5) / DLRM_SYNTH_QUANTILES);
        uint64_t columns = dlrm_rng_stream("synth/column"), counts = dlrm_rng_stream("synth/count");
        for (int k = 0; k < CRITEO_IDS; k++) plant_column(a, columns + (uint64_t)k, k, &m->column[k]);
        for (int j = 0; j < CRITEO_DENSE; j++) plant_count(a, counts + (uint64_t)j, quantile, j, &m->count[j]);
        dlrm_free(&quantile);
        st = calibrate(a, m);
    }
    if (st != DLRM_OK)
        dlrm_free(&m);
    else
        *out = m;
    return st;
}

void dlrm_synth_model_close(dlrm_synth_model **m)
{
    dlrm_free(m);
}

uint32_t dlrm_synth_row(const dlrm_synth_model *m, int64_t row, dlrm_criteo_row *out)
{
    uint32_t word;
    double p = rint(logistic(draw(m, m->stream, row, out, &word)) * DLRM_SYNTH_STEPS);
    uint32_t steps = p < 1 ? 1 : p > DLRM_SYNTH_STEPS - 1 ? DLRM_SYNTH_STEPS - 1 : (uint32_t)p;
    out->label = word >> 16 < steps;
    return steps;
}

uint32_t dlrm_synth_hash(const dlrm_synth_model *m, int column, uint32_t id)
{
    return dlrm_mix32(id ^ m->column[column].salt);
}
