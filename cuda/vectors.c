/* Batches, tables and interaction of the CUDA backend: the kernels' tables made from the op's arguments. */
#include <string.h>

#include "base/mem.h"
#include "cuda_internal.h"

/* A rank's tables on the device, and what a batch in each slot has there. */
typedef struct shard_work {
    dlrm_cuda_shard shard;
    cuda_cache *cache;
    void *memory, *sort_work;
    int64_t *peer_at; /* what the tables' point into */
    void *sorted_memory[DLRM_SORTED];
    dlrm_cuda_sorted sorted[DLRM_SORTED];
    uint32_t **ids[DLRM_STAGES]; /* [n_inputs] */
    int64_t **offsets[DLRM_STAGES], **whole[DLRM_STAGES]; /* [n_inputs]; NULL where hotness is fixed, or bags are whole */
    dlrm_cuda_bags *bags; /* [n_inputs] host scratch */
} shard_work;

/* --- tables --- */

static dlrm_status open_peers(dlrm_backend *be, const dlrm_shard *s, shard_work *w, dlrm_cuda_table *tables)
{
    int64_t n = 0;
    for (int t = 0; t < s->n_tables; t++) n += s->tables[t].n_peers;
    if (n == 0) return DLRM_OK;
    TRY(cuda_alloc(be, n, sizeof *w->peer_at, "peers of tables", &w->peer_at));
    n = 0;
    for (int t = 0; t < s->n_tables; t++) {
        tables[t].n_peers = s->tables[t].n_peers;
        tables[t].peer_at = w->peer_at + n;
        if (tables[t].n_peers)
            be->ops->upload(be, w->peer_at + n, s->tables[t].peer_at, (size_t)tables[t].n_peers * sizeof *w->peer_at);
        n += tables[t].n_peers;
    }
    return DLRM_OK;
}

static dlrm_status open_shard(dlrm_backend *be, const dlrm_shard *s, shard_work *w)
{
    dlrm_cuda_table *tables = NULL;
    dlrm_cuda_input *inputs = NULL;
    int32_t *order = NULL;
    cudaError_t code;
    dlrm_status st;
    TRY_TO(done, st, dlrm_alloc(s->n_tables, sizeof *tables, "tables", &tables));
    TRY_TO(done, st, dlrm_alloc(s->n_inputs, sizeof *inputs, "tables", &inputs));
    TRY_TO(done, st, dlrm_alloc(s->n_inputs, sizeof *order, "tables", &order));
    for (int t = 0; t < s->n_tables; t++) {
        const dlrm_table_shard *from = &s->tables[t];
        tables[t] = (dlrm_cuda_table){.weight = from->weight, .state = {from->state[0], from->state[1]}, .rows = from->rows, .dim = from->dim,
                                      .stream = from->stream, .first_element = from->first_element, .row_elements = from->row_elements};
    }
    TRY_TO(done, st, open_peers(be, s, w, tables));
    for (int j = 0; j < s->n_inputs; j++) {
        const dlrm_shard_input *from = &s->inputs[j];
        inputs[j] = (dlrm_cuda_input){.table = from->table, .hotness = from->hotness, .vectors = from->vectors, .column = from->column,
                                      .variable = from->variable, .mean = from->mean, .undivided = from->undivided, .exact = from->exact};
    }
    TRY_TO(done, st, cuda_cache_open(be, s, tables, &w->cache));
    code = dlrm_cuda_shard_plan(s->n_tables, tables, s->n_inputs, inputs, order, s->dtype, s->width, s->max_batch, &w->shard);
    if (code != cudaSuccess) {
        st = FAIL(DLRM_E_INPUT, "a batch of %lld samples has more ids than 32 bits count; a smaller batch or more ranks are needed",
                  (long long)s->max_batch);
        goto done;
    }
    TRY_TO(done, st, cuda_alloc(be, 1, w->shard.shard_bytes, "tables' work space", &w->memory));
    TRY_TO(done, st, cuda_alloc(be, 1, w->shard.work_bytes, "sorted ids", &w->sort_work));
    code = dlrm_cuda_shard_bind(&w->shard, tables, inputs, order, w->memory);
    if (code != cudaSuccess) st = FAIL(DLRM_E_RUNTIME, "GPU %d: tables: %s", cuda_of(be)->device, cudaGetErrorString(code));
    for (int k = 0; k < DLRM_SORTED && st == DLRM_OK; k++) {
        st = cuda_alloc(be, 1, w->shard.batch_bytes, "sorted ids", &w->sorted_memory[k]);
        if (st == DLRM_OK) dlrm_cuda_sorted_bind(&w->shard, w->sorted_memory[k], &w->sorted[k]);
    }
done:
    dlrm_free(&tables);
    dlrm_free(&inputs);
    dlrm_free(&order);
    return st;
}

