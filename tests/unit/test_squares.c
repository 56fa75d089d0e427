/* Sums of squares: the same bits for any order and grouping, exact but for what is far below the largest term. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "base/rng.h"

enum { MOST = 3000, MANY = 9000 };

/* Term i of a row: magnitudes over `octaves` powers of two, down from 2^top. */
static float term(uint64_t row, int i, int top, int octaves)
{
    const double u = dlrm_rng_normal(7, row, (uint64_t)i);
    const int down = (int)(dlrm_philox(9, row, (uint64_t)i).v[0] % (uint32_t)octaves);
    return (float)ldexp(u, top - down);
}

static dlrm_squares sum_of(const float *v, int n)
{
    dlrm_squares sum = {0};
    for (int i = 0; i < n; i++) dlrm_squares_add(&sum, v[i]);
    return sum;
}

static void assert_same(const dlrm_squares *a, const dlrm_squares *b)
{
    const double x = dlrm_squares_value(a), y = dlrm_squares_value(b);
    assert_memory_equal(&x, &y, sizeof x);
}

static void test_any_order(void **state)
{
    (void)state;
    static const struct {
        int n, top, octaves;
    } rows[] = {{1, 0, 1}, {2, 0, 1}, {128, -8, 4}, {128, 0, 60}, {1000, -40, 120}, {MOST, 100, 200}, {MOST, -90, 50}, {MANY, -10, 90}, {64, 126, 270}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int n = rows[r].n;
        float v[MANY], shuffled[MANY];
        long double exact = 0;
        for (int i = 0; i < n; i++) {
            v[i] = shuffled[i] = term(r, i, rows[r].top, rows[r].octaves);
            exact += (long double)v[i] * v[i];
        }
        const dlrm_squares whole = sum_of(v, n);
        const dlrm_squares at_once = cpu_exact_squares(n, v);
        assert_memory_equal(&whole, &at_once, sizeof whole);
        const double error = fabs((double)(dlrm_squares_value(&whole) - exact));
        if (!(error <= (double)exact * (n * 0x1p-40 + 0x1p-52))) fail_msg("row %zu: %g, exactly %g", r, dlrm_squares_value(&whole), (double)exact);
        for (int round = 0; round < 20; round++) {
            for (int i = n - 1; i > 0; i--) {
                const int k = (int)(dlrm_philox(round, r, (uint64_t)i).v[1] % (uint32_t)(i + 1));
                const float swap = shuffled[i];
                shuffled[i] = shuffled[k];
                shuffled[k] = swap;
            }
            dlrm_squares joined = {0}; /* of groups of any size */
            for (int at = 0, length; at < n; at += length) {
                length = 1 + (int)(dlrm_philox(round, r, (uint64_t)at).v[2] % 97);
                if (length > n - at) length = n - at;
                dlrm_squares_join(&joined, sum_of(shuffled + at, length));
            }
            assert_same(&whole, &joined);
        }
    }
}

static void assert_infinite(const float *v, int n)
{
    dlrm_squares sum = sum_of(v, n);
    assert_true(isinf(dlrm_squares_value(&sum)));
    sum = cpu_exact_squares(n, v);
    assert_true(isinf(dlrm_squares_value(&sum)));
}

static void test_extremes(void **state)
{
    (void)state;
    static const float ones[] = {0x1p-149f, 0x1.fffffep-126f, 0x1p-126f, 1, 3, 0x1.fffffep127f, -0x1.fffffep127f, -0.1f};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        const dlrm_squares sum = sum_of(&ones[i], 1);
        const double square = (double)ones[i] * ones[i];
        assert_true(fabs(dlrm_squares_value(&sum) - square) <= square * 0x1p-40);
    }
    const float none[] = {0, -0.0f}, infinite[] = {1, INFINITY, 2}, not_a_number[] = {NAN, 1};
    dlrm_squares sum = sum_of(none, 2);
    assert_true(dlrm_squares_value(&sum) == 0);
    sum = cpu_exact_squares(2, none);
    assert_true(dlrm_squares_value(&sum) == 0);
    assert_infinite(infinite, 3);
    assert_infinite(not_a_number, 2);
}

/* The most terms that are promised, all in the top of a bin. */
static void test_most_terms(void **state)
{
    (void)state;
    dlrm_squares one = sum_of(&(float){0x1.fffffep19f}, 1), sum = {0};
    const double square = dlrm_squares_value(&one);
    for (int i = 0; i < 23; i++) dlrm_squares_join(&one, one);
    dlrm_squares_join(&sum, one);
    assert_true(fabs(dlrm_squares_value(&sum) / (square * 0x1p23) - 1) < 0x1p-39);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_order), cmocka_unit_test(test_extremes), cmocka_unit_test(test_most_terms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
