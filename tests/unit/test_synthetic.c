/* Synthetic data: every row the same whoever asks and however, ids by the formula, and labels that can be learnt as
 * well as is said. */
#include "data_fixture.h"

#include <math.h>

#include "data/synthetic.h"

enum { DENSE = 3, FEATURES = 5 };

static void make_model(data_model *m, double alpha, bool lognormal, bool planted)
{
    memset(m, 0, sizeof *m);
    m->cfg.train.seed = 12345;
    m->cfg.train.batch_size = 500;
    m->cfg.data.synthetic.alpha = alpha;
    m->cfg.data.synthetic.batches = 7;
    m->cfg.data.synthetic.dense_lognormal = lognormal;
    m->cfg.data.synthetic.labels_planted = planted;
    m->spec.dense_features = DENSE;
    add_input(m, "one", 1000, 1, false);
    add_input(m, "big", 40000000, 1, false);
    add_input(m, "bag", 50, 6, true);
    add_input(m, "three", 20000, 3, false);
    add_input(m, "tiny", 1, 1, false);
}

static int compare_ids(const dlrm_ids *have, int64_t at, const dlrm_ids *want, int64_t want_at, int hotness)
{
    int64_t a = have->offsets ? have->offsets[at] : at * hotness,
            b = want->offsets ? want->offsets[want_at] : want_at * hotness;
    int64_t n = have->offsets ? have->offsets[at + 1] - a : hotness;
    if (want->offsets && want->offsets[want_at + 1] - b != n) return 1;
    return memcmp(have->ids + a, want->ids + b, (size_t)n * sizeof *have->ids);
}

/* All rows in one batch on one rank, against any other way to read them. */
static void test_same_rows(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        int64_t batch_size;
        bool deterministic;
    } ways[] = {{1, 1, false},   {1, 500, false},  {2, 500, false}, {3, 500, true},
                {3, 333, false}, {7, 3500, false}, {8, 64, true}};
    for (int planted = 0; planted < 2; planted++)
        for (int split = 0; split < DLRM_SPLITS; split++) {
            data_model m;
            dlrm_dataset *d;
            dlrm_reader *all_reader, *r;
            bool end;
            make_model(&m, 1.05, planted, planted);
            assert_ok(dlrm_dataset_open(&m.cfg, &m.spec, NULL, &d));
            assert_int_equal(dlrm_dataset_rows(d, split), 3500);
            dlrm_reader_args args = whole(&m, 3500);
            args.split = split;
            assert_int_equal(epoch_bytes(d, &args), 0);
            assert_ok(dlrm_reader_open(d, &args, &all_reader));
            const dlrm_batch *all = dlrm_reader_next(all_reader, &end);
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
                for (int rank = 0; rank < ways[w].ranks; rank++) {
                    bool wanted[FEATURES], own_only[FEATURES];
                    for (int j = 0; j < FEATURES; j++) {
                        own_only[j] = j % 3 == 1;
                        wanted[j] = own_only[j] || j % ways[w].ranks == rank;
                    }
                    args = (dlrm_reader_args){.split = split,
                                              .batch_size = ways[w].batch_size,
                                              .epochs = 1,
                                              .deterministic = ways[w].deterministic,
                                              .chunks = 32,
                                              .rank = rank,
                                              .ranks = ways[w].ranks,
                                              .wanted = wanted,
                                              .own_only = own_only};
                    assert_ok(dlrm_reader_open(d, &args, &r));
                    for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end));) {
                        int64_t own = b->first_row + b->begin;
                        assert_int_equal(b->status, DLRM_OK);
                        assert_memory_equal(b->labels, all->labels + own, (size_t)b->own * sizeof(float));
                        assert_memory_equal(b->dense, all->dense + own * DENSE,
                                            (size_t)(b->own * DENSE) * sizeof(float));
                        for (int j = 0; j < FEATURES; j++)
                            for (int64_t s = 0; wanted[j] && s < (own_only[j] ? b->own : b->size); s++) {
                                const int64_t row = b->first_row + (own_only[j] ? b->begin : 0) + s;
                                if (compare_ids(&b->inputs[j], s, &all->inputs[j], row, m.inputs[j].hotness))
                                    fail_msg("way %zu rank %d feature %d row %lld", w, rank, j, (long long)row);
                            }
                    }
                    assert_int_equal(dlrm_reader_bytes(r), 0);
                    dlrm_reader_close(&r);
                }
            dlrm_reader_close(&all_reader);
            dlrm_dataset_close(&d);
        }
}

