/* What a placement costs, and the thresholds of strategy: auto. */
#include "model/placement_cost.h"

#include <stdlib.h>

#include "base/mem.h"

/* Ids and vectors of a sample. Variable bags are as long as half their maximum, on average. */
static void load_of(const dlrm_model_spec *spec, dlrm_table_load *load)
{
    for (int j = 0; j < spec->n_inputs; j++) {
        const dlrm_input *in = &spec->inputs[j];
        load[in->table].ids += in->variable ? in->hotness / 2.0 : in->hotness;
        load[in->table].vectors += dlrm_input_vectors(in);
        load[in->table].positions += in->hotness;
    }
}

dlrm_status dlrm_placement_loads(const dlrm_model_spec *spec, dlrm_table_load **out)
{
    TRY(dlrm_alloc(spec->n_tables, sizeof **out, "placement", out));
    load_of(spec, *out);
    return DLRM_OK;
}

/* Bytes of memory for the ids' rows: looked up, and updated with their state from gradients; and the vectors, both ways. */
static double row_bytes(const dlrm_placement_work *w, double ids, double vectors, double columns)
{
    const double update = w->value_bytes + 2 * w->table_bytes + 8.0 * w->states;
    return columns * (ids * (w->table_bytes + update) + 2 * vectors * w->value_bytes);
}

/* Vectors that a rank with a slice makes for a sample. */
static double slice_vectors(const dlrm_placement_args *args, const dlrm_table_load *load, const dlrm_slice *s)
{
    return args->unpooled && s->row_step > 1 ? load->positions : load->vectors;
}

/* Of an owner, but for the network. */
static double owned_seconds(const dlrm_placement_args *args, const dlrm_table_load *load, const dlrm_slice *s)
{
    const dlrm_placement_work *w = &args->work;
    const double batch = (double)w->batch, picked = s->row_step > 1 ? batch * load->ids * w->pick_s : 0;
    return batch * row_bytes(w, load->ids / (double)s->row_step, slice_vectors(args, load, s), s->columns) / w->memory_rate + picked + w->slice_s;
}

double dlrm_slice_seconds(const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks, const dlrm_slice *s)
{
    const dlrm_placement_work *w = &args->work;
    const dlrm_table_load *load = &loads[s->table];
    const double vectors = slice_vectors(args, load, s), batch = (double)w->batch;
    const double moved = batch * (ranks - 1) / ranks * s->columns * vectors * w->value_bytes;
    return owned_seconds(args, load, s) + 2 * moved / w->network_rate;
}

/* Of a replicated table, on every rank. */
static double replicated_seconds(const dlrm_placement_args *args, const dlrm_table_load *load, int ranks, const dlrm_slice *s)
{
    const dlrm_placement_work *w = &args->work;
    const double own = (double)w->batch / ranks, elements = (double)s->rows * s->columns, others = (double)(ranks - 1) / ranks;
    if (args->unpooled) /* deterministic mode: gradients are gathered, and each rank makes the whole update */
        return ((double)w->batch * row_bytes(w, load->ids, load->vectors, s->columns)) / w->memory_rate +
               (double)w->batch * others * load->vectors * s->columns * w->value_bytes / w->network_rate;
    const double sums = elements * (6 * 4.0 + 2 * w->table_bytes + 8.0 * w->states); /* cleared, made, reduced, applied */
    return (own * row_bytes(w, load->ids, load->vectors, s->columns) + sums) / w->memory_rate + 2 * elements * 4.0 * others / w->network_rate;
}

/* Of rows whose columns lie on several ranks: gradients are read once more, and what each owner tells the others. */
static double sharing_seconds(const dlrm_placement_args *args, const dlrm_table_load *load, const dlrm_placement *p, const dlrm_slice *s)
{
    const dlrm_placement_work *w = &args->work;
    const int peers = p->first_slice[s->table + 1] - p->first_slice[s->table] - 1;
    if (peers == 0 || s->row_step > 1 || w->shared_bytes == 0) return 0;
    const double told = load->positions * peers * w->shared_bytes;
    return (double)w->batch * ((load->ids * s->columns * w->value_bytes + 2 * told) / w->memory_rate + told / w->network_rate);
}

void dlrm_placement_seconds(const dlrm_placement_args *args, const dlrm_table_load *loads, const dlrm_placement *p, double *seconds)
{
    const dlrm_placement_work *w = &args->work;
    const double batch = (double)w->batch, own = batch / p->ranks, received = (double)dlrm_placement_received(p);
    double everywhere = 0;
    for (int r = 0; r < p->ranks; r++) {
        const double mine = (double)p->width[r], out = (batch - own) * mine, in = own * (received - mine);
        seconds[r] = 2 * (out > in ? out : in) * w->value_bytes / w->network_rate;
    }
    for (int k = 0; k < p->n_slices; k++) {
        const dlrm_slice *s = &p->slices[k];
        const dlrm_table_load *load = &loads[s->table];
        if (s->owner == DLRM_EVERY_RANK)
            everywhere += replicated_seconds(args, load, p->ranks, s) + w->slice_s;
        else
            seconds[s->owner] += owned_seconds(args, load, s) + sharing_seconds(args, load, p, s);
    }
    if (p->replicated_tables > 0) everywhere += w->replicated_s;
    for (int r = 0; r < p->ranks; r++) seconds[r] += everywhere;
}

