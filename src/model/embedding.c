#include "model/embedding.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Must this input's vector be put together? */
static bool is_joined(const dlrm_model_spec *spec, const dlrm_placement *place, int input)
{
    const int parts = place->first_part[input + 1] - place->first_part[input];
    return dlrm_placement_adds(place, input) || (parts > 1 && spec->interaction == DLRM_DOT);
}

int64_t dlrm_embedding_joined_width(const dlrm_model_spec *spec, const dlrm_placement *place)
{
    int64_t width = 0;
    for (int j = 0; j < spec->n_inputs; j++)
        if (is_joined(spec, place, j)) width += (int64_t)dlrm_input_vectors(&spec->inputs[j]) * spec->tables[spec->inputs[j].table].dim;
    return width;
}

/* A vector at `column`, from vectors [from, end) of the input's parts: of each position, all slices. */
static void list_joined(dlrm_embedding *e, int input, int from, int end, int column)
{
    const dlrm_placement *p = e->place;
    dlrm_join_args *a = &e->join;
    dlrm_join_vector *v = &e->join_vectors[a->n_vectors];
    *v = (dlrm_join_vector){.first_part = a->n_parts, .column = column, .width = e->spec->tables[e->spec->inputs[input].table].dim};
    e->joined_input[a->n_vectors++] = input;
    for (int k = from; k < end; k++)
        for (int i = p->first_part[input]; i < p->first_part[input + 1]; i++) {
            const dlrm_slice *s = &p->slices[p->parts[i].slice];
            e->joined_part[a->n_parts] = (dlrm_part_vector){.part = i, .vector = k};
            e->join_parts[a->n_parts++] = (dlrm_join_part){.width = s->columns, .column = column + s->first_column, .exact = p->parts[i].exact};
        }
    v->n_parts = a->n_parts - v->first_part;
}

static dlrm_status open_join(dlrm_backend *be, dlrm_embedding *e, int64_t max_own)
{
    const dlrm_placement *p = e->place;
    const int64_t width = dlrm_embedding_joined_width(e->spec, p);
    dlrm_join_args *a = &e->join;
    void *d_joined;
    TRY(dlrm_alloc(p->n_vectors, sizeof *e->join_parts, "parts of vectors", &e->join_parts));
    TRY(dlrm_alloc(p->n_vectors, sizeof *e->joined_part, "parts of vectors", &e->joined_part));
    TRY(dlrm_alloc(p->n_vectors, sizeof *e->join_vectors, "parts of vectors", &e->join_vectors));
    TRY(dlrm_alloc(p->n_vectors, sizeof *e->joined_input, "parts of vectors", &e->joined_input));
    if (width == 0) return DLRM_OK;
    *a = (dlrm_join_args){.wire = e->own.shard.wire, .parts = e->join_parts, .vectors = e->join_vectors, .width = (int)width};
    for (int j = 0, column = 0; j < e->spec->n_inputs; j++) {
        if (!is_joined(e->spec, p, j)) continue;
        const int n = dlrm_input_vectors(&e->spec->inputs[j]), added = p->parts[p->first_part[j]].vectors / n;
        for (int k = 0; k < n; k++) {
            list_joined(e, j, k * added, (k + 1) * added, column);
            column += e->spec->tables[e->spec->inputs[j].table].dim;
        }
    }
    TRY(be->ops->alloc(be, max_own * width, e->value_bytes, "joined vectors", &a->joined));
    TRY(be->ops->alloc(be, max_own * width, e->value_bytes, "joined vectors' gradients", &d_joined));
    a->d_joined = d_joined;
    return DLRM_OK;
}

