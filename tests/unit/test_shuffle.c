/* Shuffled epochs: every row once, another order in each, the same for any cut over ranks and from any batch on; and
 * what a reader hands out is that row's. */
#include "data_fixture.h"

#include <math.h>

#include "base/rng.h"
#include "config/feature_spec.h"
#include "data/shuffle.h"

/* The rows of an epoch in their order, planned in `parts` parts. */
static void order_of(dlrm_shuffle *s, int64_t epoch, int parts, int64_t *out)
{
    for (int64_t first = 0; first < s->rows; first += s->batch_size) {
        int64_t size = s->rows - first < s->batch_size ? s->rows - first : s->batch_size;
        for (int p = 0; p < parts; p++) {
            int64_t begin = size * p / parts, end = size * (p + 1) / parts;
            dlrm_shuffle_plan(s, epoch, first, size, begin, end - begin);
            for (int64_t i = begin; i < end; i++) out[first + i] = dlrm_shuffle_row(s, i);
        }
    }
}

static int64_t *rows_memory(int64_t n)
{
    int64_t *v;
    assert_ok(dlrm_alloc(n, sizeof *v, "rows", &v));
    return v;
}

static void test_every_row_once(void **state)
{
    (void)state;
    static const int64_t sets[][2] = {{1, 1},        {2, 1},          {63, 64},          {64, 64},
                                      {65, 64},      {1000, 7},       {1000, 999},       {4099, 4099},
                                      {200003, 512}, {600011, 65536}, {1100000, 1000000}};
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        int64_t n = sets[k][0], B = sets[k][1], same = 0, in_place = 0;
        dlrm_shuffle s, other;
        int64_t *first = rows_memory(n), *second = rows_memory(n), *again = rows_memory(n);
        char *seen;
        assert_ok(dlrm_alloc(n, 1, "rows seen", &seen));
        assert_ok(dlrm_shuffle_open(n, B, 5, B, &s));
        order_of(&s, 0, 1, first);
        for (int64_t i = 0; i < n; i++) {
            assert_true(first[i] >= 0 && first[i] < n && !seen[first[i]]);
            seen[first[i]] = 1;
        }
        order_of(&s, 1, 3, second);
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(seen[second[i]], 1);
            seen[second[i]] = 2;
            same += first[i] == second[i];
            in_place += first[i] == i;
        }
        if (n >= 1000) assert_true(same < n / 50 + 5 && in_place < n / 50 + 5);
        order_of(&s, 0, 7, again); /* back again, in other parts */
        assert_memory_equal(first, again, (size_t)n * sizeof *first);
        assert_ok(dlrm_shuffle_open(n, B, 6, B, &other));
        order_of(&other, 0, 1, again);
        if (n >= 1000) assert_memory_not_equal(first, again, (size_t)n * sizeof *first);
        dlrm_shuffle_close(&s);
        dlrm_shuffle_close(&other);
        dlrm_free(&first);
        dlrm_free(&second);
        dlrm_free(&again);
        dlrm_free(&seen);
    }
}

/* A batch is like the whole: its rows are from everywhere, and neighbours in it are no neighbours in the files. */
static void test_mixing(void **state)
{
    (void)state;
    enum { ROWS = 1 << 22, BATCH = 4096, TENTHS = 10 };
    dlrm_shuffle s;
    assert_ok(dlrm_shuffle_open(ROWS, BATCH, 1, BATCH, &s));
    for (int64_t first = 0; first < ROWS; first += 97 * BATCH) {
        int64_t count[TENTHS] = {0}, close = 0, before = -1;
        dlrm_shuffle_plan(&s, 0, first, BATCH, 0, BATCH);
        for (int64_t i = 0; i < BATCH; i++) {
            int64_t row = dlrm_shuffle_row(&s, i);
            count[row * TENTHS / ROWS]++;
            close += before >= 0 && llabs(row - before) < 100;
            before = row;
        }
        for (int t = 0; t < TENTHS; t++) assert_true(fabs((double)count[t] - BATCH / TENTHS) < 0.25 * BATCH / TENTHS);
        /* By chance 200 of a window of 8192, one in 41; first windows are shorter. */
        assert_true(close < (first == 0 ? BATCH / 10 : BATCH / 25));
    }
    dlrm_shuffle_close(&s);
}

