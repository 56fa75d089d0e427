#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/optimizer.h"

const char *const dlrm_phase_names[DLRM_PHASES] = {"data_wait", "lookup", "exchange", "mlp", "interaction", "update"};

static dlrm_param *add_param(dlrm_params *p, const char *stack, int layer, const char *name)
{
    dlrm_param *a = &p->list[p->n++];
    *a = (dlrm_param){.offset = p->size};
    snprintf(a->name, sizeof a->name, "%s.%d.%s", stack, layer, name);
    return a;
}

/* All begin at a multiple of what rows are padded to: a layer of width 1 has rows that are not. */
static void place(const dlrm_backend *be, dlrm_params *p, dlrm_param *a, int64_t elements)
{
    a->size = (elements + be->row_multiple - 1) / be->row_multiple * be->row_multiple;
    p->size += a->size;
}

/* A matrix [out, in]; initial values: Xavier's. */
static void add_matrix(const dlrm_backend *be, dlrm_params *p, const char *stack, int layer, const char *name, int out, int in)
{
    dlrm_param *a = add_param(p, stack, layer, name);
    a->n_dims = 2;
    a->dims[0] = out;
    a->dims[1] = in;
    a->pitch = dlrm_pitch(be, in);
    a->init_std = sqrt(2.0 / ((double)out + in));
    place(be, p, a, dlrm_pitch(be, out) * a->pitch);
}

static void add_bias(const dlrm_backend *be, dlrm_params *p, const char *stack, int layer, int out, double std)
{
    dlrm_param *a = add_param(p, stack, layer, "bias");
    a->n_dims = 1;
    a->dims[0] = out;
    a->pitch = dlrm_pitch(be, out);
    a->init_std = std;
    place(be, p, a, a->pitch);
}

/* Initial biases as facebook's dlrm has them. */
static void add_layers(const dlrm_backend *be, dlrm_params *p, const char *stack, int in, dlrm_int_list widths)
{
    for (int l = 0; l < widths.n; in = widths.v[l++]) {
        add_matrix(be, p, stack, l, "weight", widths.v[l], in);
        add_bias(be, p, stack, l, widths.v[l], sqrt(1.0 / (double)widths.v[l]));
    }
}

static void add_cross(const dlrm_backend *be, dlrm_params *p, const dlrm_model_spec *spec)
{
    for (int l = 0; l < spec->cross_layers; l++) {
        add_matrix(be, p, "cross", l, "v", spec->cross_rank, spec->interaction_width);
        add_matrix(be, p, "cross", l, "w", spec->interaction_width, spec->cross_rank);
        add_bias(be, p, "cross", l, spec->interaction_width, 0);
    }
}

/* Names, shapes and places, without memory for values. */
static dlrm_status lay_out_params(const dlrm_backend *be, const dlrm_model_spec *spec, dlrm_params *p)
{
    *p = (dlrm_params){0};
    TRY(dlrm_alloc(2 * (spec->bottom.n + spec->top.n) + 3 * spec->cross_layers, sizeof *p->list, "parameters", &p->list));
    add_layers(be, p, "bottom", spec->dense_features, spec->bottom);
    add_cross(be, p, spec);
    add_layers(be, p, "top", spec->interaction_width, spec->top);
    p->flag = -1;
    if (be->act == DLRM_FP16) {
        p->flag = p->size;
        p->size += be->row_multiple;
    }
    return DLRM_OK;
}

/* The most samples that a rank can have of a batch of at most max_batch. */
static int64_t most_own(const dlrm_config *cfg, const dlrm_comm *c, int64_t max_batch)
{
    int chunks = (int)cfg->train.deterministic_chunks;
    int64_t leaves = dlrm_tree_first_leaf(c->rank + 1, c->ranks, cfg->train.deterministic, chunks) -
                     dlrm_tree_first_leaf(c->rank, c->ranks, cfg->train.deterministic, chunks);
    int64_t all = cfg->train.deterministic ? chunks : c->ranks;
    return leaves * ((max_batch + all - 1) / all);
}

static dlrm_status open_params(dlrm_model *m)
{
    dlrm_params *p = &m->params;
    const dlrm_optimizer_config *opt = &m->cfg->optimizer.dense;
    const bool deterministic = m->cfg->train.deterministic;
    const int chunks = (int)m->cfg->train.deterministic_chunks;
    dlrm_cut *cut = &m->stages[0].cut;
    TRY(lay_out_params(m->be, m->spec, p));
    dlrm_cut_make(0, m->comm->rank, m->comm->ranks, deterministic, chunks, cut);
    TRY(m->be->ops->weights_open(m->be, p->size, &p->w));
    TRY(m->be->ops->alloc(m->be, p->size * cut->n_nodes, sizeof(float), "MLP gradients", &p->g));
    for (int k = 0; k < dlrm_optimizer_states(opt); k++) {
        TRY(m->be->ops->alloc(m->be, p->size, sizeof(float), "MLP optimizer state", &p->state[k]));
        m->be->ops->fill(m->be, p->state[k], p->size, dlrm_optimizer_initial(opt));
    }
    return dlrm_reduce_layout(m->comm->ranks, p->size, deterministic, chunks, &m->reduce);
}

