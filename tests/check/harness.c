#include "harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { GUARD = 64 /* bytes before and behind */, MOST_BUFFERS = 128, MOST_BLOCKS = 1024, MOST_SLOTS = 64 };
static const unsigned char CANARY = 0xC5;

typedef enum role { INPUT, INOUT, OUTPUT } role;

typedef struct buffer {
    const char *name;
    role role;
    char *device;          /* the guarded block; the data follow the first guard */
    unsigned char *before; /* INPUT: as uploaded */
    int64_t n;
    size_t bytes;
} buffer;

/* Configurations of one backend. Those of a group must agree in every bit. */
typedef struct subject {
    const char *name;
    dlrm_status (*open)(const dlrm_backend_args *, dlrm_backend *);
    int threads;
    bool pinned;
    int group;
} subject;

static const subject subjects[] = {
    {"cpu", dlrm_cpu_backend_open, 1, false, 0},
    {"cpu, 3 threads", dlrm_cpu_backend_open, 3, false, 0},
    {"cpu pinned", dlrm_cpu_backend_open, 1, true, 1},
    {"cpu pinned, 3 threads", dlrm_cpu_backend_open, 3, true, 1},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static const family *const families[] = {&linear_family,       &interact_family, &loss_family,  &embedding_family,
                                         &dense_update_family, &memory_family,   &pinned_family};
enum { FAMILIES = sizeof families / sizeof *families };

struct harness {
    dlrm_backend be;
    const subject *subject;
    const family *family;
    char label[200];
    uint64_t seed, drawn; /* random numbers used by this case */
    int n_buffers, n_blocks;
    buffer buffers[MOST_BUFFERS];
    void *blocks[MOST_BLOCKS];
    uint64_t digest; /* of everything compared in this case */
    int failures, case_failures;
};

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

static void must(dlrm_status st)
{
    if (st == DLRM_OK) return;
    printf("FAILED: %s\n", dlrm_error_message());
    exit(1);
}

static void hash(harness *h, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) h->digest = (h->digest ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
}

/* --- host memory --- */

void *h_host(harness *h, int64_t n, size_t size)
{
    DLRM_ASSERT(h->n_blocks < MOST_BLOCKS);
    must(dlrm_alloc(n, size, "a case", &h->blocks[h->n_blocks]));
    return h->blocks[h->n_blocks++];
}

double *h_doubles(harness *h, int64_t n)
{
    return h_host(h, n, sizeof(double));
}

double *h_widen(harness *h, const float *v, int64_t n)
{
    double *wide = h_doubles(h, n);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)v[i];
    return wide;
}

static uint32_t random_bits(harness *h)
{
    return dlrm_philox(h->seed, 7, h->drawn++).v[0];
}

float *h_draw(harness *h, int64_t n, draw kind)
{
    float *v = h_host(h, n, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        float u = dlrm_unit_float(random_bits(h)), s = 2 * u - 1;
        switch (kind) {
        case SIGNED: v[i] = s; break;
        case POSITIVE: v[i] = u; break;
        case RELU: v[i] = s > 0 ? s : 0; break;
        case WIDE: v[i] = s * exp2f((float)(random_bits(h) % 24) - 12); break;
        case INTEGERS: v[i] = floorf(u * 17) - 8; break;
        }
    }
    return v;
}

int64_t h_integer(harness *h, int64_t below)
{
    return (int64_t)(random_bits(h) % (uint64_t)below);
}

/* --- backend memory --- */

static void *add_buffer(harness *h, const char *name, role r, const void *values, int64_t n, size_t size)
{
    DLRM_ASSERT(h->n_buffers < MOST_BUFFERS);
    buffer *b = &h->buffers[h->n_buffers++];
    *b = (buffer){.name = name, .role = r, .n = n, .bytes = (size_t)n * size};
    unsigned char *image = malloc(b->bytes + 2 * GUARD);
    DLRM_ASSERT(image);
    memset(image, CANARY, b->bytes + 2 * GUARD);
    for (int64_t i = 0; r == OUTPUT && i < n; i++) memcpy(image + GUARD + i * 4, &(float){NAN}, 4);
    if (values && b->bytes) memcpy(image + GUARD, values, b->bytes);
    must(h->be.ops->alloc(&h->be, (int64_t)b->bytes + 2 * GUARD, 1, name, &b->device));
    h->be.ops->upload(&h->be, b->device, image, b->bytes + 2 * GUARD);
    if (r == INPUT)
        b->before = image;
    else
        free(image);
    return b->device + GUARD;
}

void *h_input(harness *h, const char *name, const void *values, int64_t n, size_t size)
{
    return add_buffer(h, name, INPUT, values, n, size);
}

float *h_inout(harness *h, const char *name, const float *values, int64_t n)
{
    return add_buffer(h, name, INOUT, values, n, sizeof *values);
}

float *h_output(harness *h, const char *name, int64_t n)
{
    return add_buffer(h, name, OUTPUT, NULL, n, sizeof(float));
}

static const buffer *find_buffer(const harness *h, const void *data)
{
    for (int i = 0; i < h->n_buffers; i++)
        if (h->buffers[i].device + GUARD == data) return &h->buffers[i];
    DLRM_ASSERT(!"a buffer of this case");
    return NULL;
}