dlrm_status dlrm_embedding_open(dlrm_backend *be, const dlrm_comm *c, const dlrm_model_spec *spec, const dlrm_placement *place,
                                const dlrm_config *cfg, int64_t max_batch, int64_t max_own, dlrm_embedding *e)
{
    *e = (dlrm_embedding){.spec = spec, .place = place, .rank = c->rank,
                          .value_bytes = dlrm_dtype_bytes(dlrm_config_exchange_dtype(cfg))};
    TRY(dlrm_alloc(c->ranks + 1, sizeof *e->send_at, "exchange", &e->send_at));
    TRY(dlrm_alloc(c->ranks + 1, sizeof *e->recv_at, "exchange", &e->recv_at));
    TRY(dlrm_alloc(c->ranks, sizeof *e->all_received, "exchange", &e->all_received));
    TRY(dlrm_alloc(c->ranks, sizeof *e->all_d_pooled, "exchange", &e->all_d_pooled));
    TRY(dlrm_tables_open(be, spec, place, c->rank, cfg, max_batch, &e->own));
    TRY(dlrm_alloc(e->own.shard.n_inputs, sizeof *e->some_bags, "ids", &e->some_bags));
    TRY(dlrm_replicated_open(be, spec, place, cfg, max_batch, max_own, &e->replicated));
    return open_join(be, e, max_own);
}

/* Bytes of the gradients that a rank's block begins with; vectors that arrive are behind them. */
static int64_t gradient_bytes(const dlrm_embedding *e, int rank, int64_t max_batch)
{
    return (max_batch * e->place->width[rank] * (int64_t)e->value_bytes + 255) / 256 * 256;
}

/* All ranks' memory for vectors that arrive and for gradients that do; false in `direct`: it cannot be shared. */
static dlrm_status share(dlrm_embedding *e, dlrm_exchange *x, int64_t max_batch, int64_t received)
{
    const int me = e->rank;
    TRY(x->ops->share(x, gradient_bytes(e, me, max_batch) + received * (int64_t)e->value_bytes, "vectors", e->all_d_pooled));
    if (!e->all_d_pooled[me]) return DLRM_OK;
    e->direct = true;
    for (int p = 0; p < e->place->ranks; p++) e->all_received[p] = (char *)e->all_d_pooled[p] + gradient_bytes(e, p, max_batch);
    e->received = e->all_received[me];
    e->d_pooled = e->all_d_pooled[me];
    return DLRM_OK;
}

/* Is it wanted? By rank 0's DLRM_DIRECT_EXCHANGE, which is for comparisons, and to look for a fault. */
static dlrm_status wants_direct(const dlrm_exchange *x, bool *wanted)
{
    const char *set = getenv("DLRM_DIRECT_EXCHANGE");
    dlrm_status st = DLRM_OK;
    *wanted = !set || strcmp(set, "1") == 0;
    if (x->comm->rank == 0 && !*wanted && strcmp(set, "0") != 0)
        st = FAIL(DLRM_E_USAGE, "DLRM_DIRECT_EXCHANGE: found \"%s\", expected 0 (vectors are sent) or 1", set);
    TRY(dlrm_comm_agree(x->comm, st));
    dlrm_comm_bcast(x->comm, wanted, sizeof *wanted, 0);
    return DLRM_OK;
}

dlrm_status dlrm_embedding_connect(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int64_t max_batch, int64_t max_own,
                                   bool scaled)
{
    const int64_t sent = max_batch * e->place->width[e->rank], received = max_own * dlrm_placement_received(e->place);
    bool wanted = false;
    if (e->place->ranks > 1) TRY(wants_direct(x, &wanted));
    if (wanted && !scaled) TRY(share(e, x, max_batch, received));
    if (e->direct) return DLRM_OK;
    TRY(be->ops->alloc(be, sent, e->value_bytes, "pooled vectors", &e->pooled));
    TRY(be->ops->alloc(be, sent, e->value_bytes, "pooled vectors' gradients", &e->d_pooled));
    e->received = e->pooled;
    e->d_received = e->d_pooled;
    if (e->place->ranks == 1) return DLRM_OK;
    e->received = e->d_received = NULL;
    TRY(be->ops->alloc(be, received, e->value_bytes, "received vectors", &e->received));
    return be->ops->alloc(be, received, e->value_bytes, "received vectors' gradients", &e->d_received);
}

