#include "model/replicated.h"

#include "base/half.h"
#include "base/mem.h"

/* Rules that change a row's state though its gradient is 0. */
static bool needs_marks(const dlrm_optimizer_config *opt)
{
    return opt->name == DLRM_ADAM || (opt->name == DLRM_SGD && opt->momentum != 0);
}

void dlrm_replicated_measure(const dlrm_model_spec *spec, const dlrm_placement *place, const dlrm_optimizer_config *opt,
                             bool deterministic, int64_t *d_width, int64_t *n_values)
{
    const bool marked = !deterministic && needs_marks(opt);
    *d_width = *n_values = 0;
    for (int j = 0; j < spec->n_inputs; j++)
        if (dlrm_placement_replicates(place, j))
            *d_width += (int64_t)dlrm_input_vectors(&spec->inputs[j]) * dlrm_sums_pitch(spec->tables[spec->inputs[j].table].dim, marked);
    for (int k = 0; k < place->n_slices && !deterministic; k++)
        if (place->slices[k].owner == DLRM_EVERY_RANK) *n_values += place->slices[k].rows * dlrm_sums_pitch(place->slices[k].columns, marked);
}

/* The tables of sums and the inputs that add to them: as the tables themselves, with room for marks. */
static dlrm_status open_sums(dlrm_backend *be, dlrm_replicated *r)
{
    const dlrm_shard *from = &r->tables.shard;
    dlrm_shard *s = &r->sums;
    *s = *from;
    s->dtype = DLRM_FP32;
    s->work = NULL;
    s->width = 0;
    s->tables = NULL;
    s->inputs = NULL;
    TRY(dlrm_alloc(s->n_tables, sizeof *s->tables, "tables", &s->tables));
    TRY(dlrm_alloc(s->n_inputs, sizeof *s->inputs, "tables", &s->inputs));
    TRY(be->ops->alloc(be, r->n_values, sizeof *r->values, "gradients of replicated tables", &r->values));
    float *at = r->values;
    for (int t = 0; t < s->n_tables; t++) {
        s->tables[t] = (dlrm_table_shard){.weight = at, .rows = from->tables[t].rows, .dim = dlrm_sums_pitch(from->tables[t].dim, r->marked)};
        at += s->tables[t].rows * s->tables[t].dim;
    }
    for (int i = 0; i < s->n_inputs; i++) {
        s->inputs[i] = from->inputs[i];
        s->inputs[i].column = (int)s->width;
        s->width += (int64_t)s->inputs[i].vectors * s->tables[s->inputs[i].table].dim;
    }
    return be->ops->shard_open(be, s);
}

/* Ones behind each vector's gradients, which no op overwrites. */
static dlrm_status write_marks(dlrm_backend *be, dlrm_replicated *r, int64_t rows)
{
    const int64_t bytes = r->d_width * (int64_t)r->value_bytes;
    float *row;
    char *block;
    TRY(dlrm_alloc(r->d_width, sizeof *row, "marks", &row));
    dlrm_status st = dlrm_alloc(r->d_width, r->value_bytes, "marks", &block);
    for (int i = 0; i < r->sums.n_inputs; i++) {
        const dlrm_shard_input *in = &r->sums.inputs[i];
        const int pitch = r->sums.tables[in->table].dim, dim = r->tables.shard.tables[in->table].dim;
        for (int k = 0; k < in->vectors; k++) row[in->column + k * pitch + dim] = 1;
    }
    if (st == DLRM_OK) dlrm_narrow(r->sums.wire, row, r->d_width, block);
    for (int64_t i = 0; i < rows && st == DLRM_OK; i++) be->ops->upload(be, (char *)r->d_pooled + i * bytes, block, (size_t)bytes);
    dlrm_free(&row);
    dlrm_free(&block);
    return st;
}

dlrm_status dlrm_replicated_open(dlrm_backend *be, const dlrm_model_spec *spec, const dlrm_placement *place,
                                 const dlrm_config *cfg, int64_t max_batch, int64_t max_own, dlrm_replicated *r)
{
    const dlrm_optimizer_config *opt = &cfg->optimizer.embedding;
    const bool deterministic = cfg->train.deterministic;
    *r = (dlrm_replicated){.gathers = deterministic, .marked = !deterministic && needs_marks(opt),
                           .value_bytes = dlrm_dtype_bytes(dlrm_config_exchange_dtype(cfg))};
    if (place->replicated_tables == 0) return DLRM_OK;
    TRY(dlrm_tables_open(be, spec, place, DLRM_EVERY_RANK, cfg, deterministic ? max_batch : max_own, &r->tables));
    TRY(dlrm_alloc(place->replicated_inputs, sizeof *r->own_bags, "ids", &r->own_bags));
    TRY(dlrm_alloc(place->ranks + 1, sizeof *r->gather_at, "exchange", &r->gather_at));
    dlrm_replicated_measure(spec, place, opt, deterministic, &r->d_width, &r->n_values);
    if (!r->gathers) TRY(open_sums(be, r));
    TRY(be->ops->alloc(be, max_own * r->tables.shard.width, r->value_bytes, "vectors of replicated tables", &r->pooled));
    TRY(be->ops->alloc(be, (r->gathers ? max_batch : max_own) * r->d_width, r->value_bytes, "gradients of replicated tables", &r->d_pooled));
    return r->marked ? write_marks(be, r, max_own) : DLRM_OK;
}

