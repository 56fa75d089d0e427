/* Spool and column pass under extreme settings: one bucket or many, room for a few rows, vocabularies a pair at a time.
 * Whatever the settings, the files are the same. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "counts.h"
#include "emit.h"
#include "vocab.h"

enum { IDS = 2, ROWS = 3000, CHUNK = 100, TEST_FROM = 2900 };

static char folder[] = "/tmp/dlrm_test_emit_XXXXXX";
static char vocab_path[IDS][DLRM_PATH_MAX];
static int64_t vocab_n[IDS];

/* What row r holds. */
static uint32_t id_of(int column, int64_t r)
{
    return column == 0 ? (uint32_t)(r % 7) : (uint32_t)r * 2654435761u;
}

static bool missing_of(int column, int64_t r)
{
    return column == 1 && r % 3 == 0;
}

static void fill_chunk(dlrm_rows *rows, int64_t first)
{
    rows->n = CHUNK;
    for (int64_t i = 0; i < CHUNK; i++) {
        int64_t r = first + i;
        float dense = (float)r;
        rows->number[i] = dlrm_row_number(0, r);
        rows->label[i] = r % 5 == 0;
        rows->missing[i] = 0;
        memcpy(rows->dense + i * 4, &dense, 4);
        for (int k = 0; k < IDS; k++) {
            rows->ids[k * rows->capacity + i] = missing_of(k, r) ? 0 : id_of(k, r);
            rows->missing[i] |= (uint32_t)missing_of(k, r) << k;
        }
    }
}

static int make_vocabularies(void **state)
{
    (void)state;
    dlrm_counts *counts;
    dlrm_rows rows;
    if (!mkdtemp(folder) || dlrm_counts_open(IDS, 8 << 20, folder, &counts) != DLRM_OK) return 1;
    if (dlrm_rows_open(CHUNK, IDS, 4, &rows) != DLRM_OK) return 1;
    for (int64_t first = 0; first < ROWS; first += CHUNK) {
        fill_chunk(&rows, first);
        if (dlrm_counts_add(counts, rows.ids, rows.capacity, rows.missing, CHUNK) != DLRM_OK) return 1;
    }
    dlrm_rows_close(&rows);
    for (int k = 0; k < IDS; k++) {
        dlrm_vocab_info info = {0};
        snprintf(vocab_path[k], DLRM_PATH_MAX, "%s/%d.vocab", folder, k);
        if (dlrm_counts_finish(counts, k) != DLRM_OK || dlrm_vocab_write(vocab_path[k], counts, k, &info) != DLRM_OK)
            return 1;
        vocab_n[k] = info.n;
    }
    dlrm_counts_close(&counts);
    return 0;
}

static int remove_vocabularies(void **state)
{
    (void)state;
    for (int k = 0; k < IDS; k++) unlink(vocab_path[k]);
    return rmdir(folder);
}

typedef struct output {
    uint8_t label[ROWS];
    float dense[ROWS];
    int32_t ids[IDS][ROWS];
    int groups;
} output;

static void read_file(const char *out, const char *name, int64_t row, size_t width, void *values)
{
    static const char *const splits[] = {"train", "test"};
    for (int s = 0; s < 2; s++) {
        char path[DLRM_PATH_MAX];
        int64_t n = s == 0 ? TEST_FROM : ROWS - TEST_FROM;
        snprintf(path, sizeof path, "%s/%s/%s", out, splits[s], name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread((char *)values + row * (int64_t)width, width, (size_t)n, f), n);
        assert_int_equal(fgetc(f), EOF);
        fclose(f);
        unlink(path);
        row += n;
    }
}

