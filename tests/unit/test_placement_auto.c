/* strategy: auto, on Merlin's synthetic models (configs/synthetic), whose tables and sizes are recomputed here. */
#include "placement_fixture.h"

#include <math.h>

static const struct {
    const char *name;
    int tables;
    double gib;
} models[] = {{"tiny", 55, 4.2},     {"small", 107, 26.3},      {"medium", 311, 206.2},      {"large", 612, 773.8},
              {"jumbo", 1022, 3109.5}, {"colossal", 2002, 22327.4}, {"criteo", 26, 1.2}};
enum { MODELS = sizeof models / sizeof *models };
static const dlrm_strategy strategies[] = {DLRM_BASIC, DLRM_MEMORY_BALANCED, DLRM_MEMORY_OPTIMIZED};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static double slowest(const opened *o, const dlrm_placement_args *args, int ranks, int64_t *most_elements)
{
    dlrm_placement p;
    double seconds = 0;
    assert_taken(dlrm_placement_make(&o->spec, args, ranks, &p));
    *most_elements = 0;
    for (int r = 0; r < ranks; r++) {
        if (p.seconds[r] > seconds) seconds = p.seconds[r];
        if (p.elements[r] + p.replicated_elements > *most_elements) *most_elements = p.elements[r] + p.replicated_elements;
    }
    dlrm_placement_clear(&p);
    return seconds;
}

/* The best of the strategies over a grid of thresholds (of a thousand tables: an eleventh of it), of those whose ranks hold at most so many
 * elements. */
static double best_of_grid(const opened *o, int ranks, int64_t most)
{
    static const int64_t replicated[] = {-1, 800, 51200, 204800}, rows[] = {-1, 1000000000}, columns[] = {-1, 3000000000, 200000000};
    double best = 1e9;
    for (int i = 0; i < 4 * 2 * 3 * STRATEGIES; i += o->spec.n_tables > 1000 ? 11 : 1) {
        dlrm_placement_args a = o->args;
        int64_t held;
        a.strategy = strategies[i % STRATEGIES];
        a.column_slice = columns[i / STRATEGIES % 3];
        a.row_slice = rows[i / STRATEGIES / 3 % 2];
        a.data_parallel = replicated[i / STRATEGIES / 6];
        const double seconds = slowest(o, &a, ranks, &held);
        if (held <= most && seconds < best) best = seconds;
    }
    return best;
}

static void test_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        opened o;
        open_model(models[i].name, &o);
        assert_int_equal(o.spec.n_tables, models[i].tables);
        const double gib = (double)o.spec.table_elements * 4 / (1 << 30);
        if (gib < models[i].gib - 0.05 || gib > models[i].gib + 0.05) fail_msg("%s: %.3f GiB", models[i].name, gib);
        close_model(&o);
    }
}

/* The plugin's: 100 slots of 10 unpooled ids, 8192 rows x 4, six layers of 1024 and the logit. */
static void test_plugin(void **state)
{
    (void)state;
    opened o;
    open_model("hugectr_plugin", &o);
    assert_int_equal(o.spec.n_tables, 100);
    assert_int_equal(o.spec.n_inputs, 100);
    for (int j = 0; j < 100; j++) {
        assert_int_equal(o.spec.inputs[j].table, j);
        assert_int_equal(dlrm_input_vectors(&o.spec.inputs[j]), 10);
        assert_int_equal(o.spec.tables[j].rows * 100000 + o.spec.tables[j].dim, 819200004);
    }
    assert_int_equal(o.spec.table_elements, 3276800);
    assert_int_equal(o.spec.vectors_width, 4000);
    assert_int_equal(o.spec.interaction_width, 4000);
    assert_int_equal(o.spec.mlp_elements, 4001 * 1024 + 5 * 1025 * 1024 + 1025);
    assert_int_equal(o.cfg.optimizer.embedding.name, DLRM_ADAM);
    assert_int_equal(o.cfg.optimizer.dense.name, DLRM_ADAM);
    close_model(&o);
}

/* Without thresholds: never behind a strategy by more than 3 %, and on some number of ranks ahead where lookups are uneven (one of the
 * inputs of some tables lists many ids), without a rank that holds much more than the fullest of those dealt out by memory. With
 * thresholds of a grid: never behind the best by more than 3 %. */
