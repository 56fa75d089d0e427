/* interact_forward, interact_backward. */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

enum { MOST_SLOTS = 30 };

typedef struct interact_case {
    dlrm_interaction kind;
    int64_t b;
    int n_slots, width; /* of every vector; 0: the mixed widths below */
    int slot0;          /* width of slot 0 */
    int pool_stride;
    bool relu;     /* slot 0 came out of a ReLU */
    bool no_grad0; /* its gradient is not wanted */
    const char *why;
} interact_case;

static const int mixed[] = {8, 1, 16, 3, 32, 128, 5, 64};

static const interact_case cases[] = {
    {DLRM_DOT, 1, 2, 1, 1, 0, false, false, "smallest"},
    {DLRM_DOT, 1, 1, 16, 16, 0, true, false, "slot 0 alone: no products"},
    {DLRM_DOT, 5, 3, 4, 4, 0, true, false, "fewer vectors than a register block"},
    {DLRM_DOT, 7, 4, 17, 17, 0, true, false, "one more element than a vector"},
    {DLRM_DOT, 3, 5, 8, 8, 0, false, false, "one more vector than a register block"},
    {DLRM_DOT, 33, 27, 16, 16, 0, true, false, "Criteo, Kaggle width"},
    {DLRM_DOT, 9, 27, 128, 128, 0, true, false, "Criteo, Terabyte width"},
    {DLRM_DOT, 4, 16, 36, 36, 0, true, true, "a full block of columns; no gradient of slot 0"},
    {DLRM_DOT, 2, 17, 47, 47, 0, true, false, "one vector more than a block of columns"},
    {DLRM_DOT, 0, 3, 8, 8, 0, true, false, "no sample"},
    {DLRM_CAT, 1, 2, 1, 1, 0, false, false, "smallest"},
    {DLRM_CAT, 19, 9, 0, 13, 0, false, true, "mixed widths; dense values themselves in slot 0"},
    {DLRM_CAT, 19, 9, 0, 0, 0, false, true, "no slot 0"},
    {DLRM_CAT, 8, 27, 16, 16, 0, true, false, "Criteo"},
    {DLRM_POOL, 6, 9, 0, 13, 1, false, true, "stride 1: concatenation"},
    {DLRM_POOL, 6, 9, 0, 0, 7, false, true, "no dense values"},
    {DLRM_POOL, 11, 9, 0, 10, 7, true, false, "a bottom output behind the pooled vector"},
    {DLRM_POOL, 5, 9, 0, 10, 64, false, true, "windows over several vectors"},
    {DLRM_POOL, 5, 4, 0, 10, 1000, false, true, "one window over everything, wider than it"},
    {DLRM_POOL, 3, 6, 9, 4, 4, false, true, "width 45, stride 4: first mean of 3, last of 2"},
    {DLRM_POOL, 1, 2, 1, 1, 3, true, false, "one element"},
};
enum { CASES = sizeof cases / sizeof *cases, WIRES = 3 };

static int slot_width(const interact_case *c, int i)
{
    if (i == 0) return c->slot0;
    return c->width ? c->width : mixed[(i - 1) % (int)(sizeof mixed / sizeof *mixed)];
}

/* Slot 0 lies alone; the others in rows of one matrix, as the exchange leaves them, with gaps in the gradients' rows.
 */
typedef struct vectors {
    dlrm_dtype wire; /* of slots 1 … */
    int64_t stride, grad_stride;
    float *v0, *v;
    char *grad0, *grad, *on0, *on; /* on the backend: gradients, and v0, v */
    ref_slot ref[MOST_SLOTS];      /* of one sample */
    dlrm_vector_slot slots[MOST_SLOTS];
} vectors;

static void make_vectors(harness *h, const interact_case *c, vectors *x)
{
    enum { GAP = 5 };
    int64_t width = 0;
    for (int i = 1; i < c->n_slots; i++) width += slot_width(c, i);
    x->stride = width;
    x->grad_stride = width + GAP;
    x->v0 = h_draw_act(h, c->b * c->slot0, c->relu ? RELU : SIGNED);
    x->v = h_draw_as(h, x->wire, c->b * width, SIGNED);
    x->on0 = h_act_input(h, "slot 0", x->v0, c->b, c->slot0);
    x->on = h_input_as(h, "vectors", x->wire, x->v, c->b * width);
    x->grad0 = h_act_output(h, "gradient of slot 0", c->b, c->slot0);
    x->grad = h_output_as(h, "gradients of the vectors", x->wire, c->b * x->grad_stride);
    const int pitch0 = dlrm_pitch(h_backend(h), c->slot0);
    const size_t size = dlrm_dtype_bytes(x->wire);
    int64_t at = 0;
    for (int i = 0; i < c->n_slots; i++) {
        int w = slot_width(c, i);
        bool wanted = i > 0 || (!c->no_grad0 && w > 0);
        x->slots[i] = (dlrm_vector_slot){.data = i ? x->on + at * size : x->on0,
                                         .stride = i ? x->stride : pitch0,
                                         .width = w,
                                         .grad = !wanted ? NULL
                                                 : i     ? x->grad + at * size
                                                         : x->grad0,
                                         .grad_stride = i ? x->grad_stride : pitch0};
        if (i) at += w;
    }
}

