#include "buffers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#ifdef DLRM_CUDA
#include "cuda/engine.h"
#endif

enum { MOST_SLOTS = 64, NOT_RUN = 77 /* what Meson shows as skipped */ };

/* A backend's subjects have names that begin with its own. */
static const subject subjects[] = {
    {"cpu", dlrm_cpu_backend_open, DLRM_FP32, 1, false, 0},
    {"cpu, 3 threads", dlrm_cpu_backend_open, DLRM_FP32, 3, false, 0},
    {"cpu pinned", dlrm_cpu_backend_open, DLRM_FP32, 1, true, 1},
    {"cpu pinned, 3 threads", dlrm_cpu_backend_open, DLRM_FP32, 3, true, 1},
#ifdef DLRM_CUDA
    {"cuda", dlrm_cuda_backend_open, DLRM_FP32, 0, false, 2},
    {"cuda pinned", dlrm_cuda_backend_open, DLRM_FP32, 0, true, 3},
    {"cuda tf32", dlrm_cuda_backend_open, DLRM_TF32, 0, false, 4},
    {"cuda bf16", dlrm_cuda_backend_open, DLRM_BF16, 0, false, 5},
    {"cuda bf16 pinned", dlrm_cuda_backend_open, DLRM_BF16, 0, true, 6},
    {"cuda fp16", dlrm_cuda_backend_open, DLRM_FP16, 0, false, 7},
#endif
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, GROUPS = 8 };

static const family *const families[] = {&linear_family,    &cross_family, &interact_family,     &loss_family,
                                         &embedding_family, &rows_family, &join_family, &dense_update_family, &memory_family, &home_family,
                                         &pinned_family,    &step_family, &scale_family};
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
    const char *device, *op; /* op NULL: all */
    int number;              /* -1: all */
    int share, shares;       /* of the cases those whose number is share - 1 modulo shares */
    uint64_t seed;
} options;

static uint64_t run_once(harness *h, int number, uint64_t seed)
{
    h->seed = seed + 1000 * (uint64_t)number;
    h->drawn = 0;
    h->digest = 0xCBF29CE484222325u;
    h->label[0] = 0;
    h_open(h);
    h->family->run(h, number, h->label, sizeof h->label);
    h_end_case(h);
    h_close(h);
    return h->digest;
}

/* digests[number]: of the group's first subject, 0 before it ran. */
static int run_family(const family *f, const subject *s, const options *o, uint64_t *digests)
{
    static harness h;
    int64_t blocks = dlrm_mem_live_blocks();
    h = (harness){.subject = s, .family = f};
    for (int i = 0; i < f->n_cases; i++) {
        if ((o->number >= 0 && o->number != i) || i % o->shares != o->share - 1) continue;
        h.case_failures = 0;
        uint64_t first = run_once(&h, i, o->seed), second = run_once(&h, i, o->seed);
        if (first != second) h_fail(&h, "two runs differ in their bits");
        if (digests[i] && digests[i] != first && (s->pinned || !f->cut_by_threads))
            h_fail(&h, "the bits differ from those with another number of threads");
        if (!digests[i]) digests[i] = first;
        if (h.case_failures)
            printf("  again: --device %s --op %s --case %d --seed %llu\n", o->device, f->name, i,
                   (unsigned long long)o->seed);
    }
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

/* Whether there is a GPU to test; says why not. */
static bool have_cuda(void)
{
#ifdef DLRM_CUDA
    char why[300];
    if (dlrm_cuda_devices(why, sizeof why) > 0) return true;
#else
    static const char why[] = "not in this build";
#endif
    printf("not run: no GPU (%s)\n", why);
    return false;
}

static int usage(void)
{
    fprintf(stderr, "usage: check_ops [--device cpu|cuda] [--op FAMILY] [--case NUMBER] [--share K/N] [--seed NUMBER]\nfamilies:");
    for (int f = 0; f < FAMILIES; f++) fprintf(stderr, " %s", families[f]->name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    options o = {.device = "cpu", .number = -1, .share = 1, .shares = 1, .seed = 1};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return usage();
        if (strcmp(argv[i], "--device") == 0)
            o.device = argv[i + 1];
        else if (strcmp(argv[i], "--op") == 0)
            o.op = argv[i + 1];
        else if (strcmp(argv[i], "--case") == 0)
            o.number = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--share") == 0 && sscanf(argv[i + 1], "%d/%d", &o.share, &o.shares) == 2 && o.share >= 1 && o.share <= o.shares)
            continue;
        else if (strcmp(argv[i], "--seed") == 0)
            o.seed = strtoull(argv[i + 1], NULL, 10);
        else
            return usage();
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(o.device, "cpu") != 0 && !have_cuda()) return NOT_RUN;
    int failures = check_coverage() + check_gradients(), ran = 0;
    for (int f = 0; f < FAMILIES; f++) {
        if (o.op && strcmp(o.op, families[f]->name) != 0) continue;
        uint64_t *digests;
        int configurations = 0;
        if (dlrm_alloc(GROUPS * families[f]->n_cases, sizeof *digests, "digests", &digests) != DLRM_OK) return 1;
        for (int s = 0; s < SUBJECTS; s++) {
            if (strncmp(subjects[s].name, o.device, strlen(o.device)) != 0) continue;
            failures += run_family(families[f], &subjects[s], &o, digests + subjects[s].group * families[f]->n_cases);
            configurations++;
        }
        dlrm_free(&digests);
        printf("%s: %d cases on %d configurations", families[f]->name, families[f]->n_cases, configurations);
        if (o.shares > 1) printf(", of which this is share %d of %d", o.share, o.shares);
        printf("\n");
        ran += configurations;
    }
    if (!ran) return usage();
    printf("%d failures\n", failures);
    return failures != 0;
}
