/* Counting in bounded memory, vocabularies from it, and looking ids up whole or a stretch at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "counts.h"
#include "sort64.h"
#include "vocab.h"

static char folder[] = "/tmp/dlrm_test_vocab_XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails where a test left a file */
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_sort(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 47, 48, 1000, 20000};
    static const uint64_t masks[] = {UINT64_MAX, 0xFF00000000000000u, 0xFF, 0x7, 0, 0xFFFFFFFF00000000u};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
            int64_t n = sizes[s];
            uint64_t *a = malloc((size_t)(n + 1) * 8), *b = malloc((size_t)(n + 1) * 8);
            for (int64_t i = 0; i < n; i++) {
                dlrm_u32x4 u = dlrm_philox(1, m, (uint64_t)i);
                a[i] = b[i] = ((uint64_t)u.v[0] << 32 | u.v[1]) & masks[m];
            }
            dlrm_sort64(a, n);
            qsort(b, (size_t)n, 8, by_value);
            assert_memory_equal(a, b, (size_t)n * 8);
            free(a);
            free(b);
        }
    }
}

enum { COLUMNS = 3, ROWS = 200000, CHUNK = 5000, VALUES = 50000 };

/* Column 0: many values of falling frequency; 1: two values, one of them 0, with missing ones; 2: always missing. */
static uint32_t value_at(int column, int64_t row)
{
    dlrm_u32x4 u = dlrm_philox(7, (uint64_t)column, (uint64_t)row);
    if (column == 0) return (uint32_t)((double)VALUES * dlrm_unit_float(u.v[0]) * dlrm_unit_float(u.v[1])) * 85899u;
    return column == 1 ? (u.v[0] & 1) * UINT32_MAX : 0;
}

static uint32_t missing_at(int64_t row)
{
    return (row % 5 == 0 ? 2 : 0) | 4;
}

static dlrm_counts *count_all(int64_t budget)
{
    static uint32_t values[COLUMNS * CHUNK], missing[CHUNK];
    dlrm_counts *c;
    assert_int_equal(dlrm_counts_open(COLUMNS, budget, folder, &c), DLRM_OK);
    for (int64_t first = 0; first < ROWS; first += CHUNK) {
        for (int64_t i = 0; i < CHUNK; i++) {
            for (int k = 0; k < COLUMNS; k++) values[k * CHUNK + i] = value_at(k, first + i);
            missing[i] = missing_at(first + i);
        }
        assert_int_equal(dlrm_counts_add(c, values, CHUNK, missing, CHUNK), DLRM_OK);
    }
    for (int k = 0; k < COLUMNS; k++) assert_int_equal(dlrm_counts_finish(c, k), DLRM_OK);
    return c;
}

typedef struct tally {
    int64_t n;
    uint64_t sum, hash;
    int64_t last;
} tally;

static dlrm_status visit(void *arg, uint32_t value, uint64_t count)
{
    tally *t = arg;
    assert_true((int64_t)value > t->last); /* ascending, each once */
    t->last = value;
    t->n++;
    t->sum += count;
    t->hash = (t->hash ^ ((uint64_t)value << 20 ^ count)) * 0x100000001B3u;
    return DLRM_OK;
}

static void test_counts_do_not_depend_on_memory(void **state)
{
    (void)state;
    tally roomy[COLUMNS], tight[COLUMNS];
    for (int pass = 0; pass < 2; pass++) {
        dlrm_counts *c = count_all(pass == 0 ? 64 << 20 : 500000);
        tally *t = pass == 0 ? roomy : tight;
        for (int k = 0; k < COLUMNS; k++) {
            for (int again = 0; again < 2; again++) {
                t[k] = (tally){.last = -1};
                assert_int_equal(dlrm_counts_walk(c, k, visit, &t[k]), DLRM_OK);
            }
        }
        if (pass == 0)
            assert_int_equal(dlrm_counts_runs(c, 0), 0);
        else
            assert_true(dlrm_counts_runs(c, 0) > 3);
        assert_int_equal(dlrm_counts_runs(c, 1), 0);
        assert_int_equal(dlrm_counts_missing(c, 0), 0);
        assert_int_equal(dlrm_counts_missing(c, 1), ROWS / 5);
        assert_int_equal(dlrm_counts_missing(c, 2), ROWS);
        dlrm_counts_close(&c);
    }
    assert_int_equal(roomy[0].sum, ROWS);
    assert_int_equal(roomy[1].sum, ROWS - ROWS / 5);
    assert_int_equal(roomy[1].n, 2);
    assert_int_equal(roomy[2].n, 0);
    for (int k = 0; k < COLUMNS; k++) {
        assert_int_equal(tight[k].n, roomy[k].n);
        assert_true(tight[k].hash == roomy[k].hash);
    }
}

