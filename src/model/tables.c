#include "model/tables.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/optimizer.h"
#include "model/pick.h"

/* A function of the name in files alone. */
static uint64_t table_stream(const dlrm_table *t)
{
    char name[300];
    snprintf(name, sizeof name, "table.%s.weight", t->name);
    return dlrm_rng_stream(name);
}

static dlrm_status open_slice(dlrm_backend *be, dlrm_tables *t, int k, const dlrm_optimizer_config *opt)
{
    const dlrm_slice *s = &t->place->slices[k];
    const dlrm_table *whole = &t->spec->tables[s->table];
    dlrm_table_shard *to = &t->shard.tables[t->shard.n_tables];
    char what[400];
    const int number = t->shard.n_tables++;
    t->slice[number] = k;
    *to = (dlrm_table_shard){.rows = s->rows, .dim = s->columns, .stream = table_stream(whole),
                             .first_element = s->first_row * whole->dim + s->first_column, .row_elements = s->row_step * whole->dim,
                             .home = t->host.home && t->host.home[number]};
    dlrm_status (*alloc)(dlrm_backend *, int64_t, size_t, const char *, void *) = to->home ? be->ops->alloc_host : be->ops->alloc;
    snprintf(what, sizeof what, "table %s (%lld rows x %d)", whole->name, (long long)to->rows, to->dim);
    TRY(alloc(be, to->rows * to->dim, dlrm_dtype_bytes(t->shard.dtype), what, &to->weight));
    for (int i = 0; i < dlrm_optimizer_states(opt); i++) {
        const int64_t n = dlrm_optimizer_rowwise(opt) ? to->rows : to->rows * to->dim;
        TRY(alloc(be, n, sizeof(float), what, &to->state[i]));
        if (dlrm_optimizer_initial(opt) != 0) be->ops->fill(be, to->state[i], n, dlrm_optimizer_initial(opt));
    }
    return DLRM_OK;
}

static void open_part(dlrm_tables *t, int i)
{
    const dlrm_vector_part *part = &t->place->parts[i];
    const dlrm_input *in = &t->spec->inputs[part->input];
    const bool by_rows = t->place->slices[part->slice].row_step > 1;
    int table = 0;
    while (t->slice[table] != part->slice) table++;
    t->part[t->shard.n_inputs] = i;
    t->shard.inputs[t->shard.n_inputs++] =
        (dlrm_shard_input){.table = table, .hotness = in->hotness / part->vectors, .vectors = part->vectors,
                           .variable = in->variable || by_rows, .mean = in->combiner == DLRM_MEAN, .partial = by_rows,
                           .undivided = part->vectors > 1, .exact = part->exact, .column = part->column};
}

/* Lays out the room for bags that are picked out, and for rows of keys; or measures it (`at` NULL). */
static int64_t lay_out_room(dlrm_tables *t, const dlrm_model_spec *spec, const dlrm_placement *place, int owner, int64_t max_batch, char *at)
{
    int64_t used = 0;
    int k = 0;
    for (int i = 0; i < place->n_parts; i++) {
        const dlrm_vector_part *part = &place->parts[i];
        const dlrm_input *in = &spec->inputs[part->input];
        if (place->slices[part->slice].owner != owner) continue;
        const int number = k++;
        const bool by_rows = place->slices[part->slice].row_step > 1;
        if (!by_rows && !dlrm_input_has_keys(spec, part->input)) continue;
        const int64_t ids = max_batch * in->hotness, offsets = by_rows ? max_batch * part->vectors + 1 : 0;
        for (int stage = 0; stage < DLRM_STAGES; stage++) {
            if (at && by_rows) t->offsets[stage][number] = (int64_t *)(at + used);
            used += offsets * (int64_t)sizeof(int64_t);
            if (at) t->ids[stage][number] = (uint32_t *)(at + used);
            used += (ids + 1) / 2 * 2 * (int64_t)sizeof(uint32_t);
        }
        if (!by_rows) continue;
        if (in->combiner != DLRM_MEAN || in->variable) continue;
        if (at) t->whole[number] = (int64_t *)(at + used);
        for (int64_t s = 0; at && s <= max_batch; s++) t->whole[number][s] = s * in->hotness;
        used += (max_batch + 1) * (int64_t)sizeof(int64_t);
    }
    return used;
}

