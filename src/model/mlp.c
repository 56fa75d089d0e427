#include "model/mlp.h"

#include "base/mem.h"

dlrm_status dlrm_mlp_open(dlrm_backend *be, int in, dlrm_int_list widths, bool last_relu, int first_param, int64_t max_b,
                          dlrm_mlp *m)
{
    *m = (dlrm_mlp){.n = widths.n, .in = in, .widths = widths, .last_relu = last_relu, .first_param = first_param};
    TRY(dlrm_alloc(m->n, sizeof *m->y, "MLP", &m->y));
    TRY(dlrm_alloc(m->n, sizeof *m->dy, "MLP", &m->dy));
    for (int l = 0; l < m->n; l++) {
        int64_t size = max_b * dlrm_pitch(be, widths.v[l]);
        size_t bytes = widths.v[l] == 1 ? sizeof(float) : be->act_bytes;
        TRY(be->ops->alloc(be, size, bytes, "MLP activations", &m->y[l]));
        TRY(be->ops->alloc(be, size, bytes, "MLP activations' gradients", &m->dy[l]));
    }
    return DLRM_OK;
}

void dlrm_mlp_close(dlrm_backend *be, dlrm_mlp *m)
{
    for (int l = 0; l < m->n && m->y && m->dy; l++) {
        be->ops->release(be, &m->y[l]);
        be->ops->release(be, &m->dy[l]);
    }
    dlrm_free(&m->y);
    dlrm_free(&m->dy);
}

static int width_in(const dlrm_mlp *m, int l)
{
    return l ? m->widths.v[l - 1] : m->in;
}

const void *dlrm_mlp_forward(dlrm_backend *be, const dlrm_mlp *m, const dlrm_params *p, const void *x, int64_t b,
                             const dlrm_cut *cut)
{
    for (int l = 0; l < m->n; l++) {
        const dlrm_param *w = &p->list[m->first_param + 2 * l];
        dlrm_linear_forward_args a = {.b = b, .in = width_in(m, l), .out = m->widths.v[l], .x = x, .w = p->w + w[0].offset,
                                      .bias = p->w + w[1].offset, .y = m->y[l], .relu = l < m->n - 1 || m->last_relu, .cut = cut};
        be->ops->linear_forward(be, &a);
        x = m->y[l];
    }
    return x;
}

void *dlrm_mlp_output_gradient(const dlrm_mlp *m)
{
    return m->n ? m->dy[m->n - 1] : NULL;
}

void dlrm_mlp_backward(dlrm_backend *be, const dlrm_mlp *m, const dlrm_params *p, const void *x, void *dx, int64_t b,
                       const dlrm_cut *cut, dlrm_backward_part part)
{
    for (int l = m->n - 1; l >= 0; l--) {
        const dlrm_param *w = &p->list[m->first_param + 2 * l];
        /* the logit's layer reads x but once for everything */
        const dlrm_backward_part own = m->widths.v[l] > 1 ? part : part & DLRM_BACKWARD_INPUTS ? DLRM_BACKWARD_ALL : 0;
        dlrm_linear_backward_args a = {.b = b, .in = width_in(m, l), .out = m->widths.v[l], .x = l ? m->y[l - 1] : x,
                                       .w = p->w + w[0].offset, .dz = m->dy[l], .x_is_relu = l > 0, .node_stride = p->size, .cut = cut};
        if (own & DLRM_BACKWARD_WEIGHTS) a.dw = p->g + w[0].offset;
        if (own & DLRM_BACKWARD_INPUTS) {
            a.dx = l ? m->dy[l - 1] : dx;
            a.dbias = p->g + w[1].offset;
        }
        if (own) be->ops->linear_backward(be, &a);
    }
}