/* One large batch of the training split. */
typedef struct sample {
    data_model m;
    dlrm_dataset *d;
    dlrm_reader *r;
    const dlrm_batch *b;
} sample;

static void draw(sample *x, double alpha, bool lognormal, bool planted, int64_t seed)
{
    bool end;
    make_model(&x->m, alpha, lognormal, planted);
    x->m.cfg.train.batch_size = 20000;
    x->m.cfg.data.synthetic.batches = 1;
    x->m.cfg.train.seed = seed;
    assert_ok(dlrm_dataset_open(&x->m.cfg, &x->m.spec, NULL, &x->d));
    dlrm_reader_args args = whole(&x->m, 20000);
    assert_ok(dlrm_reader_open(x->d, &args, &x->r));
    x->b = dlrm_reader_next(x->r, &end);
}

static void undraw(sample *x)
{
    dlrm_reader_close(&x->r);
    dlrm_dataset_close(&x->d);
}

/* The shares of ids below k against the formula's: u such that the id is k. */
static void test_power_law(void **state)
{
    (void)state;
    static const double alphas[] = {0.0, 0.5, 1.0, 1.05, 2.0};
    static const int64_t below[] = {1, 2, 10, 200};
    for (int a = 0; a < 5; a++) {
        sample x;
        draw(&x, alphas[a], true, false, 3);
        static const int features[] = {0, 3};
        for (int i = 0; i < 2; i++) {
            const dlrm_ids *in = &x.b->inputs[features[i]];
            double n = (double)x.m.tables[features[i]].rows + 1, g = 1 - alphas[a];
            for (int k = 0; k < 4; k++) {
                int64_t count = 0;
                for (int64_t s = 0; s < in->count; s++) count += in->ids[s] < below[k];
                double top = (double)below[k] + 1;
                double p = g == 0 ? log(top) / log(n) : (pow(top, g) - 1) / (pow(n, g) - 1);
                double off = ((double)count - p * (double)in->count) / sqrt((double)in->count * p * (1 - p) + 1e-9);
                if (fabs(off) > 4.5)
                    fail_msg("alpha %g: %lld ids below %lld", alphas[a], (long long)count, (long long)below[k]);
            }
            for (int64_t s = 0; s < in->count; s++) assert_in_range(in->ids[s], 0, x.m.tables[features[i]].rows - 1);
        }
        for (int64_t s = 0; s < x.b->size; s++) assert_int_equal(x.b->inputs[4].ids[s], 0);
        undraw(&x);
    }
}

static void test_bags_and_dense(void **state)
{
    (void)state;
    for (int lognormal = 0; lognormal < 2; lognormal++) {
        sample x;
        draw(&x, 1.05, lognormal, false, 4);
        int64_t lengths[7] = {0};
        for (int64_t s = 0; s < x.b->size; s++) lengths[x.b->inputs[2].offsets[s + 1] - x.b->inputs[2].offsets[s]]++;
        for (int k = 0; k < 7; k++) assert_in_range(lengths[k], 20000 / 7 - 250, 20000 / 7 + 250);
        double sum = 0, squares = 0, min = INFINITY, max = 0;
        for (int64_t i = 0; i < 20000 * DENSE; i++) {
            double v = x.b->dense[i], z = lognormal ? log(v) : (v - 50) * sqrt(12) / 100;
            sum += z;
            squares += z * z;
            min = fmin(min, v);
            max = fmax(max, v);
        }
        assert_true(fabs(sum / 60000) < 0.02 && fabs(squares / 60000 - 1) < 0.03);
        assert_true(lognormal ? min > 0 && max > 20 : min >= 0 && min < 0.1 && max < 100 && max > 99.9);
        undraw(&x);
    }
}

