#include "buffers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MOST_SLOTS = 64 };

static const subject subjects[] = {
    {"cpu", dlrm_cpu_backend_open, DLRM_FP32, 1, false, 0},
    {"cpu, 3 threads", dlrm_cpu_backend_open, DLRM_FP32, 3, false, 0},
    {"cpu pinned", dlrm_cpu_backend_open, DLRM_FP32, 1, true, 1},
    {"cpu pinned, 3 threads", dlrm_cpu_backend_open, DLRM_FP32, 3, true, 1},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static const family *const families[] = {&linear_family,       &interact_family, &loss_family,  &embedding_family,
                                         &dense_update_family, &memory_family,   &pinned_family};
enum { FAMILIES = sizeof families / sizeof *families };

dlrm_backend *h_backend(harness *h)
{
    return &h->be;
}

bool h_pinned(const harness *h)
{
    return h->subject->pinned;
}

void h_fail(harness *h, const char *fmt, ...)
{
    h->failures++;
    if (h->case_failures++ >= 3) return; /* the first few tell the story */
    va_list ap;
    va_start(ap, fmt);
    printf("FAILED %s, %s, on %s: ", h->family->name, h->label, h->subject->name);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

/* --- running --- */

typedef struct options {
    const char *op;
    int number; /* -1: all */
    uint64_t seed;
} options;

static uint64_t run_once(harness *h, int number, uint64_t seed)
{
    h->seed = seed + 1000 * (uint64_t)number;
    h->drawn = 0;
    h->digest = 0xCBF29CE484222325u;
    h->label[0] = 0;
    h->family->run(h, number, h->label, sizeof h->label);
    h_end_case(h);
    return h->digest;
}

/* digests[number]: of the group's first subject, 0 before it ran. */
static int run_family(const family *f, const subject *s, const options *o, uint64_t *digests)
{
    static harness h;
    int64_t blocks = dlrm_mem_live_blocks();
    h = (harness){.subject = s, .family = f};
    h_open(&h);
    for (int i = 0; i < f->n_cases; i++) {
        if (o->number >= 0 && o->number != i) continue;
        h.case_failures = 0;
        uint64_t first = run_once(&h, i, o->seed), second = run_once(&h, i, o->seed);
        if (first != second) h_fail(&h, "two runs differ in their bits");
        if (digests[i] && digests[i] != first && (s->pinned || !f->cut_by_threads))
            h_fail(&h, "the bits differ from those with another number of threads");
        if (!digests[i]) digests[i] = first;
        if (h.case_failures)
            printf("  again: --op %s --case %d --seed %llu\n", f->name, i, (unsigned long long)o->seed);
    }
    h_close(&h);
    if (dlrm_mem_live_blocks() != blocks) {
        printf("FAILED %s on %s: %lld blocks of memory are left\n", f->name, s->name,
               (long long)(dlrm_mem_live_blocks() - blocks));
        h.failures++;
    }
    return h.failures;
}

/* The op table is a name and function pointers: each of these must have cases. */
static int check_coverage(void)
{
    int missing = 0;
    bool covered[MOST_SLOTS] = {true};
    size_t n = sizeof(dlrm_backend_ops) / sizeof(void *);
    DLRM_ASSERT(n <= MOST_SLOTS && offsetof(dlrm_backend_ops, name) == 0);
    for (int f = 0; f < FAMILIES; f++)
        for (size_t k = 0; k < sizeof families[f]->slots / sizeof(op_slot); k++)
            if (families[f]->slots[k].name)
                covered[families[f]->slots[k].at / sizeof(void *)] |= families[f]->n_cases > 0;
    for (size_t i = 0; i < n; i++)
        if (!covered[i]) {
            printf("FAILED: member %zu of dlrm_backend_ops has no case\n", i);
            missing++;
        }
    return missing;
}

static int usage(void)
{
    fprintf(stderr, "usage: check_ops [--op FAMILY] [--case NUMBER] [--seed NUMBER]\nfamilies:");
    for (int f = 0; f < FAMILIES; f++) fprintf(stderr, " %s", families[f]->name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    options o = {.number = -1, .seed = 1};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return usage();
        if (strcmp(argv[i], "--op") == 0)
            o.op = argv[i + 1];
        else if (strcmp(argv[i], "--case") == 0)
            o.number = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            o.seed = strtoull(argv[i + 1], NULL, 10);
        else
            return usage();
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    int failures = check_coverage() + check_gradients(), ran = 0;
    for (int f = 0; f < FAMILIES; f++) {
        if (o.op && strcmp(o.op, families[f]->name) != 0) continue;
        uint64_t *digests[2];
        for (int g = 0; g < 2; g++)
            if (dlrm_alloc(families[f]->n_cases, sizeof(uint64_t), "digests", &digests[g]) != DLRM_OK) return 1;
        for (int s = 0; s < SUBJECTS; s++)
            failures += run_family(families[f], &subjects[s], &o, digests[subjects[s].group]);
        for (int g = 0; g < 2; g++) dlrm_free(&digests[g]);
        printf("%s: %d cases on %d configurations\n", families[f]->name, families[f]->n_cases, SUBJECTS);
        ran++;
    }
    if (!ran) return usage();
    printf("%d failures\n", failures);
    return failures != 0;
}