/* A rank with whole lanes reads the blocks of its own rows, in whole, once. */
typedef struct reads {
    char *seen;
    int64_t calls, rows, shortest;
} reads;

static dlrm_status count_run(void *ctx, int64_t row, int64_t n, void *out)
{
    reads *r = ctx;
    (void)out;
    for (int64_t i = row; i < row + n; i++) assert_int_equal(r->seen[i]++, 0);
    r->calls++;
    r->rows += n;
    return DLRM_OK;
}

static void test_blocks(void **state)
{
    (void)state;
    enum { ROWS = 3000000, BATCH = 10000, RANKS = 4 };
    reads r = {0};
    dlrm_shuffle s;
    assert_ok(dlrm_alloc(ROWS, 1, "rows seen", &r.seen));
    assert_ok(dlrm_shuffle_open(ROWS, BATCH, 1, BATCH, &s));
    for (int p = 0; p < RANKS; p++) {
        int64_t key[DLRM_LANES], before = r.rows;
        for (int k = 0; k < DLRM_LANES; k++) key[k] = -1;
        for (int64_t first = 0; first < ROWS; first += BATCH) {
            dlrm_shuffle_plan(&s, 0, first, BATCH, BATCH / RANKS * p, BATCH / RANKS);
            for (int k = 0; k < s.n_pieces; k++) {
                const dlrm_shuffle_piece *piece = &s.pieces[k];
                if (key[piece->lane] == piece->key) continue;
                key[piece->lane] = piece->key;
                assert_ok(dlrm_shuffle_read(&s, piece->lane, piece->window, count_run, &r, 0, NULL));
            }
        }
        assert_int_equal(r.rows - before, ROWS / RANKS);
    }
    assert_true(r.calls <= ROWS / DLRM_SHUFFLE_BLOCK + DLRM_LANES + 1);
    dlrm_shuffle_close(&s);
    dlrm_free(&r.seen);
}

/* --- through a reader of files --- */

enum { ROWS = 700001, MOST = 5 };

static int bag(int64_t row)
{
    return (int)(row % (MOST + 1));
}

static uint32_t id(int64_t row, int k)
{
    return (uint32_t)(row * 7 + k) % 1000003;
}

static void write_set(void)
{
    FILE *label = fopen(in_folder("train/y"), "wb"), *dense = fopen(in_folder("train/x"), "wb");
    FILE *fixed = fopen(in_folder("train/a"), "wb"), *bags = fopen(in_folder("train/b"), "wb"),
         *offsets = fopen(in_folder("train/o"), "wb");
    int64_t at = 0;
    fwrite(&at, sizeof at, 1, offsets);
    for (int64_t row = 0; row < ROWS; row++) {
        char y = row % 3 == 0;
        float x = (float)row;
        int16_t a = (int16_t)(row % 30011);
        fwrite(&y, 1, 1, label);
        fwrite(&x, sizeof x, 1, dense);
        fwrite(&a, sizeof a, 1, fixed);
        for (int k = 0; k < bag(row); k++) {
            int32_t v = (int32_t)id(row, k);
            fwrite(&v, sizeof v, 1, bags);
        }
        at += bag(row);
        fwrite(&at, sizeof at, 1, offsets);
    }
    fclose(label);
    fclose(dense);
    fclose(fixed);
    fclose(bags);
    fclose(offsets);
}

