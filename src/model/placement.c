#include "model/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/host_tables.h"
#include "model/placement_cost.h"

typedef struct item {
    double seconds; /* with strategy auto; else 0 */
    int64_t elements;
    int slice;
} item;

/* What ranks hold while slices are dealt out by cost. */
typedef struct room {
    int64_t *held; /* [ranks] bytes of own slices */
    int64_t most;  /* bytes of a rank's, beside replicated tables */
} room;

static int dearer_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    if (x->elements != y->elements) return x->elements < y->elements ? 1 : -1;
    return x->slice - y->slice;
}

/* What the rank holds more with this slice: what there is for a whole row it may have already. */
static int64_t added_bytes(const dlrm_model_spec *spec, const dlrm_placement_work *w, const dlrm_placement *p, int slice, int rank)
{
    const dlrm_slice *s = &p->slices[slice];
    bool more = false;
    for (int k = p->first_slice[s->table]; k < p->first_slice[s->table + 1] && !more; k++) more = p->slices[k].owner == rank;
    return dlrm_slice_bytes(spec, w, s, more);
}

/* The rank that has least to do, of those that have room for the slice; if none has, the one that would hold least. Without bounds:
 * the one that has least to do, or that holds least elements. */
static int least_loaded(const dlrm_model_spec *spec, const dlrm_placement_work *w, const dlrm_placement *p, const room *m, int slice)
{
    int best = 0;
    int64_t best_holds = 0;
    for (int r = 0; r < p->ranks; r++) {
        const int64_t holds = m->most < INT64_MAX ? m->held[r] + added_bytes(spec, w, p, slice, r) : 0;
        const bool fits = holds <= m->most, best_fits = best_holds <= m->most;
        const bool less = p->seconds[r] < p->seconds[best] || (p->seconds[r] == p->seconds[best] && p->elements[r] < p->elements[best]);
        if (r > 0 && !(fits != best_fits ? fits : fits ? less : holds < best_holds)) continue;
        best = r;
        best_holds = holds;
    }
    return best;
}

/* Of a rank's own slices, that memory has room for beside the replicated ones: the host's beside what stays on a device, or all there is. */
static int64_t most_bytes(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_placement *p)
{
    int64_t replicated = 0, device = 0;
    if (args->memory == 0) return INT64_MAX;
    for (int k = 0; k < p->n_slices; k++)
        if (p->slices[k].owner == DLRM_EVERY_RANK) replicated += dlrm_slice_bytes(spec, &args->work, &p->slices[k], false);
    if (args->host) device = dlrm_host_tables_stay(args->host) * (args->work.table_bytes + 4LL * args->work.states);
    return args->memory + device - replicated;
}

/* --- slices --- */

enum { NOBODY = -2 /* the owner of a slice that has none yet */ };

static int64_t table_elements(const dlrm_table *t)
{
    return t->rows * t->dim;
}

typedef enum how { REPLICATED, BY_ROWS, BY_COLUMNS } how;

/* A table with a vocabulary has its rows together: where a key's row is, is for its owners alone to know. */
static how how_to_cut(const dlrm_placement_args *args, int ranks, const dlrm_table *t)
{
    if (t->capacity > 0) return BY_COLUMNS;
    if (ranks > 1 && table_elements(t) <= args->data_parallel) return REPLICATED;
    if (ranks > 1 && args->row_slice >= 0 && table_elements(t) >= args->row_slice && t->rows >= ranks) return BY_ROWS;
    return BY_COLUMNS;
}

static int column_slices(int64_t threshold, int ranks, const dlrm_table *t)
{
    int64_t n = 1;
    while (threshold >= 0 && n < ranks && table_elements(t) > threshold * n) n *= 2;
    if (n > ranks) n = ranks;
    return (int)(n < t->dim ? n : t->dim);
}

