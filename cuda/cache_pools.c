/* The memory of a rank's cache of rows, and its place between the ops: pools on the device, and for each table in the
 * host's memory where its rows are. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda_internal.h"

struct cuda_cache {
    int n_pools;
    dlrm_cuda_pool *pools, *pools_there; /* [n_pools]: host, device */
    int32_t number;                      /* of the batch fetched last */
};

/* rows: of its tables; most: that a batch can list. */
static dlrm_status open_pool(dlrm_backend *be, const dlrm_shard *s, const dlrm_cache_pool *from, int64_t rows,
                             int64_t most, int states, dlrm_cuda_pool *p)
{
    const size_t element = dlrm_dtype_bytes(s->dtype);
    char what[100];
    snprintf(what, sizeof what, "a cache of %lld rows x %d", (long long)from->rows, from->dim);
    if (from->rows > INT32_MAX)
        return FAIL(DLRM_E_INPUT, "%s: more than 2147483647 rows; parallel.device_embedding_elements is too large",
                    what);
    *p = (dlrm_cuda_pool){.dim = from->dim, .slots = (int32_t)from->rows, .rows = rows};
    TRY(cuda_alloc(be, from->rows * from->dim, element, what, &p->weight));
    for (int k = 0; k < states; k++) {
        p->state_width[k] = s->rowwise ? 1 : from->dim;
        TRY(cuda_alloc(be, from->rows * p->state_width[k], sizeof(float), what, &p->state[k]));
    }
    TRY(cuda_alloc(be, from->rows, sizeof *p->place, what, &p->place));
    TRY(cuda_alloc(be, from->rows, sizeof *p->batch, what, &p->batch));
    for (int k = 0; k < 2; k++) TRY(cuda_alloc(be, most, sizeof *p->missing[k], what, &p->missing[k]));
    TRY(cuda_alloc(be, most, sizeof *p->victims, what, &p->victims));
    TRY(cuda_alloc(be, most, sizeof *p->held, what, &p->held));
    TRY(cuda_alloc(be, DLRM_CUDA_BUCKETS, sizeof *p->buckets, what, &p->buckets));
    TRY(cuda_alloc(be, 1, sizeof *p->counts, what, &p->counts));
    cuda_must(cuda_of(be), cudaMemset(p->place, 0xFF, (size_t)from->rows * sizeof *p->place), "an empty cache");
    snprintf(what, sizeof what, "where %lld rows are", (long long)rows);
    TRY(cuda_alloc(be, rows, sizeof *p->often, what, &p->often));
    TRY(cuda_alloc(be, rows, sizeof *p->slot, what, &p->slot));
    cuda_must(cuda_of(be), cudaMemset(p->slot, 0xFF, (size_t)rows * sizeof *p->slot), "an empty cache");
    return DLRM_OK;
}

static int64_t rows_of(const dlrm_shard *s, int dim)
{
    int64_t n = 0;
    for (int t = 0; t < s->n_tables; t++)
        if (s->tables[t].home && s->tables[t].dim == dim) n += s->tables[t].rows;
    return n;
}

/* Rows of width dim that a batch can list, at most. */
static int64_t most_listed(const dlrm_shard *s, int dim)
{
    int64_t n = 0;
    for (int j = 0; j < s->n_inputs; j++)
        if (s->tables[s->inputs[j].table].home && s->tables[s->inputs[j].table].dim == dim)
            n += s->max_batch * s->inputs[j].hotness * s->inputs[j].vectors;
    return n;
}

/* The table is worked on in the pool of its width; where its rows are now is its home. first: its first row among the
 * pool's. */
static void cache_table(const dlrm_cuda_pool *p, int64_t first, const dlrm_table_shard *from, dlrm_cuda_table *t)
{
    t->slot = p->slot + first;
    t->place = p->place;
    t->weight = p->weight;
    t->home = from->weight;
    for (int k = 0; k < 2; k++) {
        t->state[k] = p->state[k];
        t->home_state[k] = from->state[k];
    }
}

