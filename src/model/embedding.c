#include "model/embedding.h"

#include "base/mem.h"

dlrm_status dlrm_embedding_open(dlrm_backend *be, const dlrm_comm *c, const dlrm_model_spec *spec, const dlrm_placement *place,
                                const dlrm_config *cfg, int64_t max_batch, int64_t max_own, dlrm_embedding *e)
{
    *e = (dlrm_embedding){.spec = spec, .place = place, .value_bytes = dlrm_dtype_bytes(dlrm_config_exchange_dtype(cfg))};
    const int64_t width = place->width[c->rank], received = max_own * dlrm_placement_received(place);
    TRY(dlrm_alloc(c->ranks + 1, sizeof *e->send_at, "exchange", &e->send_at));
    TRY(dlrm_alloc(c->ranks + 1, sizeof *e->recv_at, "exchange", &e->recv_at));
    TRY(dlrm_tables_open(be, spec, place, c->rank, cfg, max_batch, &e->own));
    TRY(dlrm_replicated_open(be, spec, place, cfg, max_batch, max_own, &e->replicated));
    TRY(be->ops->alloc(be, max_batch * width, e->value_bytes, "pooled vectors", &e->pooled));
    TRY(be->ops->alloc(be, max_batch * width, e->value_bytes, "pooled vectors' gradients", &e->d_pooled));
    e->received = e->pooled;
    e->d_received = e->d_pooled;
    if (c->ranks == 1) return DLRM_OK;
    e->received = e->d_received = NULL;
    TRY(be->ops->alloc(be, received, e->value_bytes, "received vectors", &e->received));
    return be->ops->alloc(be, received, e->value_bytes, "received vectors' gradients", &e->d_received);
}

void dlrm_embedding_close(dlrm_backend *be, dlrm_embedding *e)
{
    dlrm_tables_close(be, &e->own);
    dlrm_replicated_close(be, &e->replicated);
    if (e->received != e->pooled) be->ops->release(be, &e->received);
    if (e->d_received != e->d_pooled) be->ops->release(be, &e->d_received);
    be->ops->release(be, &e->pooled);
    be->ops->release(be, &e->d_pooled);
    dlrm_free(&e->send_at);
    dlrm_free(&e->recv_at);
}

void dlrm_embedding_init(dlrm_backend *be, dlrm_embedding *e, uint64_t seed)
{
    dlrm_tables_init(be, &e->own, seed);
    dlrm_tables_init(be, &e->replicated.tables, seed);
}

void dlrm_embedding_bytes(const dlrm_embedding *e, const dlrm_optimizer_config *opt, int64_t *tables, int64_t *state)
{
    int64_t more_tables, more_state;
    dlrm_tables_bytes(&e->own, opt, tables, state);
    dlrm_tables_bytes(&e->replicated.tables, opt, &more_tables, &more_state);
    *tables += more_tables;
    *state += more_state;
}

const dlrm_table_shard *dlrm_embedding_slice(const dlrm_embedding *e, int slice)
{
    const dlrm_tables *t = e->place->slices[slice].owner == DLRM_EVERY_RANK ? &e->replicated.tables : &e->own;
    for (int i = 0; i < t->shard.n_tables; i++)
        if (t->slice[i] == slice) return &t->shard.tables[i];
    return NULL;
}

void dlrm_embedding_begin(dlrm_embedding *e, const int64_t *sample_at, int rank)
{
    const int64_t bytes = (int64_t)e->value_bytes, own = sample_at[rank + 1] - sample_at[rank];
    for (int p = 0; p < e->place->ranks; p++) {
        e->send_at[p + 1] = sample_at[p + 1] * e->place->width[rank] * bytes;
        e->recv_at[p + 1] = e->recv_at[p] + own * e->place->width[p] * bytes;
    }
    dlrm_replicated_begin(&e->replicated, sample_at, rank, e->place->ranks);
}

void dlrm_embedding_lookup(dlrm_backend *be, dlrm_embedding *e, int64_t B, int stage)
{
    dlrm_lookup_args a = {.shard = &e->own.shard, .B = B, .bags = e->own.bags[stage], .pooled = e->pooled};
    be->ops->lookup(be, &a);
    dlrm_replicated_lookup(be, &e->replicated, stage);
}

int dlrm_embedding_exchange(dlrm_embedding *e, dlrm_exchange *x)
{
    return e->place->ranks == 1 ? 0 : x->ops->blocks_start(x, e->pooled, e->send_at, e->received, e->recv_at);
}

int dlrm_embedding_exchange_gradients(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int range, int stage)
{
    int vectors = e->place->ranks == 1 ? 0 : x->ops->blocks_start(x, e->d_received, e->recv_at, e->d_pooled, e->send_at);
    dlrm_replicated_exchange(be, &e->replicated, x, range, stage);
    return vectors;
}

void dlrm_embedding_update(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int64_t B, int stage, const dlrm_rule *rule,
                           int64_t step)
{
    dlrm_update_args a = {.shard = &e->own.shard, .B = B, .bags = e->own.bags[stage], .d_pooled = e->d_pooled, .rule = *rule,
                          .step = (uint64_t)step, .slot = stage};
    be->ops->update(be, &a);
    dlrm_replicated_update(be, &e->replicated, x, stage, rule, step);
}

void dlrm_embedding_slots(const dlrm_embedding *e, dlrm_vector_slot *slots)
{
    for (int j = 0; j < e->spec->n_inputs; j++) {
        const dlrm_vector_part *part = &e->place->parts[e->place->first_part[j]];
        const dlrm_slice *s = &e->place->slices[part->slice];
        if (s->owner == DLRM_EVERY_RANK) continue;
        const int64_t stride = e->place->width[s->owner], at = e->recv_at[s->owner] + part->column * (int64_t)e->value_bytes;
        slots[1 + j] = (dlrm_vector_slot){.data = (char *)e->received + at, .stride = stride, .width = s->columns,
                                          .grad = (char *)e->d_received + at, .grad_stride = stride};
    }
    for (int i = 0; i < e->replicated.tables.shard.n_inputs; i++)
        slots[1 + e->place->parts[e->replicated.tables.part[i]].input] = dlrm_replicated_slot(&e->replicated, i);
}
