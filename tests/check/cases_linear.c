/* linear_forward, linear_backward, and the weights they use. Where x is to come out of a ReLU, a layer before makes it.
 */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

typedef struct linear_case {
    int64_t B;
    int rank, ranks, chunks; /* chunks: of pinned mode */
    int64_t in, out;
    bool relu, no_dx;
    draw data;
    bool no_bias, add_dx;
    const char *why;
} linear_case;

static const linear_case cases[] = {
    {1, 0, 1, 1, 1, 1, false, false, SIGNED, false, false, "smallest"},
    {1, 0, 1, 32, 13, 17, true, false, SIGNED, false, false, "batch 1: all leaves but one are empty"},
    {2, 1, 3, 32, 5, 3, true, false, SIGNED, false, false, "batch smaller than the ranks: this one may have no sample"},
    {0, 0, 1, 4, 9, 7, false, false, SIGNED, false, false, "no sample at all: gradients are zeros"},
    {17, 0, 1, 4, 17, 33, true, false, SIGNED, false, false, "odd sizes"},
    {17, 0, 1, 32, 33, 17, false, true, SIGNED, false, false, "fewer samples than leaves; no input gradient (first layer)"},
    {64, 0, 1, 8, 16, 64, true, false, SIGNED, false, false, "everything divides"},
    {65, 2, 4, 32, 64, 65, true, false, SIGNED, false, false, "a rank in the middle: several nodes"},
    {61, 6, 7, 32, 31, 47, false, false, SIGNED, false, false, "the last of seven ranks"},
    {90, 0, 1, 16, 13, 512, true, true, RELU, false, false, "bottom layer: K = 13"},
    {70, 0, 1, 32, 479, 130, true, false, RELU, false, false, "above one tile of 64, 128 outputs"},
    {96, 0, 1, 4, 256, 1, false, false, RELU, false, false, "the logit: one output"},
    {40, 0, 1, 2, 1, 300, true, false, SIGNED, false, false, "one input"},
    {9, 0, 1, 2, 1024, 257, true, false, RELU, false, false, "just above 256 outputs, widest input"},
    {96, 0, 1, 32, 24, 40, false, false, WIDE, false, false, "values of many magnitudes"},
    {128, 0, 1, 8, 32, 32, false, false, INTEGERS, false, false, "integers: exact sums"},
    {3000, 0, 1, 32, 3, 5, false, false, POSITIVE, false, false, "long sums over samples"},
    {50, 0, 1, 8, 40, 6, false, false, SIGNED, true, true, "a cross layer's first product: no bias, added input gradient"},
    {65, 1, 3, 32, 300, 16, false, false, SIGNED, true, true, "the same: several nodes"},
    {33, 0, 1, 4, 21, 1, false, false, SIGNED, true, true, "the same: of rank 1"},
    {0, 0, 1, 4, 9, 7, false, false, SIGNED, true, true, "the same: no sample at all"},
    {30, 0, 1, 4, 12, 300, true, false, SIGNED, false, true, "added input gradient alone"},
};
enum { CASES = sizeof cases / sizeof *cases };

/* What both directions share. */
typedef struct setting {
    const linear_case *c;
    bool two_calls; /* backward: dx and dbias first, then dw */
    const dlrm_cut *cut;
    int64_t b;
    layer own;
    void *x; /* on the backend */
    const double *x_ref, *w_ref;
    double operands;
} setting;

/* Outputs of a layer: activations, but logits are fp32. */
static void *output(harness *h, const char *name, int64_t b, int64_t width)
{
    return width == 1 ? h_output(h, name, b) : h_act_output(h, name, b, width);
}