/* Rows in chunks, those from TEST_FROM on as test rows; written with the given settings; read back into *got. */
static void emit(bool shuffle, int bucket_bits, int64_t memory, int threads, output *got)
{
    char path[DLRM_PATH_MAX], out[DLRM_PATH_MAX], name[DLRM_PATH_MAX];
    snprintf(path, sizeof path, "%s/rows.tmp", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    assert_int_equal(mkdir(out, 0777), 0);
    dlrm_spool_args args = {.path = path,
                            .n_ids = IDS,
                            .dense_bytes = 4,
                            .threads = 1,
                            .shuffle = shuffle,
                            .seed = 3,
                            .bucket_bits = bucket_bits,
                            .block_rows = 8};
    dlrm_spool *spool;
    dlrm_rows rows;
    assert_int_equal(dlrm_spool_open(&args, &spool), DLRM_OK);
    assert_int_equal(dlrm_rows_open(CHUNK, IDS, 4, &rows), DLRM_OK);
    for (int64_t first = ROWS - CHUNK; first >= 0; first -= CHUNK) { /* chunks arrive in any order */
        fill_chunk(&rows, first);
        int split = first >= TEST_FROM ? DLRM_TEST : DLRM_TRAIN;
        assert_int_equal(dlrm_spool_add(spool, 0, split, &rows, 0, 33), DLRM_OK);
        assert_int_equal(dlrm_spool_add(spool, 0, split, &rows, 33, CHUNK), DLRM_OK);
    }
    dlrm_rows_close(&rows);
    assert_int_equal(dlrm_spool_finish(spool), DLRM_OK);

    int64_t cardinality[IDS] = {40000, 70000}, unknown[IDS] = {0}; /* 4 bytes an id */
    int64_t split_rows[DLRM_OUT_SPLITS] = {dlrm_spool_rows(spool, DLRM_TRAIN), dlrm_spool_rows(spool, DLRM_TEST), 0};
    assert_int_equal(split_rows[0], TEST_FROM);
    assert_int_equal(split_rows[1], ROWS - TEST_FROM);
    dlrm_columns_shape shape = {.n_dense = 1, .dense_bytes = 4, .n_ids = IDS, .cardinality = cardinality};
    dlrm_columns *columns;
    assert_int_equal(dlrm_columns_open(out, &shape, split_rows, &columns), DLRM_OK);
    dlrm_emit_args e = {.spool = spool,
                        .n_ids = IDS,
                        .dense_bytes = 4,
                        .bucket_bits = bucket_bits,
                        .vocab_path = vocab_path,
                        .vocab_n = vocab_n,
                        .threads = threads,
                        .memory = memory,
                        .block_rows = CHUNK,
                        .out = columns};
    dlrm_emit_result result = {.unknown = unknown};
    assert_int_equal(dlrm_emit(&e, &result), DLRM_OK);
    assert_int_equal(dlrm_columns_finish(columns), DLRM_OK);
    dlrm_columns_close(&columns);
    dlrm_spool_close(&spool);
    for (int k = 0; k < IDS; k++) assert_int_equal(unknown[k], 0);
    assert_int_equal(result.positives[DLRM_TRAIN], TEST_FROM / 5);
    assert_int_equal(result.positives[DLRM_TEST], (ROWS - TEST_FROM) / 5);

    got->groups = result.groups;
    read_file(out, "label.bin", 0, 1, got->label);
    read_file(out, "numerical.bin", 0, 4, got->dense);
    read_file(out, "cat_0.bin", 0, 4, got->ids[0]);
    read_file(out, "cat_1.bin", 0, 4, got->ids[1]);
    static const char *const rest[] = {"feature_spec.yaml", "train", "test", ""};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", out, rest[i]);
        assert_int_equal(remove(name), 0);
    }
}

/* The dense value is the row's number: everything else of that row must stand beside it. */
static void check_rows(const output *got)
{
    static bool seen[ROWS];
    static int32_t id_seen[ROWS];
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < ROWS; i++) {
        int64_t r = (int64_t)got->dense[i];
        assert_in_range(r, i < TEST_FROM ? 0 : i, i < TEST_FROM ? TEST_FROM - 1 : i); /* test rows keep their order */
        assert_false(seen[r]);
        seen[r] = true;
        assert_int_equal(got->label[i], r % 5 == 0);
        /* 3000 = 428 * 7 + 4: values 0 to 3 occur once more than 4 to 6, and ties go by value */
        assert_int_equal(got->ids[0][i], 1 + r % 7);
        if (missing_of(1, r))
            assert_int_equal(got->ids[1][i], 0);
        else
            id_seen[r] = got->ids[1][i];
    }
    /* column 1: all values occur once, so ids ascend with the value */
    for (int64_t r = 1; r + 1 < ROWS; r += 3) {
        assert_in_range(id_seen[r], 1, ROWS);
        assert_int_equal(id_seen[r] < id_seen[r + 1], id_of(1, r) < id_of(1, r + 1));
    }
}

static void test_in_order(void **state)
{
    (void)state;
    static output plain, tight;
    emit(false, 0, 64 << 20, 2, &plain);
    check_rows(&plain);
    for (int64_t i = 0; i < ROWS; i++) assert_int_equal((int64_t)plain.dense[i], i);
    assert_int_equal(plain.groups, 1);
    emit(false, 0, 16000, 3, &tight);
    assert_true(tight.groups > 4);
    tight.groups = plain.groups;
    assert_memory_equal(&plain, &tight, sizeof plain);
}

static void test_shuffled(void **state)
{
    (void)state;
    static output roomy, tight;
    static const struct {
        int bits, threads;
        int64_t memory;
    } settings[] = {{0, 1, 64 << 20}, {0, 1, 24000}, {1, 3, 24000}, {6, 2, 20000}, {12, 2, 24000}};
    emit(true, 4, 64 << 20, 2, &roomy);
    check_rows(&roomy);
    int64_t kept = 0;
    for (int64_t i = 0; i < TEST_FROM; i++) kept += (int64_t)roomy.dense[i] == i;
    assert_true(kept < 10); /* one on average */
    assert_int_equal(roomy.groups, 1);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        emit(true, settings[i].bits, settings[i].memory, settings[i].threads, &tight);
        assert_int_equal(tight.groups > 1, settings[i].memory < 1 << 20);
        tight.groups = roomy.groups;
        assert_memory_equal(&roomy, &tight, sizeof roomy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_shuffled),
    };
    return cmocka_run_group_tests(tests, make_vocabularies, remove_vocabularies);
}
