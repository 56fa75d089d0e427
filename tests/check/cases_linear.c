/* linear_forward, linear_backward. */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

typedef struct linear_case {
    int64_t B;
    int rank, ranks, chunks; /* chunks: of pinned mode */
    int64_t in, out;
    bool relu, no_dx;
    draw data;
    const char *why;
} linear_case;

static const linear_case cases[] = {
    {1, 0, 1, 1, 1, 1, false, false, SIGNED, "smallest"},
    {1, 0, 1, 32, 13, 17, true, false, SIGNED, "batch 1: all leaves but one are empty"},
    {2, 1, 3, 32, 5, 3, true, false, SIGNED, "batch smaller than the ranks: this one may have no sample"},
    {0, 0, 1, 4, 9, 7, false, false, SIGNED, "no sample at all: gradients are zeros"},
    {17, 0, 1, 4, 17, 33, true, false, SIGNED, "odd sizes"},
    {17, 0, 1, 32, 33, 17, false, true, SIGNED, "fewer samples than leaves; no input gradient (first layer)"},
    {64, 0, 1, 8, 16, 64, true, false, SIGNED, "everything divides"},
    {65, 2, 4, 32, 64, 65, true, false, SIGNED, "a rank in the middle: several nodes"},
    {61, 6, 7, 32, 31, 47, false, false, SIGNED, "the last of seven ranks"},
    {90, 0, 1, 16, 13, 512, true, true, RELU, "bottom layer: K = 13"},
    {70, 0, 1, 32, 479, 130, true, false, RELU, "above one tile of 64, 128 outputs"},
    {96, 0, 1, 4, 256, 1, false, false, RELU, "the logit: one output"},
    {40, 0, 1, 2, 1, 300, true, false, SIGNED, "one input"},
    {9, 0, 1, 2, 1024, 257, true, false, RELU, "just above 256 outputs, widest input"},
    {96, 0, 1, 32, 24, 40, false, false, WIDE, "values of many magnitudes"},
    {128, 0, 1, 8, 32, 32, false, false, INTEGERS, "integers: exact sums"},
    {3000, 0, 1, 32, 3, 5, false, false, POSITIVE, "long sums over samples"},
};
enum { CASES = sizeof cases / sizeof *cases };

static void forward(harness *h, const linear_case *c, const dlrm_cut *cut, const float *x, const float *w, const float *bias)
{
    int64_t b = cut->at[cut->n_leaves], n = b * c->out;
    float *y = h_output(h, "y", n);
    const dlrm_linear_forward_args args = {
        .b = b, .in = c->in, .out = c->out, .x = h_input(h, "x", x, b * c->in, sizeof *x),
        .w = h_input(h, "w", w, c->out * c->in, sizeof *w), .bias = h_input(h, "bias", bias, c->out, sizeof *bias),
        .y = y, .relu = c->relu, .cut = cut};
    h_backend(h)->ops->linear_forward(h_backend(h), &args);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n);
    ref_linear_forward(b, c->in, c->out, h_widen(h, x, b * c->in), h_widen(h, w, c->out * c->in), h_widen(h, bias, c->out),
                       c->relu, ref, tol);
    h_compare(h, y, ref, tol);
}

static void backward(harness *h, const linear_case *c, const dlrm_cut *cut, const float *x, const float *w, const float *dz)
{
    enum { GAP = 3 }; /* between nodes: not to be written */
    const int64_t b = cut->at[cut->n_leaves], weights = c->in * c->out, stride = weights + c->out + GAP;
    float *nodes = h_output(h, "dw and dbias", cut->n_nodes * stride), *dx = c->no_dx ? NULL : h_output(h, "dx", b * c->in);
    const dlrm_linear_backward_args args = {
        .b = b, .in = c->in, .out = c->out, .x = h_input(h, "x", x, b * c->in, sizeof *x),
        .w = h_input(h, "w", w, weights, sizeof *w), .dz = h_input(h, "dz", dz, b * c->out, sizeof *dz), .dx = dx,
        .x_is_relu = c->data == RELU, .dw = nodes, .dbias = nodes + weights, .node_stride = stride, .cut = cut};
    h_backend(h)->ops->linear_backward(h_backend(h), &args);

    const double *wide_x = h_widen(h, x, b * c->in), *wide_dz = h_widen(h, dz, b * c->out);
    double *ref = h_doubles(h, cut->n_nodes * stride), *tol = h_doubles(h, cut->n_nodes * stride);
    for (int i = 0; i < cut->n_nodes; i++) {
        int64_t at = cut->at[cut->node[i].leaf], end = cut->at[cut->node[i].leaf + (1 << cut->node[i].level)];
        double *r = ref + i * stride, *t = tol + i * stride;
        ref_linear_weight_gradient(end - at, c->in, c->out, wide_x + at * c->in, wide_dz + at * c->out, r, t, r + weights,
                                   t + weights);
        for (int k = 0; k < GAP; k++) r[weights + c->out + k] = NAN;
    }
    h_compare(h, nodes, ref, tol);
    if (!dx) return;
    ref = h_doubles(h, b * c->in);
    tol = h_doubles(h, b * c->in);
    ref_linear_input_gradient(b, c->in, c->out, wide_x, c->data == RELU, h_widen(h, w, weights), wide_dz, ref, tol);
    h_compare(h, dx, ref, tol);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    const linear_case *c = &cases[number];
    dlrm_cut *cut = h_host(h, 1, sizeof *cut);
    dlrm_cut_make(c->B, c->rank, c->ranks, h_pinned(h), c->chunks, cut);
    int64_t b = cut->at[cut->n_leaves];
    snprintf(label, bytes, "b %lld, in %lld, out %lld (%s)", (long long)b, (long long)c->in, (long long)c->out, c->why);
    const float *x = h_draw(h, b * c->in, c->data), *w = h_draw(h, c->in * c->out, c->data == RELU ? SIGNED : c->data),
                *bias = h_draw(h, c->out, SIGNED), *dz = h_draw(h, b * c->out, c->data == INTEGERS ? INTEGERS : SIGNED);
    if (c->data == INTEGERS) bias = h_draw(h, c->out, INTEGERS);
    forward(h, c, cut, x, w, bias);
    backward(h, c, cut, x, w, dz);
}

const family linear_family = {"linear", {SLOT(linear_forward), SLOT(linear_backward)}, true, CASES, run};
