/* alloc, release, upload, download, fill, table_init, rows_renew, close; the way of a batch to the backend; laps. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "ref.h"

static void check_alloc(harness *h)
{
    dlrm_backend *be = h_backend(h);
    float *p, *empty;
    static const float three[] = {1, -2, 3};
    float back[5];
    if (be->ops->alloc(be, 5, sizeof *p, "five", &p) != DLRM_OK) h_fail(h, "alloc: %s", dlrm_error_message());
    if (be->ops->alloc(be, 0, sizeof *p, "none", &empty) != DLRM_OK)
        h_fail(h, "alloc of nothing: %s", dlrm_error_message());
    memset(back, 0xFF, sizeof back);
    be->ops->download(be, back, p, sizeof back);
    for (int i = 0; i < 5; i++)
        if (back[i] != 0) h_fail(h, "fresh memory is %g at %d", (double)back[i], i);
    be->ops->upload(be, p + 1, three, sizeof three);
    be->ops->download(be, back, p, sizeof back);
    for (int i = 0; i < 5; i++)
        if (back[i] != (i > 0 && i < 4 ? three[i - 1] : 0))
            h_fail(h, "uploaded memory is %g at %d", (double)back[i], i);
    be->ops->release(be, &p);
    be->ops->release(be, &empty);
    if (p || empty) h_fail(h, "release leaves the pointer");
    be->ops->release(be, &p);
    if (be->ops->alloc(be, INT64_C(1) << 61, 8, "too much", &p) == DLRM_OK)
        h_fail(h, "an impossible size was allocated");
    if (!strstr(dlrm_error_message(), "too much"))
        h_fail(h, "message '%s' does not say for what", dlrm_error_message());
}

static void check_fill(harness *h, int64_t n)
{
    float *p = h_output(h, "filled", n);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n);
    h_backend(h)->ops->fill(h_backend(h), p, n, 0.1f);
    for (int64_t i = 0; i < n; i++) ref[i] = (double)0.1f;
    h_compare(h, p, ref, tol);
}

/* A slice of a table 12 wide: where it lies must not matter to an element. */
static void check_table_init(harness *h, const dlrm_table_init_args *slice)
{
    const double scale = 1 / sqrt(12345.0);
    const int64_t n = slice->rows * slice->columns;
    void *p = h_inout_as(h, "table", slice->dtype, h_draw_as(h, slice->dtype, n, SIGNED), n);
    dlrm_table_init_args args = *slice;
    args.weight = p;
    args.seed = 11;
    args.stream = dlrm_rng_stream("table.C1.weight");
    args.scale = scale;
    h_backend(h)->ops->table_init(h_backend(h), &args);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n), sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = args.first_row + i / args.columns * args.row_step, column = args.first_column + i % args.columns;
        ref[i] = (2 * (double)dlrm_rng_uniform(11, args.stream, (uint64_t)(row * args.dim + column)) - 1) * scale;
        tol[i] = ref_bound(2, 0, fabs(ref[i]), ref[i]);
        sum += ref[i] / scale;
        squares += ref[i] / scale * (ref[i] / scale);
    }
    h_compare(h, p, ref, tol);
    if (n >= 10000 && (fabs(sum / (double)n) > 0.02 || fabs(squares / (double)n - 1.0 / 3) > 0.02))
        h_fail(h, "not uniform: mean %g, mean square %g of the scale", sum / (double)n, squares / (double)n);
}