/* A layer of 8 inputs, whose ReLU leaves about half of x at 0. */
static void x_from_relu(harness *h, setting *s, const layer *before)
{
    dlrm_backend *be = h_backend(h);
    const float *x0 = h_draw_act(h, s->b * before->in, SIGNED);
    s->x = h_act_output(h, "x", s->b, s->c->in);
    const dlrm_linear_forward_args args = {.b = s->b,
                                           .in = before->in,
                                           .out = before->out,
                                           .x = h_act_input(h, "x0", x0, s->b, before->in),
                                           .w = before->at_w,
                                           .bias = before->at_bias,
                                           .y = s->x,
                                           .relu = true,
                                           .cut = s->cut};
    be->ops->linear_forward(be, &args);
    s->x_ref = h_fetch(h, s->x);
}

static void forward(harness *h, const setting *s)
{
    dlrm_backend *be = h_backend(h);
    const linear_case *c = s->c;
    void *y = output(h, "y", s->b, c->out);
    const dlrm_linear_forward_args args = {.b = s->b,
                                           .in = c->in,
                                           .out = c->out,
                                           .x = s->x,
                                           .w = s->own.at_w,
                                           .y = y,
                                           .bias = c->no_bias ? NULL : s->own.at_bias,
                                           .relu = c->relu,
                                           .cut = s->cut};
    be->ops->linear_forward(be, &args);
    double *ref = h_doubles(h, s->b * c->out), *tol = h_doubles(h, s->b * c->out);
    ref_linear_forward(s->b, c->in, c->out, s->x_ref, s->w_ref, c->no_bias ? NULL : h_widen(h, s->own.bias, c->out),
                       c->relu, s->operands, ref, tol);
    h_compare(h, y, ref, tol);
}

/* One node's gradients in the layout of the weights: padding is 0, and what lies between nodes is not to be written,
 * nor, without a bias, its place. */
static void node_layout(const setting *s, int64_t rows, int64_t pitch, const double *dw, const double *dbias,
                        double gap, double *out)
{
    const linear_case *c = s->c;
    for (int64_t o = 0; o < rows; o++)
        for (int64_t i = 0; i < pitch; i++) *out++ = o < c->out && i < c->in ? dw[o * c->in + i] : 0;
    for (int64_t o = 0; o < rows; o++) *out++ = c->no_bias ? gap : o < c->out ? dbias[o] : 0;
    *out = gap;
}

