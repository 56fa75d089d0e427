#include "model/host_tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/int64.h"
#include "base/mem.h"
#include "model/optimizer.h"

typedef struct candidate {
    int64_t elements;
    int number; /* of the rank's own slices */
} candidate;

typedef struct plan {
    const dlrm_model_spec *spec;
    const dlrm_placement *place;
    const dlrm_host_tables_args *args;
    dlrm_host_tables *to;
    const int *own;   /* [n_own] the rank's own slices */
    int n_own;
    candidate *order; /* [n] those that may move, by falling size */
    int64_t *ids;     /* [n_tables] of a sample */
    int64_t *listed;  /* [n_own] rows that two batches may list, at most */
    int n;
} plan;

static const dlrm_slice *own_slice(const plan *p, int i)
{
    return &p->place->slices[p->own[i]];
}

/* Ids of all inputs, of two batches; as many as there are rows may be met. */
static void count_listed(plan *p)
{
    for (int j = 0; j < p->spec->n_inputs; j++) p->ids[p->spec->inputs[j].table] += p->spec->inputs[j].hotness;
    for (int i = 0; i < p->n_own; i++)
        p->listed[i] = dlrm_min64(2 * p->args->max_batch * p->ids[own_slice(p, i)->table], own_slice(p, i)->rows);
}

static int larger_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->elements != y->elements) return x->elements < y->elements ? 1 : -1;
    return x->number - y->number;
}

/* Own slices that gain from moving, in order; all others stay. */
static void sort_slices(plan *p)
{
    p->to->device_elements = p->place->replicated_elements;
    for (int i = 0; i < p->n_own; i++) {
        const int64_t elements = dlrm_slice_elements(own_slice(p, i));
        p->to->device_elements += elements;
        if (!p->args->cached || p->listed[i] < own_slice(p, i)->rows) p->order[p->n++] = (candidate){elements, i};
    }
    if (p->n > 0) qsort(p->order, (size_t)p->n, sizeof *p->order, larger_first);
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

static void move(plan *p, int i)
{
    const dlrm_slice *s = own_slice(p, i);
    dlrm_host_tables *h = p->to;
    h->home[i] = true;
    h->device_elements -= dlrm_slice_elements(s);
    h->home_elements += dlrm_slice_elements(s);
    if (!p->args->cached) return;
    pool_of(h, s->columns)->rows += p->listed[i];
    h->cache_elements += p->listed[i] * s->columns;
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
        for (int k = 0; k < p->n_own; k++)
            if (h->home[k] && own_slice(p, k)->columns == h->pools[i].dim) rows += own_slice(p, k)->rows;
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
        if (room < 0 || h->home_elements + p->order[i].elements <= room)
            move(p, p->order[i].number);
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
    plan p = {.spec = spec, .place = place, .args = args, .to = out, .own = place->owned + place->first_owned[rank], .n_own = place->tables[rank]};
    dlrm_status st;
    *out = (dlrm_host_tables){0};
    TRY_TO(done, st, dlrm_alloc(p.n_own, sizeof *p.order, "tables in host memory", &p.order));
    TRY_TO(done, st, dlrm_alloc(p.n_own, sizeof *p.listed, "tables in host memory", &p.listed));
    TRY_TO(done, st, dlrm_alloc(p.n_own, sizeof *out->home, "tables in host memory", &out->home));
    TRY_TO(done, st, dlrm_alloc(spec->n_tables, sizeof *p.ids, "tables in host memory", &p.ids));
    TRY_TO(done, st, dlrm_alloc(p.n_own, sizeof *out->pools, "tables in host memory", &out->pools));
    count_listed(&p);
    sort_slices(&p);
    st = args->budget < 0 ? DLRM_OK : choose(&p);
done:
    dlrm_free(&p.order);
    dlrm_free(&p.ids);
    dlrm_free(&p.listed);
    return st;
}

dlrm_status dlrm_host_tables_fail(const dlrm_config *cfg)
{
    char why[400];
    snprintf(why, sizeof why, "%s", dlrm_error_message());
    return dlrm_config_fail(cfg, "parallel.device_embedding_elements", "%s", why);
}

void dlrm_host_tables_clear(dlrm_host_tables *h)
{
    dlrm_free(&h->home);
    dlrm_free(&h->pools);
}