int64_t dlrm_tables_room(const dlrm_model_spec *spec, const dlrm_placement *place, int owner, int64_t max_batch)
{
    int64_t bytes = lay_out_room(NULL, spec, place, owner, max_batch, NULL);
    for (int k = 0; k < place->n_slices; k++) {
        const dlrm_table *table = &spec->tables[place->slices[k].table];
        if (place->slices[k].owner == owner && table->capacity > 0)
            bytes += dlrm_vocabulary_memory(table, max_batch * dlrm_table_hotness(spec, place->slices[k].table));
    }
    return bytes;
}

static dlrm_status open_vocabularies(dlrm_tables *t)
{
    const dlrm_shard *s = &t->shard;
    TRY(dlrm_alloc(s->n_tables, sizeof *t->vocabularies, "vocabularies", &t->vocabularies));
    TRY(dlrm_alloc(s->n_inputs, sizeof *t->translations, "vocabularies", &t->translations));
    TRY(dlrm_alloc(s->n_tables, sizeof *t->jobs, "vocabularies", &t->jobs));
    for (int k = 0, n = 0; k < s->n_tables; k++) {
        const int table = t->place->slices[t->slice[k]].table;
        if (t->spec->tables[table].capacity > 0)
            TRY(dlrm_vocabulary_open(&t->spec->tables[table], s->max_batch * dlrm_table_hotness(t->spec, table), &t->vocabularies[k]));
        t->jobs[k] = (dlrm_translation_job){.vocabulary = &t->vocabularies[k], .inputs = t->translations + n};
        for (int i = 0; i < s->n_inputs; i++) n += s->inputs[i].table == k;
    }
    return DLRM_OK;
}

static dlrm_status open_room(dlrm_backend *be, dlrm_tables *t, int owner, int64_t max_batch)
{
    const int64_t bytes = lay_out_room(NULL, t->spec, t->place, owner, max_batch, NULL);
    for (int k = 0; k < DLRM_STAGES; k++) {
        TRY(dlrm_alloc(t->shard.n_inputs, sizeof *t->ids[k], "ids", &t->ids[k]));
        TRY(dlrm_alloc(t->shard.n_inputs, sizeof *t->offsets[k], "ids", &t->offsets[k]));
    }
    TRY(dlrm_alloc(t->shard.n_inputs, sizeof *t->whole, "ids", &t->whole));
    if (bytes == 0) return DLRM_OK;
    TRY(dlrm_alloc(bytes, 1, "ids of row slices, and rows of keys", &t->room));
    lay_out_room(t, t->spec, t->place, owner, max_batch, t->room);
    return be->ops->pin(be, t->room, (size_t)bytes);
}

/* Only a rank's own tables are ever many. */
static dlrm_status plan_host(const dlrm_backend *be, dlrm_tables *t, int owner, const dlrm_config *cfg, int64_t max_batch)
{
    const dlrm_host_tables_args a = dlrm_host_tables_args_of(cfg, max_batch, be->host_room);
    dlrm_status st = dlrm_host_tables_plan(t->spec, t->place, owner, &a, &t->host);
    t->shard.n_pools = t->host.n_pools;
    t->shard.pools = t->host.pools;
    return st == DLRM_E_INPUT ? dlrm_host_tables_fail(cfg) : st;
}