static void against_strategies(bool gpu, int model)
{
    static const int ranks[] = {1, 2, 4, 8, 16, 32, 64, 128};
    enum { RANKS = sizeof ranks / sizeof *ranks };
    const char *name = models[model].name;
    bool ahead = false;
    opened o;
    open_model(name, &o);
    dlrm_placement_rates(gpu, &o.args.work);
    for (int k = 0; k < RANKS; k++) {
        const bool searched = ranks[k] == 2 || ranks[k] == 8 || ranks[k] == 16 || ranks[k] == 128;
        int64_t most, held, most_by_memory = 0;
        if (!searched && o.spec.n_tables > 600) continue; /* it takes too long */
        const double mine = slowest(&o, &o.args, ranks[k], &most);
        double best = 1e9;
        assert_true(mine > 0);
        for (int s = 0; s < STRATEGIES; s++) {
            dlrm_placement_args a = o.args;
            a.strategy = strategies[s];
            const double other = slowest(&o, &a, ranks[k], &held);
            if (strategies[s] != DLRM_BASIC && held > most_by_memory) most_by_memory = held;
            if (mine > 1.03 * other) fail_msg("%s, %d ranks: auto %g s, strategy %d %g s", name, ranks[k], mine, s, other);
            if (other < best) best = other;
        }
        ahead |= ranks[k] > 1 && mine < 0.98 * best;
        const double limit = 1.1 * (double)most_by_memory + 1;
        if ((double)most > limit)
            fail_msg("%s, %d ranks: a rank holds %lld elements, by memory %lld", name, ranks[k], (long long)most, (long long)most_by_memory);
        if (!searched) continue;
        best = best_of_grid(&o, ranks[k], (int64_t)limit);
        if (mine > 1.03 * best) fail_msg("%s, %d %s: auto %g s, with thresholds %g s", name, ranks[k], gpu ? "GPUs" : "cores", mine, best);
    }
    if (!ahead && model < MODELS - 1) fail_msg("%s, %s: auto is never ahead of the strategies", name, gpu ? "GPUs" : "cores");
    close_model(&o);
}

static void test_against_strategies(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (int gpu = 0; gpu < 2; gpu++) against_strategies(gpu, i);
}

/* Where lookups are uneven it deals out better than any strategy: tiny has two tables of ten times as many ids as the others. */
static void test_uneven(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        opened o;
        int64_t held;
        open_model("tiny", &o);
        dlrm_placement_rates(gpu, &o.args.work);
        const double mine = slowest(&o, &o.args, 8, &held), best = best_of_grid(&o, 8, INT64_MAX);
        if (mine > 0.9 * best) fail_msg("%s: auto %g s, best of the strategies %g s", gpu ? "GPUs" : "cores", mine, best);
        close_model(&o);
    }
}

/* Bytes of the rank that holds most. */
static int64_t fullest(const dlrm_placement_args *a, const dlrm_placement *p)
{
    int64_t most = 0;
    for (int r = 0; r < p->ranks; r++) {
        int64_t bytes = 0;
        for (int k = 0; k < p->n_slices; k++) {
            const dlrm_slice *s = &p->slices[k];
            if (s->owner == r || s->owner == DLRM_EVERY_RANK)
                bytes += s->rows * s->columns * (a->work.table_bytes + 4 * a->work.states) + s->rows * 4 * a->work.row_states;
        }
        if (bytes > most) most = bytes;
    }
    return most;
}

/* With little more memory than the tables take in all, whatever they are: what is too large is cut. */
static void test_memory(void **state)
{
    (void)state;
    static const int ranks[] = {2, 16};
    for (int i = 0; i < MODELS; i++)
        for (int k = 0; k < 2; k++) {
            opened o;
            dlrm_placement p;
            open_model(models[i].name, &o);
            o.args.strategy = DLRM_STRATEGY_AUTO;
            o.args.memory = (int64_t)(1.2 * 8 * (double)o.spec.table_elements / ranks[k]);
            if (dlrm_placement_make(&o.spec, &o.args, ranks[k], &p) != DLRM_OK) fail_msg("%s, %d ranks: %s", models[i].name, ranks[k], dlrm_error_message());
            if (fullest(&o.args, &p) > o.args.memory)
                fail_msg("%s, %d ranks: %lld bytes of %lld", models[i].name, ranks[k], (long long)fullest(&o.args, &p), (long long)o.args.memory);
            dlrm_placement_clear(&p);
            close_model(&o);
        }
}

