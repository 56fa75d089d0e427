/* What a checkpoint says of its run: all of it or nothing, where memory ends. (tests/run/test_checkpoints.py changes every kind of key.) */
#include <jansson.h>

#include "checkpoint/same_run.h"
#include "config_fixture.h"

static int allocations_left; /* of jansson's */

static void *failing_malloc(size_t bytes)
{
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

static void test_without_memory(void **state)
{
    (void)state;
    dlrm_config cfg;
    dlrm_model_spec spec;
    assert_int_equal(parse_with("", &cfg), DLRM_OK);
    assert_int_equal(dlrm_model_spec_resolve(&cfg, NULL, &spec), DLRM_OK);
    json_t *whole = dlrm_run_json(&cfg, &spec, 160), *run = NULL;
    assert_int_equal(json_array_size(json_object_get(whole, "tables")), 3);
    json_set_alloc_funcs(failing_malloc, free);
    for (int n = 0; !run; n++) {
        allocations_left = n;
        run = dlrm_run_json(&cfg, &spec, 160);
        assert_true(run || n < 1000);
        if (n == 100) assert_null(run);
    }
    allocations_left = 0;
    assert_int_equal(dlrm_run_check(whole, "ckpt", &cfg, &spec, 160, false), DLRM_E_RUNTIME);
    assert_string_equal(dlrm_error_message(), "no memory to compare the model with that of ckpt");
    json_set_alloc_funcs(malloc, free);
    assert_true(json_equal(run, whole));
    assert_int_equal(dlrm_run_check(run, "ckpt", &cfg, &spec, 160, false), DLRM_OK);
    json_decref(run);
    json_decref(whole);
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&cfg);
}

#define DYNAMIC "model.tables.0={name: C1, rows: dynamic, capacity: 999, evict: lru}\n"
#define ONE_TABLE "model.tables=[{name: C1, rows: 1000}]\n"

/* What a training of `before` is told when it is gone on with as `now`. */
static void assert_differ(const char *before, const char *now, const char *expected)
{
    dlrm_config cfg;
    dlrm_model_spec spec;
    assert_int_equal(parse_with(before, &cfg), DLRM_OK);
    assert_int_equal(dlrm_model_spec_resolve(&cfg, NULL, &spec), DLRM_OK);
    json_t *run = dlrm_run_json(&cfg, &spec, 160);
    assert_int_equal(dlrm_run_check(run, "ckpt", &cfg, &spec, 160, false), DLRM_OK);
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&cfg);
    assert_int_equal(parse_with(now, &cfg), DLRM_OK);
    assert_int_equal(dlrm_model_spec_resolve(&cfg, NULL, &spec), DLRM_OK);
    for (int weights_only = 0; weights_only < 2; weights_only++) {
        assert_int_equal(dlrm_run_check(run, "ckpt", &cfg, &spec, 160, weights_only), DLRM_E_INPUT);
        const char *said = strstr(dlrm_error_message(), ": model.");
        assert_non_null(said);
        assert_string_equal(said + 2, expected);
    }
    json_decref(run);
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&cfg);
}

/* Each value that a list of the model holds: the key, and both values as a config has them. */
static void test_lists(void **state)
{
    (void)state;
    assert_differ("", "model.tables.0.name=C9", "model.tables: name of table number 0 (C9) is C9, but ckpt was made with C1, and this cannot change");
    assert_differ("", "model.tables.1.rows=101", "model.tables: rows of table number 1 (t1) is 101, but ckpt was made with 100, and this cannot change");
    assert_differ("", DYNAMIC, "model.tables: rows of table number 0 (C1) is dynamic, but ckpt was made with 1000, and this cannot change");
    assert_differ(DYNAMIC, "", "model.tables: rows of table number 0 (C1) is 1000, but ckpt was made with dynamic, and this cannot change");
    assert_differ(DYNAMIC, DYNAMIC "model.tables.0.capacity=7",
                  "model.tables: capacity of table number 0 (C1) is 7, but ckpt was made with 999, and this cannot change");
    assert_differ(DYNAMIC, DYNAMIC "model.tables.0.evict=lfu",
                  "model.tables: evict of table number 0 (C1) is lfu, but ckpt was made with lru, and this cannot change");
    assert_differ(DYNAMIC, DYNAMIC "model.tables.0.admission=3",
                  "model.tables: admission of table number 0 (C1) is 3, but ckpt was made with 1, and this cannot change");
    assert_differ("model.interaction=cat", "model.interaction=cat\nmodel.tables.0.dim=8",
                  "model.tables: dim of table number 0 (C1) is 8, but ckpt was made with 16, and this cannot change");
    assert_differ("", "model.tables.1.count=4", "model.tables: has 5 tables, but ckpt was made with 3, and this cannot change");
    assert_differ("", "model.features=[C1, t1, t2, t2]", "model.features: has 4 features, but ckpt was made with 3, and this cannot change");
    assert_differ("", "model.features=[C1, t2, t1]", "model.features: table of feature number 1 (t2) is t2, but ckpt was made with t1, and this cannot change");
    assert_differ("", "model.tables.0.combiner=mean",
                  "model.features: combiner of feature number 0 (C1) is mean, but ckpt was made with sum, and this cannot change");
    assert_differ(ONE_TABLE "model.tables.0.hotness=3", ONE_TABLE "model.tables.0.hotness={max: 3}",
                  "model.features: hotness of feature number 0 (C1) is {max: 3}, but ckpt was made with 3, and this cannot change");
    assert_differ("", "model.tables.0.hotness=2", "model.features: hotness of feature number 0 (C1) is 2, but ckpt was made with 1, and this cannot change");
}

/* A manifest written by hand may have anything where the lists are. */
static void test_odd_lists(void **state)
{
    (void)state;
    static const struct {
        const char *member, *json, *expected;
    } cases[] = {
        {"tables", "null", "model.tables: has 3 tables, but ckpt was made with 0, and this cannot change"},
        {"tables", "[[], [], []]", "model.tables: name of table number 0 (C1) is C1, but ckpt was made with missing, and this cannot change"},
        {"tables", "[[\"C1\", {}], 3, \"x\"]", "model.tables: rows of table number 0 (C1) is 1000, but ckpt was made with missing, and this cannot change"},
        {"inputs", "[3, 4, 5]", "model.features: table of feature number 0 (C1) is C1, but ckpt was made with missing, and this cannot change"},
        {"inputs", "[[\"C1\", 1, false, 9], [], []]",
         "model.features: combiner of feature number 0 (C1) is sum, but ckpt was made with ?, and this cannot change"},
    };
    dlrm_config cfg;
    dlrm_model_spec spec;
    assert_int_equal(parse_with("", &cfg), DLRM_OK);
    assert_int_equal(dlrm_model_spec_resolve(&cfg, NULL, &spec), DLRM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *run = dlrm_run_json(&cfg, &spec, 160);
        json_object_set_new(run, cases[i].member, json_loads(cases[i].json, JSON_DECODE_ANY, NULL));
        assert_int_equal(dlrm_run_check(run, "ckpt", &cfg, &spec, 160, false), DLRM_E_INPUT);
        assert_non_null(strstr(dlrm_error_message(), cases[i].expected));
        json_decref(run);
    }
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_without_memory, no_blocks_left),
        cmocka_unit_test_teardown(test_lists, no_blocks_left),
        cmocka_unit_test_teardown(test_odd_lists, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