dlrm_status dlrm_tables_open(dlrm_backend *be, const dlrm_model_spec *spec, const dlrm_placement *place, int owner,
                             const dlrm_config *cfg, int64_t max_batch, dlrm_tables *t)
{
    const bool every = owner == DLRM_EVERY_RANK;
    const int n_tables = every ? place->replicated_tables : place->tables[owner];
    const int n_inputs = every ? place->replicated_inputs : place->inputs[owner];
    *t = (dlrm_tables){.spec = spec, .place = place};
    t->shard.width = every ? place->replicated_width : place->width[owner];
    t->shard.max_batch = max_batch;
    t->shard.dtype = cfg->train.embedding_dtype;
    t->shard.wire = dlrm_config_exchange_dtype(cfg);
    t->shard.rowwise = dlrm_optimizer_rowwise(&cfg->optimizer.embedding);
    TRY(dlrm_alloc(n_tables, sizeof *t->shard.tables, "tables", &t->shard.tables));
    TRY(dlrm_alloc(n_tables, sizeof *t->slice, "tables", &t->slice));
    TRY(dlrm_alloc(n_inputs, sizeof *t->shard.inputs, "tables", &t->shard.inputs));
    TRY(dlrm_alloc(n_inputs, sizeof *t->part, "tables", &t->part));
    for (int k = 0; k < DLRM_STAGES; k++) TRY(dlrm_alloc(n_inputs, sizeof *t->bags[k], "ids", &t->bags[k]));
    if (be->apart && !every) TRY(plan_host(be, t, owner, cfg, max_batch));
    for (int k = 0; k < place->n_slices; k++)
        if (place->slices[k].owner == owner) TRY(open_slice(be, t, k, &cfg->optimizer.embedding));
    for (int i = 0; i < place->n_parts; i++)
        if (place->slices[place->parts[i].slice].owner == owner) open_part(t, i);
    TRY(open_room(be, t, owner, max_batch));
    TRY(open_vocabularies(t));
    TRY(dlrm_shared_rows_open(be, spec, place, &cfg->optimizer.embedding, owner, &t->shard, t->slice, &t->shared));
    return be->ops->shard_open(be, &t->shard);
}

void dlrm_tables_close(dlrm_backend *be, dlrm_tables *t)
{
    dlrm_shard *s = &t->shard;
    be->ops->shard_close(be, s);
    dlrm_shared_rows_close(be, &t->shared);
    for (int i = 0; s->tables && i < s->n_tables; i++) {
        void (*release)(dlrm_backend *, void *) = s->tables[i].home ? be->ops->release_host : be->ops->release;
        release(be, &s->tables[i].weight);
        for (int k = 0; k < 2; k++) release(be, &s->tables[i].state[k]);
    }
    dlrm_host_tables_clear(&t->host);
    for (int i = 0; t->vocabularies && i < s->n_tables; i++) dlrm_vocabulary_close(&t->vocabularies[i]);
    dlrm_free(&t->vocabularies);
    dlrm_free(&t->translations);
    dlrm_free(&t->jobs);
    dlrm_free(&s->tables);
    dlrm_free(&s->inputs);
    dlrm_free(&t->slice);
    dlrm_free(&t->part);
    for (int k = 0; k < DLRM_STAGES; k++) {
        dlrm_free(&t->bags[k]);
        dlrm_free(&t->ids[k]);
        dlrm_free(&t->offsets[k]);
    }
    dlrm_free(&t->whole);
    if (t->room) be->ops->unpin(be, t->room);
    dlrm_free(&t->room);
}

static dlrm_table_init_args init_args(const dlrm_tables *t, int i, uint64_t seed)
{
    const dlrm_slice *s = &t->place->slices[t->slice[i]];
    const dlrm_table *table = &t->spec->tables[s->table];
    const dlrm_table_shard *to = &t->shard.tables[i];
    return (dlrm_table_init_args){.weight = to->weight, .dtype = t->shard.dtype, .first_row = s->first_row, .row_step = s->row_step,
                                  .rows = s->rows, .first_column = s->first_column, .columns = s->columns, .dim = table->dim, .seed = seed,
                                  .stream = to->stream, .scale = sqrt(1.0 / (double)table->rows)};
}

void dlrm_tables_init(dlrm_backend *be, dlrm_tables *t, uint64_t seed)
{
    for (int i = 0; i < t->shard.n_tables; i++) {
        const dlrm_table_init_args a = init_args(t, i, seed);
        be->ops->table_init(be, &a);
    }
}