static void check_row(const dlrm_batch *b, int64_t i, int64_t row)
{
    const dlrm_ids *bags = &b->inputs[1];
    assert_int_equal(b->inputs[0].ids[i], row % 30011);
    assert_int_equal(bags->offsets[i + 1] - bags->offsets[i], bag(row));
    for (int k = 0; k < bag(row); k++) assert_int_equal(bags->ids[bags->offsets[i] + k], id(row, k));
    if (i < b->begin || i >= b->begin + b->own) return;
    assert_true(b->dense[i - b->begin] == (float)row);
    assert_true(b->labels[i - b->begin] == (float)(row % 3 == 0));
}

static void test_reader(void **state)
{
    (void)state;
    write_set();
    char paths[5][256];
    static const char *const names[] = {"train/y", "train/x", "train/a", "train/b", "train/o"};
    for (int k = 0; k < 5; k++) snprintf(paths[k], sizeof paths[k], "%s", in_folder(names[k]));
    dlrm_categorical features[] = {{.name = "a", .where = "spec", .dtype = DLRM_INT16, .cardinality = 30011},
                                   {.name = "b", .where = "spec", .dtype = DLRM_INT32, .cardinality = 1000003}};
    char *ids[] = {paths[2], paths[3]}, *offsets[] = {NULL, paths[4]};
    dlrm_feature_spec files = {
        .n_dense = 1,
        .dense_dtype = DLRM_FLOAT32,
        .label_dtype = DLRM_INT8,
        .n_categorical = 2,
        .categorical = features,
        .split[0] = {.present = true, .label = paths[0], .dense = paths[1], .ids = ids, .offsets = offsets}};
    data_model m = {.cfg.train.seed = 11};
    add_input(&m, "a", 30011, 1, false);
    add_input(&m, "b", 1000003, MOST, true);
    m.spec.dense_features = 1;
    dlrm_dataset *d;
    assert_ok(dlrm_dataset_open(&m.cfg, &m.spec, &files, &d));
    for (int rank = 0; rank < 3; rank++) {
        dlrm_reader_args args = whole(&m, 50000);
        args.shuffle = true;
        args.epochs = 2;
        args.rank = rank;
        args.ranks = 3;
        args.first_batch = rank * 5; /* as if resumed there */
        dlrm_reader *r;
        dlrm_shuffle order;
        bool end;
        assert_ok(dlrm_reader_open(d, &args, &r));
        assert_ok(dlrm_shuffle_open(ROWS, 50000, 11, 50000, &order));
        int64_t batches = args.first_batch;
        for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end)); batches++) {
            if (b->status != DLRM_OK) fail_msg("%s", b->message);
            dlrm_shuffle_plan(&order, b->epoch, b->first_row, b->size, 0, b->size);
            for (int64_t i = 0; i < b->size; i++) check_row(b, i, dlrm_shuffle_row(&order, i));
        }
        assert_int_equal(batches, 2 * 15);
        if (rank == 0) { /* from the start: the ids twice, the bytes that were predicted */
            double bytes = (double)dlrm_reader_bytes(r), expected = 2 * (double)epoch_bytes(d, &args);
            assert_true(fabs(bytes / expected - 1) < 0.01);
        }
        dlrm_reader_close(&r);
        dlrm_shuffle_close(&order);
    }
    /* A bad id is named by its row in the file. */
    FILE *f = fopen(paths[2], "rb+");
    int16_t bad = -3;
    fseek(f, 400000 * 2, SEEK_SET);
    fwrite(&bad, sizeof bad, 1, f);
    fclose(f);
    dlrm_reader_args args = whole(&m, 50000);
    args.shuffle = true;
    dlrm_reader *r;
    bool end, found = false;
    assert_ok(dlrm_reader_open(d, &args, &r));
    for (const dlrm_batch *b; !found && (b = dlrm_reader_next(r, &end));) {
        found = b->status != DLRM_OK;
        if (found) assert_has(b->message, "train/a: row 400000: id -3 is outside [0, 30011) of table a");
    }
    assert_true(found);
    dlrm_reader_close(&r);
    dlrm_dataset_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_once),
        cmocka_unit_test(test_mixing),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test_setup_teardown(test_reader, open_folder, close_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
