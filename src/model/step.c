#include "model/step.h"

#include "base/log.h"
#include "model/optimizer.h"

/* Runs an expression and books its time on a phase. */
#define TIMED(m, phase, expr)                                                                                          \
    do {                                                                                                               \
        double start_ = dlrm_now();                                                                                    \
        expr;                                                                                                          \
        (m)->seconds[phase] += dlrm_now() - start_;                                                                    \
    } while (0)

static const float *take_batch(dlrm_model *m, const dlrm_batch *batch)
{
    const dlrm_config *cfg = m->cfg;
    const dlrm_comm *c = m->comm;
    const int chunks = (int)cfg->train.deterministic_chunks;
    m->B = batch->size;
    m->own = batch->own;
    DLRM_ASSERT(m->own <= m->max_own);
    for (int p = 0; p < c->ranks; p++) {
        int64_t own;
        dlrm_cut_samples(m->B, p, c->ranks, cfg->train.deterministic, chunks, &m->sample_at[p], &own);
        m->sample_at[p + 1] = m->sample_at[p] + own;
    }
    dlrm_cut_make(m->B, c->rank, c->ranks, cfg->train.deterministic, chunks, &m->cut);
    dlrm_embedding_begin(&m->emb, batch, m->sample_at, c->rank);
    dlrm_embedding_slots(&m->emb, m->slots);
    m->be->ops->upload(m->be, m->dense, batch->dense, (size_t)(m->own * m->spec->dense_features) * sizeof(float));
    m->be->ops->upload(m->be, m->labels, batch->labels, (size_t)m->own * sizeof(float));
    return m->dense;
}

static dlrm_interact_args interaction(dlrm_model *m)
{
    return (dlrm_interact_args){.kind = m->spec->interaction, .pool_stride = m->spec->pool_stride, .b = m->own,
                                .n_slots = 1 + m->spec->n_inputs, .slots = m->slots, .out_width = m->spec->interaction_width,
                                .out = m->x, .d_out = m->dx, .slot0_is_relu = m->bottom.n > 0};
}

void dlrm_forward(dlrm_model *m, const dlrm_batch *batch)
{
    dlrm_backend *be = m->be;
    const float *dense = take_batch(m, batch), *bottom;
    TIMED(m, DLRM_PHASE_LOOKUP, dlrm_embedding_lookup(be, &m->emb, m->B));
    TIMED(m, DLRM_PHASE_EXCHANGE, dlrm_embedding_exchange(&m->emb, m->comm));
    TIMED(m, DLRM_PHASE_MLP, bottom = dlrm_mlp_forward(be, &m->bottom, &m->params, dense, m->own, &m->cut));
    int width = m->spec->bottom_width;
    m->slots[0] = (dlrm_vector_slot){bottom, width, width, dlrm_mlp_output_gradient(&m->bottom), width};
    dlrm_interact_args a = interaction(m);
    TIMED(m, DLRM_PHASE_INTERACTION, be->ops->interact_forward(be, &a));
    TIMED(m, DLRM_PHASE_MLP, m->logits = dlrm_mlp_forward(be, &m->top, &m->params, m->x, m->own, &m->cut));
}

static void loss_op(dlrm_model *m, float *d_logits, double *loss)
{
    dlrm_loss_args a = {.b = m->own, .logits = m->logits, .labels = m->labels, .d_logits = d_logits,
                        .scale = 1.0f / (float)m->B, .loss = loss, .cut = &m->cut};
    TIMED(m, DLRM_PHASE_MLP, m->be->ops->loss(m->be, &a));
}

void dlrm_forward_loss(dlrm_model *m, double *loss)
{
    loss_op(m, NULL, loss);
}

static void backward(dlrm_model *m)
{
    dlrm_backend *be = m->be;
    dlrm_interact_args a = interaction(m);
    TIMED(m, DLRM_PHASE_MLP, dlrm_mlp_backward(be, &m->top, &m->params, m->x, false, m->dx, m->own, &m->cut));
    TIMED(m, DLRM_PHASE_INTERACTION, be->ops->interact_backward(be, &a));
    TIMED(m, DLRM_PHASE_EXCHANGE, dlrm_embedding_exchange_gradients(&m->emb, m->comm));
    TIMED(m, DLRM_PHASE_MLP, dlrm_mlp_backward(be, &m->bottom, &m->params, m->dense, false, NULL, m->own, &m->cut));
    TIMED(m, DLRM_PHASE_EXCHANGE, dlrm_reduce_run(&m->reduce, m->comm, m->params.g));
}

static void update(dlrm_model *m, double rate, double embedding_rate)
{
    dlrm_backend *be = m->be;
    dlrm_params *p = &m->params;
    m->updates++;
    dlrm_rule sparse = dlrm_optimizer_rule(&m->cfg->optimizer.embedding, embedding_rate, m->updates, true);
    dlrm_dense_update_args dense = {.n = p->size, .w = p->w, .g = p->g, .state = {p->state[0], p->state[1]},
                                    .rule = dlrm_optimizer_rule(&m->cfg->optimizer.dense, rate, m->updates, false)};
    TIMED(m, DLRM_PHASE_LOOKUP, dlrm_embedding_sort(be, &m->emb, m->B));
    TIMED(m, DLRM_PHASE_UPDATE, dlrm_embedding_update(be, &m->emb, m->B, &sparse));
    TIMED(m, DLRM_PHASE_UPDATE, be->ops->dense_update(be, &dense));
}

void dlrm_train_step(dlrm_model *m, const dlrm_batch *batch, double rate, double embedding_rate, double *loss)
{
    dlrm_forward(m, batch);
    loss_op(m, m->top.n ? dlrm_mlp_output_gradient(&m->top) : m->dx, loss);
    backward(m);
    update(m, rate, embedding_rate);
}