/* A pool and its tables. */
static dlrm_status cache_tables(dlrm_backend *be, const dlrm_shard *s, int pool, int states, dlrm_cuda_table *tables,
                                dlrm_cuda_pool *p)
{
    const int dim = s->pools[pool].dim;
    int64_t first = 0;
    TRY(open_pool(be, s, &s->pools[pool], rows_of(s, dim), most_listed(s, dim), states, p));
    for (int t = 0; t < s->n_tables; t++) {
        if (!s->tables[t].home || s->tables[t].dim != dim) continue;
        tables[t].pool = pool;
        cache_table(p, first, &s->tables[t], &tables[t]);
        first += s->tables[t].rows;
    }
    return DLRM_OK;
}

dlrm_status cuda_cache_open(dlrm_backend *be, const dlrm_shard *s, dlrm_cuda_table *tables, cuda_cache **out)
{
    int states = 0;
    if (s->n_pools == 0) return DLRM_OK;
    TRY(dlrm_alloc(1, sizeof **out, "a cache of rows", out));
    cuda_feed_first(be);
    cuda_cache *c = *out;
    c->number = 1;
    TRY(dlrm_alloc(s->n_pools, sizeof *c->pools, "a cache of rows", &c->pools));
    c->n_pools = s->n_pools;
    while (states < 2 && s->tables[0].state[states]) states++;
    for (int k = 0; k < s->n_pools; k++) TRY(cache_tables(be, s, k, states, tables, &c->pools[k]));
    TRY(cuda_alloc(be, c->n_pools, sizeof *c->pools, "a cache of rows", &c->pools_there));
    cuda_must(cuda_of(be),
              cudaMemcpy(c->pools_there, c->pools, (size_t)c->n_pools * sizeof *c->pools, cudaMemcpyHostToDevice),
              "a cache");
    return DLRM_OK;
}

void cuda_cache_close(dlrm_backend *be, cuda_cache **cp)
{
    cuda_cache *c = *cp;
    if (!c) return;
    for (int k = 0; k < c->n_pools; k++) {
        dlrm_cuda_pool *p = &c->pools[k];
        cuda_release(be, &p->weight);
        for (int i = 0; i < 2; i++) {
            cuda_release(be, &p->state[i]);
            cuda_release(be, &p->missing[i]);
        }
        cuda_release(be, &p->place);
        cuda_release(be, &p->batch);
        cuda_release(be, &p->slot);
        cuda_release(be, &p->often);
        cuda_release(be, &p->victims);
        cuda_release(be, &p->held);
        cuda_release(be, &p->buckets);
        cuda_release(be, &p->counts);
    }
    cuda_release(be, &c->pools_there);
    dlrm_free(&c->pools);
    dlrm_free(cp);
}

void cuda_cache_fetch(dlrm_backend *be, cuda_cache *c, const dlrm_cuda_shard *shard, int64_t B,
                      const dlrm_cuda_sorted *sorted)
{
    if (!c) return;
    c->number++;
    cuda_must(cuda_of(be),
              dlrm_cuda_cache_fetch(shard, B, sorted, c->n_pools, c->pools_there, c->pools, c->number,
                                    cuda_of(be)->feed.stream),
              "bringing rows in from the host's memory");
}

void cuda_cache_write_back(dlrm_backend *be, const cuda_cache *c, const dlrm_cuda_shard *shard)
{
    cudaStream_t stream = cuda_of(be)->feed.stream;
    if (!c) return;
    cuda_must(cuda_of(be), cudaStreamSynchronize(cuda_of(be)->compute.stream),
              "the steps before rows are written back");
    for (int k = 0; k < c->n_pools; k++)
        cuda_must(cuda_of(be), dlrm_cuda_cache_write_back(shard, &c->pools[k], stream), "writing rows back");
    cuda_must(cuda_of(be), cudaStreamSynchronize(stream), "writing rows back");
}

void cuda_cache_count(dlrm_backend *be, const cuda_cache *c, dlrm_cache_use *use)
{
    cudaStream_t stream = cuda_of(be)->feed.stream;
    *use = (dlrm_cache_use){0};
    for (int k = 0; c && k < c->n_pools; k++) {
        dlrm_cuda_pool_counts counts;
        cuda_must(cuda_of(be),
                  cudaMemcpyAsync(&counts, c->pools[k].counts, sizeof counts, cudaMemcpyDeviceToHost, stream),
                  "a cache");
        cuda_must(cuda_of(be), cudaStreamSynchronize(stream), "a cache");
        use->listed += counts.listed;
        use->found += counts.found;
    }
}
