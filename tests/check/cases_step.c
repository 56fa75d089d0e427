/* step_begin and step_end: steps whose settings change each time, over both slots, with a short batch now and then, give
 * what their ops give one by one, in whatever mode the backend runs them; laps go on counting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ref.h"

enum { B = 40, SHORT = 17, ROWS = 9, DIM = 8, HOTNESS = 2, N = 300, STEPS = 44, LEAVES = 4 };

typedef struct model {
    int64_t b; /* samples of the step; all of them are this rank's */
    dlrm_shard shard;
    dlrm_table_shard table;
    dlrm_shard_input input;
    void *to_dense, *d_pooled;
    float *pooled, *w, *g, *logits, *labels[DLRM_SORTED], *host_labels[DLRM_SORTED];
    float *host_dense;
    uint32_t *ids[DLRM_SORTED];
    dlrm_bags bags[DLRM_SORTED];
    dlrm_cut cut;
} model;

static void make_model(harness *h, model *m, float **table, float **w, float **g, float **d_pooled, float **logits)
{
    dlrm_backend *be = h_backend(h);
    *table = h_draw(h, ROWS * DIM, SIGNED);
    *w = h_draw(h, N, SIGNED);
    *g = h_draw(h, N, SIGNED);
    *d_pooled = h_draw_act(h, B * DIM, SIGNED);
    *logits = h_draw(h, B, SIGNED);
    m->table = (dlrm_table_shard){.weight = h_inout(h, "table", *table, ROWS * DIM), .rows = ROWS, .dim = DIM};
    m->input = (dlrm_shard_input){.hotness = HOTNESS, .vectors = 1};
    m->shard = (dlrm_shard){.n_tables = 1, .n_inputs = 1, .tables = &m->table, .inputs = &m->input, .width = DIM, .max_batch = B,
                             .wire = be->act};
    m->to_dense = h_act_output(h, "dense", B, H_DENSE);
    m->pooled = h_act_output(h, "pooled", 1, B * DIM);
    m->d_pooled = h_act_input(h, "d_pooled", *d_pooled, 1, B * DIM);
    m->w = h_weights(h, *w, N);
    m->g = h_input(h, "g", *g, N, sizeof **g);
    m->logits = h_input(h, "logits", *logits, B, sizeof **logits);
    m->host_dense = h_host(h, B * H_DENSE, sizeof(float));
    for (int k = 0; k < DLRM_SORTED; k++) {
        m->labels[k] = h_output(h, "labels", B);
        m->host_labels[k] = h_host(h, B, sizeof(float));
        m->ids[k] = h_host(h, B * HOTNESS, sizeof(uint32_t));
        for (int i = 0; i < B; i++) m->host_labels[k][i] = (float)h_integer(h, 2);
        for (int i = 0; i < B * HOTNESS; i++) m->ids[k][i] = (uint32_t)h_integer(h, ROWS);
    }
    if (be->ops->shard_open(be, &m->shard) != DLRM_OK) h_fail(h, "shard_open: %s", dlrm_error_message());
}

/* Batch number i goes to its slot, as the trainer does it. */
static void feed(harness *h, model *m, int slot)
{
    dlrm_backend *be = h_backend(h);
    const dlrm_bags bags = {.ids = m->ids[slot], .count = m->b * HOTNESS};
    const dlrm_feed_args args = {.shard = &m->shard, .slot = slot, .B = m->b, .b = m->b, .dense_features = H_DENSE, .dense = m->host_dense,
                                 .labels = m->host_labels[slot], .bags = &bags, .to_dense = m->to_dense, .to_labels = m->labels[slot],
                                 .to_bags = &m->bags[slot]};
    const dlrm_lookup_args sort = {.shard = &m->shard, .B = m->b, .bags = &m->bags[slot], .slot = slot};
    be->ops->feed(be, &args);
    be->ops->sort(be, &sort);
}

static void ops(harness *h, const model *m, const dlrm_step *step)
{
    dlrm_backend *be = h_backend(h);
    const dlrm_bags *bags = &m->bags[step->slot];
    const dlrm_lookup_args lookup = {.shard = (dlrm_shard *)&m->shard, .B = m->b, .bags = bags, .pooled = m->pooled};
    const dlrm_loss_args loss = {.b = m->b, .logits = m->logits, .labels = m->labels[step->slot], .loss = step->loss, .cut = &m->cut};
    const dlrm_update_args update = {.shard = (dlrm_shard *)&m->shard, .B = m->b, .bags = bags, .d_pooled = m->d_pooled,
                                     .rule = step->embedding, .step = step->number, .slot = step->slot};
    const dlrm_dense_update_args dense = {.n = N, .w = m->w, .g = m->g, .rule = step->dense};
    be->ops->lap(be, DLRM_PHASES);
    be->ops->lookup(be, &lookup);
    be->ops->lap(be, DLRM_PHASE_LOOKUP);
    be->ops->loss(be, &loss);
    be->ops->lap(be, DLRM_PHASE_MLP);
    be->ops->update(be, &update);
    be->ops->dense_update(be, &dense);
    be->ops->lap(be, DLRM_PHASE_UPDATE);
}

