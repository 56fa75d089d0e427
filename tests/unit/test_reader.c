/* Readers: which samples a rank gets, in what order, how often, at what cost in bytes; and that one can be closed at
 * any time without leaving anything behind. */
#include "data_fixture.h"

#include <dirent.h>
#include <sys/resource.h>

#include "base/tree.h"
#include "config/feature_spec.h"

enum { ROWS = 103, INPUTS = 5 };

/* Row r: label r % 2; dense r, -r; one-hot id r (every other feature), or r % 4 ids 0, 1, 2 (the others). */
typedef struct opened {
    data_model m;
    dlrm_feature_spec files;
    dlrm_dataset *d;
} opened;

static void open_data(opened *o)
{
    FILE *y = fopen(in_folder("feature_spec.yaml"), "wb");
    memset(o, 0, sizeof *o);
    fprintf(y, "channel_spec: {categorical: [c0, c1, c2, c3, c4], label: [y], numerical: &n [a, b]}\nfeature_spec:\n"
               "  y: {dtype: bool}\n  a: {dtype: float32}\n  b: {dtype: float32}\n");
    for (int j = 0; j < INPUTS; j++)
        fprintf(y, "  c%d: {dtype: int32, cardinality: 1000, %s: %d}\n", j, j % 2 ? "max_hotness" : "hotness",
                j % 2 ? 3 : 1);
    fprintf(y, "source_spec:\n  train: &chunks\n  - {type: split_binary, features: [y], files: [y]}\n"
               "  - {type: split_binary, features: *n, files: [x]}\n");
    for (int j = 0; j < INPUTS; j++)
        fprintf(y, "  - {type: split_binary, features: [c%d], files: [c%d%s]}\n", j, j % 2, j % 2 ? ", offsets" : "");
    fprintf(y, "  test: *chunks\n");
    fclose(y);
    char labels[ROWS];
    float dense[2 * ROWS];
    int32_t ids[ROWS], bags[3 * ROWS];
    int64_t offsets[ROWS + 1] = {0};
    for (int r = 0; r < ROWS; r++) {
        labels[r] = r % 2;
        dense[2 * r] = (float)r;
        dense[2 * r + 1] = (float)-r;
        ids[r] = r;
        for (int k = 0; k < r % 4; k++) bags[offsets[r] + k] = k;
        offsets[r + 1] = offsets[r] + r % 4;
    }
    write_file("y", labels, sizeof labels);
    write_file("x", dense, sizeof dense);
    write_file("c0", ids, sizeof ids);
    write_file("c1", bags, (size_t)offsets[ROWS] * sizeof *bags);
    write_file("offsets", offsets, sizeof offsets);
    for (int j = 0; j < INPUTS; j++) add_input(&o->m, "C", 1000, j % 2 ? 3 : 1, j % 2);
    o->m.spec.dense_features = 2;
    assert_ok(dlrm_feature_spec_load(folder, &o->files));
    assert_ok(dlrm_dataset_open(&o->m.cfg, &o->m.spec, &o->files, &o->d));
}

static void close_data(opened *o)
{
    dlrm_dataset_close(&o->d);
    dlrm_feature_spec_clear(&o->files);
}

static void check_batch(const dlrm_batch *b, const bool *wanted)
{
    if (b->status != DLRM_OK) fail_msg("%s", b->message);
    for (int64_t s = 0; s < b->own; s++) {
        int64_t row = b->first_row + b->begin + s;
        assert_true(b->labels[s] == (float)(row % 2));
        assert_true(b->dense[2 * s] == (float)row && b->dense[2 * s + 1] == (float)-row);
    }
    for (int j = 0; j < INPUTS; j++) {
        const dlrm_ids *in = &b->inputs[j];
        if (!wanted[j]) {
            assert_null(in->ids);
            continue;
        }
        for (int64_t s = 0; s < in->samples; s++) {
            int64_t row = b->first_row + in->first + s;
            if (j % 2 == 0) assert_int_equal(in->ids[s], row);
            for (int64_t k = 0; j % 2 && k < row % 4; k++) assert_int_equal(in->ids[in->offsets[s] + k], k);
            if (j % 2) assert_int_equal(in->offsets[s + 1] - in->offsets[s], row % 4);
        }
    }
}

/* --- the cut --- */

