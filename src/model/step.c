#include "model/step.h"

#include "model/optimizer.h"

void dlrm_feed(dlrm_model *m, int stage, const dlrm_batch *batch, bool train)
{
    const dlrm_config *cfg = m->cfg;
    const dlrm_comm *c = m->comm;
    const int chunks = (int)cfg->train.deterministic_chunks;
    dlrm_stage *s = &m->stages[stage];
    dlrm_tables *tables = &m->emb.own;
    DLRM_ASSERT(batch->own <= m->max_own);
    s->B = batch->size;
    s->own = batch->own;
    for (int p = 0; p < c->ranks; p++) {
        int64_t own;
        dlrm_cut_samples(s->B, p, c->ranks, cfg->train.deterministic, chunks, &s->sample_at[p], &own);
        s->sample_at[p + 1] = s->sample_at[p] + own;
    }
    dlrm_cut_make(s->B, c->rank, c->ranks, cfg->train.deterministic, chunks, &s->cut);
    m->be->ops->lap(m->be, DLRM_PHASES);
    dlrm_tables_bags(tables, stage, batch->inputs, train);
    dlrm_feed_args a = {.shard = &tables->shard, .slot = stage, .B = s->B, .b = s->own, .dense_features = m->spec->dense_features,
                        .dense = batch->dense, .labels = batch->labels, .bags = tables->bags[stage], .to_dense = s->dense,
                        .to_labels = s->labels, .to_bags = tables->bags[stage]};
    dlrm_lookup_args sorted = {.shard = &tables->shard, .B = s->B, .bags = tables->bags[stage], .slot = stage};
    m->be->ops->feed(m->be, &a);
    if (train) m->be->ops->sort(m->be, &sorted);
    dlrm_replicated_feed(m->be, &m->emb.replicated, stage, batch, train);
    if (train) m->be->ops->lap(m->be, DLRM_PHASE_LOOKUP);
}

static void begin(dlrm_model *m, int stage)
{
    m->at = &m->stages[stage];
    m->be->ops->slot_begin(m->be, stage);
    dlrm_embedding_begin(&m->emb, stage, m->at->sample_at);
    m->n_slots = dlrm_embedding_slots(&m->emb, m->slots);
    const void *bottom = m->bottom.n ? m->bottom.y[m->bottom.n - 1] : m->at->dense;
    int width = m->spec->bottom_width, pitch = dlrm_pitch(m->be, width);
    m->slots[0] = (dlrm_vector_slot){bottom, pitch, width, dlrm_mlp_output_gradient(&m->bottom), pitch};
}

static dlrm_interact_args interaction(dlrm_model *m)
{
    return (dlrm_interact_args){.kind = m->spec->interaction, .wire = m->emb.own.shard.wire, .pool_stride = m->spec->pool_stride, .b = m->at->own,
                                .n_slots = m->n_slots, .slots = m->slots, .out_width = m->spec->interaction_width,
                                .out = m->x, .d_out = m->dx, .slot0_is_relu = m->bottom.n > 0};
}

/* The ops of a forward pass, each phase followed by its lap where the time counts. */
static void forward(dlrm_model *m, void (*lap)(dlrm_backend *, dlrm_phase))
{
    dlrm_backend *be = m->be;
    const dlrm_stage *s = m->at;
    dlrm_interact_args a = interaction(m);
    dlrm_embedding_lookup(be, &m->emb, s->B, (int)(s - m->stages));
    lap(be, DLRM_PHASE_LOOKUP);
    int vectors = dlrm_embedding_exchange(&m->emb, &m->exchange);
    lap(be, DLRM_PHASE_EXCHANGE);
    dlrm_mlp_forward(be, &m->bottom, &m->params, s->dense, s->own, &s->cut);
    lap(be, DLRM_PHASE_MLP);
    m->exchange.ops->finish(&m->exchange, vectors);
    dlrm_embedding_join(be, &m->emb);
    lap(be, DLRM_PHASE_EXCHANGE);
    be->ops->interact_forward(be, &a);
    m->features = dlrm_cross_forward(be, &m->cross, &m->params, m->x, s->own, &s->cut);
    lap(be, DLRM_PHASE_INTERACTION);
    m->logits = dlrm_mlp_forward(be, &m->top, &m->params, m->features, s->own, &s->cut);
    lap(be, DLRM_PHASE_MLP);
}

static void no_lap(dlrm_backend *be, dlrm_phase phase)
{
    (void)be, (void)phase;
}

void dlrm_forward(dlrm_model *m, int stage)
{
    begin(m, stage);
    forward(m, no_lap);
    dlrm_embedding_release(&m->emb, &m->exchange);
    m->be->ops->slot_end(m->be, stage);
}

static void loss_op(dlrm_model *m, float *d_logits, double *loss)
{
    dlrm_loss_args a = {.b = m->at->own, .logits = m->logits, .labels = m->at->labels, .d_logits = d_logits,
                        .scale = 1.0f / (float)m->at->B, .loss = loss, .cut = &m->at->cut};
    m->be->ops->loss(m->be, &a);
}

void dlrm_forward_loss(dlrm_model *m, double *loss)
{
    loss_op(m, NULL, loss);
    m->be->ops->slot_end(m->be, (int)(m->at - m->stages)); /* the labels are the stage's, too */
}

/* Where the gradient of the top MLP's input goes. */
static void *features_gradient(const dlrm_model *m)
{
    return m->cross.n ? m->cross.dy : m->dx;
}

