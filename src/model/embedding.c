#include "model/embedding.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/optimizer.h"

static int local_table(const dlrm_embedding *e, int table)
{
    int i = 0;
    while (e->table[i] != table) i++;
    return i;
}

static dlrm_status open_tables(dlrm_backend *be, dlrm_embedding *e, int rank, const dlrm_optimizer_config *opt)
{
    const dlrm_model_spec *spec = e->spec;
    dlrm_shard *s = &e->shard;
    for (int t = 0; t < spec->n_tables; t++) {
        if (e->place->owner[t] != rank) continue;
        dlrm_table_shard *shard = &s->tables[s->n_tables];
        char what[300];
        e->table[s->n_tables++] = t;
        *shard = (dlrm_table_shard){.rows = spec->tables[t].rows, .dim = spec->tables[t].dim};
        snprintf(what, sizeof what, "table %s (%lld rows x %d)", spec->tables[t].name, (long long)shard->rows, shard->dim);
        TRY(be->ops->alloc(be, shard->rows * shard->dim, sizeof(float), what, &shard->weight));
        for (int k = 0; k < dlrm_optimizer_states(opt); k++) {
            int64_t n = dlrm_optimizer_rowwise(opt) ? shard->rows : shard->rows * shard->dim;
            TRY(be->ops->alloc(be, n, sizeof(float), what, &shard->state[k]));
            if (dlrm_optimizer_initial(opt) != 0) be->ops->fill(be, shard->state[k], n, dlrm_optimizer_initial(opt));
        }
    }
    for (int j = 0; j < spec->n_inputs; j++) {
        const dlrm_input *in = &spec->inputs[j];
        if (e->place->owner[in->table] != rank) continue;
        e->input[s->n_inputs] = j;
        s->inputs[s->n_inputs++] = (dlrm_shard_input){.table = local_table(e, in->table), .hotness = in->hotness, .variable = in->variable,
                                                      .mean = in->combiner == DLRM_MEAN, .column = e->place->column[j]};
    }
    return DLRM_OK;
}

dlrm_status dlrm_embedding_open(dlrm_backend *be, const dlrm_comm *c, const dlrm_model_spec *spec, const dlrm_placement *place,
                                const dlrm_optimizer_config *opt, int64_t max_batch, int64_t max_own, dlrm_embedding *e)
{
    *e = (dlrm_embedding){.spec = spec, .place = place, .value_bytes = be->act_bytes};
    dlrm_shard *s = &e->shard;
    s->width = place->width[c->rank];
    s->max_batch = max_batch;
    TRY(dlrm_alloc(place->tables[c->rank], sizeof *s->tables, "tables", &s->tables));
    TRY(dlrm_alloc(place->tables[c->rank], sizeof *e->table, "tables", &e->table));
    TRY(dlrm_alloc(place->inputs[c->rank], sizeof *s->inputs, "tables", &s->inputs));
    TRY(dlrm_alloc(place->inputs[c->rank], sizeof *e->input, "tables", &e->input));
    TRY(dlrm_alloc(c->ranks + 1, sizeof *e->send_at, "exchange", &e->send_at));
    TRY(dlrm_alloc(c->ranks + 1, sizeof *e->recv_at, "exchange", &e->recv_at));
    TRY(open_tables(be, e, c->rank, opt));
    TRY(be->ops->shard_open(be, s));
    TRY(be->ops->alloc(be, max_batch * s->width, e->value_bytes, "pooled vectors", &e->pooled));
    TRY(be->ops->alloc(be, max_batch * s->width, e->value_bytes, "pooled vectors' gradients", &e->d_pooled));
    e->received = e->pooled;
    e->d_received = e->d_pooled;
    if (c->ranks == 1) return DLRM_OK;
    e->received = e->d_received = NULL;
    TRY(be->ops->alloc(be, max_own * spec->vectors_width, e->value_bytes, "received vectors", &e->received));
    return be->ops->alloc(be, max_own * spec->vectors_width, e->value_bytes, "received vectors' gradients", &e->d_received);
}