/* One table of most of the bytes, which no number of ranks makes smaller but by cutting it: by columns, by rows where there is but
 * one column, or by what is given; else the message says what is too large, and how many ranks would do, which is so. */
static void test_too_little_memory(void **state)
{
    (void)state;
    enum { ROWS = 1000000 };
    dlrm_table tables[] = {{.name = "small", .rows = 1000, .dim = 16}, {.name = "large", .rows = ROWS, .dim = 16}, {.name = "middle", .rows = ROWS / 5, .dim = 16}};
    dlrm_input inputs[] = {{.name = "a", .table = 0, .hotness = 1}, {.name = "b", .table = 1, .hotness = 1}, {.name = "c", .table = 2, .hotness = 1}};
    dlrm_model_spec spec = {.n_tables = 3, .tables = tables, .n_inputs = 3, .inputs = inputs, .table_elements = 16 * (1000 + ROWS + ROWS / 5)};
    dlrm_placement_args args = {.strategy = DLRM_STRATEGY_AUTO, .data_parallel = -1, .row_slice = -1, .column_slice = -1, .memory = 24000000,
                                .work = {.batch = 64, .value_bytes = 4, .table_bytes = 4, .row_states = 1, .memory_rate = 10e9, .network_rate = 5e9, .sums_rate = 5e9}};
    dlrm_placement p;
    const char *number;
    assert_int_equal(dlrm_placement_make(&spec, &args, 2, &p), DLRM_E_RUNTIME);
    dlrm_placement_clear(&p);
    const char *says = dlrm_error_message();
    assert_non_null(strstr(says, "no placement of the tables fits 2 ranks of 0.02 GiB: one would hold 0.0"));
    assert_non_null(strstr(says, "tables and optimizer state need 0.08 GiB in all, the largest large (1000000 rows x 16: 0.06 GiB), middle (200000 rows x 16: "
                                 "0.01 GiB), small (1000 rows x 16: 0.00 GiB); "));
    assert_non_null(number = strstr(says, "GiB); "));
    const int enough = atoi(number + 6);
    assert_in_range(enough, 4, 6); /* 81.7 MB, and columns have the rows' state with each owner */
    assert_taken(dlrm_placement_make(&spec, &args, enough, &p));
    assert_true(fullest(&args, &p) <= args.memory);
    assert_true(p.first_slice[2] - p.first_slice[1] > 1);
    dlrm_placement_clear(&p);
    assert_int_equal(dlrm_placement_make(&spec, &args, enough - 1, &p), DLRM_E_RUNTIME);
    dlrm_placement_clear(&p);

    tables[1] = (dlrm_table){.name = "large", .rows = 16 * ROWS, .dim = 1}; /* rows alone */
    args.work.row_states = 0;
    assert_taken(dlrm_placement_make(&spec, &args, 4, &p));
    assert_true(p.slices[p.first_slice[1]].row_step == 4 && fullest(&args, &p) <= args.memory);
    dlrm_placement_clear(&p);
    args.row_slice = 17 * ROWS; /* given, and too large for any table */
    assert_int_equal(dlrm_placement_make(&spec, &args, 4, &p), DLRM_E_RUNTIME);
    dlrm_placement_clear(&p);
    assert_non_null(strstr(dlrm_error_message(), "; with these thresholds no number of ranks up to 1024 would do"));
}

/* Each of a table's owners has its vocabulary, which on a CPU takes of the same memory. */
static void test_memory_of_keys(void **state)
{
    (void)state;
    enum { KEYS = 100000, WEIGHTS = 4 * 4 * (KEYS + 1), VOCABULARY = 28 * KEYS };
    dlrm_table table = {.name = "keys", .rows = KEYS + 1, .dim = 4, .capacity = KEYS, .admission = 1};
    dlrm_input input = {.name = "a", .hotness = 1};
    dlrm_model_spec spec = {.n_tables = 1, .tables = &table, .n_inputs = 1, .inputs = &input, .table_elements = 4 * (KEYS + 1), .n_vocabularies = 1};
    dlrm_placement_args args = {.strategy = DLRM_STRATEGY_AUTO, .data_parallel = -1, .row_slice = -1, .column_slice = -1,
                                .memory = WEIGHTS + VOCABULARY - 1000,
                                .work = {.batch = 64, .value_bytes = 4, .table_bytes = 4, .memory_rate = 10e9, .network_rate = 5e9, .sums_rate = 5e9}};
    dlrm_placement p;
    assert_taken(dlrm_placement_make(&spec, &args, 1, &p)); /* a GPU's memory: without the vocabulary */
    dlrm_placement_clear(&p);
    args.work.keeps_keys = true;
    assert_int_equal(dlrm_placement_make(&spec, &args, 1, &p), DLRM_E_RUNTIME);
    dlrm_placement_clear(&p);
    assert_non_null(strstr(dlrm_error_message(), "; 2 ranks with as much memory each would do"));
    assert_taken(dlrm_placement_make(&spec, &args, 2, &p)); /* half of the columns, all of the keys */
    dlrm_placement_clear(&p);
    args.memory = VOCABULARY; /* which no cut makes smaller */
    assert_int_equal(dlrm_placement_make(&spec, &args, 4, &p), DLRM_E_RUNTIME);
    dlrm_placement_clear(&p);
}