/* The gradients' exchange and sums run beside the ops that follow them, where the backend can. */
static int backward(dlrm_model *m)
{
    dlrm_backend *be = m->be;
    dlrm_exchange *x = &m->exchange;
    const dlrm_stage *s = m->at;
    dlrm_interact_args a = interaction(m);
    const dlrm_backward_part part = x->ops->beside ? DLRM_BACKWARD_INPUTS : DLRM_BACKWARD_ALL;
    dlrm_mlp_backward(be, &m->top, &m->params, m->features, features_gradient(m), s->own, &s->cut, part);
    be->ops->lap(be, DLRM_PHASE_MLP);
    dlrm_cross_backward(be, &m->cross, &m->params, m->x, m->dx, s->own, &s->cut, part);
    be->ops->interact_backward(be, &a);
    be->ops->lap(be, DLRM_PHASE_INTERACTION);
    float *flag = m->scaled ? m->params.g + m->params.flag : NULL;
    int vectors = dlrm_embedding_exchange_gradients(be, &m->emb, x, DLRM_RANGE_REPLICATED, (int)(s - m->stages), s->own, flag);
    be->ops->lap(be, DLRM_PHASE_EXCHANGE);
    if (part == DLRM_BACKWARD_INPUTS) { /* the weights' products while the vectors' gradients travel */
        dlrm_mlp_backward(be, &m->top, &m->params, m->features, NULL, s->own, &s->cut, DLRM_BACKWARD_WEIGHTS);
        dlrm_cross_backward(be, &m->cross, &m->params, m->x, NULL, s->own, &s->cut, DLRM_BACKWARD_WEIGHTS);
        be->ops->lap(be, DLRM_PHASE_MLP);
    }
    x->ops->reduce_start(x, DLRM_RANGE_TOP, m->params.g);
    be->ops->lap(be, DLRM_PHASE_EXCHANGE);
    dlrm_mlp_backward(be, &m->bottom, &m->params, s->dense, NULL, s->own, &s->cut, DLRM_BACKWARD_ALL);
    be->ops->lap(be, DLRM_PHASE_MLP);
    int sums = x->ops->reduce_start(x, DLRM_RANGE_BOTTOM, m->params.g);
    x->ops->finish(x, vectors);
    be->ops->lap(be, DLRM_PHASE_EXCHANGE);
    return sums;
}

/* Whether this step is skipped depends on all gradients: the updates wait for their sums. */
static void settle_scale(dlrm_model *m, int sums)
{
    const dlrm_optimizer_config *dense = &m->cfg->optimizer.dense, *embedding = &m->cfg->optimizer.embedding;
    dlrm_settle_args a = {.g = m->params.g, .n = m->params.size, .dense_betas = {dense->beta1, dense->beta2},
                          .embedding_betas = {embedding->beta1, embedding->beta2}};
    m->exchange.ops->finish(&m->exchange, sums);
    m->be->ops->lap(m->be, DLRM_PHASE_EXCHANGE);
    m->be->ops->settle_scale(m->be, &a);
}

static void ops_of_step(dlrm_model *m, const dlrm_step *step)
{
    dlrm_backend *be = m->be;
    dlrm_params *p = &m->params;
    dlrm_dense_update_args dense = {.n = p->size, .w = p->w, .g = p->g, .state = {p->state[0], p->state[1]}, .rule = step->dense};
    be->ops->lap(be, DLRM_PHASES);
    forward(m, be->ops->lap);
    loss_op(m, m->top.n ? dlrm_mlp_output_gradient(&m->top) : features_gradient(m), step->loss);
    int sums = backward(m);
    if (m->scaled) settle_scale(m, sums);
    dlrm_embedding_update(be, &m->emb, &m->exchange, step->B, step->slot, &step->embedding, (int64_t)step->number);
    be->ops->lap(be, DLRM_PHASE_UPDATE);
    m->exchange.ops->finish(&m->exchange, sums);
    be->ops->lap(be, DLRM_PHASE_EXCHANGE);
    be->ops->dense_update(be, &dense);
    be->ops->lap(be, DLRM_PHASE_UPDATE);
}

void dlrm_train_step(dlrm_model *m, int stage, double rate, double embedding_rate, double *loss)
{
    dlrm_backend *be = m->be;
    dlrm_stage *s = &m->stages[stage];
    m->updates++;
    const dlrm_step step = {.slot = stage, .B = s->B, .number = (uint64_t)m->updates, .loss = loss,
                            .dense = dlrm_optimizer_rule(&m->cfg->optimizer.dense, rate, m->updates, false),
                            .embedding = dlrm_optimizer_rule(&m->cfg->optimizer.embedding, embedding_rate, m->updates, true)};
    const int64_t sent = m->comm->bytes_sent;
    be->ops->lap(be, DLRM_PHASES);
    begin(m, stage);
    dlrm_tables_renew(be, &m->emb.own, &m->cfg->optimizer.embedding, (uint64_t)m->cfg->train.seed);
    be->ops->lap(be, DLRM_PHASE_LOOKUP); /* its ids were being sorted */
    const dlrm_step_mode mode = be->ops->step_begin(be, &step);
    if (mode != DLRM_STEP_REPLAY) ops_of_step(m, &step);
    be->ops->step_end(be);
    if (mode == DLRM_STEP_RECORD) s->recorded_sent = m->comm->bytes_sent - sent;
    if (mode == DLRM_STEP_REPLAY) m->comm->bytes_sent += s->recorded_sent;
    if (mode != DLRM_STEP_RUN) m->exchange.ops->recorded_ran(&m->exchange);
    be->ops->slot_end(be, stage);
}