const float *h_fetch(harness *h, const float *data)
{
    const buffer *b = find_buffer(h, data);
    float *v = h_host(h, (int64_t)b->bytes, 1);
    h->be.ops->download(&h->be, v, data, b->bytes);
    return v;
}

static void check_guards(harness *h, const buffer *b)
{
    unsigned char *now = malloc(b->bytes + 2 * GUARD);
    DLRM_ASSERT(now);
    h->be.ops->download(&h->be, now, b->device, b->bytes + 2 * GUARD);
    for (size_t i = 0; i < GUARD; i++) {
        if (now[i] != CANARY) h_fail(h, "%s: written %zu bytes before its begin", b->name, GUARD - i);
        if (now[GUARD + b->bytes + i] != CANARY) h_fail(h, "%s: written %zu bytes behind its end", b->name, i + 1);
    }
    if (b->before && memcmp(now, b->before, b->bytes + 2 * GUARD) != 0) h_fail(h, "%s: an input was changed", b->name);
    free(now);
}

static void clear_case(harness *h)
{
    while (h->n_buffers > 0) {
        buffer *b = &h->buffers[--h->n_buffers];
        check_guards(h, b);
        h->be.ops->release(&h->be, &b->device);
        free(b->before);
    }
    while (h->n_blocks > 0) dlrm_free(&h->blocks[--h->n_blocks]);
}

/* --- comparing --- */

static void compare_one(harness *h, const char *name, int64_t i, double got, double ref, double tol)
{
    if (isnan(ref) ? isnan(got) : fabs(got - ref) <= tol || got == ref) return;
    h_fail(h, "%s[%lld]: got %.9g, reference %.9g, off by %.3g = %.3g tolerances", name, (long long)i, got, ref, fabs(got - ref),
           fabs(got - ref) / tol);
}

void h_compare(harness *h, const float *data, const double *ref, const double *tol)
{
    const buffer *b = find_buffer(h, data);
    const float *got = h_fetch(h, data);
    hash(h, got, b->bytes);
    for (int64_t i = 0; i < b->n; i++) compare_one(h, b->name, i, (double)got[i], ref[i], tol[i]);
}

void h_compare_doubles(harness *h, const char *name, const double *got, int64_t n, const double *ref, const double *tol)
{
    hash(h, got, (size_t)n * sizeof *got);
    for (int64_t i = 0; i < n; i++) compare_one(h, name, i, got[i], ref[i], tol[i]);
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
    clear_case(h);
    return h->digest;
}

/* digests[number]: of the group's first subject, 0 before it ran. */
static int run_family(const family *f, const subject *s, const options *o, uint64_t *digests)
{
    static harness h;
    int64_t blocks = dlrm_mem_live_blocks();
    h = (harness){.subject = s, .family = f};
    const dlrm_backend_args args = {
        .threads = s->threads, .pinned = s->pinned, .max_width = 1024, .max_leaves = 64, .max_slots = 40, .max_vector = 300};
    must(s->open(&args, &h.be));
    for (int i = 0; i < f->n_cases; i++) {
        if (o->number >= 0 && o->number != i) continue;
        h.case_failures = 0;
        uint64_t first = run_once(&h, i, o->seed), second = run_once(&h, i, o->seed);
        if (first != second) h_fail(&h, "two runs differ in their bits");
        if (digests[i] && digests[i] != first && (s->pinned || !f->cut_by_threads)) h_fail(&h, "the bits differ from those with another number of threads");
        if (!digests[i]) digests[i] = first;
        if (h.case_failures) printf("  again: --op %s --case %d --seed %llu\n", f->name, i, (unsigned long long)o->seed);
    }
    h.be.ops->close(&h.be);
    if (dlrm_mem_live_blocks() != blocks) {
        printf("FAILED %s on %s: %lld blocks of memory are left\n", f->name, s->name,
               (long long)(dlrm_mem_live_blocks() - blocks));
        h.failures++;
    }
    return h.failures;
}

/* The op table is a name and function pointers: each of these has cases. */
static int check_coverage(void)
{
    int missing = 0;
    bool covered[MOST_SLOTS] = {true};
    size_t n = sizeof(dlrm_backend_ops) / sizeof(void *);
    DLRM_ASSERT(n <= MOST_SLOTS && offsetof(dlrm_backend_ops, name) == 0);
    for (int f = 0; f < FAMILIES; f++)
        for (size_t k = 0; k < sizeof families[f]->slots / sizeof(op_slot); k++)
            if (families[f]->slots[k].name) covered[families[f]->slots[k].at / sizeof(void *)] |= families[f]->n_cases > 0;
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
        for (int g = 0; g < 2; g++) must(dlrm_alloc(families[f]->n_cases, sizeof(uint64_t), "digests", &digests[g]));
        for (int s = 0; s < SUBJECTS; s++) failures += run_family(families[f], &subjects[s], &o, digests[subjects[s].group]);
        for (int g = 0; g < 2; g++) dlrm_free(&digests[g]);
        printf("%s: %d cases on %d configurations\n", families[f]->name, families[f]->n_cases, SUBJECTS);
        ran++;
    }
    if (!ran) return usage();
    printf("%d failures\n", failures);
    return failures != 0;
}