/* Some rows of a slice start anew, the others stay. Their number: more than travel with one launch. */
static void check_rows_renew(harness *h, dlrm_dtype type, int64_t rows, int first_column, int columns, bool rowwise, int n_states)
{
    enum { DIM = 12 };
    dlrm_backend *be = h_backend(h);
    const int64_t elements = rows * columns, n = (rows + 2) / 3;
    const int state_columns = rowwise ? 1 : columns;
    float *before = h_draw_as(h, type, elements, SIGNED);
    dlrm_table_shard tables[2] = {{.rows = 1, .dim = 3}, {.rows = rows, .dim = columns}};
    dlrm_shard shard = {.dtype = type, .n_tables = 2, .max_batch = 1, .tables = tables, .rowwise = rowwise};
    dlrm_rows_renew_args a = {.shard = &shard, .table = 1,
                              .init = {.dtype = type, .row_step = 1, .rows = rows, .first_column = first_column, .columns = columns, .dim = DIM,
                                       .seed = 11, .stream = dlrm_rng_stream("table.C1.weight"), .scale = 0.125},
                              .n = n, .state_value = 0.1f};
    float *state = h_draw(h, rows * state_columns, POSITIVE);
    uint32_t *list = h_host(h, n, sizeof *list);
    double *ref = h_widen(h, before, elements), *tol = h_doubles(h, elements);
    double *ref_state = h_widen(h, state, rows * state_columns), *exact = h_doubles(h, rows * state_columns);
    tables[0].weight = h_inout_as(h, "other table", type, before, 3);
    tables[1].weight = h_inout_as(h, "table", type, before, elements);
    for (int k = 0; k < n_states; k++) tables[1].state[k] = h_inout(h, "state", state, rows * state_columns);
    if (be->ops->shard_open(be, &shard) != DLRM_OK) h_fail(h, "shard_open: %s", dlrm_error_message());
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = rows - 1 - 3 * i; /* in falling order: any will do */
        list[i] = (uint32_t)row;
        for (int c = 0; c < columns; c++) {
            double *v = &ref[row * columns + c];
            *v = (2 * (double)dlrm_rng_uniform(11, a.init.stream, (uint64_t)(row * DIM + first_column + c)) - 1) * 0.125;
            tol[row * columns + c] = ref_bound(2, 0, fabs(*v), *v);
        }
        for (int c = 0; c < state_columns; c++) ref_state[row * state_columns + c] = (double)0.1f;
    }
    a.rows = list;
    be->ops->rows_renew(be, &a);
    memset(list, 0xFF, (size_t)n * sizeof *list); /* the op has taken what it needs */
    h_compare(h, tables[0].weight, h_widen(h, before, 3), h_doubles(h, 3));
    h_compare(h, tables[1].weight, ref, tol);
    for (int k = 0; k < n_states; k++) h_compare(h, tables[1].state[k], ref_state, exact);
    be->ops->shard_close(be, &shard);
}

/* A batch of two inputs, one variable, in every slot: its values are where the backend says after slot_begin. */
static void check_feed(harness *h)
{
    enum { B = 3, DENSE = H_DENSE, ROWS = 8, DIM = 4 };
    dlrm_backend *be = h_backend(h);
    float *memory = h_host(h, B * (DENSE + 1), sizeof *memory), *labels = memory + B * DENSE;
    uint32_t ids[] = {4, 0, 2}, bag_ids[] = {7, 7, 1, 0};
    int64_t offsets[] = {0, 2, 2, 4}, back[4];
    dlrm_table_shard table = {
        .weight = h_inout(h, "table", h_draw(h, ROWS * DIM, SIGNED), ROWS * DIM), .rows = ROWS, .dim = DIM};
    dlrm_shard_input inputs[] = {{.hotness = 1, .vectors = 1}, {.hotness = 2, .vectors = 1, .variable = true, .column = DIM}};
    dlrm_shard shard = {
        .n_tables = 1, .n_inputs = 2, .tables = &table, .inputs = inputs, .width = 2 * DIM, .max_batch = B};
    const dlrm_bags bags[] = {{.ids = ids, .count = 3}, {.ids = bag_ids, .offsets = offsets, .count = 4}};
    dlrm_bags to_bags[2];
    double *exact = h_doubles(h, B * DENSE);
    for (int i = 0; i < B * (DENSE + 1); i++) memory[i] = (float)(i % 2);
    if (be->ops->shard_open(be, &shard) != DLRM_OK ||
        be->ops->pin(be, memory, B * (DENSE + 1) * sizeof *memory) != DLRM_OK)
        h_fail(h, "%s", dlrm_error_message());
    for (int slot = 0; slot < DLRM_STAGES; slot++) {
        void *to_dense = h_act_output(h, "dense", B, DENSE);
        float *to_labels = h_output(h, "labels", B);
        const dlrm_feed_args a = {.shard = &shard,
                                  .slot = slot,
                                  .B = B,
                                  .b = B,
                                  .dense_features = DENSE,
                                  .dense = memory,
                                  .labels = labels,
                                  .bags = bags,
                                  .to_dense = to_dense,
                                  .to_labels = to_labels,
                                  .to_bags = to_bags};
        be->ops->feed(be, &a);
        be->ops->feed_wait(be);
        be->ops->slot_begin(be, slot);
        h_compare(h, to_dense, h_widen(h, memory, B * DENSE), exact);
        h_compare(h, to_labels, h_widen(h, labels, B), exact);
        be->ops->download(be, back, to_bags[0].ids, sizeof ids);
        if (memcmp(back, ids, sizeof ids) != 0 || to_bags[0].offsets) h_fail(h, "fixed ids differ in slot %d", slot);
        be->ops->download(be, back, to_bags[1].ids, sizeof bag_ids);
        if (memcmp(back, bag_ids, sizeof bag_ids) != 0) h_fail(h, "variable ids differ in slot %d", slot);
        be->ops->download(be, back, to_bags[1].offsets, sizeof offsets);
        if (memcmp(back, offsets, sizeof offsets) != 0) h_fail(h, "offsets differ in slot %d", slot);
        be->ops->slot_end(be, slot);
    }
    be->ops->unpin(be, memory);
    be->ops->shard_close(be, &shard);
}

