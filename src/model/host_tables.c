#include "model/host_tables.h"

#include <stdio.h>

#include "base/int64.h"
#include "base/mem.h"
#include "model/optimizer.h"

typedef struct plan {
    const dlrm_model_spec *spec;
    const dlrm_placement *place;
    const dlrm_host_tables_args *args;
    dlrm_host_tables *to;
    int *order;      /* [n] slices that may move, by falling size */
    int64_t *listed; /* [n_slices] rows that two batches may list, at most */
    int n;
} plan;

/* Ids of all inputs, of two batches; as many as there are rows may be met. */
static void count_listed(plan *p)
{
    const dlrm_placement *place = p->place;
    for (int i = 0; i < place->n_parts; i++) {
        const dlrm_vector_part *part = &place->parts[i];
        p->listed[part->slice] += 2 * p->args->max_batch * p->spec->inputs[part->input].hotness;
    }
    for (int k = 0; k < place->n_slices; k++) p->listed[k] = dlrm_min64(p->listed[k], place->slices[k].rows);
}

/* Slices of this rank that gain from moving, in order; all others stay. */
static void sort_slices(plan *p, int rank)
{
    const dlrm_slice *slices = p->place->slices;
    for (int k = 0; k < p->place->n_slices; k++) {
        if (slices[k].owner != rank && slices[k].owner != DLRM_EVERY_RANK) continue;
        p->to->device_elements += dlrm_slice_elements(&slices[k]);
        if (slices[k].owner == DLRM_EVERY_RANK || (p->args->cached && p->listed[k] == slices[k].rows)) continue;
        int at = p->n++;
        for (; at > 0 && dlrm_slice_elements(&slices[p->order[at - 1]]) < dlrm_slice_elements(&slices[k]); at--) p->order[at] = p->order[at - 1];
        p->order[at] = k;
    }
}

static dlrm_cache_pool *pool_of(dlrm_host_tables *h, int dim)
{
    int at = 0;
    while (at < h->n_pools && h->pools[at].dim > dim) at++;
    if (at < h->n_pools && h->pools[at].dim == dim) return &h->pools[at];
    for (int i = h->n_pools++; i > at; i--) h->pools[i] = h->pools[i - 1];
    h->pools[at] = (dlrm_cache_pool){.dim = dim};
    return &h->pools[at];
}

static void move(plan *p, int k)
{
    const dlrm_slice *s = &p->place->slices[k];
    dlrm_host_tables *h = p->to;
    h->home[k] = true;
    h->device_elements -= dlrm_slice_elements(s);
    h->home_elements += dlrm_slice_elements(s);
    if (!p->args->cached) return;
    pool_of(h, s->columns)->rows += p->listed[k];
    h->cache_elements += p->listed[k] * s->columns;
}

/* What is left of the budget, to each pool by what it lacks of all its rows. */
static void grow_pools(plan *p)
{
    dlrm_host_tables *h = p->to;
    const int64_t rest = p->args->budget - h->device_elements - h->cache_elements, lacking = h->home_elements - h->cache_elements;
    if (lacking == 0) return;
    const double share = rest < lacking ? (double)rest / (double)lacking : 1;
    for (int i = 0; i < h->n_pools; i++) {
        int64_t rows = 0;
        for (int k = 0; k < p->place->n_slices; k++)
            if (h->home[k] && p->place->slices[k].columns == h->pools[i].dim) rows += p->place->slices[k].rows;
        const int64_t more = dlrm_min64((int64_t)(share * (double)(rows - h->pools[i].rows)), rows - h->pools[i].rows);
        h->pools[i].rows += more;
        h->cache_elements += more * h->pools[i].dim;
    }
}

static dlrm_status choose(plan *p)
{
    dlrm_host_tables *h = p->to;
    const int64_t budget = p->args->budget, stays = dlrm_host_tables_stay(p->args), room = p->args->host_room;
    char host[100] = "";
    if (h->device_elements <= budget) return DLRM_OK;
    for (int i = 0; i < p->n && h->device_elements > stays; i++) {
        if (room < 0 || h->home_elements + dlrm_slice_elements(&p->place->slices[p->order[i]]) <= room)
            move(p, p->order[i]);
        else
            snprintf(host, sizeof host, " (the host has room for %lld of all)", (long long)room);
    }
    if (h->device_elements + h->cache_elements > budget)
        return FAIL(DLRM_E_INPUT, "is %lld elements a rank; the tables that have to stay on the device%s%s take %lld", (long long)budget, host,
                    p->args->cached ? ", and a cache of the rows that two batches may list," : "",
                    (long long)(h->device_elements + h->cache_elements));
    if (p->args->cached) grow_pools(p);
    return DLRM_OK;
}

dlrm_host_tables_args dlrm_host_tables_args_of(const dlrm_config *cfg, int64_t max_batch, int64_t host_bytes)
{
    const dlrm_optimizer_config *opt = &cfg->optimizer.embedding;
    const int state = dlrm_optimizer_rowwise(opt) ? 1 /* of rows of 4 */ : 4 * dlrm_optimizer_states(opt);
    const int64_t element = (int64_t)dlrm_dtype_bytes(cfg->train.embedding_dtype) + state;
    return (dlrm_host_tables_args){.budget = cfg->parallel.device_embedding_elements, .cached = cfg->parallel.host_cache, .max_batch = max_batch,
                                   .host_room = host_bytes < 0 ? -1 : host_bytes / element};
}

dlrm_status dlrm_host_tables_plan(const dlrm_model_spec *spec, const dlrm_placement *place, int rank, const dlrm_host_tables_args *args,
                                  dlrm_host_tables *out)
{
    plan p = {.spec = spec, .place = place, .args = args, .to = out};
    dlrm_status st;
    *out = (dlrm_host_tables){0};
    TRY_TO(done, st, dlrm_alloc(place->n_slices, sizeof *p.order, "tables in host memory", &p.order));
    TRY_TO(done, st, dlrm_alloc(place->n_slices, sizeof *p.listed, "tables in host memory", &p.listed));
    TRY_TO(done, st, dlrm_alloc(place->n_slices, sizeof *out->home, "tables in host memory", &out->home));
    TRY_TO(done, st, dlrm_alloc(place->n_slices, sizeof *out->pools, "tables in host memory", &out->pools));
    count_listed(&p);
    sort_slices(&p, rank);
    st = args->budget < 0 ? DLRM_OK : choose(&p);
done:
    dlrm_free(&p.order);
    dlrm_free(&p.listed);
    return st;
}

void dlrm_host_tables_clear(dlrm_host_tables *h)
{
    dlrm_free(&h->home);
    dlrm_free(&h->pools);
}
