/* join: parts side by side, parts that are added, means, and their gradients. */
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "ref.h"

enum { MOST_PARTS = 40, MOST_VECTORS = 4, WIRES = 3 };
static const dlrm_dtype wires[WIRES] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};
static const char *const wire_names[WIRES] = {"fp32", "bf16", "fp16"};

static const struct {
    int64_t b;
    int n; /* vectors */
    struct {
        int width, columns, adds; /* in so many pieces side by side, each of so many parts that are added */
        bool mean;                /* and, where vectors have 16 bits, parts of fp32 */
    } vectors[MOST_VECTORS];
    const char *why;
} cases[] = {
    {1, 1, {{1, 1, 1, false}}, "smallest"},
    {0, 1, {{4, 2, 1, false}}, "no sample"},
    {33, 1, {{128, 4, 1, false}}, "columns"},
    {17, 2, {{5, 3, 1, false}, {16, 1, 7, false}}, "columns of odd widths; rows"},
    {100, 3, {{8, 1, 8, true}, {3, 1, 2, false}, {24, 2, 3, true}}, "means"},
};
enum { CASES = sizeof cases / sizeof *cases };

static void run(harness *h, int number, char *label, size_t bytes)
{
    dlrm_backend *be = h_backend(h);
    const dlrm_dtype wire = wires[number % WIRES];
    const int64_t size = (int64_t)dlrm_dtype_bytes(wire);
    dlrm_join_part parts[MOST_PARTS];
    dlrm_join_vector vectors[MOST_VECTORS];
    const double *data[MOST_PARTS];
    int64_t strides[MOST_PARTS]; /* of data */
    int64_t *whole[MOST_VECTORS];
    number /= WIRES;
    const int64_t b = cases[number].b;
    dlrm_join_args a = {.wire = wire, .b = b, .parts = parts, .vectors = vectors};
    snprintf(label, bytes, "%s vectors, b %lld (%s)", wire_names[wire == DLRM_BF16 ? 1 : wire == DLRM_FP16 ? 2 : 0], (long long)b,
             cases[number].why);
    for (int v = 0; v < cases[number].n; v++) {
        const int pieces = cases[number].vectors[v].columns, width = cases[number].vectors[v].width;
        vectors[v] = (dlrm_join_vector){.first_part = a.n_parts, .column = a.width, .width = width};
        whole[v] = NULL;
        for (int k = 0, column = a.width; k < pieces; k++) {
            const int w = width / pieces + (k < width % pieces);
            for (int i = 0; i < cases[number].vectors[v].adds; i++) {
                const bool exact = cases[number].vectors[v].mean && size < (int64_t)sizeof(float);
                const dlrm_dtype type = exact ? DLRM_FP32 : wire;
                const int64_t stride = w + 3, skip = 2, type_size = (int64_t)dlrm_dtype_bytes(type); /* as in a row of a pooled matrix */
                float *values = h_draw_as(h, type, b * stride, SIGNED);
                char *in = h_input_as(h, "part", type, values, b * stride), *grad = h_output_as(h, "part's gradient", wire, b * w);
                data[a.n_parts] = h_widen(h, values + skip, b * stride > skip ? b * stride - skip : 0);
                strides[a.n_parts] = stride;
                parts[a.n_parts++] = (dlrm_join_part){.data = in + skip * type_size, .grad = grad, .stride = stride * type_size / size,
                                                      .grad_stride = w, .width = w, .column = column, .exact = exact};
            }
            column += w;
        }
        if (cases[number].vectors[v].mean) {
            whole[v] = h_host(h, b + 1, sizeof *whole[v]);
            for (int64_t s = 0; s < b; s++) whole[v][s + 1] = whole[v][s] + h_integer(h, 6);
            vectors[v].whole = h_input(h, "offsets", whole[v], b + 1, sizeof *whole[v]);
        }
        vectors[v].n_parts = a.n_parts - vectors[v].first_part;
        a.width += width;
        a.n_vectors++;
    }
    a.joined = h_output_as(h, "joined", wire, b * a.width);
    const float *d_joined = h_draw_as(h, wire, b * a.width, SIGNED);
    a.d_joined = h_input_as(h, "d_joined", wire, d_joined, b * a.width);
    be->ops->join_forward(be, &a);
    be->ops->join_backward(be, &a);

    double *ref = h_doubles(h, b * a.width), *tol = h_doubles(h, b * a.width);
    for (int v = 0; v < a.n_vectors; v++)
        for (int64_t s = 0; s < b; s++)
            for (int d = vectors[v].column; d < vectors[v].column + vectors[v].width; d++) {
                double sum = 0, magnitude = 0;
                int terms = 0;
                for (int i = vectors[v].first_part; i < vectors[v].first_part + vectors[v].n_parts; i++) {
                    if (d < parts[i].column || d >= parts[i].column + parts[i].width) continue;
                    const double x = data[i][s * strides[i] + d - parts[i].column];
                    sum += x;
                    magnitude += fabs(x);
                    terms++;
                }
                const int64_t n = whole[v] ? whole[v][s + 1] - whole[v][s] : 1;
                const double by = n > 1 ? (double)n : 1;
                ref[s * a.width + d] = sum / by;
                tol[s * a.width + d] = terms == 1 && by == 1 ? 0 : ref_bound(terms + 2, 0, magnitude / by, sum / by);
            }
    h_compare(h, a.joined, ref, tol);
    for (int i = 0; i < a.n_parts; i++) {
        double *grad = h_doubles(h, b * parts[i].width), *exact = h_doubles(h, b * parts[i].width);
        for (int64_t s = 0; s < b; s++)
            for (int d = 0; d < parts[i].width; d++) grad[s * parts[i].width + d] = d_joined[s * a.width + parts[i].column + d];
        h_compare(h, parts[i].grad, grad, exact);
    }
}

const family join_family = {"join", {SLOT(join_forward), SLOT(join_backward)}, false, CASES *WIRES, run};
