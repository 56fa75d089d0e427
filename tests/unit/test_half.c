/* 16-bit floats: rounding to nearest at every number and half way between every two, random rounding exactly unbiased,
 * and its bits keyed by the element alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/half.h"

typedef struct format {
    dlrm_dtype type;
    uint32_t infinity; /* its bits; those below are the finite numbers, in order */
    int fraction;      /* bits that fp32 has more, of a normal number */
    float (*widen)(uint16_t);
    uint16_t (*nearest)(float), (*randomly)(float, uint32_t);
} format;

static float from_f16(uint16_t h)
{
    return dlrm_float_of_f16(h);
}

static float from_bf16(uint16_t h)
{
    return dlrm_float_of_bf16(h);
}

static uint16_t to_f16(float f)
{
    return dlrm_f16_of_float(f);
}

static uint16_t to_bf16(float f)
{
    return dlrm_bf16_of_float(f);
}

static uint16_t to_f16_randomly(float f, uint32_t bits)
{
    return dlrm_f16_randomly(f, bits);
}

static uint16_t to_bf16_randomly(float f, uint32_t bits)
{
    return dlrm_bf16_randomly(f, bits);
}

static const format formats[] = {{DLRM_FP16, 0x7C00, 13, from_f16, to_f16, to_f16_randomly},
                                 {DLRM_BF16, 0x7F80, 16, from_bf16, to_bf16, to_bf16_randomly}};
enum { FORMATS = sizeof formats / sizeof *formats };

static void expect(const format *f, float x, uint32_t want)
{
    if (f->nearest(x) != want || f->nearest(-x) != (want | 0x8000))
        fail_msg("%s: %a became %04x and %04x, expected %04x", f->type == DLRM_FP16 ? "fp16" : "bf16", (double)x, f->nearest(x),
                 f->nearest(-x), want);
}

/* Halves between neighbours are numbers of fp32, but below its own smallest; there is nothing between those to test. */
static void test_nearest(void **state)
{
    (void)state;
    for (const format *f = formats; f < formats + FORMATS; f++) {
        for (uint32_t h = 0; h + 1 < f->infinity; h++) {
            float a = f->widen((uint16_t)h), b = f->widen((uint16_t)(h + 1)), middle = (float)(((double)a + (double)b) / 2);
            expect(f, a, h);
            if (f->type == DLRM_BF16 && h == 0) continue; /* the middle is 0x8000 units of fp32's smallest: as others */
            expect(f, middle, h % 2 ? h + 1 : h);
            expect(f, nextafterf(middle, 0), h);
            expect(f, nextafterf(middle, INFINITY), h + 1);
        }
        float largest = f->widen((uint16_t)(f->infinity - 1)), unit = largest - f->widen((uint16_t)(f->infinity - 2));
        expect(f, largest, f->infinity - 1);
        expect(f, largest + unit / 4, f->infinity - 1);
        expect(f, nextafterf(largest + unit / 2, 0), f->infinity - 1);
        expect(f, largest + unit / 2, f->infinity);
        expect(f, INFINITY, f->infinity);
        assert_true(isnan(f->widen(f->nearest(NAN))) && isnan(f->widen(f->randomly(NAN, 0xFFFFFFFF))));
        assert_int_equal(f->randomly(INFINITY, 0xFFFFFFFF), f->infinity);
        assert_int_equal(f->randomly(-INFINITY, 0), f->infinity | 0x8000);
        assert_int_equal(f->randomly(largest + unit * 0.99f, 0xFFFFFFFF), f->infinity - 1);
        assert_int_equal(f->randomly(-1e38f * 3.3f, 0xFFFFFFFF) >= f->infinity + 0x8000, 0);
    }
}