dlrm_status cuda_shard_open(dlrm_backend *be, dlrm_shard *s)
{
    TRY(dlrm_alloc(1, sizeof(shard_work), "tables", &s->work));
    shard_work *w = s->work;
    TRY(dlrm_alloc(s->n_inputs, sizeof *w->bags, "tables", &w->bags));
    TRY(open_shard(be, s, w));
    for (int k = 0; k < DLRM_STAGES; k++) {
        TRY(dlrm_alloc(s->n_inputs, sizeof *w->ids[k], "ids", &w->ids[k]));
        TRY(dlrm_alloc(s->n_inputs, sizeof *w->offsets[k], "ids", &w->offsets[k]));
        TRY(dlrm_alloc(s->n_inputs, sizeof *w->whole[k], "ids", &w->whole[k]));
        for (int j = 0; j < s->n_inputs; j++) {
            const int64_t bags = s->max_batch * s->inputs[j].vectors;
            TRY(cuda_alloc(be, bags * s->inputs[j].hotness, sizeof(uint32_t), "ids of a batch", &w->ids[k][j]));
            if (s->inputs[j].variable) TRY(cuda_alloc(be, bags + 1, sizeof(int64_t), "ids of a batch", &w->offsets[k][j]));
            if (s->inputs[j].partial && s->inputs[j].mean)
                TRY(cuda_alloc(be, s->max_batch + 1, sizeof(int64_t), "ids of a batch", &w->whole[k][j]));
        }
    }
    return DLRM_OK;
}

void cuda_shard_close(dlrm_backend *be, dlrm_shard *s)
{
    shard_work *w = s->work;
    if (!w) return;
    for (int k = 0; k < DLRM_STAGES; k++) {
        for (int j = 0; j < s->n_inputs; j++) {
            if (w->ids[k]) cuda_release(be, &w->ids[k][j]);
            if (w->offsets[k]) cuda_release(be, &w->offsets[k][j]);
            if (w->whole[k]) cuda_release(be, &w->whole[k][j]);
        }
        dlrm_free(&w->ids[k]);
        dlrm_free(&w->offsets[k]);
        dlrm_free(&w->whole[k]);
    }
    for (int k = 0; k < DLRM_SORTED; k++) cuda_release(be, &w->sorted_memory[k]);
    cuda_release(be, &w->sort_work);
    cuda_release(be, &w->peer_at);
    cuda_release(be, &w->memory);
    cuda_cache_close(be, &w->cache);
    dlrm_free(&w->bags);
    dlrm_free(&s->work);
}

static const dlrm_cuda_bags *bags_on(cuda_impl *c, cuda_queue *q, const dlrm_shard *s, const dlrm_bags *bags)
{
    shard_work *w = s->work;
    for (int j = 0; j < s->n_inputs; j++) w->bags[j] = (dlrm_cuda_bags){bags[j].ids, bags[j].offsets, bags[j].whole};
    return cuda_constant_of(c, q, w->bags, (size_t)s->n_inputs * sizeof *w->bags);
}

static void copy_in(cuda_impl *c, void *to, const void *from, int64_t count, size_t size)
{
    if (count > 0) cuda_must(c, cudaMemcpyAsync(to, from, (size_t)count * size, cudaMemcpyHostToDevice, c->feed.stream), "copying a batch");
}

void cuda_feed(dlrm_backend *be, const dlrm_feed_args *a)
{
    cuda_impl *c = cuda_of(be);
    shard_work *w = a->shard->work;
    cuda_must(c, cudaStreamWaitEvent(c->feed.stream, c->done[a->slot], 0), "an event");
    copy_in(c, a->to_labels, a->labels, a->b, sizeof *a->labels);
    copy_in(c, c->raw_dense, a->dense, a->b * a->dense_features, sizeof *a->dense);
    for (int j = 0; j < a->shard->n_inputs; j++) {
        const dlrm_bags *from = &a->bags[j];
        uint32_t *ids = w->ids[a->slot][j];
        int64_t count = from->count, *offsets = from->offsets ? w->offsets[a->slot][j] : NULL;
        copy_in(c, ids, from->ids, count, sizeof *ids);
        int64_t *whole = from->whole ? w->whole[a->slot][j] : NULL;
        if (offsets) copy_in(c, offsets, from->offsets, a->B * a->shard->inputs[j].vectors + 1, sizeof *offsets);
        if (whole) copy_in(c, whole, from->whole, a->B + 1, sizeof *whole);
        a->to_bags[j] = (dlrm_bags){ids, offsets, count, whole};
    }
    cuda_must(c, cudaEventRecord(c->copied, c->feed.stream), "an event");
    if (a->b > 0 && a->dense_features > 0)
        cuda_must(c, dlrm_cuda_convert_rows(c->raw_dense, DLRM_FP32, a->dense_features, a->to_dense, be->act,
                                            dlrm_pitch(be, a->dense_features), a->b, a->dense_features, c->feed.stream), "dense features");
}

