/* Row formats through a reader: sizes beyond 2^31 rows and 2^41 bytes, ids packed and unpacked, what is in memory.
 * Whole runs on files that NumPy wrote are tests/run/test_row_formats.py. */
#include "data_fixture.h"

#include <fcntl.h>

#include "data/pack.h"

static void test_widths(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 256, 257, 65536, 65537, 1 << 24, (1 << 24) + 1, (int64_t)1 << 32};
    static const int width[] = {1, 1, 1, 2, 2, 3, 3, 4, 4};
    for (int k = 0; k < 9; k++) assert_int_equal(dlrm_pack_width(rows[k]), width[k]);
}

/* Every width, every length, with neighbours untouched. */
static void test_pack(void **state)
{
    (void)state;
    enum { N = 67 };
    for (int width = 1; width <= 4; width++)
        for (int n = 0; n <= N; n++) {
            uint32_t ids[N], back[N + 1];
            unsigned char packed[4 * N + 8];
            memset(packed, 0xAA, sizeof packed);
            memset(back, 0xAA, sizeof back);
            for (int i = 0; i < n; i++) ids[i] = (uint32_t)(i * 2654435761u) >> (32 - 8 * width);
            dlrm_pack_ids(ids, n, width, packed + 3);
            for (int k = 0; k < 3; k++) assert_int_equal(packed[k], 0xAA);
            assert_int_equal(packed[3 + n * width], 0xAA);
            for (int i = 0; i < n; i++)
                for (int k = 0; k < width; k++) assert_int_equal(packed[3 + i * width + k], ids[i] >> 8 * k & 0xFF);
            dlrm_unpack_ids(packed + 3, n, width, back);
            assert_memory_equal(ids, back, (size_t)n * sizeof *ids);
            assert_int_equal(back[n], 0xAAAAAAAA);
        }
}

/* Blocks by rank, in each the inputs that it wants. */
static void test_layout(void **state)
{
    (void)state;
    data_model m = {0};
    add_input(&m, "a", 200, 2, false);
    add_input(&m, "b", 300, 1, false);
    add_input(&m, "c", 70000, 3, false);
    static const bool wanted_by[3][3] = {{true, false, true}, {false, false, false}, {true, true, false}};
    static const int64_t at[] = {0, 2, 11, 13}, rank_at[] = {0, 11, 11, 15};
    dlrm_pack p;
    dlrm_pack_args args = {.spec = &m.spec, .ranks = 3, .rank = 2, .wanted_by = wanted_by[0]};
    assert_ok(dlrm_pack_open(&args, &p));
    assert_int_equal(p.n_items, 4);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(p.items[k].at, at[k]);
        assert_int_equal(p.rank_at[k], rank_at[k]);
    }
    assert_int_equal(p.input_at[1] - p.input_at[0], 2);
    assert_int_equal(p.items[p.of_input[p.input_at[1]]].rank, 2);
    assert_int_equal(dlrm_pack_sample_bytes(&args, 0, 3), 15);
    assert_int_equal(dlrm_pack_sample_bytes(&args, 2, 3), 4);
    assert_int_equal(p.received, 4);
    dlrm_pack_close(&p);
    /* Of input a each rank wants its own samples alone: rank 2 has them last in its own block, and sends no others. */
    static const bool own_only[3] = {true, false, false};
    args.own_only = own_only;
    assert_ok(dlrm_pack_open(&args, &p));
    assert_int_equal(p.n_items, 3);
    assert_int_equal(p.items[2].input, 0);
    assert_int_equal(p.items[2].at, 9 + 2);
    assert_int_equal(p.rank_at[3], 9 + 4);
    assert_int_equal(p.received, 2);
    dlrm_pack_close(&p);
}

/* 2^31 + 10 records of 2,056 bytes, all but one of them holes. */
static void test_size(void **state)
{
    (void)state;
    enum { HOTNESS = 500, WORDS = 1 + 13 + HOTNESS, BATCH = 1000 };
    const int64_t rows = ((int64_t)1 << 31) + 10, bytes = rows * WORDS * 4;
    int32_t record[WORDS] = {1};
    for (int k = 1; k < WORDS; k++) record[k] = k;
    int fd = open(in_folder("train_data.bin"), O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    if (ftruncate(fd, bytes) != 0) {
        print_message("note: no sparse file of %lld bytes can be made here\n", (long long)bytes);
        close(fd);
        skip();
    }
    assert_int_equal(pwrite(fd, record, sizeof record, bytes - (int64_t)sizeof record), sizeof record);
    close(fd);
    data_model m = {.cfg.data = {.format = DLRM_HUGECTR_RAW, .path = folder, .dense_type = DLRM_DENSE_INT32}};
    add_input(&m, "a", 1000, HOTNESS, false);
    m.spec.dense_features = 13;
    dlrm_dataset *d;
    assert_ok(dlrm_dataset_open(&m.cfg, &m.spec, NULL, &d));
    assert_int_equal(dlrm_dataset_rows(d, DLRM_TRAIN_SPLIT), rows);
    assert_true(dlrm_dataset_exchanges(d));
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        dlrm_reader_args args = whole(&m, BATCH);
        bool wanted_by[64] = {true};
        args.wanted_by = wanted_by;
        args.first_batch = rows / BATCH;
        if (!shuffled) assert_int_equal(epoch_bytes(d, &args), bytes);
        args.shuffle = shuffled;
        if (shuffled) { /* of one lane's rows 17 MB are in memory */
            args.rank = 63;
            args.ranks = 64;
        }
        dlrm_reader *r;
        bool end;
        assert_ok(dlrm_reader_open(d, &args, &r));
        const dlrm_batch *b = dlrm_reader_next(r, &end);
        if (b->status != DLRM_OK) fail_msg("%s", b->message);
        assert_true(end);
        assert_int_equal(b->size, rows % BATCH);
        if (!shuffled) {
            int64_t last = b->size - 1;
            assert_true(b->labels[last] == 1.0f && b->labels[last - 1] == 0.0f);
            assert_true(b->dense[last * 13 + 12] > 2.6390f && b->dense[last * 13 + 12] < 2.6391f); /* ln 14 */
            const uint16_t *ids = b->packed;
            for (int k = 0; k < HOTNESS; k++) assert_int_equal(ids[last * HOTNESS + k], 14 + k);
        }
        dlrm_reader_close(&r);
    }
    dlrm_dataset_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_layout),
        cmocka_unit_test_setup_teardown(test_size, open_folder, close_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