static dlrm_status open_stages(dlrm_model *m)
{
    for (int k = 0; k < DLRM_STAGES; k++) {
        dlrm_stage *s = &m->stages[k];
        int64_t dense = m->max_own * dlrm_pitch(m->be, m->spec->dense_features);
        TRY(m->be->ops->alloc(m->be, dense, m->be->act_bytes, "dense features", &s->dense));
        TRY(m->be->ops->alloc(m->be, m->max_own, sizeof(float), "labels", &s->labels));
        TRY(dlrm_alloc(m->comm->ranks + 1, sizeof *s->sample_at, "sample ranges", &s->sample_at));
    }
    return DLRM_OK;
}

dlrm_status dlrm_model_open(const dlrm_config *cfg, const dlrm_model_spec *spec, const dlrm_placement *place, dlrm_backend *be,
                            dlrm_comm *comm, int64_t max_batch, dlrm_model *m)
{
    *m = (dlrm_model){.cfg = cfg, .spec = spec, .place = place, .be = be, .comm = comm, .max_batch = max_batch, .scaled = be->act == DLRM_FP16};
    if (m->scaled) be->ops->scale_set(be, &(dlrm_scale){.scale = DLRM_FIRST_SCALE});
    m->max_own = most_own(cfg, comm, max_batch);
    TRY(open_params(m));
    TRY(dlrm_mlp_open(be, spec->dense_features, spec->bottom, true, 0, m->max_own, &m->bottom));
    const int first_cross = 2 * spec->bottom.n, first_top = first_cross + 3 * spec->cross_layers;
    TRY(dlrm_cross_open(be, spec->interaction_width, spec->cross_layers, spec->cross_rank, first_cross, m->max_own, &m->cross));
    TRY(dlrm_mlp_open(be, spec->interaction_width, spec->top, false, first_top, m->max_own, &m->top));
    TRY(dlrm_embedding_open(be, comm, spec, place, cfg, max_batch, m->max_own, &m->emb));
    TRY(open_stages(m));
    int64_t x = m->max_own * dlrm_pitch(be, spec->interaction_width);
    TRY(be->ops->alloc(be, x, be->act_bytes, "interaction", &m->x));
    TRY(be->ops->alloc(be, x, be->act_bytes, "interaction's gradient", &m->dx));
    return dlrm_alloc(1 + place->n_vectors, sizeof *m->slots, "interaction slots", &m->slots);
}

dlrm_status dlrm_model_open_exchange(dlrm_model *m, dlrm_exchange_opener open)
{
    const dlrm_params *p = &m->params;
    const int behind_bottom = 2 * m->spec->bottom.n;
    int64_t top = behind_bottom < p->n ? p->list[behind_bottom].offset : p->size;
    dlrm_exchange_args a = {.be = m->be, .comm = m->comm, .n_ranges = DLRM_RANGES,
                            .range = {[DLRM_RANGE_BOTTOM] = {0, top, p->size}, [DLRM_RANGE_TOP] = {top, p->size - top, p->size},
                                      [DLRM_RANGE_REPLICATED] = {0, m->emb.replicated.n_values, m->emb.replicated.n_values}},
                            .deterministic = m->cfg->train.deterministic, .chunks = (int)m->cfg->train.deterministic_chunks,
                            .timeout_s = m->cfg->parallel.timeout_s};
    TRY(dlrm_comm_agree(m->comm, open(&a, &m->exchange))); /* what follows is collective */
    return dlrm_embedding_connect(m->be, &m->emb, &m->exchange, m->max_batch, m->max_own, m->scaled);
}

void dlrm_model_close(dlrm_model *m)
{
    if (!m->be) return;
    const dlrm_backend_ops *ops = m->be->ops;
    dlrm_embedding_close(m->be, &m->emb);
    dlrm_mlp_close(m->be, &m->top);
    dlrm_cross_close(m->be, &m->cross);
    dlrm_mlp_close(m->be, &m->bottom);
    dlrm_reduce_close(&m->reduce);
    if (m->exchange.ops) m->exchange.ops->close(&m->exchange);
    ops->release(m->be, &m->params.w);
    ops->release(m->be, &m->params.g);
    for (int k = 0; k < 2; k++) ops->release(m->be, &m->params.state[k]);
    dlrm_free(&m->params.list);
    for (int k = 0; k < DLRM_STAGES; k++) {
        ops->release(m->be, &m->stages[k].dense);
        ops->release(m->be, &m->stages[k].labels);
        dlrm_free(&m->stages[k].sample_at);
    }
    ops->release(m->be, &m->x);
    ops->release(m->be, &m->dx);
    dlrm_free(&m->slots);
}

dlrm_status dlrm_model_init(dlrm_model *m)
{
    const uint64_t seed = (uint64_t)m->cfg->train.seed;
    float *values;
    TRY(dlrm_alloc(m->params.size, sizeof *values, "initial MLP weights", &values));
    for (int i = 0; i < m->params.n; i++) {
        const dlrm_param *p = &m->params.list[i];
        const uint64_t stream = dlrm_rng_stream(p->name);
        const int64_t rows = p->n_dims == 2 ? p->dims[0] : 1, width = p->dims[p->n_dims - 1];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < width; k++)
                values[p->offset + r * p->pitch + k] = (float)(p->init_std * dlrm_rng_normal(seed, stream, (uint64_t)(r * width + k)));
    }
    m->be->ops->upload(m->be, m->params.w, values, (size_t)m->params.size * sizeof *values);
    m->be->ops->weights_changed(m->be);
    dlrm_free(&values);
    dlrm_embedding_init(m->be, &m->emb, seed);
    return DLRM_OK;
}