static int by_score(const void *a, const void *b)
{
    double x = ((const double *)a)[0], y = ((const double *)b)[0];
    return (x > y) - (x < y);
}

/* The labels' share of ones and the hidden model's own AUC, for several seeds and shapes of data. */
static void test_planted(void **state)
{
    (void)state;
    static double score[20000], pair[20000][2];
    for (int i = 0; i < 6; i++) {
        sample x;
        draw(&x, i < 3 ? 1.05 : 0.0, i % 2, true, 100 + i);
        assert_ok(dlrm_synthetic_probabilities(x.d, DLRM_TRAIN_SPLIT, 0, 20000, score));
        double one;
        assert_ok(dlrm_synthetic_probabilities(x.d, DLRM_TRAIN_SPLIT, 777, 1, &one));
        assert_true(one == score[777]);
        double ones = 0, wins = 0, calibration = 0;
        for (int s = 0; s < 20000; s++) {
            assert_true(score[s] > 0 && score[s] < 1);
            pair[s][0] = score[s];
            pair[s][1] = x.b->labels[s];
            calibration += x.b->labels[s] - score[s];
        }
        qsort(pair, 20000, sizeof *pair, by_score);
        for (int s = 0, zeros = 0; s < 20000; s++) {
            if (pair[s][1] == 1)
                wins += zeros, ones++;
            else
                zeros++;
        }
        double auc = wins / (ones * (20000 - ones)), rate = ones / 20000;
        if (auc < 0.77 || auc > 0.83 || rate < 0.25 || rate > 0.30 || fabs(calibration) > 250)
            fail_msg("seed %d: AUC %.4f, positives %.4f, labels less probabilities %.1f", 100 + i, auc, rate,
                     calibration);
        undraw(&x);
    }
    sample x;
    draw(&x, 1.05, true, false, 5);
    assert_ok(dlrm_synthetic_probabilities(x.d, DLRM_TRAIN_SPLIT, 0, 3, score));
    for (int s = 0; s < 3; s++) assert_true(score[s] == 0.5);
    double ones = 0;
    for (int s = 0; s < 20000; s++) ones += x.b->labels[s];
    assert_true(fabs(ones - 10000) < 350);
    undraw(&x);
}

/* The test split has other rows of the same hidden model; another seed has both otherwise. */
static void test_splits_and_seeds(void **state)
{
    (void)state;
    sample x, y;
    bool end;
    draw(&x, 0.0, true, true, 1);
    draw(&y, 0.0, true, true, 2);
    dlrm_reader_args args = whole(&x.m, 20000);
    args.split = DLRM_TEST_SPLIT;
    dlrm_reader *r;
    assert_ok(dlrm_reader_open(x.d, &args, &r));
    const dlrm_batch *test = dlrm_reader_next(r, &end), *other[] = {test, y.b};
    for (int i = 0; i < 2; i++) {
        int same_ids = 0, same_dense = 0;
        for (int s = 0; s < 20000; s++) same_ids += other[i]->inputs[1].ids[s] == x.b->inputs[1].ids[s];
        for (int s = 0; s < 20000 * DENSE; s++) same_dense += other[i]->dense[s] == x.b->dense[s];
        assert_true(same_ids < 20 && same_dense < 20);
    }
    /* One hidden model: the average label per id of `bag`'s only ids agrees between the splits, but not between seeds.
     */
    double agree[2] = {0}, norm[3] = {1e-9, 1e-9, 1e-9};
    const dlrm_batch *b[3] = {x.b, test, y.b};
    double mean[3][50] = {{0}};
    for (int i = 0; i < 3; i++) {
        double n[50] = {0};
        for (int s = 0; s < 20000; s++) {
            const int64_t *at = b[i]->inputs[2].offsets + s;
            for (int64_t k = at[0]; k < at[1]; k++) {
                mean[i][b[i]->inputs[2].ids[k]] += b[i]->labels[s] - 0.27;
                n[b[i]->inputs[2].ids[k]]++;
            }
        }
        for (int id = 0; id < 50; id++) mean[i][id] /= n[id];
        for (int id = 0; id < 50; id++) norm[i] += mean[i][id] * mean[i][id];
    }
    for (int i = 0; i < 2; i++) {
        for (int id = 0; id < 50; id++) agree[i] += mean[0][id] * mean[i + 1][id];
        agree[i] /= sqrt(norm[0] * norm[i + 1]);
    }
    if (agree[0] < 0.8 || fabs(agree[1]) > 0.5) fail_msg("agreement of splits %.3f, of seeds %.3f", agree[0], agree[1]);
    dlrm_reader_close(&r);
    undraw(&x);
    undraw(&y);
}

