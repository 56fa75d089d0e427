/* cross_forward, cross_backward; and the linear layer whose output's gradient cross_backward made: a backend may have
 * summed its columns there. */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

typedef struct cross_case {
    int64_t b;
    int width;
    bool add, first; /* dx0 has a value already; x is x0 */
    draw data;
    const char *why;
} cross_case;

static const cross_case cases[] = {
    {1, 2, false, false, SIGNED, "smallest"},
    {0, 9, true, false, SIGNED, "no sample"},
    {37, 13, false, false, SIGNED, "odd sizes: the last layer"},
    {37, 13, true, false, SIGNED, "a layer in between"},
    {37, 13, true, true, SIGNED, "the first layer"},
    {37, 16, false, true, SIGNED, "the only layer"},
    {300, 264, true, true, SIGNED, "more than a block of samples and of columns"},
    {257, 256, true, false, WIDE, "values of many magnitudes"},
    {40, 24, true, true, INTEGERS, "integers: exact"},
    {6, 1000, false, false, RELU, "zeros"},
};
enum { CASES = sizeof cases / sizeof *cases, RANK = 3 };

/* Bias gradient of the layer that made z. */
static void linear_before(harness *h, const cross_case *c, const layer *up, const void *dz)
{
    dlrm_backend *be = h_backend(h);
    const int64_t rows = dlrm_pitch(be, c->width), pitch = dlrm_pitch(be, RANK);
    dlrm_cut *cut = h_host(h, 1, sizeof *cut);
    dlrm_cut_make(c->b, 0, 1, h_pinned(h), 8, cut);
    float *zeros = h_host(h, rows * (pitch + 1), sizeof *zeros), *x = h_draw_act(h, c->b * RANK, c->data);
    float *sums = h_inout(h, "dw and dbias", zeros, rows * (pitch + 1));
    const dlrm_linear_backward_args args = {.b = c->b, .in = RANK, .out = c->width, .x = h_act_input(h, "h", x, c->b, RANK), .w = up->at_w,
                                            .dz = dz, .dx = h_act_output(h, "dh", c->b, RANK), .dw = sums, .dbias = sums + rows * pitch,
                                            .node_stride = rows * (pitch + 1), .cut = cut};
    be->ops->linear_backward(be, &args);
    const double *dz_ref = h_fetch(h, dz), *x_ref = h_widen(h, x, c->b * RANK);
    double *dw = h_doubles(h, (int64_t)c->width * RANK), *tol_w = h_doubles(h, (int64_t)c->width * RANK), *dbias = h_doubles(h, c->width),
           *tol_bias = h_doubles(h, c->width), *ref = h_doubles(h, rows * (pitch + 1)), *tol = h_doubles(h, rows * (pitch + 1));
    ref_linear_weight_gradient(c->b, RANK, c->width, x_ref, dz_ref, h_operand_rounding(h, true), dw, tol_w, dbias, tol_bias);
    for (int64_t o = 0; o < c->width; o++) {
        for (int64_t i = 0; i < RANK; i++) ref[o * pitch + i] = dw[o * RANK + i], tol[o * pitch + i] = tol_w[o * RANK + i];
        ref[rows * pitch + o] = dbias[o];
        tol[rows * pitch + o] = tol_bias[o];
    }
    h_compare(h, sums, ref, tol);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    const cross_case *c = &cases[number];
    dlrm_backend *be = h_backend(h);
    const int64_t n = c->b * c->width;
    const draw data = c->data == WIDE && be->act == DLRM_FP16 ? SIGNED : c->data; /* products would be infinite */
    snprintf(label, bytes, "b %lld, width %d (%s)", (long long)c->b, c->width, c->why);
    const float *x0 = h_draw_act(h, n, data), *x = c->first ? x0 : h_draw_act(h, n, data), *z = h_draw_act(h, n, data),
                *dy = h_draw_act(h, n, data), *before = h_draw_act(h, n, data);
    layer up = {.out = c->width, .in = RANK, .w = h_draw(h, (int64_t)c->width * RANK, SIGNED), .bias = h_draw(h, c->width, SIGNED)};
    h_layers(h, &up, 1);
    const void *on_x0 = h_act_input(h, "x0", x0, c->b, c->width);
    void *on_z = h_act_inout(h, "z", z, c->b, c->width), *y = h_act_output(h, "y", c->b, c->width),
         *dx0 = c->add ? h_act_inout(h, "dx0", before, c->b, c->width) : h_act_output(h, "dx0", c->b, c->width);
    const dlrm_cross_forward_args forward = {.b = c->b, .width = c->width, .x0 = on_x0, .z = on_z, .y = y,
                                             .x = c->first ? on_x0 : h_act_input(h, "x", x, c->b, c->width)};
    const dlrm_cross_backward_args backward = {.b = c->b, .width = c->width, .x0 = on_x0, .z = on_z, .dx0 = dx0, .add_dx0 = c->add,
                                               .x_is_x0 = c->first, .dy = h_act_input(h, "dy", dy, c->b, c->width)};
    const double *wide_x0 = h_widen(h, x0, n), *wide_z = h_widen(h, z, n), *wide_before = h_widen(h, before, n);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n), *dz = h_doubles(h, n), *tol_z = h_doubles(h, n);
    be->ops->cross_forward(be, &forward);
    ref_cross_forward(n, wide_x0, h_widen(h, x, n), wide_z, ref, tol);
    h_compare(h, y, ref, tol);
    h_compare(h, on_z, wide_z, h_doubles(h, n)); /* as it was */
    be->ops->cross_backward(be, &backward);
    linear_before(h, c, &up, on_z); /* at once: the backend's column sums are of its last call */
    ref_cross_backward(n, wide_x0, wide_z, h_widen(h, dy, n), c->add ? wide_before : NULL, c->first, dz, tol_z, ref, tol);
    h_compare(h, on_z, dz, tol_z);
    h_compare(h, dx0, ref, tol);
}

const family cross_family = {"cross", {SLOT(cross_forward), SLOT(cross_backward)}, true, CASES, run};
