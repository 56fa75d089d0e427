#include "model/placement.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

typedef struct item {
    int64_t elements;
    int slice;
} item;

static int larger_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->elements != y->elements) return x->elements < y->elements ? 1 : -1;
    return x->slice - y->slice;
}

static int least_loaded(const dlrm_placement *p)
{
    int best = 0;
    for (int r = 1; r < p->ranks; r++)
        if (p->elements[r] < p->elements[best]) best = r;
    return best;
}

/* --- slices --- */

static int64_t elements(const dlrm_slice *s)
{
    return s->rows * s->columns;
}

enum { NOBODY = -2 /* the owner of a slice that has none yet */ };

/* Each table whole. */
static dlrm_status cut(const dlrm_model_spec *spec, const dlrm_placement_args *args, dlrm_placement *p)
{
    TRY(dlrm_alloc(spec->n_tables, sizeof *p->slices, "placement", &p->slices));
    for (int t = 0; t < spec->n_tables; t++) {
        const dlrm_table *table = &spec->tables[t];
        dlrm_slice *whole = &p->slices[p->n_slices++];
        *whole = (dlrm_slice){.table = t, .owner = NOBODY, .row_step = 1, .rows = table->rows, .columns = table->dim};
        if (p->ranks > 1 && elements(whole) <= args->data_parallel) whole->owner = DLRM_EVERY_RANK;
        p->first_slice[t + 1] = p->n_slices;
    }
    return DLRM_OK;
}

/* The slices that have no owner yet. */
static dlrm_status deal_out(const dlrm_placement_args *args, dlrm_placement *p)
{
    item *order;
    int n = 0;
    const int ranks = p->ranks;
    TRY(dlrm_alloc(p->n_slices, sizeof *order, "placement", &order));
    for (int k = 0; k < p->n_slices; k++)
        if (p->slices[k].owner == NOBODY) order[n++] = (item){elements(&p->slices[k]), k};
    if (args->strategy != DLRM_BASIC) qsort(order, (size_t)n, sizeof *order, larger_first);
    for (int i = 0; i < n; i++) {
        int r = i % ranks;
        if (args->strategy == DLRM_MEMORY_OPTIMIZED)
            r = least_loaded(p);
        else if (args->strategy != DLRM_BASIC && i / ranks % 2 == 1)
            r = ranks - 1 - r;
        p->slices[order[i].slice].owner = r;
        p->elements[r] += order[i].elements;
    }
    dlrm_free(&order);
    return DLRM_OK;
}

/* --- parts --- */

static void add_part(dlrm_placement *p, int input, int slice, int position)
{
    const dlrm_slice *s = &p->slices[slice];
    int64_t *width = s->owner == DLRM_EVERY_RANK ? &p->replicated_width : &p->width[s->owner];
    p->parts[p->n_parts++] = (dlrm_vector_part){.input = input, .slice = slice, .position = position, .column = (int)*width};
    *width += s->columns;
    ++*(s->owner == DLRM_EVERY_RANK ? &p->replicated_inputs : &p->inputs[s->owner]);
}

static dlrm_status lay_out_parts(const dlrm_model_spec *spec, dlrm_placement *p)
{
    int64_t n = 0;
    for (int j = 0; j < spec->n_inputs; j++) {
        const int t = spec->inputs[j].table;
        n += p->first_slice[t + 1] - p->first_slice[t];
    }
    TRY(dlrm_alloc(n, sizeof *p->parts, "placement", &p->parts));
    for (int j = 0; j < spec->n_inputs; j++) {
        const int t = spec->inputs[j].table;
        for (int k = p->first_slice[t]; k < p->first_slice[t + 1]; k++) add_part(p, j, k, DLRM_WHOLE_BAG);
        p->first_part[j + 1] = p->n_parts;
    }
    return DLRM_OK;
}

static void count(dlrm_placement *p)
{
    for (int r = 0; r < p->ranks; r++) p->elements[r] = 0;
    for (int k = 0; k < p->n_slices; k++) {
        const dlrm_slice *s = &p->slices[k];
        const bool every = s->owner == DLRM_EVERY_RANK;
        *(every ? &p->replicated_elements : &p->elements[s->owner]) += elements(s);
        ++*(every ? &p->replicated_tables : &p->tables[s->owner]);
    }
}

dlrm_status dlrm_placement_make(const dlrm_model_spec *spec, const dlrm_placement_args *args, int ranks, dlrm_placement *p)
{
    *p = (dlrm_placement){.ranks = ranks};
    TRY(dlrm_alloc(spec->n_tables + 1, sizeof *p->first_slice, "placement", &p->first_slice));
    TRY(dlrm_alloc(spec->n_inputs + 1, sizeof *p->first_part, "placement", &p->first_part));
    TRY(dlrm_alloc(ranks, sizeof *p->width, "placement", &p->width));
    TRY(dlrm_alloc(ranks, sizeof *p->elements, "placement", &p->elements));
    TRY(dlrm_alloc(ranks, sizeof *p->tables, "placement", &p->tables));
    TRY(dlrm_alloc(ranks, sizeof *p->inputs, "placement", &p->inputs));
    TRY(cut(spec, args, p));
    TRY(deal_out(args, p));
    count(p);
    return lay_out_parts(spec, p);
}

void dlrm_placement_clear(dlrm_placement *p)
{
    dlrm_free(&p->slices);
    dlrm_free(&p->parts);
    dlrm_free(&p->first_slice);
    dlrm_free(&p->first_part);
    dlrm_free(&p->width);
    dlrm_free(&p->elements);
    dlrm_free(&p->tables);
    dlrm_free(&p->inputs);
}

bool dlrm_placement_wants(const dlrm_placement *p, int input, int rank)
{
    for (int k = p->first_part[input]; k < p->first_part[input + 1]; k++) {
        const int owner = p->slices[p->parts[k].slice].owner;
        if (owner == rank) return true;
    }
    return false;
}

bool dlrm_placement_replicates(const dlrm_placement *p, int input)
{
    return p->slices[p->parts[p->first_part[input]].slice].owner == DLRM_EVERY_RANK;
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