/* Every epoch is the first one again, whether its batches were kept or are made anew. */
static void test_epochs(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3500, 1800, 500, 499};
    for (int i = 0; i < 4; i++) {
        data_model m;
        dlrm_dataset *d;
        dlrm_reader *r, *first;
        bool end, end_of_first;
        make_model(&m, 1.05, true, true);
        assert_ok(dlrm_dataset_open(&m.cfg, &m.spec, NULL, &d));
        dlrm_reader_args args = whole(&m, sizes[i]);
        args.epochs = 4;
        args.first_batch = i;
        assert_ok(dlrm_reader_open(d, &args, &r));
        args.epochs = 1;
        int64_t batches = (3500 + sizes[i] - 1) / sizes[i], n = 0;
        for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end)); n++) {
            args.first_batch = (i + n) % batches;
            assert_ok(dlrm_reader_open(d, &args, &first));
            const dlrm_batch *want = dlrm_reader_next(first, &end_of_first);
            assert_int_equal(b->first_row, want->first_row);
            assert_int_equal(b->size, want->size);
            assert_int_equal(end, end_of_first);
            assert_memory_equal(b->labels, want->labels, (size_t)b->own * sizeof(float));
            for (int j = 0; j < FEATURES; j++) {
                assert_int_equal(b->inputs[j].count, want->inputs[j].count);
                assert_memory_equal(b->inputs[j].ids, want->inputs[j].ids,
                                    (size_t)want->inputs[j].count * sizeof(uint32_t));
            }
            dlrm_reader_close(&first);
        }
        assert_int_equal(n, 4 * batches - i);
        dlrm_reader_close(&r);
        dlrm_dataset_close(&d);
    }
}

/* Nothing varies: no dense values, tables of one row. */
static void test_constant(void **state)
{
    (void)state;
    data_model m = {0};
    dlrm_dataset *d;
    double p;
    m.cfg.train.batch_size = 10;
    m.cfg.data.synthetic.batches = 1;
    m.cfg.data.synthetic.labels_planted = true;
    add_input(&m, "tiny", 1, 1, false);
    assert_ok(dlrm_dataset_open(&m.cfg, &m.spec, NULL, &d));
    assert_ok(dlrm_synthetic_probabilities(d, DLRM_TEST_SPLIT, 9, 1, &p));
    assert_true(fabs(p - 0.27) < 1e-6);
    dlrm_dataset_close(&d);
}

int main(void)
{
#define COUNTED(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        COUNTED(test_same_rows),        COUNTED(test_power_law), COUNTED(test_bags_and_dense), COUNTED(test_planted),
        COUNTED(test_splits_and_seeds), COUNTED(test_epochs),    COUNTED(test_constant),
    };
    return cmocka_run_group_tests_name("synthetic", tests, NULL, NULL);
}
