/* AUC over any number of ranks: the very bits of counting every pair in one place, however the samples lie; and no rank
 * holds much more than its share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "train/auc.h"
#include "verdict.h"

enum { ALL = 2000 };
static float scores[ALL], labels[ALL]; /* the same on every rank */

static double brute_force(void)
{
    int64_t halves = 0, p = 0;
    for (int i = 0; i < ALL; i++) {
        if (!labels[i]) continue;
        p++;
        for (int j = 0; j < ALL; j++)
            if (!labels[j]) halves += 2 * (scores[i] > scores[j]) + (scores[i] == scores[j]);
    }
    return p == 0 || p == ALL ? NAN : (double)halves / (double)(2 * p * (ALL - p));
}

enum spread { DEALT, BLOCKS, ALL_ON_LAST, SORTED, SPREADS };

static int owner(int i, enum spread spread, int ranks)
{
    if (spread == DEALT) return i % ranks;
    if (spread == BLOCKS) return (int)((int64_t)i * i / ALL * ranks / ALL); /* uneven */
    if (spread == ALL_ON_LAST) return ranks - 1;
    return isnan(scores[i]) ? 0 : (int)(fabsf(scores[i]) * 1000) % ranks; /* equal scores together */
}

static void check_case(dlrm_comm *c, const char *what, double want)
{
    int64_t positives = 0;
    for (int i = 0; i < ALL; i++) positives += labels[i] != 0;
    for (int spread = 0; spread < SPREADS; spread++) {
        dlrm_auc *a;
        CHECK(c, dlrm_auc_open(ALL, &a) == DLRM_OK, "%s", dlrm_error_message());
        for (int i = 0; i < ALL; i++)
            if (owner(i, spread, c->ranks) == c->rank) dlrm_auc_add(a, 1, scores + i, labels + i);
        double auc;
        int64_t n, p;
        CHECK(c, dlrm_auc_compute(a, c, &auc, &n, &p) == DLRM_OK, "%s", dlrm_error_message());
        CHECK(c, n == ALL && p == positives, "%lld samples, %lld positive", (long long)n, (long long)p);
        CHECK(c, isnan(want) ? isnan(auc) : memcmp(&auc, &want, sizeof auc) == 0,
              "%s, spread %d: %.17g, expected %.17g", what, spread, auc, want);
        dlrm_auc_close(&a);
    }
}

static void draw(uint64_t seed, int levels, float share)
{
    for (int i = 0; i < ALL; i++) {
        dlrm_u32x4 u = dlrm_philox(seed, 1, (uint64_t)i);
        labels[i] = dlrm_unit_float(u.v[0]) < share;
        scores[i] = dlrm_unit_float(u.v[1]) * 2 - 1;
        if (levels) scores[i] = (float)(u.v[1] % (uint32_t)levels) * 0.25f;
    }
}

static void check_values(dlrm_comm *c)
{
    static const int levels[] = {0, 1, 2, 7, 900};
    for (int l = 0; l < 5; l++) {
        draw((uint64_t)l, levels[l], l % 2 ? 0.5f : 0.03f);
        check_case(c, "drawn", brute_force());
    }
    draw(9, 0, 0.5f);
    scores[ALL - 1] = NAN; /* on one rank */
    check_case(c, "a NaN", NAN);
    draw(9, 0, 2);
    check_case(c, "only positives", NAN);
    draw(9, 0, -1);
    check_case(c, "only negatives", NAN);
}

/* n samples on this rank, all different or all alike: what compute takes beyond the 8 bytes a sample. */
static int64_t extra_memory(dlrm_comm *c, int64_t n, bool alike, double *auc)
{
    dlrm_auc *a;
    char *filler;
    int64_t samples, positives;
    CHECK(c, dlrm_auc_open(n, &a) == DLRM_OK, "%s", dlrm_error_message());
    for (int64_t i = 0; i < n; i++) {
        float score = alike ? 0.5f : dlrm_rng_uniform(5, (uint64_t)c->rank, (uint64_t)i), label = i % 2 ? 1 : 0;
        dlrm_auc_add(a, 1, &score, &label);
    }
    /* Up to the old peak, so that whatever comes now makes a new one. */
    CHECK(c, dlrm_alloc(dlrm_mem_peak_bytes() - dlrm_mem_live_bytes(), 1, "filler", &filler) == DLRM_OK, "memory");
    int64_t before = dlrm_mem_live_bytes();
    CHECK(c, dlrm_auc_compute(a, c, auc, &samples, &positives) == DLRM_OK, "%s", dlrm_error_message());
    int64_t taken = dlrm_mem_peak_bytes() - before;
    dlrm_free(&filler);
    dlrm_auc_close(&a);
    return taken;
}

static void check_memory(dlrm_comm *c)
{
    enum { N = 150000, RUN_BYTES = 12, TABLES = 600 << 10 /* histogram and offsets */ };
    double auc;
    int64_t got = extra_memory(c, N, true, &auc);
    CHECK(c, auc == 0.5, "%.17g", auc);
    CHECK(c, got < TABLES, "all alike: %lld bytes more", (long long)got);

    /* Runs sent; and runs received: about as many, whichever keys a rank owns. */
    got = extra_memory(c, N, false, &auc);
    CHECK(c, auc > 0.49 && auc < 0.51, "%.17g", auc);
    CHECK(c, got > N * RUN_BYTES && got < TABLES + N * RUN_BYTES * 9 / 4, "all different: %lld bytes more",
          (long long)got);

    /* One rank has all samples: the others take their share of its runs. */
    got = extra_memory(c, c->rank ? 0 : N, false, &auc);
    CHECK(c, auc > 0.49 && auc < 0.51, "%.17g", auc);
    if (c->rank)
        CHECK(c, got > N / c->ranks * RUN_BYTES / 2 && got < TABLES + N / c->ranks * RUN_BYTES * 5 / 4,
              "all on rank 0: %lld bytes more", (long long)got);
}

int main(int argc, char **argv)
{
    dlrm_comm c;
    if (dlrm_comm_open(&argc, &argv, &c) != DLRM_OK) {
        fprintf(stderr, "%s\n", dlrm_error_message());
        return 1;
    }
    dlrm_comm_set_timeout(&c, 30);
    check_memory(&c);
    check_values(&c);
    int code = verdict(&c);
    dlrm_comm_close(&c);
    return code;
}