static void test_cut(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 31, 32, 33, 64, 1000, 65536, (int64_t)1 << 27};
    static const int chunks[] = {0, 8, 32, 4096};
    for (int c = 0; c < 4; c++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int ranks = 1; ranks <= 8; ranks++) {
                int64_t B = sizes[i], at = 0, begin, own;
                for (int rank = 0; rank < ranks; rank++, at += own) {
                    dlrm_cut_samples(B, rank, ranks, chunks[c] > 0, chunks[c], &begin, &own);
                    assert_int_equal(begin, at);
                    assert_true(own >= 0);
                    if (chunks[c] == 0) assert_true(own == B / ranks || own == B / ranks + 1);
                    bool on_border = chunks[c] == 0;
                    for (int64_t k = 0; k <= chunks[c]; k++) on_border |= begin == k * B / (chunks[c] ? chunks[c] : 1);
                    assert_true(on_border);
                }
                assert_int_equal(at, B);
            }
    int64_t begin, own;
    dlrm_cut_samples(100, 1, 3, true, 8, &begin, &own); /* chunks [2, 5) of 8: samples [25, 62) */
    assert_int_equal(begin, 25);
    assert_int_equal(own, 37);
}

/* --- one epoch, on several ranks --- */

static void read_on_ranks(opened *o, int ranks, int64_t batch_size, int64_t max_rows, int chunks)
{
    int64_t rows = max_rows && max_rows < ROWS ? max_rows : ROWS, samples = 0;
    for (int rank = 0; rank < ranks; rank++) {
        bool wanted[INPUTS], own_only[INPUTS] = {false, false, true, true, false}, end = false;
        for (int j = 0; j < INPUTS; j++) wanted[j] = own_only[j] || j % ranks == rank;
        dlrm_reader_args args = {.split = DLRM_TEST_SPLIT,
                                 .batch_size = batch_size,
                                 .max_rows = max_rows,
                                 .epochs = 1,
                                 .deterministic = chunks > 0,
                                 .chunks = chunks,
                                 .rank = rank,
                                 .ranks = ranks,
                                 .wanted = wanted,
                                 .own_only = own_only};
        dlrm_reader *r;
        assert_ok(dlrm_reader_open(o->d, &args, &r));
        int64_t seen = 0, own_rows = 0;
        for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end)); seen += b->size, samples += b->own, own_rows += b->own) {
            int64_t begin, own;
            assert_int_equal(b->first_row, seen);
            assert_int_equal(b->size, rows - seen < batch_size ? rows - seen : batch_size);
            dlrm_cut_samples(b->size, rank, ranks, chunks > 0, chunks, &begin, &own);
            assert_int_equal(b->begin, begin);
            assert_int_equal(b->own, own);
            check_batch(b, wanted);
            for (int j = 0; j < INPUTS; j++) {
                assert_int_equal(b->inputs[j].first, own_only[j] ? b->begin : 0);
                assert_int_equal(b->inputs[j].samples, own_only[j] ? b->own : b->size);
            }
            assert_int_equal(end, seen + b->size == rows);
        }
        assert_int_equal(seen, rows);
        /* Own bags are predicted to be as long as others: 1.5 ids of 0 to 3. */
        int64_t surprise = dlrm_reader_bytes(r) - epoch_bytes(o->d, &args);
        assert_true(surprise >= -6 * own_rows - 4 && surprise <= 6 * own_rows + 4);
        if (ranks == 1) assert_int_equal(surprise, 0);
        dlrm_reader_close(&r);
        assert_null(r);
    }
    assert_int_equal(samples, rows);
}

static void test_ranks(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 7};
    static const int64_t batches[] = {1, 8, 50, 103, 500}, max_rows[] = {0, 1, 50, 102, 1000};
    static const int chunks[] = {0, 8, 32};
    opened o;
    open_data(&o);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++)
            for (int m = 0; m < 5; m++)
                for (int c = 0; c < 3; c++) read_on_ranks(&o, ranks[i], batches[k], max_rows[m], chunks[c]);
    dlrm_reader_args args = whole(&o.m, 50);
    /* 3 labels and bytes of the rest, by hand: 103 (1 + 8) + 3 * 103 * 4 + 2 (106 * 8 + 153 * 4). */
    assert_int_equal(epoch_bytes(o.d, &args), 103 * 9 + 3 * 103 * 4 + 2 * (106 * 8 + 153 * 4));
    close_data(&o);
}

/* --- order over epochs --- */

static void expect_order(opened *o, int64_t first_batch, int64_t epochs, int64_t max_rows, int64_t count)
{
    dlrm_reader_args args = whole(&o->m, 25);
    args.epochs = epochs;
    args.first_batch = first_batch;
    args.max_rows = max_rows;
    int64_t rows = max_rows ? max_rows : ROWS, n = (rows + 24) / 25;
    dlrm_reader *r;
    bool end;
    assert_ok(dlrm_reader_open(o->d, &args, &r));
    for (int64_t k = 0; k < count; k++) {
        const dlrm_batch *b = dlrm_reader_next(r, &end);
        assert_non_null(b);
        int64_t number = (first_batch + k) % n;
        assert_int_equal(b->first_row, number * 25);
        assert_int_equal(end, number == n - 1);
        check_batch(b, o->m.wanted);
    }
    if (epochs && epochs < INT64_MAX)
        for (int k = 0; k < 3; k++) {
            assert_null(dlrm_reader_next(r, &end));
            assert_false(end);
        }
    dlrm_reader_close(&r);
}

