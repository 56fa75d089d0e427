/* How fast the linked GEMM library is at an MLP's shapes, and hence how long the products of one training step take: for
 * each layer the forward product, the input gradient (not of the first layer of a stack named `-N`) and the weight
 * gradient, in calls of CHUNK rows, each on one thread, calls spread over THREADS threads.
 *
 *   bench_gemm BATCH THREADS CHUNK WIDTHS...     e.g. bench_gemm 2048 2 1024 -13-512-256-64-16 367-512-256-1
 *
 * Best of several repetitions; the last line is the sum, in milliseconds. */
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/gemm.h"
#include "base/log.h"
#include "base/mem.h"

enum { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, KINDS };

typedef struct shape {
    int64_t batch, chunk, in, out;
    int threads;
} shape;

static dlrm_status fill(int64_t n, const char *what, float **out)
{
    TRY(dlrm_alloc(n, sizeof(float), what, out));
    for (int64_t i = 0; i < n; i++) (*out)[i] = (float)((i * 2654435761) >> 8 & 0xffff) * 0x1p-16f - 0.5f;
    return DLRM_OK;
}

static double once(const shape *s, int kind, float *x, float *w, float *y, float *dw)
{
    double start = dlrm_now();
#pragma omp parallel for num_threads(s->threads) schedule(dynamic)
    for (int64_t at = 0; at < s->batch; at += s->chunk) {
        int64_t rows = s->batch - at < s->chunk ? s->batch - at : s->chunk;
        float *xc = x + at * s->in, *yc = y + at * s->out;
        if (kind == FORWARD) dlrm_gemm(false, true, rows, s->out, s->in, xc, s->in, w, s->in, 0, yc, s->out);
        if (kind == INPUT_GRADIENT) dlrm_gemm(false, false, rows, s->in, s->out, yc, s->out, w, s->in, 0, xc, s->in);
        if (kind == WEIGHT_GRADIENT)
            dlrm_gemm(true, false, s->out, s->in, rows, yc, s->out, xc, s->in, 0, dw + omp_get_thread_num() * s->in * s->out, s->in);
    }
    return dlrm_now() - start;
}

static dlrm_status measure(const shape *s, double best[KINDS])
{
    float *x = NULL, *w = NULL, *y = NULL, *dw = NULL;
    dlrm_status st;
    TRY_TO(end, st, fill(s->batch * s->in, "inputs", &x));
    TRY_TO(end, st, fill(s->out * s->in, "weights", &w));
    TRY_TO(end, st, fill(s->batch * s->out, "outputs", &y));
    TRY_TO(end, st, fill(s->threads * s->out * s->in, "weight gradients", &dw));
    for (int kind = 0; kind < KINDS; kind++) {
        double spent = best[kind] = once(s, kind, x, w, y, dw); /* the first one warms up */
        for (int n = 0; n < 5 || (n < 200 && spent < 0.2); n++) {
            double t = once(s, kind, x, w, y, dw);
            spent += t;
            if (t < best[kind]) best[kind] = t;
        }
    }
end:
    dlrm_free(&x);
    dlrm_free(&w);
    dlrm_free(&y);
    dlrm_free(&dw);
    return st;
}

/* A positive number at *text, which moves behind it and one `-`; 0: none there. */
static int64_t number(const char **text)
{
    char *end;
    errno = 0;
    long long v = strtoll(*text, &end, 10);
    if (end == *text || errno || v < 1 || v > 1 << 24 || (*end != '-' && *end != '\0') || (*end && !end[1])) return 0;
    *text = *end ? end + 1 : end;
    return v;
}

int main(int argc, char **argv)
{
    shape s = {0};
    for (int i = 1; i <= 3 && argc > 4; i++) {
        const char *text = argv[i];
        int64_t v = number(&text);
        if (i == 1) s.batch = v;
        if (i == 2) s.threads = (int)v;
        if (i == 3) s.chunk = v;
    }
    if (!s.batch || !s.threads || !s.chunk) {
        fputs("usage: bench_gemm BATCH THREADS CHUNK WIDTHS...\n", stderr);
        return 2;
    }
    dlrm_gemm_init();
    printf("%s, batch %lld, %d thread(s), calls of %lld rows; GFLOP/s\n%14s %9s %9s %9s\n", dlrm_gemm_name, (long long)s.batch,
           s.threads, (long long)s.chunk, "layer", "forward", "dX", "dW");
    double total = 0, flops = 0;
    for (int i = 4; i < argc; i++) {
        const char *text = argv[i];
        bool first = *text == '-'; /* nothing lies before this stack: no input gradient of its first layer */
        if (first) text++;
        if ((s.in = number(&text)) == 0 || !*text) return fprintf(stderr, "bench_gemm: '%s' is no list of widths\n", argv[i]), 2;
        while (*text) {
            if ((s.out = number(&text)) == 0) return fprintf(stderr, "bench_gemm: '%s' is no list of widths\n", argv[i]), 2;
            double best[KINDS], one = 2.0 * (double)s.batch * (double)s.in * (double)s.out;
            dlrm_status st = measure(&s, best);
            if (st != DLRM_OK) return dlrm_error_line(dlrm_error_message()), st;
            if (first) best[INPUT_GRADIENT] = 0;
            total += best[FORWARD] + best[INPUT_GRADIENT] + best[WEIGHT_GRADIENT];
            flops += one * (first ? 2 : 3);
            printf("%6lld ->%5lld %9.1f %9.1f %9.1f\n", (long long)s.in, (long long)s.out, 1e-9 * one / best[FORWARD],
                   first ? 0 : 1e-9 * one / best[INPUT_GRADIENT], 1e-9 * one / best[WEIGHT_GRADIENT]);
            s.in = s.out;
            first = false;
        }
    }
    printf("%.2f GFLOP at %.1f GFLOP/s\n%.3f\n", 1e-9 * flops, 1e-9 * flops / total, 1e3 * total);
    return 0;
}
