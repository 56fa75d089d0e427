/* AUC on one rank against counting every pair. The collectives are stood in for here by their meaning on one rank; what
 * several ranks do is in tests/mpi/test_auc_mpi.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "train/auc.h"

dlrm_status dlrm_comm_agree(dlrm_comm *c, dlrm_status mine)
{
    (void)c;
    return mine;
}

void dlrm_comm_sum_i64(dlrm_comm *c, int64_t *values, int64_t n)
{
    (void)c, (void)values, (void)n;
}

void dlrm_comm_allgather(dlrm_comm *c, const void *send, int64_t bytes, void *recv)
{
    (void)c;
    memcpy(recv, send, (size_t)bytes);
}

void dlrm_comm_alltoallv(dlrm_comm *c, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    (void)c;
    assert_int_equal(send_at[0], 0);
    assert_int_equal(send_at[1], recv_at[1]);
    memcpy(recv, send, (size_t)recv_at[1]);
}

enum { MOST = 3000 };
static float scores[MOST], labels[MOST];

static double brute_force(int n)
{
    int64_t halves = 0, p = 0;
    for (int i = 0; i < n; i++) {
        if (!labels[i]) continue;
        p++;
        for (int j = 0; j < n; j++)
            if (!labels[j]) halves += 2 * (scores[i] > scores[j]) + (scores[i] == scores[j]);
    }
    return (double)halves / (double)(2 * p * (n - p));
}

static double compute(dlrm_auc *a, int64_t want_samples, int64_t want_positives)
{
    dlrm_comm one = {.ranks = 1};
    double auc;
    int64_t samples, positives;
    assert_int_equal(dlrm_auc_compute(a, &one, &auc, &samples, &positives), DLRM_OK);
    assert_int_equal(samples, want_samples);
    assert_int_equal(positives, want_positives);
    return auc;
}

static double auc_of(int n)
{
    dlrm_auc *a;
    int positives = 0;
    assert_int_equal(dlrm_auc_open(n, &a), DLRM_OK);
    for (int i = 0; i < n; i++) positives += labels[i] != 0;
    for (int i = 0; i < n; i += 100) dlrm_auc_add(a, n - i < 100 ? n - i : 100, scores + i, labels + i);
    double auc = compute(a, n, positives);
    dlrm_auc_close(&a);
    assert_null(a);
    return auc;
}

static void check(int n)
{
    double got = auc_of(n), want = brute_force(n);
    if (memcmp(&got, &want, sizeof got) != 0) fail_msg("n %d: AUC %.17g, expected %.17g", n, got, want);
}

/* Levels: 0 = every float bit pattern that is a number, else that many different scores. */
static void draw(int n, uint64_t seed, int levels, double share)
{
    for (int i = 0; i < n; i++) {
        dlrm_u32x4 u = dlrm_philox(seed, 1, (uint64_t)i);
        labels[i] = dlrm_unit_float(u.v[0]) < share;
        memcpy(&scores[i], &u.v[1], sizeof *scores);
        if (levels) scores[i] = (float)(u.v[1] % (uint32_t)levels) - (float)(levels / 2);
        if (isnan(scores[i])) scores[i] = 0;
    }
    labels[0] = 1;
    labels[1] = 0;
}

static void test_brute_force(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 17, 100, 255, 1000, MOST}, levels[] = {0, 1, 2, 3, 50, 100000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            draw(sizes[s], 10 * s + l, levels[l], l % 2 ? 0.03 : 0.5);
            check(sizes[s]);
        }
}

static void test_known(void **state)
{
    (void)state;
    static const float s[] = {0.1f, 0.4f, 0.35f, 0.8f}, y[] = {0, 0, 1, 1};
    memcpy(scores, s, sizeof s);
    memcpy(labels, y, sizeof y);
    assert_true(auc_of(4) == 0.75);
    scores[2] = 0.4f; /* a tie counts half */
    assert_true(auc_of(4) == 0.875);
    for (int i = 0; i < 4; i++) scores[i] = -3;
    assert_true(auc_of(4) == 0.5);
    for (int i = 0; i < 4; i++) scores[i] = labels[i] ? -1e30f : 1e-40f;
    assert_true(auc_of(4) == 0);
    for (int i = 0; i < 4; i++) scores[i] = labels[i] ? INFINITY : -INFINITY;
    assert_true(auc_of(4) == 1);
    for (int i = 0; i < 4; i++) scores[i] = labels[i] ? -0.0f : 0.0f; /* equal */
    assert_true(auc_of(4) == 0.5);
}

static void test_undefined(void **state)
{
    (void)state;
    draw(50, 3, 0, 0.5);
    scores[20] = NAN;
    assert_true(isnan(auc_of(50)));
    draw(50, 3, 0, 0.5);
    for (int i = 0; i < 50; i++) labels[i] = 1;
    assert_true(isnan(auc_of(50)));
    for (int i = 0; i < 50; i++) labels[i] = 0;
    assert_true(isnan(auc_of(50)));
    assert_true(isnan(auc_of(0)));
}

/* More samples may follow a result; a reset forgets, NaN too; nothing stays allocated. */
static void test_reuse(void **state)
{
    (void)state;
    int64_t blocks = dlrm_mem_live_blocks();
    dlrm_auc *a;
    float nan = NAN, one = 1;
    int positives = 0;
    assert_int_equal(dlrm_auc_open(1000, &a), DLRM_OK);
    draw(1000, 9, 40, 0.3);
    for (int i = 0; i < 500; i++) positives += labels[i] != 0;
    dlrm_auc_add(a, 500, scores, labels);
    assert_true(compute(a, 500, positives) == brute_force(500));
    assert_true(compute(a, 500, positives) == brute_force(500));
    for (int i = 500; i < 1000; i++) positives += labels[i] != 0;
    dlrm_auc_add(a, 500, scores + 500, labels + 500);
    assert_true(compute(a, 1000, positives) == brute_force(1000));
    dlrm_auc_add(a, 1, &nan, &one);
    assert_true(isnan(compute(a, 1001, positives + 1)));
    dlrm_auc_reset(a);
    assert_true(isnan(compute(a, 0, 0)));
    draw(1000, 10, 0, 0.7);
    positives = 0;
    for (int i = 0; i < 1000; i++) positives += labels[i] != 0;
    dlrm_auc_add(a, 1000, scores, labels);
    assert_true(compute(a, 1000, positives) == brute_force(1000));
    dlrm_auc_close(&a);
    dlrm_auc_close(&a);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

/* Equal scores cost nothing beyond the 8 bytes a sample. */
static void test_memory(void **state)
{
    (void)state;
    enum { N = 2000000 };
    dlrm_auc *a;
    int64_t before = dlrm_mem_live_bytes();
    assert_int_equal(dlrm_auc_open(N, &a), DLRM_OK);
    float tie[1000], label[1000];
    for (int i = 0; i < 1000; i++) {
        tie[i] = 0.25f;
        label[i] = i % 4 == 0;
    }
    for (int i = 0; i < N; i += 1000) dlrm_auc_add(a, 1000, tie, label);
    assert_true(compute(a, N, N / 4) == 0.5);
    assert_in_range(dlrm_mem_peak_bytes() - before, 8 * N, 8 * N + (2 << 20));
    dlrm_auc_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force), cmocka_unit_test(test_known),
                                       cmocka_unit_test(test_undefined), cmocka_unit_test(test_reuse),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