/* Ids of all pairs, checked against each other: an id's frequency is not below the next one's, ties by value. */
static void test_vocabulary(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/a.vocab", folder);
    for (int64_t limit = 0; limit <= 5; limit += 5) {
        dlrm_counts *c = count_all(64 << 20);
        dlrm_vocab_info info = {.cap = 11, .limit = limit, .rows = ROWS}, read;
        assert_int_equal(dlrm_vocab_write(path, c, 0, &info), DLRM_OK);
        dlrm_counts_close(&c);
        assert_int_equal(dlrm_vocab_info_read(path, &read), DLRM_OK);
        assert_memory_equal(&read, &info, sizeof info);

        static uint32_t count[VALUES], id[VALUES];
        memset(count, 0, sizeof count);
        for (int64_t r = 0; r < ROWS; r++) count[value_at(0, r) / 85899u]++;
        dlrm_vocab v;
        assert_int_equal(dlrm_vocab_load(path, 0, info.n, &v), DLRM_OK);
        int64_t n = 0, unknown = 0;
        const uint32_t none = 0;
        static uint32_t of_id[VALUES + 1];
        for (uint32_t i = 0; i < VALUES; i++) {
            uint32_t value = i * 85899u;
            unknown += dlrm_vocab_lookup(&v, &value, &none, 0, 1, &id[i]);
            if (count[i] > 0 && count[i] >= limit) {
                n++;
                assert_in_range(id[i], 1, info.n);
                of_id[id[i]] = i;
            } else {
                assert_int_equal(id[i], 0);
            }
        }
        assert_int_equal(n, info.n);
        assert_int_equal(unknown, VALUES - n);
        for (int64_t k = 2; k <= n; k++) {
            uint32_t a = of_id[k - 1], b = of_id[k];
            assert_true(count[a] > count[b] || (count[a] == count[b] && a < b));
        }
        dlrm_vocab_clear(&v);

        /* a stretch at a time: the same ids, whatever the cuts */
        static const uint32_t probes[] = {0, 1, 85898, 85899, 85900, UINT32_MAX, 0x80000000u};
        for (int64_t part = 1; part < info.n; part = part * 7 + 1) {
            if (info.n / part > 300) continue;
            static uint32_t values[VALUES], missing[VALUES], got[VALUES];
            for (uint32_t i = 0; i < VALUES; i++) {
                values[i] = i < sizeof probes / sizeof *probes ? probes[i] : i * 85899u;
                missing[i] = i % 1000 == 999 ? 8 : ~8u;
                got[i] = UINT32_MAX;
            }
            for (int64_t first = 0; first < info.n; first += part) {
                int64_t m = info.n - first < part ? info.n - first : part;
                assert_int_equal(dlrm_vocab_load(path, first, m, &v), DLRM_OK);
                dlrm_vocab_lookup(&v, values, missing, 3, VALUES, got);
                dlrm_vocab_clear(&v);
            }
            for (uint32_t i = 7; i < VALUES; i++) assert_int_equal(got[i], i % 1000 == 999 ? 0 : id[i]);
            assert_int_equal(got[0], id[0]);
            assert_int_equal(got[1], 0);
            assert_int_equal(got[3], id[1]);
            assert_int_equal(got[5], 0);
        }
        unlink(path);
    }
}

static void test_empty_vocabulary(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/b.vocab", folder);
    dlrm_counts *c = count_all(64 << 20);
    dlrm_vocab_info info = {.rows = ROWS};
    assert_int_equal(dlrm_vocab_write(path, c, 2, &info), DLRM_OK);
    dlrm_counts_close(&c);
    assert_int_equal(info.n, 0);
    dlrm_vocab v;
    assert_int_equal(dlrm_vocab_load(path, 0, 0, &v), DLRM_OK);
    uint32_t values[] = {0, 7, UINT32_MAX}, missing[] = {0, 0, 1}, ids[3] = {9, 9, 9};
    assert_int_equal(dlrm_vocab_lookup(&v, values, missing, 0, 3, ids), 2);
    for (int i = 0; i < 3; i++) assert_int_equal(ids[i], 0);
    dlrm_vocab_clear(&v);
    unlink(path);
}

/* Counts from 65536 on are ranked one by one. */
static void test_frequent_values(void **state)
{
    (void)state;
    enum { N = 70000 };
    static uint32_t values[N], missing[N];
    static const uint32_t base[] = {900, 100, 500, 3};
    static const int times[] = {3, 2, 3, 1}; /* values 500 and 900 tie */
    char path[64];
    snprintf(path, sizeof path, "%s/c.vocab", folder);
    dlrm_counts *c;
    assert_int_equal(dlrm_counts_open(1, 1 << 20, folder, &c), DLRM_OK);
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < N; i++) values[i] = base[j];
        for (int t = 0; t < times[j]; t++)
            assert_int_equal(dlrm_counts_add(c, values, N, missing, j == 3 ? 65535 : N), DLRM_OK);
    }
    assert_int_equal(dlrm_counts_finish(c, 0), DLRM_OK);
    dlrm_vocab_info info = {0};
    assert_int_equal(dlrm_vocab_write(path, c, 0, &info), DLRM_OK);
    dlrm_counts_close(&c);
    dlrm_vocab v;
    uint32_t ids[4];
    assert_int_equal(dlrm_vocab_load(path, 0, 4, &v), DLRM_OK);
    assert_int_equal(dlrm_vocab_lookup(&v, base, missing, 0, 4, ids), 0);
    dlrm_vocab_clear(&v);
    assert_int_equal(ids[2], 1);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[3], 4);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_counts_do_not_depend_on_memory),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_empty_vocabulary),
        cmocka_unit_test(test_frequent_values),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