void dlrm_embedding_close(dlrm_backend *be, dlrm_embedding *e)
{
    dlrm_shard *s = &e->shard;
    be->ops->shard_close(be, s);
    for (int t = 0; s->tables && t < s->n_tables; t++) {
        be->ops->release(be, &s->tables[t].weight);
        for (int k = 0; k < 2; k++) be->ops->release(be, &s->tables[t].state[k]);
    }
    if (e->received != e->pooled) be->ops->release(be, &e->received);
    if (e->d_received != e->d_pooled) be->ops->release(be, &e->d_received);
    be->ops->release(be, &e->pooled);
    be->ops->release(be, &e->d_pooled);
    dlrm_free(&s->tables);
    dlrm_free(&s->inputs);
    dlrm_free(&e->table);
    dlrm_free(&e->input);
    dlrm_free(&e->send_at);
    dlrm_free(&e->recv_at);
}

void dlrm_embedding_init(dlrm_backend *be, dlrm_embedding *e, uint64_t seed)
{
    for (int i = 0; i < e->shard.n_tables; i++) {
        dlrm_table_shard *t = &e->shard.tables[i];
        char name[300];
        snprintf(name, sizeof name, "table.%s.weight", e->spec->tables[e->table[i]].name);
        dlrm_table_init_args a = {.weight = t->weight, .first = 0, .n = t->rows * t->dim, .seed = seed,
                                  .stream = dlrm_rng_stream(name), .scale = sqrt(1.0 / (double)t->rows)};
        be->ops->table_init(be, &a);
    }
}

void dlrm_embedding_bytes(const dlrm_embedding *e, const dlrm_optimizer_config *opt, int64_t *tables, int64_t *state)
{
    *tables = *state = 0;
    for (int i = 0; i < e->shard.n_tables; i++) {
        const dlrm_table_shard *t = &e->shard.tables[i];
        *tables += t->rows * t->dim * (int64_t)sizeof(float);
        *state += t->rows * (dlrm_optimizer_rowwise(opt) ? 1 : t->dim) * dlrm_optimizer_states(opt) * (int64_t)sizeof(float);
    }
}

void dlrm_embedding_begin(dlrm_embedding *e, const int64_t *sample_at, int rank)
{
    const int64_t bytes = (int64_t)e->value_bytes, own = sample_at[rank + 1] - sample_at[rank];
    for (int p = 0; p < e->place->ranks; p++) {
        e->send_at[p + 1] = sample_at[p + 1] * e->shard.width * bytes;
        e->recv_at[p + 1] = e->recv_at[p] + own * e->place->width[p] * bytes;
    }
}

void dlrm_embedding_lookup(dlrm_backend *be, dlrm_embedding *e, int64_t B, const dlrm_bags *bags)
{
    dlrm_lookup_args a = {.shard = &e->shard, .B = B, .bags = bags, .pooled = e->pooled};
    be->ops->lookup(be, &a);
}

int dlrm_embedding_exchange(dlrm_embedding *e, dlrm_exchange *x)
{
    return e->place->ranks == 1 ? 0 : x->ops->blocks_start(x, e->pooled, e->send_at, e->received, e->recv_at);
}

int dlrm_embedding_exchange_gradients(dlrm_embedding *e, dlrm_exchange *x)
{
    return e->place->ranks == 1 ? 0 : x->ops->blocks_start(x, e->d_received, e->recv_at, e->d_pooled, e->send_at);
}

void dlrm_embedding_update(dlrm_backend *be, dlrm_embedding *e, int64_t B, const dlrm_bags *bags, int slot, const dlrm_rule *rule)
{
    dlrm_update_args a = {.shard = &e->shard, .B = B, .bags = bags, .d_pooled = e->d_pooled, .rule = *rule, .slot = slot};
    be->ops->update(be, &a);
}

void dlrm_embedding_slots(const dlrm_embedding *e, dlrm_vector_slot *slots)
{
    for (int j = 0; j < e->spec->n_inputs; j++) {
        int t = e->spec->inputs[j].table, p = e->place->owner[t];
        int64_t at = e->recv_at[p] + e->place->column[j] * (int64_t)e->value_bytes;
        slots[1 + j] = (dlrm_vector_slot){.data = (char *)e->received + at, .stride = e->place->width[p], .width = e->spec->tables[t].dim,
                                          .grad = (char *)e->d_received + at, .grad_stride = e->place->width[p]};
    }
}