void dlrm_replicated_close(dlrm_backend *be, dlrm_replicated *r)
{
    dlrm_tables_close(be, &r->tables);
    be->ops->shard_close(be, &r->sums);
    be->ops->release(be, &r->values);
    be->ops->release(be, &r->pooled);
    be->ops->release(be, &r->d_pooled);
    dlrm_free(&r->sums.tables);
    dlrm_free(&r->sums.inputs);
    dlrm_free(&r->own_bags);
    dlrm_free(&r->gather_at);
}

void dlrm_replicated_feed(dlrm_backend *be, dlrm_replicated *r, int stage, const dlrm_batch *batch, bool train)
{
    dlrm_shard *s = &r->tables.shard;
    if (s->n_tables == 0) return;
    const int64_t samples = r->gathers ? batch->size : batch->own;
    dlrm_bags *bags = r->tables.bags[stage];
    dlrm_tables_bags(&r->tables, stage, batch->inputs, train);
    for (int i = 0; i < s->n_inputs && !r->gathers; i++) { /* row formats bring the ids of all samples */
        const dlrm_ids *ids = &batch->inputs[r->tables.place->parts[r->tables.part[i]].input];
        const int64_t ids_before = batch->begin - ids->first;
        DLRM_ASSERT(ids_before == 0 || !ids->offsets);
        bags[i] = dlrm_bags_from(&s->inputs[i], &bags[i], ids_before);
        if (!ids->offsets) bags[i].count = samples * s->inputs[i].hotness * s->inputs[i].vectors;
    }
    dlrm_feed_args a = {.shard = s, .slot = stage, .B = samples, .bags = bags, .to_bags = bags};
    dlrm_lookup_args sorted = {.shard = r->gathers ? s : &r->sums, .B = samples, .bags = bags, .slot = stage};
    be->ops->feed(be, &a);
    if (train) be->ops->sort(be, &sorted);
}

void dlrm_replicated_begin(dlrm_replicated *r, const int64_t *sample_at, int rank, int ranks)
{
    if (r->tables.shard.n_tables == 0) return;
    r->B = sample_at[ranks];
    r->begin = sample_at[rank];
    r->own = sample_at[rank + 1] - sample_at[rank];
    for (int p = 0; p <= ranks; p++) r->gather_at[p] = sample_at[p] * r->d_width * (int64_t)r->value_bytes;
}

void dlrm_replicated_lookup(dlrm_backend *be, dlrm_replicated *r, int stage)
{
    dlrm_lookup_args a = {.shard = &r->tables.shard, .B = r->own, .bags = r->tables.bags[stage], .pooled = r->pooled};
    if (a.shard->n_tables == 0) return;
    if (r->gathers) {
        for (int i = 0; i < a.shard->n_inputs; i++) r->own_bags[i] = dlrm_bags_from(&a.shard->inputs[i], &r->tables.bags[stage][i], r->begin);
        a.bags = r->own_bags;
    }
    be->ops->lookup(be, &a);
}

dlrm_vector_slot dlrm_replicated_slot(const dlrm_replicated *r, int i, int vector)
{
    const dlrm_shard *s = &r->tables.shard, *gradients = r->gathers ? s : &r->sums;
    const dlrm_shard_input *in = &s->inputs[i];
    const int64_t bytes = (int64_t)r->value_bytes, row = r->gathers ? r->begin : 0, dim = s->tables[in->table].dim;
    const int64_t column = gradients->inputs[i].column + vector * (int64_t)gradients->tables[in->table].dim;
    return (dlrm_vector_slot){.data = (char *)r->pooled + (in->column + vector * dim) * bytes, .stride = s->width, .width = (int)dim,
                              .grad = (char *)r->d_pooled + (row * r->d_width + column) * bytes, .grad_stride = r->d_width};
}

const void *dlrm_replicated_gradients(const dlrm_replicated *r)
{
    return (const char *)r->d_pooled + (r->gathers ? r->begin : 0) * r->d_width * (int64_t)r->value_bytes;
}

void dlrm_replicated_exchange(dlrm_backend *be, dlrm_replicated *r, dlrm_exchange *x, int range, int stage)
{
    if (r->tables.shard.n_tables == 0) return;
    if (r->gathers) {
        r->ticket = x->ops->gather_start(x, r->d_pooled, r->gather_at);
        return;
    }
    dlrm_update_args a = {.shard = &r->sums, .B = r->own, .bags = r->tables.bags[stage], .d_pooled = r->d_pooled, .slot = stage};
    be->ops->fill(be, r->values, r->n_values, 0);
    be->ops->row_sums(be, &a);
    r->ticket = x->ops->reduce_start(x, range, r->values);
}

void dlrm_replicated_update(dlrm_backend *be, dlrm_replicated *r, dlrm_exchange *x, int stage, const dlrm_rule *rule,
                            int64_t step)
{
    dlrm_shard *s = &r->tables.shard;
    if (s->n_tables == 0) return;
    x->ops->finish(x, r->ticket);
    if (r->gathers) {
        dlrm_update_args a = {.shard = s, .B = r->B, .bags = r->tables.bags[stage], .d_pooled = r->d_pooled, .rule = *rule,
                              .step = (uint64_t)step, .slot = stage};
        be->ops->update(be, &a);
    } else {
        dlrm_rows_update_args a = {.shard = s, .sums = r->values, .marked = r->marked, .rule = *rule, .step = (uint64_t)step};
        be->ops->rows_update(be, &a);
    }
}