static void test_epochs(void **state)
{
    (void)state;
    opened o;
    open_data(&o);
    expect_order(&o, 0, 1, 0, 5);
    expect_order(&o, 0, 3, 0, 15);
    expect_order(&o, 7, 3, 0, 8); /* resumes within the second epoch */
    expect_order(&o, 14, 3, 0, 1);
    expect_order(&o, 15, 3, 0, 0);
    expect_order(&o, 99, 3, 0, 0);
    expect_order(&o, 0, 0, 0, 200);
    expect_order(&o, 1000003, 0, 0, 20);
    expect_order(&o, 0, 4, 20, 4);
    expect_order(&o, 1, 2, 50, 3);
    expect_order(&o, 0, INT64_MAX, 50, 10); /* the number of batches overflows */
    close_data(&o);
}

/* --- lifetime --- */

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void test_close_any_time(void **state)
{
    (void)state;
    opened o;
    open_data(&o);
    int files = open_files();
    for (int i = 0; i < 300; i++) {
        dlrm_reader_args args = whole(&o.m, 1 + i % 60);
        args.epochs = i % 2;
        dlrm_reader *r;
        bool end;
        assert_ok(dlrm_reader_open(o.d, &args, &r));
        for (int k = 0; k < i % 7; k++) dlrm_reader_next(r, &end);
        if (i % 50 == 0) usleep(2000); /* the ring fills up */
        dlrm_reader_close(&r);
        dlrm_reader_close(&r);
    }
    assert_int_equal(open_files(), files);
    close_data(&o);
}

/* The batch in hand must not change while the thread works on others. */
static void test_batch_stays(void **state)
{
    (void)state;
    opened o;
    open_data(&o);
    dlrm_reader_args args = whole(&o.m, 10);
    args.epochs = 0;
    dlrm_reader *r;
    bool end;
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    for (int k = 0; k < 20; k++) {
        const dlrm_batch *b = dlrm_reader_next(r, &end);
        int64_t first = b->first_row;
        usleep(1000);
        assert_int_equal(b->first_row, first);
        check_batch(b, o.m.wanted);
    }
    dlrm_reader_close(&r);
    close_data(&o);
}

/* The blocks that a device may pin hold every batch, and a failing callback ends the walk. */
typedef struct blocks {
    int n, fail_at;
    struct {
        char *at;
        size_t bytes;
    } block[16];
} blocks;

static dlrm_status note_block(void *ctx, void *block, size_t bytes)
{
    blocks *all = ctx;
    if (all->n == all->fail_at) return dlrm_fail(DLRM_E_RUNTIME, "enough");
    all->block[all->n].at = block;
    all->block[all->n++].bytes = bytes;
    return DLRM_OK;
}

static void test_blocks(void **state)
{
    (void)state;
    opened o;
    open_data(&o);
    dlrm_reader_args args = whole(&o.m, 10);
    dlrm_reader *r;
    bool end;
    blocks all = {.fail_at = 16}, some = {.fail_at = 1};
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    assert_ok(dlrm_reader_each_block(r, note_block, &all));
    assert_int_equal(dlrm_reader_each_block(r, note_block, &some), DLRM_E_RUNTIME);
    assert_int_equal(some.n, 1);
    for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end));) {
        const char *last = (const char *)(b->inputs[4].ids + b->inputs[4].count), *first = (const char *)b->labels;
        bool inside = false;
        for (int i = 0; i < all.n; i++)
            inside |= first >= all.block[i].at && last <= all.block[i].at + all.block[i].bytes;
        assert_true(inside);
    }
    dlrm_reader_close(&r);
    close_data(&o);
}

/* More files than the soft limit allows. */
static void test_file_limit(void **state)
{
    (void)state;
    opened o;
    open_data(&o);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)open_files() + 1;
    dlrm_reader_args args = whole(&o.m, 10);
    dlrm_reader *r;
    bool end;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    dlrm_status st = dlrm_reader_open(o.d, &args, &r);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_ok(st);
    check_batch(dlrm_reader_next(r, &end), o.m.wanted);
    dlrm_reader_close(&r);
    close_data(&o);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),  IN_FOLDER(test_ranks),      IN_FOLDER(test_epochs), IN_FOLDER(test_close_any_time),
        IN_FOLDER(test_batch_stays), IN_FOLDER(test_file_limit), IN_FOLDER(test_blocks),
    };
    return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