void dlrm_embedding_close(dlrm_backend *be, dlrm_embedding *e)
{
    dlrm_tables_close(be, &e->own);
    dlrm_replicated_close(be, &e->replicated);
    if (e->direct) e->received = e->d_pooled = NULL; /* the exchange's */
    if (e->received != e->pooled) be->ops->release(be, &e->received);
    if (e->d_received != e->d_pooled) be->ops->release(be, &e->d_received);
    be->ops->release(be, &e->join.joined);
    be->ops->release(be, (void *)&e->join.d_joined);
    dlrm_free(&e->join_parts);
    dlrm_free(&e->join_vectors);
    dlrm_free(&e->joined_part);
    dlrm_free(&e->joined_input);
    be->ops->release(be, &e->pooled);
    be->ops->release(be, &e->d_pooled);
    dlrm_free(&e->all_received);
    dlrm_free(&e->all_d_pooled);
    dlrm_free(&e->some_bags);
    dlrm_free(&e->send_at);
    dlrm_free(&e->recv_at);
}

void dlrm_embedding_init(dlrm_backend *be, dlrm_embedding *e, uint64_t seed)
{
    dlrm_tables_init(be, &e->own, seed);
    dlrm_tables_init(be, &e->replicated.tables, seed);
}

int64_t dlrm_embedding_bytes(const dlrm_embedding *e)
{
    return dlrm_tables_bytes(&e->own) + dlrm_tables_bytes(&e->replicated.tables);
}

const dlrm_table_shard *dlrm_embedding_slice(const dlrm_embedding *e, int slice)
{
    const dlrm_tables *t = e->place->slices[slice].owner == DLRM_EVERY_RANK ? &e->replicated.tables : &e->own;
    for (int i = 0; i < t->shard.n_tables; i++)
        if (t->slice[i] == slice) return &t->shard.tables[i];
    return NULL;
}

const char *dlrm_embedding_exchange_name(const dlrm_embedding *e, const dlrm_exchange *x)
{
    return e->place->ranks == 1 ? "none" : e->direct ? "direct" : x->ops->name;
}

/* First byte of the gradients that go to a slice's owner. */
static char *gradients_to(const dlrm_embedding *e, int owner)
{
    if (!e->direct) return (char *)e->d_received + e->recv_at[owner];
    return (char *)e->all_d_pooled[owner] + e->sample_at[e->rank] * e->place->width[owner] * (int64_t)e->value_bytes;
}

/* Where the own samples' vectors of a part lie. */
static dlrm_vector_slot slot_of(const dlrm_embedding *e, dlrm_part_vector v)
{
    const dlrm_vector_part *part = &e->place->parts[v.part];
    const dlrm_slice *s = &e->place->slices[part->slice];
    const int64_t stride = e->place->width[s->owner], at = part->column * (int64_t)e->value_bytes;
    const int64_t before = (int64_t)v.vector * s->columns, bytes = part->exact ? (int64_t)sizeof(float) : (int64_t)e->value_bytes;
    return (dlrm_vector_slot){.data = (char *)e->received + e->recv_at[s->owner] + at + before * bytes, .stride = stride, .width = s->columns,
                              .grad = gradients_to(e, s->owner) + at + before * (int64_t)e->value_bytes, .grad_stride = stride};
}

/* Offsets of the own samples' whole bags, where parts of them travel apart and are to be divided here; else NULL. */
static const int64_t *whole_bags(const dlrm_embedding *e, int input, int stage, int64_t begin)
{
    for (int i = 0; i < e->own.shard.n_inputs && e->spec->inputs[input].combiner == DLRM_MEAN; i++) {
        if (e->place->parts[e->own.part[i]].input != input) continue;
        const dlrm_shard_input *in = &e->own.shard.inputs[i];
        return in->undivided ? e->own.bags[stage][i].whole + begin : NULL;
    }
    return NULL;
}