/* What a step does, in double. */
static void expect(const model *m, const dlrm_step *step, const float *d_pooled, const float *g, const float *logits, double *table,
                   double *tol_table, double *w, double *tol_w, double *loss, double *tol_loss)
{
    double sums[ROWS * DIM] = {0}, error[ROWS * DIM] = {0}, wide[B * DIM];
    int64_t touched[ROWS] = {0};
    const dlrm_bags bags = {.ids = m->ids[step->slot], .count = m->b * HOTNESS};
    for (int i = 0; i < B * DIM; i++) wide[i] = (double)d_pooled[i];
    ref_table_gradient(&m->shard, 0, m->b, &bags, wide, sums, error, touched);
    for (int i = 0; i < ROWS * DIM; i++) {
        table[i] -= (double)step->embedding.lr * sums[i];
        tol_table[i] += touched[i / DIM] ? (double)step->embedding.lr * (error[i] + 0x1p-23 * fabs(sums[i])) + 0x1p-23 * fabs(table[i]) : 0;
    }
    for (int i = 0; i < N; i++) {
        w[i] -= (double)step->dense.lr * (double)g[i];
        tol_w[i] += 0x1p-23 * (fabs(w[i]) + fabs((double)step->dense.lr * (double)g[i]));
    }
    for (int64_t i = 0; i < m->b; i++) *loss += ref_loss((double)logits[i], (double)m->host_labels[step->slot][i]);
    *tol_loss = ref_bound(m->b, 0, *loss, *loss);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    dlrm_backend *be = h_backend(h);
    model *m = h_host(h, 1, sizeof *m);
    float *table, *w, *g, *d_pooled, *logits;
    double ref_loss_of[STEPS] = {0}, tol_loss[STEPS], before[DLRM_PHASES], after[DLRM_PHASES];
    const bool shorts = number == 1; /* every seventh batch is short */
    int replayed = 0, recorded = 0;
    snprintf(label, bytes, "%d steps%s", STEPS, shorts ? ", some of them short" : "");
    make_model(h, m, &table, &w, &g, &d_pooled, &logits);
    double *loss = h_output_doubles(h, "loss", STEPS), *ref_table = h_widen(h, table, ROWS * DIM), *ref_w = h_widen(h, w, N),
           *tol_table = h_doubles(h, ROWS * DIM), *tol_w = h_doubles(h, N);
    be->ops->laps(be, before);
    for (int i = 0; i < STEPS; i++) {
        dlrm_step step = {.slot = i % DLRM_SORTED, .number = (uint64_t)i + 1, .loss = loss + i,
                          .dense = {.name = DLRM_SGD, .lr = 0.001f * (float)(i + 1)},
                          .embedding = {.name = DLRM_SGD, .lr = 0.01f / (float)(i + 1)}};
        step.B = m->b = shorts && i % 7 == 6 ? SHORT : B;
        dlrm_cut_make(m->b, 0, 1, h_pinned(h), LEAVES, &m->cut);
        feed(h, m, step.slot);
        be->ops->slot_begin(be, step.slot);
        const dlrm_step_mode mode = be->ops->step_begin(be, &step);
        if (mode != DLRM_STEP_REPLAY) ops(h, m, &step);
        be->ops->step_end(be);
        be->ops->slot_end(be, step.slot);
        be->ops->feed_wait(be);
        recorded += mode == DLRM_STEP_RECORD;
        replayed += mode == DLRM_STEP_REPLAY;
        expect(m, &step, d_pooled, g, logits, ref_table, tol_table, ref_w, tol_w, &ref_loss_of[i], &tol_loss[i]);
    }
    be->ops->laps(be, after);
    const dlrm_phase phases[] = {DLRM_PHASE_LOOKUP, DLRM_PHASE_MLP, DLRM_PHASE_UPDATE};
    for (int k = 0; k < 3; k++)
        if (!(after[phases[k]] > before[phases[k]]) || after[phases[k]] > before[phases[k]] + 10)
            h_fail(h, "phase %d: %g s before, %g s after", (int)phases[k], before[phases[k]], after[phases[k]]);
    const char *set = getenv("DLRM_CUDA_GRAPHS");
    const bool records = strcmp(be->ops->name, "cuda") == 0 && !(set && strcmp(set, "0") == 0);
    if (records ? recorded == 0 || replayed < STEPS / 2 : recorded + replayed > 0)
        h_fail(h, "%d of %d steps recorded, %d replayed", recorded, STEPS, replayed);
    h_compare(h, loss, ref_loss_of, tol_loss);
    h_compare(h, m->table.weight, ref_table, tol_table);
    h_compare(h, m->w, ref_w, tol_w);
    be->ops->shard_close(be, &m->shard);
}

const family step_family = {"step", {SLOT(step_begin), SLOT(step_end)}, false, 2, run};
