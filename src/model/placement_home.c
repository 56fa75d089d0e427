/* Tables in the host's memory beside a device: how many of their rows cross the link in a step. */
#include <math.h>

#include "base/mem.h"
#include "model/host_tables.h"
#include "model/placement_cost.h"

double dlrm_power_law_share(double n, double alpha, double x)
{
    const double g = 1 - alpha;
    if (x >= n) return 1;
    return g == 0 ? log1p(x) / log1p(n) : expm1(g * log1p(x)) / expm1(g * log1p(n));
}

/* Ids of a range of a fifth of their number share their mean probability. */
double dlrm_power_law_different(double n, double alpha, double draws)
{
    double sum = 0, begin = 0, below = 0;
    if (alpha == 0) return -n * expm1(-draws / n);
    while (begin < n) {
        const double end = fmin(n, ceil(1 + begin * 1.2)), share = dlrm_power_law_share(n, alpha, end), width = end - begin;
        sum -= width * expm1(-draws * (share - below) / width);
        begin = end;
        below = share;
    }
    return sum;
}

/* Ids of a slice in a batch. */
static double ids_of(const dlrm_placement_work *w, const dlrm_table_load *loads, const dlrm_slice *s)
{
    return (double)w->batch * loads[s->table].ids / (double)s->row_step;
}

static double pool_rows(const dlrm_host_tables *h, int columns)
{
    for (int i = 0; i < h->n_pools; i++)
        if (h->pools[i].dim == columns) return (double)h->pools[i].rows;
    return 0;
}

static double link_seconds(const dlrm_placement_work *w, double row_bytes)
{
    return row_bytes / w->link_rate + w->link_row_s;
}

/* A rank's own slices, of which some lie in the host's memory. */
typedef struct owned {
    const dlrm_placement_args *args;
    const dlrm_table_load *loads;
    const dlrm_slice *slices;
    const int *own; /* [n] of them */
    int n;
    dlrm_host_tables host;
} owned;

/* Ids of all slices of this width in the host's memory, which share a pool. */
static double ids_of_width(const owned *o, int columns)
{
    double n = 0;
    for (int i = 0; i < o->n; i++)
        if (o->host.home[i] && o->slices[o->own[i]].columns == columns) n += ids_of(&o->args->work, o->loads, &o->slices[o->own[i]]);
    return n;
}

/* Rows that come and go, each way at once. A pool is taken to be the slices' by their ids, and to have the most frequent rows. */
static double cached_seconds(const owned *o, const dlrm_slice *s, double row_bytes)
{
    const dlrm_placement_work *w = &o->args->work;
    const double n = ids_of(w, o->loads, s), touched = o->loads[s->table].touched / (double)s->row_step;
    const double room = n > 0 ? pool_rows(&o->host, s->columns) * n / ids_of_width(o, s->columns) : 0;
    const double misses = n * (1 - dlrm_power_law_share((double)s->rows, w->alpha, room));
    return fmin(misses, touched) * link_seconds(w, row_bytes);
}

static double home_seconds(const owned *o, const dlrm_slice *s)
{
    const dlrm_placement_work *w = &o->args->work;
    const double weights = (double)s->columns * w->table_bytes, row_bytes = weights + 4.0 * (s->columns * w->states + w->row_states);
    if (o->args->host->cached) return cached_seconds(o, s, row_bytes);
    return o->loads[s->table].touched / (double)s->row_step * (link_seconds(w, weights) + link_seconds(w, row_bytes)); /* repeated ones are cached */
}

dlrm_status dlrm_placement_home(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads,
                                const dlrm_placement *p, int rank, double *seconds, int64_t *bytes)
{
    owned o = {.args = args, .loads = loads, .slices = p->slices, .own = p->owned + p->first_owned[rank], .n = p->tables[rank]};
    dlrm_status st = dlrm_host_tables_plan(spec, p, rank, args->host, &o.host);
    *seconds = 0;
    *bytes = 0;
    if (st == DLRM_E_INPUT) { /* told, with the key's name, by who opens the tables, if nothing better is found */
        *seconds = DLRM_TOO_SMALL_S;
        *bytes = INT64_MAX / 4;
        st = DLRM_OK;
    } else if (st == DLRM_OK) {
        for (int i = 0; i < o.n; i++) {
            dlrm_slice held = p->slices[o.own[i]];
            if (o.host.home[i]) *seconds += home_seconds(&o, &held);
            if (!o.host.home[i]) held.rows = 0; /* a vocabulary lies there in any case */
            *bytes += dlrm_slice_bytes(spec, &args->work, &held, false);
        }
    }
    dlrm_host_tables_clear(&o.host);
    return st;
}
