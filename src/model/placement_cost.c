#include "model/placement_cost.h"

#include <math.h>

#include "base/mem.h"
#include "model/vocabulary.h"

/* Ids and vectors of a sample. Variable bags are as long as half their maximum, on average. */
static void load_of(const dlrm_model_spec *spec, dlrm_table_load *load)
{
    for (int j = 0; j < spec->n_inputs; j++) {
        const dlrm_input *in = &spec->inputs[j];
        load[in->table].ids += in->variable ? in->hotness / 2.0 : in->hotness;
        load[in->table].vectors += dlrm_input_vectors(in);
        load[in->table].positions += in->hotness;
        load[in->table].keys = dlrm_input_has_keys(spec, j);
    }
}

dlrm_status dlrm_placement_loads(const dlrm_model_spec *spec, const dlrm_placement_work *w, dlrm_table_load **out)
{
    TRY(dlrm_alloc(spec->n_tables, sizeof **out, "placement", out));
    load_of(spec, *out);
    for (int t = 0; t < spec->n_tables; t++)
        (*out)[t].touched = dlrm_power_law_different((double)spec->tables[t].rows, w->alpha, (double)w->batch * (*out)[t].ids);
    return DLRM_OK;
}

static double grains(const dlrm_placement_work *w, double bytes)
{
    return w->grain > 0 ? ceil(bytes / w->grain) * w->grain : bytes;
}

/* Rows and state, of a slice's columns of a row, that an update reads and writes. */
static double kept_bytes(const dlrm_placement_work *w, int columns)
{
    return grains(w, (double)columns * w->table_bytes) + w->states * grains(w, 4.0 * columns) + w->row_states * (w->grain > 0 ? w->grain : 4.0);
}

/* The ids' rows looked up and their vectors written; and the different rows updated, each once, from a gradient for each id. */
static double row_bytes(const dlrm_placement_work *w, double ids, double touched, double vectors, int columns)
{
    const double row = (double)columns * w->table_bytes, vector = (double)columns * w->value_bytes;
    return ids * (grains(w, row) + grains(w, vector)) + vectors * vector + 2 * touched * kept_bytes(w, columns);
}

/* What the places of rows cost beside their bytes: gradients and rows that are looked up lie anywhere, those that are updated in order, so
 * that no more of them than there are pages are far from the last one. */
static double place_seconds(const dlrm_placement_work *w, const dlrm_slice *s, double ids, double touched)
{
    enum { PAGE = 4096 };
    const double table = (double)s->rows * s->columns * (w->table_bytes + 4.0 * w->states);
    const double far = table > (double)w->near_bytes ? 1 - (double)w->near_bytes / table : 0;
    const double pages = fmin(touched, (double)s->rows * s->columns * w->table_bytes / PAGE);
    return w->far_s * (ids * (1 + far) + far * pages * (1 + w->states + w->row_states));
}

/* Of so many ids and vectors, without network. */
static double table_seconds(const dlrm_placement_work *w, const dlrm_slice *s, double ids, double touched, double vectors)
{
    return row_bytes(w, ids, touched, vectors, s->columns) / w->memory_rate + ids * w->id_s + vectors * w->vector_s +
           place_seconds(w, s, ids, touched);
}

/* Vectors that a rank with a slice makes for a sample. */
static double slice_vectors(const dlrm_placement_args *args, const dlrm_table_load *load, const dlrm_slice *s)
{
    return args->unpooled && s->row_step > 1 ? load->positions * (args->exact_rows ? 2 : 1) : load->vectors;
}

/* What the host does for each id: picks those of its rows out, or looks a key's row up. */
static double host_seconds(const dlrm_placement_work *w, const dlrm_table_load *load, const dlrm_slice *s)
{
    return (double)w->batch * load->ids * (s->row_step > 1 ? w->pick_s : load->keys ? w->translate_s : 0);
}

/* Of an owner, but for the network. */
static double owned_seconds(const dlrm_placement_args *args, const dlrm_table_load *load, const dlrm_slice *s)
{
    const dlrm_placement_work *w = &args->work;
    const double batch = (double)w->batch, rank_rows = (double)s->row_step;
    return table_seconds(w, s, batch * load->ids / rank_rows, load->touched / rank_rows, batch * slice_vectors(args, load, s)) +
           host_seconds(w, load, s) + w->slice_s;
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
    const double batch = (double)w->batch, own = batch / ranks, elements = (double)s->rows * s->columns, others = (double)(ranks - 1) / ranks;
    if (args->unpooled) /* deterministic mode: gradients are gathered, and each rank makes the whole update */
        return table_seconds(w, s, batch * load->ids, load->touched, batch * load->vectors) +
               batch * others * load->vectors * s->columns * w->value_bytes / w->network_rate;
    const double sums = elements * (6 * 4.0 + 2 * w->table_bytes + 8.0 * w->states); /* cleared, made, reduced, applied */
    return table_seconds(w, s, own * load->ids, fmin(load->touched, own * load->ids), own * load->vectors) + sums / w->memory_rate +
           2 * elements * 4.0 * others / w->sums_rate;
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

int64_t dlrm_slice_bytes(const dlrm_model_spec *spec, const dlrm_placement_work *w, const dlrm_slice *s, bool more)
{
    const dlrm_table *t = &spec->tables[s->table];
    const int64_t rows = more ? 0 : 4LL * w->row_states * s->rows, keys = more || !w->keeps_keys || t->capacity == 0 ? 0 : dlrm_vocabulary_memory(t, t->capacity);
    return s->rows * s->columns * (w->table_bytes + 4LL * w->states) + rows + keys;
}

dlrm_status dlrm_placement_seconds(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads,
                                   const dlrm_placement *p, double *seconds, int64_t *home)
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
            everywhere += replicated_seconds(args, load, p->ranks, s) + w->copy_s;
        else
            seconds[s->owner] += owned_seconds(args, load, s) + sharing_seconds(args, load, p, s);
    }
    if (p->replicated_tables > 0) everywhere += w->replicated_s;
    for (int r = 0; r < p->ranks; r++) seconds[r] += everywhere;
    for (int r = 0; r < p->ranks; r++) {
        double link = 0;
        int64_t bytes = 0;
        if (args->host) TRY(dlrm_placement_home(spec, args, loads, p, r, &link, &bytes));
        seconds[r] += link;
        if (home) home[r] = bytes;
    }
    return DLRM_OK;
}
