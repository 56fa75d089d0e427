/* Nanoseconds a key of a vocabulary: batches of keys that all have a row, that are all new, and of a power law with eviction.
 *
 *   bench_vocabulary CAPACITY [BATCH]
 *
 * And the milliseconds that so many threads take for a batch of known keys of each of so many tables, the median of BATCHES:
 *
 *   bench_vocabulary CAPACITY BATCH TABLES THREADS
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/log.h"
#include "model/translate.h"

enum { BATCHES = 40 };

/* Of this thread: other work on the machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t key_of(int64_t id)
{
    return (int64_t)((uint64_t)id * 0x9E3779B97F4A7C15u);
}

/* Uniform below n, or by a power law of exponent 1.05. */
static int64_t draw(int64_t n, uint64_t i, bool skewed)
{
    const dlrm_u32x4 bits = dlrm_philox(1, 2, i);
    const double u = dlrm_unit_double(bits.v[0], bits.v[1]);
    const int64_t id = skewed ? (int64_t)pow(u * (pow((double)n + 1, -0.05) - 1) + 1, -20) - 1 : (int64_t)(u * (double)n);
    return id < n ? id : n - 1;
}

static int64_t batch; /* keys of one */
static int64_t *keys;
static uint32_t *rows;

/* BATCHES batches; ids(i) of the i-th key of all. The mean time a key of the vocabulary's work alone. */
static double run(dlrm_vocabulary *v, int64_t n, int64_t first, int kind)
{
    double seconds = 0;
    for (int64_t b = 0; b < BATCHES; b++) {
        for (int64_t i = 0; i < batch; i++) {
            const int64_t at = first + b * batch + i;
            keys[i] = key_of(kind < 0 ? at : draw(n, (uint64_t)at, kind == 1));
        }
        const double start = now();
        dlrm_vocabulary_learn(v, 1, &(dlrm_translation){keys, batch, rows});
        seconds += now() - start;
    }
    return 1e9 * seconds / (double)(BATCHES * batch);
}

static void fill(dlrm_vocabulary *v, int64_t n)
{
    for (int64_t at = 0; at < n; at += batch) {
        const int64_t m = n - at < batch ? n - at : batch;
        for (int64_t i = 0; i < m; i++) keys[i] = key_of(at + i);
        dlrm_vocabulary_learn(v, 1, &(dlrm_translation){keys, m, rows});
    }
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench_threads(int64_t capacity, int tables, int threads)
{
    const dlrm_table table = {.name = "t", .rows = capacity + 1, .capacity = capacity, .evict = DLRM_EVICT_LRU, .admission = 1};
    dlrm_vocabulary *v;
    dlrm_translation *inputs;
    dlrm_translation_job *jobs;
    double ms[BATCHES];
    if (dlrm_alloc(tables, sizeof *v, "tables", &v) != DLRM_OK || dlrm_alloc(tables, sizeof *inputs, "tables", &inputs) != DLRM_OK ||
        dlrm_alloc(tables, sizeof *jobs, "tables", &jobs) != DLRM_OK)
        return 1;
    for (int k = 0; k < tables; k++) {
        uint32_t *to;
        if (dlrm_vocabulary_open(&table, batch, &v[k]) != DLRM_OK || dlrm_alloc(batch, sizeof *to, "rows", &to) != DLRM_OK) return 1;
        fill(&v[k], capacity);
        inputs[k] = (dlrm_translation){keys, batch, to};
        jobs[k] = (dlrm_translation_job){.vocabulary = &v[k], .n = 1, .inputs = &inputs[k]};
    }
    for (int b = 0; b < BATCHES; b++) {
        for (int64_t i = 0; i < batch; i++) keys[i] = key_of(draw(capacity, (uint64_t)(b * batch + i), true));
        const double start = dlrm_now();
        dlrm_translate(tables, jobs, true, threads);
        ms[b] = 1e3 * (dlrm_now() - start);
    }
    qsort(ms, BATCHES, sizeof *ms, rising);
    printf("%d tables, %d threads: median %.2f ms, least %.2f ms, %.1f ns a key\n", tables, threads, ms[BATCHES / 2], ms[0],
           1e6 * ms[BATCHES / 2] / (double)(batch * tables));
    return 0;
}

int main(int argc, char **argv)
{
    const int64_t capacity = argc > 1 ? atoll(argv[1]) : 0;
    batch = argc > 2 ? atoll(argv[2]) : 65536;
    if (capacity < 1 || batch < 1) return fprintf(stderr, "usage: bench_vocabulary CAPACITY [BATCH [TABLES THREADS]]\n"), 2;
    if (dlrm_alloc(batch, sizeof *keys, "keys", &keys) != DLRM_OK || dlrm_alloc(batch, sizeof *rows, "rows", &rows) != DLRM_OK) return 1;
    if (argc > 4) return bench_threads(capacity, atoi(argv[3]), atoi(argv[4]));
    static const dlrm_evict evicts[] = {DLRM_EVICT_NONE, DLRM_EVICT_LRU, DLRM_EVICT_LFU};
    static const char *const names[] = {"none", "lru", "lfu"};
    for (int k = 0; k < 3; k++) {
        const dlrm_table table = {.name = "t", .rows = capacity + 1, .capacity = capacity, .evict = evicts[k], .admission = 1};
        dlrm_vocabulary v;
        if (dlrm_vocabulary_open(&table, batch, &v) != DLRM_OK) return fprintf(stderr, "%s\n", dlrm_error_message()), 1;
        const double start = now();
        fill(&v, capacity);
        printf("evict %-4s  %.1f bytes a key | new keys %.0f ns", names[k], (double)dlrm_vocabulary_memory(&table, batch) / (double)capacity,
               1e9 * (now() - start) / (double)capacity);
        printf(" | known keys %.1f ns", run(&v, capacity, 0, 0));
        printf(" | power law over 8 times as many %.1f ns", run(&v, 8 * capacity, 1 << 30, 1));
        printf(" | %s %.1f ns\n", k ? "new keys, each takes another's row," : "unknown keys", run(&v, 0, 2 * capacity, -1));
        dlrm_vocabulary_close(&v);
    }
    dlrm_free(&keys);
    dlrm_free(&rows);
    return 0;
}