void dlrm_tables_renew(dlrm_backend *be, dlrm_tables *t, const dlrm_optimizer_config *opt, uint64_t seed)
{
    for (int i = 0; i < t->shard.n_tables; i++) {
        const dlrm_vocabulary *v = &t->vocabularies[i];
        if (v->n_fresh == 0) continue;
        const dlrm_rows_renew_args a = {.shard = &t->shard, .table = i, .init = init_args(t, i, seed), .n = v->n_fresh, .rows = v->fresh,
                                        .state_value = dlrm_optimizer_initial(opt)};
        be->ops->rows_renew(be, &a);
    }
}

dlrm_status dlrm_tables_loaded(dlrm_tables *t, const char *from, int64_t now)
{
    for (int i = 0; i < t->shard.n_tables; i++)
        if (t->vocabularies[i].table) TRY(dlrm_vocabulary_loaded(&t->vocabularies[i], from, now));
    return DLRM_OK;
}

dlrm_vocabulary *dlrm_tables_vocabulary(const dlrm_tables *t, int table)
{
    for (int i = 0; i < t->shard.n_tables; i++)
        if (t->place->slices[t->slice[i]].table == table && t->spec->tables[table].capacity > 0) return &t->vocabularies[i];
    return NULL;
}

int64_t dlrm_tables_bytes(const dlrm_tables *t)
{
    int64_t elements = 0;
    for (int i = 0; i < t->shard.n_tables; i++) elements += t->shard.tables[i].rows * t->shard.tables[i].dim;
    return elements * (int64_t)dlrm_dtype_bytes(t->shard.dtype);
}

/* The rows of keys. */
static void translate(dlrm_tables *t, int stage, const dlrm_ids *inputs, bool learn)
{
    for (int k = 0; k < t->shard.n_tables; k++) t->jobs[k].n = 0;
    for (int i = 0; i < t->shard.n_inputs; i++) {
        const dlrm_ids *from = &inputs[t->place->parts[t->part[i]].input];
        dlrm_translation_job *job = &t->jobs[t->shard.inputs[i].table];
        if (job->vocabulary->table) job->inputs[job->n++] = (dlrm_translation){.keys = from->keys, .count = from->count, .rows = t->ids[stage][i]};
    }
    dlrm_translate(t->shard.n_tables, t->jobs, learn, omp_get_max_threads());
}

dlrm_bags dlrm_bags_from(const dlrm_shard_input *in, const dlrm_bags *all, int64_t begin)
{
    const int64_t bags = begin * in->vectors, ids = all->offsets ? 0 : bags * in->hotness;
    return (dlrm_bags){.ids = all->ids + ids, .offsets = all->offsets ? all->offsets + bags : NULL, .count = all->count - ids,
                       .whole = all->whole ? all->whole + begin : NULL};
}

void dlrm_tables_bags(dlrm_tables *t, int stage, const dlrm_ids *inputs, bool learn)
{
    if (t->spec->n_vocabularies > 0) translate(t, stage, inputs, learn);
    for (int i = 0; i < t->shard.n_inputs; i++) {
        const dlrm_vector_part *part = &t->place->parts[t->part[i]];
        const dlrm_input *in = &t->spec->inputs[part->input];
        const dlrm_ids *from = &inputs[part->input];
        dlrm_bags *to = &t->bags[stage][i];
        *to = (dlrm_bags){.ids = from->ids, .offsets = from->offsets, .count = from->count};
        if (from->keys) to->ids = t->ids[stage][i];
        if (!t->offsets[stage][i]) continue;
        const dlrm_slice *slice = &t->place->slices[part->slice];
        const dlrm_pick pick = {.first_row = (uint32_t)slice->first_row, .row_step = (uint32_t)slice->row_step, .hotness = in->hotness,
                                .vectors = part->vectors};
        to->count = dlrm_pick_rows(&pick, from, t->ids[stage][i], t->offsets[stage][i]);
        to->ids = t->ids[stage][i];
        to->offsets = t->offsets[stage][i];
        if (in->combiner == DLRM_MEAN) to->whole = in->variable ? from->offsets : t->whole[i];
    }
}