/* All values of the bits that a rounding looks at: so many of them go up that the mean is the number itself. */
static void test_unbiased(void **state)
{
    (void)state;
    for (const format *f = formats; f < formats + FORMATS; f++)
        for (uint32_t h = 1; h + 1 < f->infinity; h += 977) {
            const float a = f->widen((uint16_t)h), b = f->widen((uint16_t)(h + 1));
            const uint32_t all = 1u << 16, first = dlrm_bits_of_float(a), gap = dlrm_bits_of_float(b) - first;
            for (uint32_t part = 0; part < gap; part += gap / 7 + 1) {
                const float x = dlrm_float_of_bits(first + part);
                uint32_t ups = 0, negative = 0;
                for (uint32_t r = 0; r < all; r++) {
                    uint16_t to = f->randomly(x, r << 16), minus = f->randomly(-x, r << 16);
                    assert_true(to == h || to == h + 1);
                    ups += to == h + 1;
                    negative += minus == ((h + 1) | 0x8000);
                }
                double want = ((double)x - (double)a) / ((double)b - (double)a) * all;
                /* subnormal halves look at more bits than these 16: to within one of them */
                if (fabs(ups - want) > (f->type == DLRM_FP16 && h < 0x400 ? 1 : 0) || negative != ups)
                    fail_msg("%a between %a and %a: %u of %u up, expected %.2f; %u of its negative", (double)x, (double)a, (double)b,
                             ups, all, want, negative);
            }
            assert_int_equal(f->randomly(a, 0xFFFFFFFF), h); /* what fits stays */
        }
}

/* With the generator's bits: the mean of many roundings of one number, as a row sees them step by step. */
static void test_mean(void **state)
{
    enum { N = 1 << 16 };
    static float x[N];
    static uint16_t out[N];
    (void)state;
    for (const format *f = formats; f < formats + FORMATS; f++)
        for (int k = 0; k < 4; k++) {
            const float values[] = {0.3f, -1.7182817f, 3e-6f, 1e-5f};
            double sum = 0, unit = 0;
            for (int i = 0; i < N; i++) x[i] = values[k];
            dlrm_narrow_randomly(f->type, x, N, out, 7, 99, 0);
            for (int i = 0; i < N; i++) {
                double v = (double)f->widen(out[i]);
                sum += v;
                unit = fmax(unit, fabs(v - (double)values[k]));
            }
            double off = fabs(sum / N - (double)values[k]), sigma = unit / sqrt(N);
            if (off > 5 * sigma) fail_msg("the mean of roundings of %g is off by %g = %.1f sigma", (double)values[k], off, off / sigma);
        }
}

/* An element's result depends on its index alone, not on where a slice begins; other steps and seeds give others. */
static void test_keys(void **state)
{
    enum { N = 1000, FIRST = 123457 };
    static float x[N];
    static uint16_t all[N], part[N];
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)sin(i);
    for (const format *f = formats; f < formats + FORMATS; f++) {
        dlrm_narrow_randomly(f->type, x, N, all, 1, 2, FIRST);
        for (int i = 0; i < N; i++) {
            int64_t e = FIRST + i;
            assert_int_equal(all[i], f->randomly(x[i], dlrm_philox(1, 2, (uint64_t)e / 4).v[e % 4]));
        }
        for (int begin = 0; begin < 9; begin++)
            for (int n = 1; n < 140; n += 17) {
                dlrm_narrow_randomly(f->type, x + begin, n, part, 1, 2, FIRST + begin);
                assert_memory_equal(part, all + begin, (size_t)n * sizeof *part);
            }
        for (int k = 0; k < 3; k++) {
            int differ = 0;
            dlrm_narrow_randomly(f->type, x, N, part, k == 0 ? 2 : 1, k == 1 ? 3 : 2, FIRST + (k == 2));
            for (int i = 0; i < N; i++) differ += part[i] != all[i];
            assert_in_range(differ, N / 5, N);
        }
    }
}

static void test_arrays(void **state)
{
    enum { N = 77 };
    static const dlrm_dtype types[] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};
    float x[N], back[N];
    uint32_t raw[N];
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)cos(i) * 100;
    for (int k = 0; k < 3; k++) {
        dlrm_narrow(types[k], x, N, raw);
        dlrm_widen(types[k], raw, N, back);
        for (int i = 0; i < N; i++)
            if (k == 0)
                assert_true(back[i] == x[i]);
            else
                assert_true(back[i] == formats[2 - k].widen(formats[2 - k].nearest(x[i])));
    }
    dlrm_narrow_randomly(DLRM_FP32, x, N, raw, 1, 2, 3);
    assert_memory_equal(raw, x, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nearest), cmocka_unit_test(test_unbiased), cmocka_unit_test(test_mean),
                                       cmocka_unit_test(test_keys), cmocka_unit_test(test_arrays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