static void begin_join(dlrm_embedding *e, int stage, int64_t begin, int64_t own)
{
    e->join.b = own;
    for (int i = 0; i < e->join.n_parts; i++) {
        const dlrm_vector_slot v = slot_of(e, e->joined_part[i]);
        dlrm_join_part *p = &e->join_parts[i];
        *p = (dlrm_join_part){.data = v.data, .grad = v.grad, .stride = v.stride, .grad_stride = v.grad_stride, .width = p->width,
                              .column = p->column, .exact = p->exact};
    }
    for (int v = 0; v < e->join.n_vectors; v++) e->join_vectors[v].whole = whole_bags(e, e->joined_input[v], stage, begin);
}

void dlrm_embedding_begin(dlrm_embedding *e, int stage, const int64_t *sample_at)
{
    const int rank = e->rank;
    const int64_t bytes = (int64_t)e->value_bytes, own = sample_at[rank + 1] - sample_at[rank];
    e->sample_at = sample_at;
    for (int p = 0; p < e->place->ranks; p++) {
        e->send_at[p + 1] = sample_at[p + 1] * e->place->width[rank] * bytes;
        e->recv_at[p + 1] = e->recv_at[p] + own * e->place->width[p] * bytes;
    }
    dlrm_replicated_begin(&e->replicated, sample_at, rank, e->place->ranks);
    begin_join(e, stage, sample_at[rank], own);
}

/* Vectors of rank p's samples, to where that rank reads them. */
static void lookup_for(dlrm_backend *be, dlrm_embedding *e, int p, int stage)
{
    const int64_t begin = e->sample_at[p], samples = e->sample_at[p + 1] - begin;
    int64_t before = 0; /* vectors' elements of a sample that ranks before this one give */
    for (int q = 0; q < e->rank; q++) before += e->place->width[q];
    for (int i = 0; i < e->own.shard.n_inputs; i++)
        e->some_bags[i] = dlrm_bags_from(&e->own.shard.inputs[i], &e->own.bags[stage][i], begin);
    dlrm_lookup_args a = {.shard = &e->own.shard, .B = samples, .bags = e->some_bags, .beside = p != e->rank,
                          .pooled = (char *)e->all_received[p] + samples * before * (int64_t)e->value_bytes};
    be->ops->lookup(be, &a);
}

void dlrm_embedding_lookup(dlrm_backend *be, dlrm_embedding *e, int64_t B, int stage)
{
    const int R = e->place->ranks;
    dlrm_lookup_args a = {.shard = &e->own.shard, .B = B, .bags = e->own.bags[stage], .pooled = e->pooled};
    if (e->direct)
        for (int k = 1; k <= R; k++) lookup_for(be, e, (e->rank + k) % R, stage); /* the own samples last */
    else
        be->ops->lookup(be, &a);
    dlrm_replicated_lookup(be, &e->replicated, stage);
}

/* Of all ranks' blocks, what goes to others. */
static int64_t to_others(const dlrm_embedding *e, const int64_t *at)
{
    return at[e->place->ranks] - (at[e->rank + 1] - at[e->rank]);
}

int dlrm_embedding_exchange(dlrm_embedding *e, dlrm_exchange *x)
{
    if (e->direct) return x->ops->meet_start(x, to_others(e, e->send_at));
    return e->place->ranks == 1 ? 0 : x->ops->blocks_start(x, e->pooled, e->send_at, e->received, e->recv_at);
}

void dlrm_embedding_release(dlrm_embedding *e, dlrm_exchange *x)
{
    if (e->direct) x->ops->finish(x, x->ops->meet_start(x, 0));
}