/* Multiprocessors for a lookup that writes to another GPU and leaves the others to what runs beside it: as many as read what the link
 * takes, measured on H200s. 0: that would be most of them. */
static int beside_blocks(const dlrm_shard *s)
{
    enum { PER_BYTE = 16 /* for each byte read, by bytes written */, MOST = 64 };
    int64_t elements = 0;
    for (int j = 0; j < s->n_inputs; j++)
        elements += (int64_t)s->inputs[j].hotness * s->inputs[j].vectors * s->tables[s->inputs[j].table].dim;
    const int64_t written = s->width * (int64_t)dlrm_dtype_bytes(s->wire), read = elements * (int64_t)dlrm_dtype_bytes(s->dtype);
    const int64_t blocks = PER_BYTE * read / written + 1;
    return blocks > MOST ? 0 : (int)blocks;
}

void cuda_lookup(dlrm_backend *be, const dlrm_lookup_args *a)
{
    cuda_impl *c = cuda_of(be);
    const shard_work *w = a->shard->work;
    cuda_queue *q = a->beside ? &c->beside : &c->compute;
    if (a->shard->n_inputs == 0) return;
    if (a->beside) cuda_fork(c);
    cuda_must(c, dlrm_cuda_lookup(&w->shard, bags_on(c, q, a->shard, a->bags), a->B, a->pooled, a->shard->wire,
                                  a->beside ? beside_blocks(a->shard) : 0, q->stream), "lookup");
}

void cuda_sort(dlrm_backend *be, const dlrm_lookup_args *a)
{
    cuda_impl *c = cuda_of(be);
    shard_work *w = a->shard->work;
    DLRM_ASSERT(a->slot < DLRM_SORTED);
    if (a->shard->n_inputs == 0) return;
    cuda_must(c, dlrm_cuda_sort(&w->shard, bags_on(c, &c->feed, a->shard, a->bags), a->B, &w->sorted[a->slot], w->sort_work, c->feed.stream),
              "sorting ids");
    cuda_cache_fetch(be, w->cache, &w->shard, a->B, &w->sorted[a->slot]);
}

void cuda_write_back(dlrm_backend *be, const dlrm_shard *s)
{
    const shard_work *w = s->work;
    cuda_cache_write_back(be, w->cache, &w->shard);
}

void cuda_cache_use(dlrm_backend *be, const dlrm_shard *s, dlrm_cache_use *use)
{
    const shard_work *w = s->work;
    cuda_cache_count(be, w->cache, use);
}

void cuda_update(dlrm_backend *be, const dlrm_update_args *a)
{
    cuda_impl *c = cuda_of(be);
    const shard_work *w = a->shard->work;
    const dlrm_cuda_squares squares = {a->own_squares, a->peer_squares};
    if (a->shard->n_inputs == 0) return;
    cuda_use_embedding(c, &a->rule, a->step);
    cuda_must(c, dlrm_cuda_update(&w->shard, bags_on(c, &c->compute, a->shard, a->bags), a->B, &w->sorted[a->slot], a->d_pooled, a->shard->wire,
                                  a->rule.name, a->rule.momentum != 0, c->pinned || a->own_squares ? &squares : NULL, c->step,
                                  c->compute.stream), "table update");
}

void cuda_row_squares(dlrm_backend *be, const dlrm_update_args *a)
{
    cuda_impl *c = cuda_of(be);
    const shard_work *w = a->shard->work;
    const dlrm_cuda_squares squares = {a->own_squares, NULL};
    if (a->shard->n_inputs == 0) return;
    cuda_must(c, dlrm_cuda_row_squares(&w->shard, bags_on(c, &c->compute, a->shard, a->bags), a->B, &w->sorted[a->slot], a->d_pooled,
                                       a->shard->wire, &squares, c->step, c->compute.stream), "squares of gradients");
}

