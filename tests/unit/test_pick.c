/* Ids of row slices, against a plain loop: bags of every kind, slices of every step, and any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <omp.h>

#include "base/rng.h"
#include "model/pick.h"

enum { SAMPLES = 5000, HOTNESS = 6, MOST = SAMPLES * HOTNESS };

static uint32_t ids[MOST];
static int64_t offsets[SAMPLES + 1];

static dlrm_ids make(bool variable, uint32_t rows)
{
    dlrm_ids from = {.ids = ids, .offsets = variable ? offsets : NULL, .samples = SAMPLES};
    for (int s = 0; s < SAMPLES; s++) {
        offsets[s] = from.count;
        from.count += variable ? dlrm_philox(1, 2, (uint64_t)s).v[0] % (HOTNESS + 1) : HOTNESS;
    }
    offsets[SAMPLES] = from.count;
    for (int64_t i = 0; i < from.count; i++) ids[i] = (uint32_t)((uint64_t)dlrm_philox(3, 4, (uint64_t)i).v[1] * rows >> 32);
    if (from.count > 2) ids[1] = rows - 1;
    return from;
}

static void check(const dlrm_pick *p, const dlrm_ids *from, int threads)
{
    static uint32_t got[MOST], want[MOST];
    static int64_t got_offsets[MOST + 1], want_offsets[MOST + 1];
    int64_t n = 0;
    for (int s = 0; s < SAMPLES; s++) {
        const int64_t begin = from->offsets ? from->offsets[s] : s * (int64_t)HOTNESS;
        const int64_t end = from->offsets ? from->offsets[s + 1] : begin + HOTNESS;
        want_offsets[s * p->vectors] = n;
        for (int64_t i = begin; i < end; i++) {
            if (p->vectors > 1) want_offsets[s * p->vectors + (i - begin)] = n;
            if (ids[i] % p->row_step == p->first_row) want[n++] = ids[i] / p->row_step;
        }
        for (int64_t v = p->vectors > 1 ? end - begin : 1; v < p->vectors; v++) want_offsets[s * p->vectors + v] = n;
    }
    want_offsets[SAMPLES * p->vectors] = n;
    memset(got, 0xAB, sizeof got);
    omp_set_num_threads(threads);
    assert_int_equal(dlrm_pick_rows(p, from, got, got_offsets), n);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_memory_equal(got_offsets, want_offsets, (size_t)(SAMPLES * p->vectors + 1) * sizeof *got_offsets);
}

static void test_all(void **state)
{
    (void)state;
    static const uint32_t steps[] = {2, 3, 7, 64, 1000003}, rows[] = {5, 4000, UINT32_MAX};
    for (int variable = 0; variable < 2; variable++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            const dlrm_ids from = make(variable, rows[r]);
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
                for (int apart = 0; apart < 2; apart++)
                    for (int threads = 1; threads <= 3; threads += 2)
                        for (uint32_t first = 0; first < steps[k]; first += steps[k] - 1)
                            check(&(dlrm_pick){first, steps[k], HOTNESS, apart ? HOTNESS : 1}, &from, threads);
        }
}

static void test_none(void **state)
{
    (void)state;
    const dlrm_ids from = {.ids = ids};
    int64_t end = 7;
    assert_int_equal(dlrm_pick_rows(&(dlrm_pick){0, 2, HOTNESS, 1}, &from, NULL, &end), 0);
    assert_int_equal(end, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