/* --- auto --- */

typedef struct search {
    const dlrm_model_spec *spec;
    const dlrm_table_load *loads;
    int ranks;
    dlrm_placement_args best;
    double seconds; /* of the slowest rank */
    bool fits;
    int64_t most_elements; /* that a rank may hold */
} search;

/* Keeps these arguments if they are better: what fits before what does not, then the slowest rank's time, which has to be
 * `below` times that of those kept. */
static dlrm_status consider(search *s, const dlrm_placement_args *args, double below)
{
    dlrm_placement p;
    double slowest = 0;
    bool fits = true;
    dlrm_status st = dlrm_placement_deal(s->spec, args, s->loads, s->ranks, &p);
    if (st == DLRM_OK) dlrm_placement_seconds(args, s->loads, &p, p.seconds);
    for (int r = 0; r < s->ranks && st == DLRM_OK; r++) {
        if (p.seconds[r] > slowest) slowest = p.seconds[r];
        fits &= p.elements[r] + p.replicated_elements <= s->most_elements;
    }
    dlrm_placement_clear(&p);
    if (st != DLRM_OK) return st;
    if (s->seconds >= 0 && (fits < s->fits || (fits == s->fits && slowest >= s->seconds * below))) return DLRM_OK;
    s->best = *args;
    s->seconds = slowest;
    s->fits = fits;
    return DLRM_OK;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* What a rank holds at most where slices are dealt out by memory, and a tenth more. */
static dlrm_status bound_memory(search *s, const dlrm_placement_args *args)
{
    static const dlrm_strategy strategies[] = {DLRM_MEMORY_BALANCED, DLRM_MEMORY_OPTIMIZED};
    dlrm_status st = DLRM_OK;
    for (int k = 0; k < 2 && st == DLRM_OK; k++) {
        dlrm_placement_args a = *args;
        dlrm_placement p;
        a.strategy = strategies[k];
        st = dlrm_placement_deal(s->spec, &a, s->loads, s->ranks, &p);
        for (int r = 0; r < s->ranks && st == DLRM_OK; r++) {
            const int64_t most = (int64_t)(1.1 * (double)(p.elements[r] + p.replicated_elements));
            if (most > s->most_elements) s->most_elements = most;
        }
        dlrm_placement_clear(&p);
    }
    return st;
}

enum { TRIED = 24 /* thresholds of each kind */ };
static const double BETTER = 0.999, WORTHWHILE = 0.95; /* what a way of cutting tables has to bring: the model is no better than that */

/* One threshold after the other, those that are not given. sizes: of the tables, rising. */
static dlrm_status search_thresholds(search *s, const int64_t *sizes)
{
    const int T = s->spec->n_tables;
    const dlrm_placement_args given = s->best;
    const int64_t share = (s->spec->table_elements + s->ranks - 1) / s->ranks;
    /* Rows of a bag that are added where they arrive may not be rounded on their way: a run refuses to. */
    const bool rounds = given.unpooled && given.work.value_bytes < 4;
    dlrm_placement_args a = given;
    for (int i = 0; i < TRIED && given.data_parallel < 0; i++) {
        a = s->best;
        a.data_parallel = sizes[(int64_t)i * (T - 1) / (TRIED - 1)];
        TRY(consider(s, &a, s->best.data_parallel < 0 ? WORTHWHILE : BETTER));
    }
    for (int i = -2; i < 6 && given.column_slice < 0; i++) {
        a = s->best;
        a.column_slice = i < 0 ? share << -i : share >> i;
        if (a.column_slice > 0) TRY(consider(s, &a, s->best.column_slice < 0 ? WORTHWHILE : BETTER));
    }
    for (int i = 0; i < TRIED && i < T && given.row_slice < 0 && !rounds; i++) {
        a = s->best;
        a.row_slice = sizes[T - 1 - i];
        TRY(consider(s, &a, s->best.row_slice < 0 ? WORTHWHILE : BETTER));
    }
    return DLRM_OK;
}

dlrm_status dlrm_placement_choose(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                  dlrm_placement_args *out)
{
    static const dlrm_strategy strategies[] = {DLRM_STRATEGY_AUTO, DLRM_MEMORY_BALANCED, DLRM_MEMORY_OPTIMIZED, DLRM_BASIC};
    search s = {.spec = spec, .loads = loads, .ranks = ranks, .seconds = -1};
    int64_t *sizes = NULL;
    dlrm_status st = bound_memory(&s, args);
    for (int k = 0; k < 4 && st == DLRM_OK; k++) {
        dlrm_placement_args a = *args;
        a.strategy = strategies[k];
        st = consider(&s, &a, BETTER);
    }
    if (st == DLRM_OK && ranks > 1) st = dlrm_alloc(spec->n_tables, sizeof *sizes, "placement", &sizes);
    if (st == DLRM_OK && ranks > 1) {
        for (int t = 0; t < spec->n_tables; t++) sizes[t] = spec->tables[t].rows * spec->tables[t].dim;
        qsort(sizes, (size_t)spec->n_tables, sizeof *sizes, by_size);
        st = search_thresholds(&s, sizes);
    }
    dlrm_free(&sizes);
    *out = s.best;
    return st;
}
