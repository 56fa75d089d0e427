/* Learning rates against the two schedules of the reference cases and at every border. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/schedule.h"

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-15 * fabs(want)) fail_msg("rate %.17g, expected %.17g", got, want);
}

/* facebook's LRPolicyScheduler, in float64: warm-up 6, decay of power 2 over 7 steps from step 10. */
static void test_facebook(void **state)
{
    (void)state;
    static const double rate[] = {0.08333333333333333,
                                  0.16666666666666666,
                                  0.25,
                                  0.3333333333333333,
                                  0.4166666666666667,
                                  0.4166666666666667,
                                  0.4166666666666667,
                                  0.4166666666666667,
                                  0.4166666666666667,
                                  0.5,
                                  0.36734693877551017,
                                  0.25510204081632654,
                                  0.16326530612244897,
                                  0.09183673469387754,
                                  0.04081632653061224,
                                  0.01020408163265306,
                                  0.01020408163265306,
                                  0.01020408163265306};
    dlrm_schedule_config s = {6, 10, 7, 2, 1e-7};
    for (int n = 1; n <= 18; n++) near(dlrm_schedule_rate(&s, 0.5, n), rate[n - 1]);
    near(dlrm_schedule_rate(&s, 0.5, INT64_MAX), rate[17]);
}

/* No warm-up, linear decay to a least rate; each base its own. */
static void test_power1(void **state)
{
    (void)state;
    static const double dense[] = {0.25, 0.25, 0.25, 0.25, 0.25, 0.22916666666666666, 0.20833333333333334, 0.1875},
                        tables[] = {0.6, 0.6, 0.6, 0.6, 0.6, 0.55, 0.5, 0.45};
    dlrm_schedule_config s = {0, 5, 12, 1, 0.1};
    for (int n = 1; n <= 8; n++) {
        near(dlrm_schedule_rate(&s, 0.25, n), dense[n - 1]);
        near(dlrm_schedule_rate(&s, 0.6, n), tables[n - 1]);
    }
    near(dlrm_schedule_rate(&s, 0.25, 12), 0.10416666666666667);
    for (int n = 13; n < 30; n++) near(dlrm_schedule_rate(&s, 0.25, n), 0.1);
    near(dlrm_schedule_rate(&s, 0.6, 14), 0.15);
    for (int n = 15; n < 30; n++) near(dlrm_schedule_rate(&s, 0.6, n), 0.1);
}

static void test_off(void **state)
{
    (void)state;
    dlrm_schedule_config none = {0, 0, 0, 2, 0}, one = {1, 0, 0, 2, 0}, warm = {4, 100, 0, 2, 0};
    for (int n = 1; n < 10; n++) {
        near(dlrm_schedule_rate(&none, 24, n), 24);
        near(dlrm_schedule_rate(&one, 24, n), 24);
    }
    /* Without decay the full rate follows the warm-up, whatever decay_start_step says. */
    near(dlrm_schedule_rate(&warm, 24, 3), 18);
    near(dlrm_schedule_rate(&warm, 24, 4), 24);
    near(dlrm_schedule_rate(&warm, 24, 100), 24);
    near(dlrm_schedule_rate(&warm, 24, 101), 24);
}

static void test_borders(void **state)
{
    (void)state;
    /* Warm-up 1: no hold below the full rate. */
    dlrm_schedule_config one = {1, 3, 2, 2, 0};
    near(dlrm_schedule_rate(&one, 8, 1), 8);
    near(dlrm_schedule_rate(&one, 8, 2), 8);
    near(dlrm_schedule_rate(&one, 8, 3), 8);
    near(dlrm_schedule_rate(&one, 8, 4), 2);
    near(dlrm_schedule_rate(&one, 8, 5), 2);
    /* Decay right behind the warm-up: no hold at all. */
    dlrm_schedule_config touching = {2, 2, 2, 1, 0};
    near(dlrm_schedule_rate(&touching, 8, 1), 4);
    near(dlrm_schedule_rate(&touching, 8, 2), 8);
    near(dlrm_schedule_rate(&touching, 8, 3), 4);
    near(dlrm_schedule_rate(&touching, 8, 4), 4);
    /* One decay step: the rate never falls. Decay from step 0. */
    dlrm_schedule_config single = {0, 3, 1, 2, 0}, zero = {0, 0, 4, 1, 0};
    for (int n = 1; n < 9; n++) near(dlrm_schedule_rate(&single, 8, n), 8);
    near(dlrm_schedule_rate(&zero, 8, 1), 6);
    near(dlrm_schedule_rate(&zero, 8, 4), 2);
    /* Terabyte's, in its three parts. */
    dlrm_schedule_config mlperf = {2750, 49315, 27772, 2, 1e-7};
    near(dlrm_schedule_rate(&mlperf, 24, 2749), 24 * 2749.0 / 2750);
    near(dlrm_schedule_rate(&mlperf, 24, 2750), 24 * 2749.0 / 2750);
    near(dlrm_schedule_rate(&mlperf, 24, 49314), 24 * 2749.0 / 2750);
    near(dlrm_schedule_rate(&mlperf, 24, 49315), 24);
    near(dlrm_schedule_rate(&mlperf, 24, 49315 + 27772), 1e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_facebook), cmocka_unit_test(test_power1),
                                       cmocka_unit_test(test_off), cmocka_unit_test(test_borders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