/* Time is counted for the phase that a lap names, and only from the lap before. */
static void check_laps(harness *h)
{
    enum { N = 1 << 16 };
    dlrm_backend *be = h_backend(h);
    double before[DLRM_PHASES], after[DLRM_PHASES];
    float *p = h_output(h, "filled", N);
    be->ops->laps(be, before);
    be->ops->lap(be, DLRM_PHASES);
    be->ops->fill(be, p, N, 1);
    be->ops->lap(be, DLRM_PHASE_MLP);
    be->ops->fill(be, p, N, 2);
    be->ops->lap(be, DLRM_PHASES);
    be->ops->laps(be, after);
    for (int k = 0; k < DLRM_PHASES; k++)
        if (k == DLRM_PHASE_MLP ? after[k] <= before[k] || after[k] > before[k] + 10 : after[k] != before[k])
            h_fail(h, "phase %d: %g s before, %g s after", k, before[k], after[k]);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    static const int64_t fills[] = {1, 17, 4096, 100001};
    static const dlrm_table_init_args inits[] = {
        {.row_step = 1, .rows = 1, .columns = 1, .dim = 1},
        {.row_step = 1, .rows = 20000, .columns = 3, .dim = 3},
        {.first_row = 3, .row_step = 1, .rows = 17, .columns = 5, .dim = 5},
        {.first_row = (INT64_C(1) << 33) + 1, .row_step = 1, .rows = 1000, .columns = 12, .dim = 12},
        {.first_row = 2, .row_step = 3, .rows = 333, .columns = 12, .dim = 12},
        {.row_step = 1, .rows = 500, .first_column = 5, .columns = 7, .dim = 12},
        {.first_row = (INT64_C(1) << 33) + 1, .row_step = 7, .rows = 11, .first_column = 3, .columns = 1, .dim = 13},
        {.dtype = DLRM_BF16, .first_row = 3, .row_step = 1, .rows = 5000, .columns = 3, .dim = 3},
        {.dtype = DLRM_FP16, .row_step = 2, .rows = 300, .first_column = 5, .columns = 7, .dim = 12},
        {.dtype = DLRM_BF16, .row_step = 1, .rows = 2, .first_column = 1, .columns = 5000, .dim = 5002},
    };
    static const struct {
        dlrm_dtype type;
        int64_t rows;
        int first_column, columns;
        bool rowwise;
        int n_states;
    } renewed[] = {
        {DLRM_FP32, 1, 0, 12, false, 2}, {DLRM_FP32, 5000, 0, 12, false, 1}, {DLRM_BF16, 400, 5, 7, true, 1}, {DLRM_FP16, 31, 11, 1, false, 2}, {DLRM_FP32, 50, 3, 9, false, 0},
    };
    static void (*const others[])(harness *) = {check_alloc, check_feed, check_laps};
    static const char *const names[] = {"alloc", "feed", "laps"};
    if (number < 3) {
        snprintf(label, bytes, "%s", names[number]);
        others[number](h);
    } else if (number < 7) {
        snprintf(label, bytes, "fill %lld", (long long)fills[number - 3]);
        check_fill(h, fills[number - 3]);
    } else if (number < 12) {
        snprintf(label, bytes, "rows_renew, of %lld rows, %d columns from %d, %d states", (long long)renewed[number - 7].rows,
                 renewed[number - 7].columns, renewed[number - 7].first_column, renewed[number - 7].n_states);
        check_rows_renew(h, renewed[number - 7].type, renewed[number - 7].rows, renewed[number - 7].first_column, renewed[number - 7].columns,
                         renewed[number - 7].rowwise, renewed[number - 7].n_states);
    } else {
        const dlrm_table_init_args *a = &inits[number - 12];
        snprintf(label, bytes, "table_init, %lld rows from %lld by %lld, columns %d to %d of %d", (long long)a->rows,
                 (long long)a->first_row, (long long)a->row_step, a->first_column, a->first_column + a->columns, a->dim);
        check_table_init(h, a);
    }
}

const family memory_family = {"memory",
                              {SLOT(alloc), SLOT(release), SLOT(upload), SLOT(download), SLOT(fill), SLOT(table_init), SLOT(rows_renew),
                               SLOT(feed), SLOT(feed_wait), SLOT(slot_begin), SLOT(slot_end), SLOT(lap), SLOT(laps),
                               SLOT(close)},
                              false,
                              22,
                              run};