/* Points x->ref at sample s; the gradients and tolerances at the rows of the reference matrices. */
static void point_at(const interact_case *c, vectors *x, const double *v0, const double *v, int64_t s, double *grad0,
                     double *tol0, double *grad, double *tol)
{
    int64_t at = 0;
    for (int i = 0; i < c->n_slots; i++) {
        int w = slot_width(c, i);
        if (i == 0)
            x->ref[i] = (ref_slot){w, v0 + s * w, x->slots[0].grad ? grad0 + s * w : NULL, tol0 + s * w};
        else {
            x->ref[i] =
                (ref_slot){w, v + s * x->stride + at, grad + s * x->grad_stride + at, tol + s * x->grad_stride + at};
            at += w;
        }
    }
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    static const dlrm_dtype wires[WIRES] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};
    static const char *const wire_names[WIRES] = {"fp32", "bf16", "fp16"};
    const interact_case *c = &cases[number % CASES];
    vectors x = {.wire = wires[number / CASES]};
    static const char *const names[] = {"dot", "cat", "dcn", "pool"};
    snprintf(label, bytes, "%s, %s vectors, b %lld, %d slots of width %d (%s)", names[c->kind], wire_names[number / CASES],
             (long long)c->b, c->n_slots, c->width, c->why);
    make_vectors(h, c, &x);
    int64_t n = c->n_slots, out_width = x.stride + c->slot0;
    if (c->kind == DLRM_DOT) out_width = c->slot0 + n * (n - 1) / 2;
    if (c->kind == DLRM_POOL) out_width = (x.stride + c->pool_stride - 1) / c->pool_stride + c->slot0;
    const float *d_out = h_draw_act(h, c->b * out_width, SIGNED);
    void *out = h_act_output(h, "out", c->b, out_width);
    dlrm_interact_args args = {.kind = c->kind,
                               .wire = x.wire,
                               .pool_stride = c->pool_stride,
                               .b = c->b,
                               .n_slots = c->n_slots,
                               .slots = x.slots,
                               .out_width = (int)out_width,
                               .out = out,
                               .d_out = h_act_input(h, "d_out", d_out, c->b, out_width),
                               .slot0_is_relu = c->relu};
    h_backend(h)->ops->interact_forward(h_backend(h), &args);
    h_backend(h)->ops->interact_backward(h_backend(h), &args);

    const double *v0 = h_widen(h, x.v0, c->b * c->slot0), *v = h_widen(h, x.v, c->b * x.stride),
                 *wide_d_out = h_widen(h, d_out, c->b * out_width);
    double *ref = h_doubles(h, c->b * out_width), *tol = h_doubles(h, c->b * out_width),
           *grad0 = h_doubles(h, c->b * c->slot0), *tol0 = h_doubles(h, c->b * c->slot0),
           *grad = h_doubles(h, c->b * x.grad_stride), *grad_tol = h_doubles(h, c->b * x.grad_stride);
    const double operands = h_vector_rounding(h, x.wire);
    for (int64_t i = 0; i < c->b * x.grad_stride; i++) grad[i] = NAN;                 /* the gaps */
    for (int64_t i = 0; !x.slots[0].grad && i < c->b * c->slot0; i++) grad0[i] = NAN; /* not wanted */
    for (int64_t s = 0; s < c->b; s++) {
        point_at(c, &x, v0, v, s, grad0, tol0, grad, grad_tol);
        ref_interact_forward(c->kind, c->pool_stride, c->n_slots, x.ref, operands, ref + s * out_width,
                             tol + s * out_width);
        ref_interact_backward(c->kind, c->pool_stride, c->relu, c->n_slots, x.ref, wide_d_out + s * out_width,
                              operands);
    }
    h_compare(h, out, ref, tol);
    h_compare(h, x.grad0, grad0, tol0);
    h_compare(h, x.grad, grad, grad_tol);
}

const family interact_family = {"interact", {SLOT(interact_forward), SLOT(interact_backward)}, false, CASES *WIRES, run};
