/* Dense values on disk: the transforms, and the rounding to 16 bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "dense.h"

static void test_half_keeps_what_it_can_hold(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = dlrm_float_of_f16((uint16_t)h);
        if (isfinite(x)) assert_int_equal(dlrm_half_of_float(x), h);
    }
}

/* Between two neighbours the nearer one, halfway the even one. */
static void test_half_rounds(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7BFF; h++) {
        float a = dlrm_float_of_f16((uint16_t)h), b = dlrm_float_of_f16((uint16_t)(h + 1)), middle = (a + b) / 2;
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(dlrm_half_of_float(middle), even);
        assert_int_equal(dlrm_half_of_float(nextafterf(middle, 0)), h);
        assert_int_equal(dlrm_half_of_float(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(dlrm_half_of_float(-middle), even | 0x8000);
    }
    assert_int_equal(dlrm_half_of_float(65519.99f), 0x7BFF);
    assert_int_equal(dlrm_half_of_float(65520.0f), 0x7C00);
    assert_int_equal(dlrm_half_of_float(3.0e38f), 0x7C00);
}

static void test_transforms(void **state)
{
    (void)state;
    static const int32_t counts[] = {0, 1, -1, -2, -3, -4, INT32_MIN, 16381, 16382, 1000000, INT32_MAX, 5, 77};
    enum { N = sizeof counts / sizeof *counts };
    for (int kind = DLRM_DENSE_LOG3; kind <= DLRM_DENSE_LOG1; kind++) {
        for (int bytes = 2; bytes <= 4; bytes += 2) {
            dlrm_dense d;
            float out32[N];
            uint16_t out16[N];
            assert_int_equal(dlrm_dense_open((dlrm_dense_kind)kind, bytes, &d), DLRM_OK);
            dlrm_dense_encode(&d, counts, 1 << 11, N, bytes == 2 ? (void *)out16 : out32);
            dlrm_dense_close(&d);
            for (int i = 0; i < N; i++) {
                double x = counts[i];
                float want = (float)(kind == DLRM_DENSE_LOG3 ? (x > -3 ? log(x + 3) : 0) : log(fmax(x, 0) + 1));
                if (i == 11) want = 0; /* missing */
                if (bytes == 2)
                    assert_int_equal(out16[i], dlrm_half_of_float(want));
                else
                    assert_memory_equal(&out32[i], &want, 4);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_keeps_what_it_can_hold),
        cmocka_unit_test(test_half_rounds),
        cmocka_unit_test(test_transforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