/* Thresholds that are given stay. */
static void test_given(void **state)
{
    (void)state;
    opened o;
    dlrm_placement p;
    open_model("tiny", &o);
    o.args.data_parallel = 80000;
    o.args.row_slice = 400000000;
    o.args.column_slice = 1 << 24;
    assert_taken(dlrm_placement_make(&o.spec, &o.args, 4, &p));
    for (int t = 0; t < o.spec.n_tables; t++) {
        const int64_t n = o.spec.tables[t].rows * o.spec.tables[t].dim;
        const dlrm_slice *s = &p.slices[p.first_slice[t]];
        assert_int_equal(s->owner == DLRM_EVERY_RANK, n <= 80000);
        assert_int_equal(s->row_step, n >= 400000000 ? 4 : 1);
    }
    dlrm_placement_clear(&p);
    close_model(&o);

    open_model("criteo", &o); /* whole by all of them, though most ranks have nothing then */
    o.args.data_parallel = 0;
    o.args.row_slice = INT64_C(1) << 40;
    o.args.column_slice = 12800000;
    assert_taken(dlrm_placement_make(&o.spec, &o.args, 128, &p));
    assert_int_equal(p.n_slices, 26);
    dlrm_placement_clear(&p);
    close_model(&o);
}

/* A first threshold has to bring 3 %. Two tables of many ids, a rank's each, and one of few, half of which is saved where it is replicated. */
static void test_worthwhile(void **state)
{
    (void)state;
    static const int many[] = {30, 5}; /* 31 or 30.5 ids a sample; 6 or 5.5 */
    for (int k = 0; k < 2; k++) {
        dlrm_table tables[] = {{.name = "a", .rows = 1000, .dim = 16}, {.name = "b", .rows = 1000, .dim = 16}, {.name = "few", .rows = 10, .dim = 1}};
        dlrm_input inputs[] = {{.table = 0, .hotness = many[k]}, {.table = 1, .hotness = many[k]}, {.table = 2, .hotness = 1}};
        const dlrm_model_spec spec = {.n_tables = 3, .tables = tables, .n_inputs = 3, .inputs = inputs, .table_elements = 32010};
        const dlrm_placement_args args = {.strategy = DLRM_STRATEGY_AUTO, .data_parallel = -1, .row_slice = -1, .column_slice = -1,
                                          .work = {.batch = 64, .id_s = 1, .pick_s = 1, .memory_rate = INFINITY, .network_rate = INFINITY, .sums_rate = INFINITY}};
        dlrm_placement p;
        assert_taken(dlrm_placement_make(&spec, &args, 2, &p));
        assert_int_equal(p.replicated_tables, k);
        assert_int_equal(p.n_slices, 3);
        dlrm_placement_clear(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sizes, no_blocks_left),
        cmocka_unit_test_teardown(test_plugin, no_blocks_left),
        cmocka_unit_test_teardown(test_against_strategies, no_blocks_left),
        cmocka_unit_test_teardown(test_uneven, no_blocks_left),
        cmocka_unit_test_teardown(test_memory, no_blocks_left),
        cmocka_unit_test_teardown(test_too_little_memory, no_blocks_left),
        cmocka_unit_test_teardown(test_memory_of_keys, no_blocks_left),
        cmocka_unit_test_teardown(test_given, no_blocks_left),
        cmocka_unit_test_teardown(test_worthwhile, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
