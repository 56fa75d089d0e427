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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_without_memory, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