static int largest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The threshold under which each rank gets a slice: one less than the table halved last (Merlin's rule). -1: no need. */
static dlrm_status halving_threshold(const dlrm_model_spec *spec, const dlrm_placement_args *args, int ranks, int64_t *threshold)
{
    int64_t *sizes;
    int n = 0;
    *threshold = -1;
    for (int t = 0; t < spec->n_tables; t++) {
        if (how_to_cut(args, ranks, &spec->tables[t]) == BY_ROWS) return DLRM_OK; /* every rank has some of it */
        n += how_to_cut(args, ranks, &spec->tables[t]) == BY_COLUMNS;
    }
    if (n == 0 || n >= ranks) return DLRM_OK;
    TRY(dlrm_alloc(ranks, sizeof *sizes, "placement", &sizes));
    n = 0;
    for (int t = 0; t < spec->n_tables; t++)
        if (how_to_cut(args, ranks, &spec->tables[t]) == BY_COLUMNS) sizes[n++] = table_elements(&spec->tables[t]);
    qsort(sizes, (size_t)n, sizeof *sizes, largest_first);
    for (; n < ranks; n++) {
        const int64_t half = sizes[0] / 2;
        int at = 1;
        *threshold = sizes[0] - 1;
        for (; at < n && sizes[at] > half; at++) sizes[at - 1] = sizes[at];
        memmove(sizes + at + 1, sizes + at, (size_t)(n - at) * sizeof *sizes);
        sizes[at - 1] = sizes[at] = half;
    }
    dlrm_free(&sizes);
    return DLRM_OK;
}

static void cut_rows(const dlrm_table *table, int t, dlrm_placement *p)
{
    for (int k = 0; k < p->ranks; k++)
        p->slices[p->n_slices++] = (dlrm_slice){.table = t, .owner = (k + t) % p->ranks, .first_row = k, .row_step = p->ranks,
                                                .rows = (table->rows - k + p->ranks - 1) / p->ranks, .columns = table->dim};
}

static void cut_columns(const dlrm_table *table, int t, int n, dlrm_placement *p)
{
    for (int k = 0, column = 0; k < n; k++) {
        dlrm_slice *s = &p->slices[p->n_slices++];
        *s = (dlrm_slice){.table = t, .owner = NOBODY, .row_step = 1, .rows = table->rows, .first_column = column,
                          .columns = table->dim / n + (k < table->dim % n)};
        column += s->columns;
    }
}

static dlrm_status cut(const dlrm_model_spec *spec, const dlrm_placement_args *args, dlrm_placement *p)
{
    int64_t threshold = args->column_slice, most = 0;
    if (threshold < 0) TRY(halving_threshold(spec, args, p->ranks, &threshold));
    for (int t = 0; t < spec->n_tables; t++)
        most += how_to_cut(args, p->ranks, &spec->tables[t]) == BY_ROWS ? p->ranks : column_slices(threshold, p->ranks, &spec->tables[t]);
    TRY(dlrm_alloc(most, sizeof *p->slices, "placement", &p->slices));
    for (int t = 0; t < spec->n_tables; t++) {
        const dlrm_table *table = &spec->tables[t];
        switch (how_to_cut(args, p->ranks, table)) {
        case REPLICATED:
            cut_columns(table, t, 1, p);
            p->slices[p->n_slices - 1].owner = DLRM_EVERY_RANK;
            break;
        case BY_ROWS: cut_rows(table, t, p); break;
        case BY_COLUMNS: cut_columns(table, t, column_slices(threshold, p->ranks, table), p); break;
        }
        p->first_slice[t + 1] = p->n_slices;
    }
    return DLRM_OK;
}

static int by_owner(const void *a, const void *b)
{
    return ((const dlrm_slice *)a)->owner - ((const dlrm_slice *)b)->owner;
}

/* Column slices in the order of their owners, and one where neighbours have the same. */
static void merge(const dlrm_model_spec *spec, dlrm_placement *p)
{
    int n = 0, begin = 0;
    for (int t = 0; t < spec->n_tables; t++) {
        const int end = p->first_slice[t + 1], count = end - begin;
        const bool columns = p->slices[begin].row_step == 1;
        const int dim = spec->tables[t].dim;
        int column = 0;
        if (columns) qsort(p->slices + begin, (size_t)count, sizeof *p->slices, by_owner);
        for (int k = 0; k < count; k++) {
            dlrm_slice s = p->slices[begin + k];
            if (columns) {
                s.first_column = column;
                s.columns = dim / count + (k < dim % count);
                column += s.columns;
            }
            if (columns && k > 0 && p->slices[n - 1].owner == s.owner)
                p->slices[n - 1].columns += s.columns;
            else
                p->slices[n++] = s;
        }
        begin = end;
        p->first_slice[t + 1] = n;
    }
    p->n_slices = n;
}

/* The slices that have no owner yet, in this order. */
static void deal_in_order(const dlrm_model_spec *spec, const dlrm_placement_args *args, const item *order, int n, room *m, dlrm_placement *p)
{
    const int ranks = p->ranks;
    for (int i = 0; i < n; i++) {
        int r = i % ranks;
        if (args->strategy == DLRM_MEMORY_OPTIMIZED || args->strategy == DLRM_STRATEGY_AUTO)
            r = least_loaded(spec, &args->work, p, m, order[i].slice);
        else if (args->strategy != DLRM_BASIC && i / ranks % 2 == 1)
            r = ranks - 1 - r;
        if (m->most < INT64_MAX) m->held[r] += added_bytes(spec, &args->work, p, order[i].slice, r);
        p->slices[order[i].slice].owner = r;
        p->elements[r] += order[i].elements;
        p->seconds[r] += order[i].seconds;
    }
}

static dlrm_status deal_out(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, dlrm_placement *p)
{
    const bool by_cost = args->strategy == DLRM_STRATEGY_AUTO;
    item *order = NULL;
    room m = {.most = by_cost ? most_bytes(spec, args, p) : INT64_MAX};
    int n = 0;
    dlrm_status st;
    TRY_TO(done, st, dlrm_alloc(p->n_slices, sizeof *order, "placement", &order));
    TRY_TO(done, st, dlrm_alloc(p->ranks, sizeof *m.held, "placement", &m.held));
    for (int k = 0; k < p->n_slices; k++)
        if (p->slices[k].owner == NOBODY)
            order[n++] = (item){by_cost ? dlrm_slice_seconds(args, loads, p->ranks, &p->slices[k]) : 0, dlrm_slice_elements(&p->slices[k]), k};
    for (int k = 0; k < p->n_slices; k++) /* slices of rows have owners already */
        if (p->slices[k].owner >= 0) m.held[p->slices[k].owner] += dlrm_slice_bytes(spec, &args->work, &p->slices[k], false);
    if (args->strategy != DLRM_BASIC) qsort(order, (size_t)n, sizeof *order, dearer_first);
    deal_in_order(spec, args, order, n, &m, p);
done:
    dlrm_free(&order);
    dlrm_free(&m.held);
    return st;
}

/* --- parts --- */

static void add_part(dlrm_placement *p, int input, int slice, int vectors, bool exact)
{
    const dlrm_slice *s = &p->slices[slice];
    int64_t *width = s->owner == DLRM_EVERY_RANK ? &p->replicated_width : &p->width[s->owner];
    if (exact) *width += *width % 2; /* fp32 begins at a multiple of its size */
    p->parts[p->n_parts++] = (dlrm_vector_part){.input = input, .slice = slice, .vectors = vectors, .column = (int)*width, .exact = exact};
    *width += (int64_t)vectors * s->columns * (exact ? 2 : 1);
    p->n_vectors += vectors;
    ++*(s->owner == DLRM_EVERY_RANK ? &p->replicated_inputs : &p->inputs[s->owner]);
}

/* How many vectors each slice gives an input. */
static int vectors_of(const dlrm_placement_args *args, const dlrm_placement *p, const dlrm_input *in)
{
    const bool by_rows = p->slices[p->first_slice[in->table]].row_step > 1;
    return args->unpooled && by_rows ? in->hotness : dlrm_input_vectors(in);
}

static dlrm_status lay_out_parts(const dlrm_model_spec *spec, const dlrm_placement_args *args, dlrm_placement *p)
{
    int64_t n = 0;
    for (int j = 0; j < spec->n_inputs; j++) {
        const int t = spec->inputs[j].table;
        n += p->first_slice[t + 1] - p->first_slice[t];
    }
    TRY(dlrm_alloc(n, sizeof *p->parts, "placement", &p->parts));
    for (int j = 0; j < spec->n_inputs; j++) {
        const int t = spec->inputs[j].table, vectors = vectors_of(args, p, &spec->inputs[j]);
        const bool exact = args->exact_rows && vectors > dlrm_input_vectors(&spec->inputs[j]); /* they are added */
        for (int k = p->first_slice[t]; k < p->first_slice[t + 1]; k++) add_part(p, j, k, vectors, exact);
        p->first_part[j + 1] = p->n_parts;
    }
    for (int r = 0; r < p->ranks && args->exact_rows; r++) p->width[r] += p->width[r] % 2;
    return DLRM_OK;
}

/* Elements, numbers of slices, and which slices are whose. */
static dlrm_status count(dlrm_placement *p)
{
    int n = 0;
    for (int r = 0; r < p->ranks; r++) p->elements[r] = 0;
    for (int k = 0; k < p->n_slices; k++) {
        const dlrm_slice *s = &p->slices[k];
        const bool every = s->owner == DLRM_EVERY_RANK;
        *(every ? &p->replicated_elements : &p->elements[s->owner]) += dlrm_slice_elements(s);
        ++*(every ? &p->replicated_tables : &p->tables[s->owner]);
    }
    TRY(dlrm_alloc(p->n_slices, sizeof *p->owned, "placement", &p->owned));
    for (int r = 0; r < p->ranks; r++) {
        p->first_owned[r] = n;
        n += p->tables[r];
    }
    for (int k = 0; k < p->n_slices; k++)
        if (p->slices[k].owner != DLRM_EVERY_RANK) p->owned[p->first_owned[p->slices[k].owner]++] = k;
    for (int r = p->ranks; r > 0; r--) p->first_owned[r] = p->first_owned[r - 1]; /* where each ended, the next one began */
    p->first_owned[0] = 0;
    return DLRM_OK;
}

dlrm_status dlrm_placement_deal(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                dlrm_placement *p)
{
    *p = (dlrm_placement){.ranks = ranks};
    TRY(dlrm_alloc(spec->n_tables + 1, sizeof *p->first_slice, "placement", &p->first_slice));
    TRY(dlrm_alloc(spec->n_inputs + 1, sizeof *p->first_part, "placement", &p->first_part));
    TRY(dlrm_alloc(ranks + 1, sizeof *p->first_owned, "placement", &p->first_owned));
    TRY(dlrm_alloc(ranks, sizeof *p->width, "placement", &p->width));
    TRY(dlrm_alloc(ranks, sizeof *p->elements, "placement", &p->elements));
    TRY(dlrm_alloc(ranks, sizeof *p->tables, "placement", &p->tables));
    TRY(dlrm_alloc(ranks, sizeof *p->inputs, "placement", &p->inputs));
    TRY(dlrm_alloc(ranks, sizeof *p->seconds, "placement", &p->seconds));
    TRY(cut(spec, args, p));
    TRY(deal_out(spec, args, loads, p));
    merge(spec, p);
    TRY(count(p));
    return lay_out_parts(spec, args, p);
}

dlrm_status dlrm_placement_make(const dlrm_model_spec *spec, const dlrm_placement_args *args, int ranks, dlrm_placement *p)
{
    dlrm_placement_args chosen = *args;
    dlrm_table_load *loads = NULL;
    dlrm_status st;
    *p = (dlrm_placement){.ranks = ranks};
    TRY_TO(done, st, dlrm_placement_loads(spec, &args->work, &loads));
    if (args->strategy == DLRM_STRATEGY_AUTO) TRY_TO(done, st, dlrm_placement_choose(spec, args, loads, ranks, &chosen));
    TRY_TO(done, st, dlrm_placement_deal(spec, &chosen, loads, ranks, p));
    if (args->work.batch) st = dlrm_placement_seconds(spec, args, loads, p, p->seconds, NULL);
done:
    dlrm_free(&loads);
    return st;
}

void dlrm_placement_clear(dlrm_placement *p)
{
    dlrm_free(&p->slices);
    dlrm_free(&p->parts);
    dlrm_free(&p->first_slice);
    dlrm_free(&p->owned);
    dlrm_free(&p->first_owned);
    dlrm_free(&p->first_part);
    dlrm_free(&p->width);
    dlrm_free(&p->elements);
    dlrm_free(&p->tables);
    dlrm_free(&p->inputs);
    dlrm_free(&p->seconds);
}

bool dlrm_placement_wants(const dlrm_placement *p, int input, int rank)
{
    for (int k = p->first_part[input]; k < p->first_part[input + 1]; k++)
        if (p->slices[p->parts[k].slice].owner == rank) return true;
    return false;
}

bool dlrm_placement_replicates(const dlrm_placement *p, int input)
{
    return p->slices[p->parts[p->first_part[input]].slice].owner == DLRM_EVERY_RANK;
}

bool dlrm_placement_adds(const dlrm_placement *p, int input)
{
    return p->slices[p->parts[p->first_part[input]].slice].row_step > 1;
}

int64_t dlrm_placement_received(const dlrm_placement *p)
{
    int64_t n = 0;
    for (int r = 0; r < p->ranks; r++) n += p->width[r];
    return n;
}

const char *dlrm_placement_text(const dlrm_placement *p, int table, char *buf, size_t bytes)
{
    const dlrm_slice *s = &p->slices[p->first_slice[table]];
    const int slices = p->first_slice[table + 1] - p->first_slice[table];
    if (slices > 1 || s->row_step > 1)
        snprintf(buf, bytes, "%d %s slice%s", slices, s->row_step > 1 ? "row" : "column", slices > 1 ? "s" : "");
    else if (s->owner == DLRM_EVERY_RANK)
        snprintf(buf, bytes, "every rank");
    else
        snprintf(buf, bytes, "rank %d", s->owner);
    return buf;
}
