#include "model/placement.h"

#include <stdlib.h>

#include "base/mem.h"

typedef struct item {
    int64_t elements;
    int table;
} item;

static int larger_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->elements != y->elements) return x->elements < y->elements ? 1 : -1;
    return x->table - y->table;
}

static int least_loaded(const dlrm_placement *p)
{
    int best = 0;
    for (int r = 1; r < p->ranks; r++)
        if (p->elements[r] < p->elements[best]) best = r;
    return best;
}

dlrm_status dlrm_placement_make(const dlrm_model_spec *spec, dlrm_strategy strategy, int ranks, dlrm_placement *p)
{
    const int T = spec->n_tables;
    item *order;
    *p = (dlrm_placement){.ranks = ranks};
    TRY(dlrm_alloc(T, sizeof *p->owner, "placement", &p->owner));
    TRY(dlrm_alloc(spec->n_inputs, sizeof *p->column, "placement", &p->column));
    TRY(dlrm_alloc(ranks, sizeof *p->width, "placement", &p->width));
    TRY(dlrm_alloc(ranks, sizeof *p->elements, "placement", &p->elements));
    TRY(dlrm_alloc(ranks, sizeof *p->tables, "placement", &p->tables));
    TRY(dlrm_alloc(ranks, sizeof *p->inputs, "placement", &p->inputs));
    TRY(dlrm_alloc(T, sizeof *order, "placement", &order));
    for (int t = 0; t < T; t++) order[t] = (item){spec->tables[t].rows * spec->tables[t].dim, t};
    if (strategy != DLRM_BASIC) qsort(order, (size_t)T, sizeof *order, larger_first);
    for (int i = 0; i < T; i++) {
        int r = i % ranks;
        if (strategy == DLRM_MEMORY_OPTIMIZED)
            r = least_loaded(p);
        else if (strategy != DLRM_BASIC && i / ranks % 2 == 1)
            r = ranks - 1 - r;
        p->owner[order[i].table] = r;
        p->elements[r] += order[i].elements;
        p->tables[r]++;
    }
    for (int j = 0; j < spec->n_inputs; j++) {
        int t = spec->inputs[j].table, r = p->owner[t];
        p->column[j] = (int)p->width[r];
        p->width[r] += spec->tables[t].dim;
        p->inputs[r]++;
    }
    dlrm_free(&order);
    return DLRM_OK;
}

void dlrm_placement_clear(dlrm_placement *p)
{
    dlrm_free(&p->owner);
    dlrm_free(&p->column);
    dlrm_free(&p->width);
    dlrm_free(&p->elements);
    dlrm_free(&p->tables);
    dlrm_free(&p->inputs);
}