/* Of the own samples' vectors, as they are about to travel. */
static void find_overflow(dlrm_backend *be, const dlrm_embedding *e, int64_t own, float *flag)
{
    const dlrm_replicated *r = &e->replicated;
    dlrm_overflow_args a = {.type = e->own.shard.wire, .flag = flag,
                            .part = {{e->d_received, own * dlrm_placement_received(e->place)}, {dlrm_replicated_gradients(r), own * r->d_width}}};
    be->ops->find_overflow(be, &a);
}

int dlrm_embedding_exchange_gradients(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int range, int stage, int64_t own,
                                      float *flag)
{
    if (e->join.n_vectors) be->ops->join_backward(be, &e->join);
    if (flag) find_overflow(be, e, own, flag);
    int vectors = 0;
    if (e->direct)
        vectors = x->ops->meet_start(x, to_others(e, e->recv_at));
    else if (e->place->ranks > 1)
        vectors = x->ops->blocks_start(x, e->d_received, e->recv_at, e->d_pooled, e->send_at);
    dlrm_replicated_exchange(be, &e->replicated, x, range, stage);
    return vectors;
}

void dlrm_embedding_update(dlrm_backend *be, dlrm_embedding *e, dlrm_exchange *x, int64_t B, int stage, const dlrm_rule *rule,
                           int64_t step)
{
    dlrm_update_args a = {.shard = &e->own.shard, .B = B, .bags = e->own.bags[stage], .d_pooled = e->d_pooled, .rule = *rule,
                          .step = (uint64_t)step, .slot = stage};
    dlrm_shared_rows_exchange(be, &e->own.shared, x, &a);
    be->ops->update(be, &a);
    dlrm_replicated_update(be, &e->replicated, x, stage, rule, step);
}

void dlrm_embedding_join(dlrm_backend *be, dlrm_embedding *e)
{
    if (e->join.n_vectors) be->ops->join_forward(be, &e->join);
}

/* One more slot; or the last one (of the same input) made wider, if its vectors lie beside these. */
static int add_slot(dlrm_vector_slot *slots, int n, const dlrm_vector_slot *more, bool beside, int64_t bytes)
{
    dlrm_vector_slot *last = &slots[n - 1];
    beside = beside && (const char *)last->data + last->width * bytes == more->data && (char *)last->grad + last->width * bytes == more->grad;
    if (beside)
        last->width += more->width;
    else
        slots[n++] = *more;
    return n;
}

static dlrm_vector_slot joined_slot(const dlrm_embedding *e, int joined)
{
    const dlrm_join_vector *v = &e->join_vectors[joined];
    const int64_t at = v->column * (int64_t)e->value_bytes;
    return (dlrm_vector_slot){.data = (char *)e->join.joined + at, .stride = e->join.width, .width = v->width,
                              .grad = (char *)e->join.d_joined + at, .grad_stride = e->join.width};
}

int dlrm_embedding_slots(const dlrm_embedding *e, dlrm_vector_slot *slots)
{
    const int64_t bytes = (int64_t)e->value_bytes;
    int n = 1, joined = 0, replicated = 0;
    for (int j = 0; j < e->spec->n_inputs; j++) {
        const bool everywhere = dlrm_placement_replicates(e->place, j), together = is_joined(e->spec, e->place, j);
        const int parts = everywhere || together ? 1 : e->place->first_part[j + 1] - e->place->first_part[j];
        for (int k = 0; k < dlrm_input_vectors(&e->spec->inputs[j]) * parts; k++) {
            const dlrm_part_vector v = {e->place->first_part[j] + k % parts, k / parts};
            const dlrm_vector_slot slot = everywhere ? dlrm_replicated_slot(&e->replicated, replicated, k)
                                          : together ? joined_slot(e, joined++)
                                                     : slot_of(e, v);
            n = add_slot(slots, n, &slot, k > 0 && e->spec->interaction != DLRM_DOT, bytes);
        }
        replicated += everywhere; /* whose inputs are in the model's order */
    }
    return n;
}