void cuda_row_sums(dlrm_backend *be, const dlrm_update_args *a)
{
    cuda_impl *c = cuda_of(be);
    const shard_work *w = a->shard->work;
    if (a->shard->n_inputs == 0) return;
    cuda_must(c, dlrm_cuda_row_sums(&w->shard, bags_on(c, &c->compute, a->shard, a->bags), a->B, &w->sorted[a->slot], a->d_pooled,
                                    a->shard->wire, c->step, c->compute.stream), "gradient sums");
}

void cuda_rows_renew(dlrm_backend *be, const dlrm_rows_renew_args *a)
{
    const shard_work *w = a->shard->work;
    cuda_must(cuda_of(be), dlrm_cuda_rows_renew(&w->shard, a, cuda_of(be)->compute.stream), "rows that start anew");
}

void cuda_rows_update(dlrm_backend *be, const dlrm_rows_update_args *a)
{
    cuda_impl *c = cuda_of(be);
    const shard_work *w = a->shard->work;
    int64_t most_rows = 0;
    for (int t = 0; t < a->shard->n_tables; t++)
        if (a->shard->tables[t].rows > most_rows) most_rows = a->shard->tables[t].rows;
    cuda_use_embedding(c, &a->rule, a->step);
    cuda_must(c, dlrm_cuda_rows_update(&w->shard, a->sums, a->marked, most_rows, a->rule.name, a->rule.momentum != 0, c->step,
                                       c->compute.stream), "table update");
}

/* --- parts of vectors --- */

static const dlrm_join_part *parts_on(cuda_impl *c, const dlrm_join_args *a)
{
    return cuda_constant_of(c, &c->compute, a->parts, (size_t)a->n_parts * sizeof *a->parts);
}

void cuda_join_forward(dlrm_backend *be, const dlrm_join_args *a)
{
    cuda_impl *c = cuda_of(be);
    if (a->b == 0 || a->n_vectors == 0) return;
    const dlrm_join_part *parts = parts_on(c, a);
    const dlrm_join_vector *vectors = cuda_constant_of(c, &c->compute, a->vectors, (size_t)a->n_vectors * sizeof *a->vectors);
    cuda_must(c, dlrm_cuda_join_forward(a, parts, vectors, a->wire, c->compute.stream), "parts of vectors");
}

void cuda_join_backward(dlrm_backend *be, const dlrm_join_args *a)
{
    cuda_impl *c = cuda_of(be);
    if (a->b == 0 || a->n_vectors == 0) return;
    cuda_must(c, dlrm_cuda_join_backward(a, parts_on(c, a), a->wire, c->compute.stream), "parts of gradients");
}

/* --- interaction --- */

static dlrm_cuda_interact interaction(dlrm_backend *be, const dlrm_interact_args *a)
{
    cuda_impl *c = cuda_of(be);
    dlrm_cuda_interact k = {.kind = a->kind, .type = be->act, .wire = a->wire, .exact = c->precision == DLRM_FP32, .pool_stride = a->pool_stride,
                            .n_slots = a->n_slots, .host_slots = c->slots, .b = a->b, .out_width = a->out_width,
                            .out_stride = dlrm_pitch(be, a->out_width), .out = a->out, .d_out = a->d_out, .slot0_is_relu = a->slot0_is_relu};
    int32_t column = a->kind == DLRM_POOL ? 0 : a->slots[0].width;
    for (int i = 0; i < a->n_slots; i++) {
        const dlrm_vector_slot *v = &a->slots[i];
        c->slots[i] = (dlrm_cuda_slot){.data = v->data, .grad = v->grad, .stride = v->stride, .grad_stride = v->grad_stride, .width = v->width};
        if (i > 0) {
            c->slots[i].column = column;
            column += v->width;
        }
        if (v->width > k.max_width) k.max_width = v->width;
    }
    if (a->kind == DLRM_POOL) c->slots[0].column = a->out_width - a->slots[0].width;
    k.slots = cuda_constant_of(c, &c->compute, c->slots, (size_t)a->n_slots * sizeof *c->slots);
    return k;
}

void cuda_interact_forward(dlrm_backend *be, const dlrm_interact_args *a)
{
    if (a->b == 0) return;
    dlrm_cuda_interact k = interaction(be, a);
    cuda_must(cuda_of(be), dlrm_cuda_interact_forward(&k, cuda_of(be)->compute.stream), "interaction");
}

void cuda_interact_backward(dlrm_backend *be, const dlrm_interact_args *a)
{
    if (a->b == 0) return;
    dlrm_cuda_interact k = interaction(be, a);
    cuda_must(cuda_of(be), dlrm_cuda_interact_backward(&k, cuda_of(be)->compute.stream), "interaction");
}