static void backward(harness *h, const setting *s)
{
    dlrm_backend *be = h_backend(h);
    const linear_case *c = s->c;
    const int64_t rows = dlrm_pitch(be, (int)c->out), pitch = dlrm_pitch(be, (int)c->in), weights = c->in * c->out;
    const int64_t stride = rows * (pitch + 1) + 1, n = s->cut->n_nodes * stride;
    const draw kind = c->data == INTEGERS ? INTEGERS : SIGNED;
    const float *dz = c->out == 1 ? h_draw(h, s->b, kind) : h_draw_act(h, s->b * c->out, kind);
    const double *dz_ref = h_widen(h, dz, s->b * c->out);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n), *before = h_doubles(h, n), *dw = h_doubles(h, weights),
           *tol_w = h_doubles(h, weights), *dbias = h_doubles(h, c->out), *tol_bias = h_doubles(h, c->out),
           *nan = h_doubles(h, weights + c->out);
    float *start = h_host(h, n, sizeof *start);
    for (int64_t i = 0; i < weights + c->out; i++) nan[i] = NAN;
    for (int i = 0; i < s->cut->n_nodes; i++) {
        const dlrm_node *node = &s->cut->node[i];
        const int64_t at = s->cut->at[node->leaf], end = s->cut->at[node->leaf + (1 << node->level)];
        ref_linear_weight_gradient(end - at, c->in, c->out, s->x_ref + at * c->in, dz_ref + at * c->out, s->operands,
                                   dw, tol_w, dbias, tol_bias);
        node_layout(s, rows, pitch, dw, dbias, NAN, ref + i * stride);
        node_layout(s, rows, pitch, tol_w, tol_bias, 0, tol + i * stride);
        node_layout(s, rows, pitch, nan, nan, NAN, before + i * stride);
    }
    for (int64_t i = 0; i < n; i++) start[i] = (float)before[i];
    float *nodes = h_inout(h, "dw and dbias", start, n);
    const float *dx_before = c->add_dx ? h_draw_act(h, s->b * c->in, kind) : NULL;
    void *dx = c->no_dx    ? NULL
               : c->add_dx ? h_act_inout(h, "dx", dx_before, s->b, c->in)
                           : h_act_output(h, "dx", s->b, c->in);
    dlrm_linear_backward_args args = {.b = s->b,
                                            .in = c->in,
                                            .out = c->out,
                                            .x = s->x,
                                            .w = s->own.at_w,
                                            .dz = c->out == 1 ? h_input(h, "dz", dz, s->b, sizeof *dz)
                                                              : h_act_input(h, "dz", dz, s->b, c->out),
                                            .dx = dx,
                                            .x_is_relu = c->data == RELU,
                                            .add_dx = c->add_dx,
                                            .dw = nodes,
                                            .dbias = c->no_bias ? NULL : nodes + rows * pitch,
                                            .node_stride = stride,
                                            .cut = s->cut};
    if (s->two_calls) {
        args.dw = NULL;
        be->ops->linear_backward(be, &args);
        args.dw = nodes;
        args.dx = NULL;
        args.dbias = NULL;
    }
    be->ops->linear_backward(be, &args);
    h_compare(h, nodes, ref, tol);
    if (!dx) return;
    double *ref_x = h_doubles(h, s->b * c->in), *tol_x = h_doubles(h, s->b * c->in);
    ref_linear_input_gradient(s->b, c->in, c->out, s->x_ref, c->data == RELU, s->w_ref, dz_ref,
                              c->add_dx ? h_widen(h, dx_before, s->b * c->in) : NULL, s->operands, ref_x, tol_x);
    h_compare(h, dx, ref_x, tol_x);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    enum { BEFORE = 8 };
    const linear_case *c = &cases[number / 2];
    const draw kind = c->data == INTEGERS ? INTEGERS : SIGNED;
    const draw data = c->data == WIDE && h_backend(h)->act == DLRM_FP16 ? SIGNED : c->data; /* sums would be infinite */
    dlrm_cut *cut = h_host(h, 1, sizeof *cut);
    dlrm_cut_make(c->B, c->rank, c->ranks, h_pinned(h), c->chunks, cut);
    setting s = {.c = c, .two_calls = number % 2, .cut = cut, .b = cut->at[cut->n_leaves], .operands = h_operand_rounding(h, true)};
    snprintf(label, bytes, "b %lld, in %lld, out %lld (%s)%s", (long long)s.b, (long long)c->in, (long long)c->out,
             c->why, s.two_calls ? ", backward in two calls" : "");
    const bool relu = data == RELU;
    layer layers[] = {
        {.out = c->in, .in = BEFORE, .w = h_draw(h, c->in * BEFORE, SIGNED), .bias = h_draw(h, c->in, SIGNED)},
        {.out = c->out,
         .in = c->in,
         .w = h_draw(h, c->in * c->out, relu ? SIGNED : data),
         .bias = h_draw(h, c->out, kind)}};
    h_layers(h, relu ? layers : layers + 1, relu ? 2 : 1);
    s.own = layers[1];
    s.w_ref = h_widen(h, s.own.w, c->in * c->out);
    if (relu)
        x_from_relu(h, &s, &layers[0]);
    else {
        const float *x = h_draw_act(h, s.b * c->in, data);
        s.x = h_act_input(h, "x", x, s.b, c->in);
        s.x_ref = h_widen(h, x, s.b * c->in);
    }
    forward(h, &s);
    backward(h, &s);
}

const family linear_family = {
    "linear",
    {SLOT(linear_forward), SLOT(linear_backward), SLOT(weights_open), SLOT(weights_changed)},
    true,
    2 * CASES,
    run};
