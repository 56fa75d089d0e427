/* NumPy's legacy random integers: known numbers of the generator, and the random ids of MLPerf's multi-hot tables, as
 * numpy 1.24's own randint draws them with seed 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "mt19937.h"
#include "multihot.h"

static void test_generator(void **state)
{
    (void)state;
    dlrm_mt19937 g;
    uint32_t v[1000];
    dlrm_mt_seed(&g, 5489);
    dlrm_mt_randint(&g, UINT32_MAX, 1000, v); /* none of these is 2^32 - 1, so the numbers as they are */
    assert_int_equal(v[0], 3499211612u);      /* C++'s std::mt19937, and its 10000th below */
    for (int i = 0; i < 8; i++) dlrm_mt_randint(&g, UINT32_MAX, 1000, v);
    dlrm_mt_randint(&g, UINT32_MAX, 1000, v);
    assert_int_equal(v[999], 4123659995u);
}

static void test_small_tables(void **state)
{
    (void)state;
    static const uint32_t n[] = {5, 3, 7, 100}, first[] = {4, 0, 3, 3, 3, 1, 3, 2, 4, 0};
    static const int hotness[] = {3, 1, 2, 4};
    dlrm_mt19937 g;
    uint32_t v[400];
    dlrm_mt_seed(&g, 0);
    for (int t = 0; t < 4; t++) {
        dlrm_mt_randint(&g, n[t], (int64_t)n[t] * (hotness[t] - 1), v);
        for (int i = 0; t == 0 && i < 10; i++) assert_int_equal(v[i], first[i]);
    }
    assert_int_equal(v[0], 81);
    assert_int_equal(v[1], 37);
    assert_int_equal(v[2], 25);
    dlrm_mt_randint(&g, 1, 3, v);
    assert_true(v[0] == 0 && v[1] == 0 && v[2] == 0);
}

/* First ids of rows 0 and 1 and of the last one, and the sum of all. */
static const struct {
    int table;
    uint32_t rows, row0[4], row1[4], last[4];
    int64_t sum;
} known[] = {
    {0, 40000000, {8325804, 2215104}, {38712131, 15039847}, {33540172, 33626968}, 1600013037758034},
    {1, 39060, {24907}, {7886}, {5867}, 762905486},
    {3, 7424, {4345}, {654}, {2895}, 27757436},
    {4, 20265, {3183, 13899, 1372, 19641}, {3667, 9417, 16975, 3096}, {18437, 19967, 13398, 6811}, 1024618830},
    {9,
     40000000,
     {3246144, 15696079, 19032552, 20927970},
     {30524852, 36274284, 20988160, 35023650},
     {20907337, 18816025, 36084594, 36819218},
     4799822890522338},
    {10, 3067956, {1028214, 1866176}, {1499667, 2613505}, {832354, 2479599}, 9408774747168},
    {11, 405282, {128049, 41194, 334303, 126435}, {43770, 154296, 352484, 102803}, {157304, 400450, 311435, 297041}, 574887935527},
    {13, 2209, {181, 948, 467, 263}, {2013, 1454, 1655, 2144}, {1472, 612, 466, 2008}, 12310279},
    {14, 11938, {9194, 9488, 4977, 9260}, {6382, 11156, 1863, 3776}, {3214, 6890, 5595, 10744}, 570423927},
    {15, 155, {147, 132, 133, 11}, {150, 53, 74, 57}, {59, 146, 10, 144}, 46682},
    {19,
     40000000,
     {19055127, 5119645, 14407394, 8767758},
     {18429133, 29935403, 23728829, 27543952},
     {13019241, 26571478, 24303046, 22405664},
     8799768688041218},
    {20,
     40000000,
     {13782853, 27693331, 39817843, 33900739},
     {28229802, 36662022, 398604, 20131359},
     {39553069, 4057848, 14739110, 4562865},
     79201446641917644},
    {21,
     40000000,
     {4759158, 38079706, 16936345, 26962071},
     {34138606, 6605496, 7846642, 9552697},
     {8006928, 29310323, 8703865, 21820354},
     20800107643337737},
    {22, 590152, {580373, 407400, 365934, 282267}, {316570, 169444, 66928, 377906}, {292750, 95618, 202627, 93827}, 1567978976408},
    {23, 12973, {11837, 9696}, {9635, 5037}, {8954, 2844}, 169057692},
};

/* The first four tables take under a second, all of them a minute. */
static void test_mlperf_tables(void **state)
{
    (void)state;
    const int n = getenv("DLRM_LONG_TESTS") ? (int)(sizeof known / sizeof *known) : 4;
    dlrm_mt19937 g;
    dlrm_mt_seed(&g, 0);
    for (int k = 0; k < n; k++) {
        const int tail = dlrm_mlperf_hotness[known[k].table] - 1;
        const int64_t piece = 100000 < known[k].rows ? 100000 : known[k].rows;
        int64_t sum = 0;
        uint32_t *v;
        assert_int_equal(dlrm_alloc(piece * tail, sizeof *v, "ids", &v), 0);
        for (int64_t row = 0; row < known[k].rows; row += piece) {
            const int64_t rows = known[k].rows - row < piece ? known[k].rows - row : piece;
            dlrm_mt_randint(&g, known[k].rows, rows * tail, v);
            for (int64_t i = 0; i < rows * tail; i++) sum += v[i];
            for (int i = 0; i < tail && i < 4; i++) {
                if (row == 0) assert_int_equal(v[i], known[k].row0[i]);
                if (row == 0) assert_int_equal(v[tail + i], known[k].row1[i]);
                if (row + rows == known[k].rows) assert_int_equal(v[(rows - 1) * tail + i], known[k].last[i]);
            }
        }
        assert_int_equal(sum, known[k].sum);
        dlrm_free(&v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generator),
        cmocka_unit_test(test_small_tables),
        cmocka_unit_test(test_mlperf_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
