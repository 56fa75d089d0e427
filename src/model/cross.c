#include "model/cross.h"

#include "base/mem.h"

dlrm_status dlrm_cross_open(dlrm_backend *be, int width, int layers, int rank, int first_param, int64_t max_b, dlrm_cross *c)
{
    *c = (dlrm_cross){.n = layers, .width = width, .rank = rank, .first_param = first_param};
    if (layers == 0) return DLRM_OK;
    if (be->act_bytes < sizeof(float) && (width == 1 || rank == 1))
        return FAIL(DLRM_E_INPUT, "cross layers of width %d and rank %d cannot be had with 16-bit activations: expected at least 2", width, rank);
    const int64_t wide = max_b * dlrm_pitch(be, width), low = max_b * dlrm_pitch(be, rank);
    TRY(dlrm_alloc(layers, sizeof *c->h, "cross layers", &c->h));
    TRY(dlrm_alloc(layers, sizeof *c->z, "cross layers", &c->z));
    TRY(dlrm_alloc(layers, sizeof *c->y, "cross layers", &c->y));
    TRY(dlrm_alloc(layers, sizeof *c->dh, "cross layers", &c->dh));
    for (int l = 0; l < layers; l++) {
        TRY(be->ops->alloc(be, low, be->act_bytes, "cross layers", &c->h[l]));
        TRY(be->ops->alloc(be, wide, be->act_bytes, "cross layers", &c->z[l]));
        TRY(be->ops->alloc(be, wide, be->act_bytes, "cross layers", &c->y[l]));
        TRY(be->ops->alloc(be, low, be->act_bytes, "cross layers' gradients", &c->dh[l]));
    }
    return be->ops->alloc(be, wide, be->act_bytes, "cross layers' gradients", &c->dy);
}

void dlrm_cross_close(dlrm_backend *be, dlrm_cross *c)
{
    for (int l = 0; l < c->n && c->dh; l++) {
        be->ops->release(be, &c->h[l]);
        be->ops->release(be, &c->z[l]);
        be->ops->release(be, &c->y[l]);
        be->ops->release(be, &c->dh[l]);
    }
    be->ops->release(be, &c->dy);
    dlrm_free(&c->h);
    dlrm_free(&c->z);
    dlrm_free(&c->y);
    dlrm_free(&c->dh);
}

const void *dlrm_cross_forward(dlrm_backend *be, const dlrm_cross *c, const dlrm_params *p, const void *x0, int64_t b, const dlrm_cut *cut)
{
    const void *x = x0;
    for (int l = 0; l < c->n; l++) {
        const dlrm_param *v = &p->list[c->first_param + 3 * l], *w = v + 1, *bias = v + 2;
        dlrm_linear_forward_args down = {.b = b, .in = c->width, .out = c->rank, .x = x, .w = p->w + v->offset, .y = c->h[l], .cut = cut};
        dlrm_linear_forward_args up = {.b = b, .in = c->rank, .out = c->width, .x = c->h[l], .w = p->w + w->offset,
                                       .bias = p->w + bias->offset, .y = c->z[l], .cut = cut};
        dlrm_cross_forward_args join = {.b = b, .width = c->width, .x0 = x0, .x = x, .z = c->z[l], .y = c->y[l]};
        be->ops->linear_forward(be, &down);
        be->ops->linear_forward(be, &up);
        be->ops->cross_forward(be, &join);
        x = c->y[l];
    }
    return x;
}

/* dx gathers what x0 gets as a factor. A layer's input gets dy, which is there already, and V^T dh, which the product
 * adds to it in its place: in the first layer, whose input is x0, all of that is in dx. */
void dlrm_cross_backward(dlrm_backend *be, const dlrm_cross *c, const dlrm_params *p, const void *x0, void *dx, int64_t b,
                         const dlrm_cut *cut, dlrm_backward_part part)
{
    for (int l = c->n - 1; l >= 0; l--) {
        const dlrm_param *v = &p->list[c->first_param + 3 * l], *w = v + 1, *bias = v + 2;
        const bool first = l == 0;
        dlrm_cross_backward_args join = {.b = b, .width = c->width, .x0 = x0, .dy = c->dy, .z = c->z[l], .dx0 = dx,
                                         .add_dx0 = l < c->n - 1, .x_is_x0 = first};
        dlrm_linear_backward_args up = {.b = b, .in = c->rank, .out = c->width, .x = c->h[l], .w = p->w + w->offset, .dz = c->z[l],
                                        .node_stride = p->size, .cut = cut};
        dlrm_linear_backward_args down = {.b = b, .in = c->width, .out = c->rank, .x = first ? x0 : c->y[l - 1], .w = p->w + v->offset,
                                          .dz = c->dh[l], .node_stride = p->size, .cut = cut};
        if (part & DLRM_BACKWARD_WEIGHTS) {
            up.dw = p->g + w->offset;
            down.dw = p->g + v->offset;
        }
        if (part & DLRM_BACKWARD_INPUTS) {
            up.dx = c->dh[l];
            up.dbias = p->g + bias->offset;
            down.dx = first ? dx : c->dy;
            down.add_dx = true;
            be->ops->cross_backward(be, &join);
        }
        be->ops->linear_backward(be, &up);
        be->ops->linear_backward(be, &down);
    }
}
