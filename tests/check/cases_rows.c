/* rows_update: tables of several shapes at once, every rule, rows without a mark that must stay. */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

enum { MOST_TABLES = 3, RULES = 6, STEP = 4711 };
static const dlrm_dtype types[] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};
static const char *const type_names[] = {"fp32", "bf16", "fp16"};
enum { TYPES = sizeof types / sizeof *types };

static const struct {
    int n;
    int64_t rows[MOST_TABLES];
    int dim[MOST_TABLES];
    const char *why;
} shapes[] = {
    {1, {1}, {1}, "smallest"},
    {1, {300}, {128}, "wide rows"},
    {3, {5, 1000, 40}, {4, 16, 32}, "aligned"},
    {3, {7, 3, 2000}, {3, 17, 5}, "odd widths"},
    {2, {9, 64}, {7, 64}, "an aligned table behind one that is not"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The last: rows without a mark would change under momentum alone. */
static const dlrm_rule rules[RULES] = {
    {.name = DLRM_SGD, .lr = 0.5f},
    {.name = DLRM_ADAGRAD, .lr = 0.05f, .epsilon = 1e-10f},
    {.name = DLRM_ROWWISE_ADAGRAD, .lr = 0.05f, .epsilon = 1e-3f},
    {.name = DLRM_ADAM,
     .lr = 0.01f,
     .epsilon = 1e-8f,
     .beta1 = 0.9f,
     .beta2 = 0.999f,
     .adam_rate = 0.0116f,
     .adam_root = 1},
    {.name = DLRM_SGD, .lr = 0.125f, .momentum = 0.9f},
    {.name = DLRM_ROWWISE_ADAGRAD, .lr = 0.05f, .epsilon = 1e-3f},
};
static const char *const names[RULES] = {"sgd", "adagrad", "rowwise adagrad", "adam", "momentum", "rowwise adagrad, marked"};

static bool is_marked(int rule)
{
    return rule >= 3;
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    dlrm_backend *be = h_backend(h);
    const int shape = number / RULES % SHAPES, n = shapes[shape].n;
    const dlrm_dtype type = types[number / RULES / SHAPES];
    const dlrm_rule *rule = &rules[number % RULES];
    const bool marked = is_marked(number % RULES), rowwise = rule->name == DLRM_ROWWISE_ADAGRAD;
    const int n_states = rule->name == DLRM_ADAM ? 2 : rule->name != DLRM_SGD || rule->momentum != 0;
    dlrm_shard shard = {.dtype = type, .n_tables = n, .max_batch = 1, .tables = h_host(h, n, sizeof *shard.tables)};
    float *w[MOST_TABLES], *s[MOST_TABLES][2];
    int64_t total = 0;
    snprintf(label, bytes, "%s, %s tables, %s", names[number % RULES], type_names[number / RULES / SHAPES],
             shapes[shape].why);
    for (int t = 0; t < n; t++) {
        const int64_t rows = shapes[shape].rows[t], elements = rows * shapes[shape].dim[t];
        w[t] = h_draw_as(h, type, elements, SIGNED);
        shard.tables[t] = (dlrm_table_shard){.weight = h_inout_as(h, "table", type, w[t], elements),
                                             .rows = rows,
                                             .dim = shapes[shape].dim[t],
                                             .stream = 77 + (uint64_t)t,
                                             .first_element = 5 * t,
                                             .row_elements = shapes[shape].dim[t] + t};
        for (int k = 0; k < n_states; k++) {
            const int64_t size = rowwise ? rows : elements;
            s[t][k] = h_draw(h, size, k == 0 && (rule->name == DLRM_ADAM || rule->name == DLRM_SGD) ? SIGNED : POSITIVE);
            shard.tables[t].state[k] = h_inout(h, k ? "second state" : "state", s[t][k], size);
        }
        total += rows * dlrm_sums_pitch(shapes[shape].dim[t], marked);
    }
    float *sums = h_draw(h, total, WIDE);
    for (int64_t t = 0, at = 0; marked && t < n; t++)
        for (int64_t row = 0; row < shard.tables[t].rows; row++, at += dlrm_sums_pitch(shard.tables[t].dim, true))
            sums[at + shard.tables[t].dim] = row % 3 == 1 ? 0 : 0.25f;
    const dlrm_rows_update_args args = {
        .shard = &shard, .sums = h_input(h, "sums", sums, total, sizeof *sums), .marked = marked, .rule = *rule, .step = STEP};

    if (be->ops->shard_open(be, &shard) != DLRM_OK) h_fail(h, "shard_open: %s", dlrm_error_message());
    be->ops->rows_update(be, &args);

    const float *sum = sums;
    for (int t = 0; t < n; t++) {
        const dlrm_table_shard *table = &shard.tables[t];
        const int64_t elements = table->rows * table->dim, per_row = rowwise ? 1 : table->dim;
        double *ref = h_widen(h, w[t], elements), *tol = h_doubles(h, elements), *exact = h_doubles(h, table->dim), *state[2],
               *state_tol[2];
        int64_t *touched = h_host(h, table->rows, sizeof *touched);
        for (int k = 0; k < n_states; k++) {
            state[k] = h_widen(h, s[t][k], table->rows * per_row);
            state_tol[k] = h_doubles(h, table->rows * per_row);
        }
        for (int64_t row = 0; row < table->rows; row++, sum += dlrm_sums_pitch(table->dim, marked)) {
            touched[row] = !marked || sum[table->dim] != 0;
            if (!touched[row]) continue; /* must not have changed: tolerance 0 */
            const int64_t at = row * table->dim, at_state = row * per_row;
            ref_update(rule, table->dim, h_widen(h, sum, table->dim), exact, ref + at, n_states > 0 ? state[0] + at_state : NULL,
                       n_states > 1 ? state[1] + at_state : NULL, tol + at, n_states > 0 ? state_tol[0] + at_state : NULL,
                       n_states > 1 ? state_tol[1] + at_state : NULL);
        }
        if (type == DLRM_FP32)
            h_compare(h, table->weight, ref, tol);
        else
            h_compare_rounded(h, type, table, STEP, touched, ref, tol);
        for (int k = 0; k < n_states; k++) h_compare(h, table->state[k], state[k], state_tol[k]);
    }
    be->ops->shard_close(be, &shard);
}

const family rows_family = {"rows_update", {SLOT(rows_update)}, false, SHAPES *RULES *TYPES, run};
