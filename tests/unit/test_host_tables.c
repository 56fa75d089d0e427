/* Which tables lie in the host's memory under a budget, and the room of the cache. */
#include "config_fixture.h"

#include "model/host_tables.h"

enum { TABLES = 5, BATCH = 10 };

/* t0, t3: 8 wide; t1, t4: 4 wide; t2 is small. t0 has two inputs, of 1 and 3 ids. */
static dlrm_table tables[TABLES] = {{.rows = 1000, .dim = 8}, {.rows = 3000, .dim = 4}, {.rows = 10, .dim = 8},
                                    {.rows = 500, .dim = 8}, {.rows = 200, .dim = 4}};
static dlrm_input inputs[] = {{.table = 0, .hotness = 1}, {.table = 0, .hotness = 3}, {.table = 1, .hotness = 1},
                              {.table = 2, .hotness = 1}, {.table = 3, .hotness = 1}, {.table = 4, .hotness = 2}};
enum { INPUTS = sizeof inputs / sizeof *inputs, ALL = 8000 + 12000 + 80 + 4000 + 800 };
static const dlrm_model_spec spec = {.n_tables = TABLES, .n_inputs = INPUTS, .tables = tables, .inputs = inputs};

static int64_t host_room = -1;

static dlrm_status plan(int ranks, int rank, int64_t budget, bool cached, dlrm_placement *place, dlrm_host_tables *h)
{
    const dlrm_placement_args args = {.strategy = DLRM_BASIC, .data_parallel = ranks > 1 ? 80 : -1, .row_slice = ranks > 1 ? 12000 : -1,
                                      .column_slice = -1};
    const dlrm_host_tables_args a = {.budget = budget, .cached = cached, .max_batch = BATCH, .host_room = host_room};
    assert_taken(dlrm_placement_make(&spec, &args, ranks, place));
    return dlrm_host_tables_plan(&spec, place, rank, &a, h);
}

static void expect(int64_t budget, bool cached, const char *home, int n_pools, const dlrm_cache_pool *pools)
{
    dlrm_placement place;
    dlrm_host_tables h;
    int64_t on_device = 0, cache = 0;
    assert_taken(plan(1, 0, budget, cached, &place, &h));
    for (int t = 0; t < TABLES; t++) {
        assert_int_equal(h.home && h.home[t], home[t] == 'h');
        if (home[t] != 'h') on_device += tables[t].rows * tables[t].dim;
    }
    assert_int_equal(h.n_pools, n_pools);
    for (int i = 0; i < n_pools; i++) {
        assert_int_equal(h.pools[i].dim, pools[i].dim);
        assert_int_equal(h.pools[i].rows, pools[i].rows);
        cache += pools[i].rows * pools[i].dim;
    }
    assert_int_equal(h.device_elements, on_device);
    assert_int_equal(h.home_elements, ALL - on_device);
    assert_int_equal(h.cache_elements, cache);
    assert_true(budget < 0 || on_device + cache <= budget);
    dlrm_host_tables_clear(&h);
    dlrm_placement_clear(&place);
}

static void test_all_on_device(void **state)
{
    (void)state;
    expect(-1, true, ".....", 0, NULL);
    expect(ALL, true, ".....", 0, NULL);
    expect(ALL + 1, false, ".....", 0, NULL);
}

/* The largest two, after which the others take half of the budget. Two batches may list 2 * 10 * 4 rows of t0 and 2 * 10 of t1; the
 * rest of the budget, 4880 - 720, goes to both by what they lack, 920 rows of 8 and 2980 of 4. */
static void test_largest_go(void **state)
{
    (void)state;
    expect(2 * 4880, true, "hh...", 2, (const dlrm_cache_pool[]){{8, 80 + 198}, {4, 20 + 642}});
    expect(2 * 4880 - 1, true, "hh.h.", 2, (const dlrm_cache_pool[]){{8, 100 + 484}, {4, 20 + 1031}});
}

/* Two widths: each pool has what two batches may list, and an equal share of what it lacks. */
static void test_two_widths(void **state)
{
    (void)state;
    /* of t0 2 * 10 * 4 rows, of t1 20, of t3 20: 880 elements; t2 and t4 (880) are left alone */
    expect(880 + 880, true, "hh.h.", 2, (const dlrm_cache_pool[]){{8, 100}, {4, 20}});
    /* a quarter of the 24000 - 880 that it lacks: of 1500 - 100 and 3000 - 20 rows */
    expect(880 + 880 + (24000 - 880) / 4, true, "hh.h.", 2, (const dlrm_cache_pool[]){{8, 100 + 350}, {4, 20 + 745}});
}

static void test_uncached(void **state)
{
    (void)state;
    expect(ALL - 1, false, ".h...", 0, NULL);
    expect(4880, false, "hh...", 0, NULL);
    expect(879, false, "hh.hh", 0, NULL);
    expect(0, false, "hhhhh", 0, NULL);
}

/* Those that the host has no room for stay, and the next smaller go; the cache has what is left. */
static void test_host_room(void **state)
{
    (void)state;
    host_room = 12000 + 4000; /* t1 and t3, not t0 */
    expect(ALL - 1, true, ".h.h.", 2, (const dlrm_cache_pool[]){{8, 20 + 479}, {4, 20 + 2979}});
    expect(15000, true, ".h.h.", 2, (const dlrm_cache_pool[]){{8, 20 + 179}, {4, 20 + 1111}});
    expect(ALL - 16000, false, ".h.h.", 0, NULL);
    host_room = 0;
    expect(ALL, true, ".....", 0, NULL);
    dlrm_placement place;
    dlrm_host_tables h;
    assert_int_equal(plan(1, 0, ALL - 1, true, &place, &h), DLRM_E_INPUT);
    assert_non_null(strstr(dlrm_error_message(), "is 24879 elements a rank; the tables that have to stay on the device (the host has room for 0 of all), "
                                                 "and a cache of the rows that two batches may list, take 24880"));
    dlrm_host_tables_clear(&h);
    dlrm_placement_clear(&place);
    host_room = -1;
}

/* What a config takes of the host for an element. */
static void test_element_bytes(void **state)
{
    (void)state;
    dlrm_config cfg = {.parallel = {.device_embedding_elements = 7, .host_cache = true}, .train.embedding_dtype = DLRM_BF16};
    cfg.optimizer.embedding.name = DLRM_SGD;
    assert_int_equal(dlrm_host_tables_args_of(&cfg, 5, 1000).host_room, 500);
    cfg.optimizer.embedding.name = DLRM_ADAM;
    assert_int_equal(dlrm_host_tables_args_of(&cfg, 5, 1000).host_room, 100);
    cfg.optimizer.embedding.name = DLRM_ROWWISE_ADAGRAD;
    assert_int_equal(dlrm_host_tables_args_of(&cfg, 5, 1000).host_room, 333);
    assert_int_equal(dlrm_host_tables_args_of(&cfg, 5, -1).host_room, -1);
}

/* t2 and t4 cannot go, as a batch may list all their rows: with the least cache they are what it takes. */
static void test_too_small(void **state)
{
    (void)state;
    dlrm_placement place;
    dlrm_host_tables h;
    inputs[5].hotness = 20; /* 2 * 10 * 20 rows: all 200 */
    assert_int_equal(plan(1, 0, 1700, true, &place, &h), DLRM_E_INPUT);
    assert_non_null(strstr(dlrm_error_message(), "is 1700 elements a rank; the tables that have to stay on the device, and a cache of the rows "
                                                 "that two batches may list, take 1760"));
    inputs[5].hotness = 2;
    dlrm_host_tables_clear(&h);
    dlrm_placement_clear(&place);
}

/* Each rank by itself: replicated tables stay, a slice of rows goes; others' slices are nobody's business here. */
static void test_ranks(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        dlrm_placement place;
        dlrm_host_tables h;
        int64_t own = 0, stays = 80;
        assert_taken(plan(3, rank, 3500, true, &place, &h));
        for (int k = 0; k < place.n_slices; k++)
            if (place.slices[k].owner == rank) own += dlrm_slice_elements(&place.slices[k]);
        for (int i = 0; i < place.tables[rank]; i++) {
            const dlrm_slice *s = &place.slices[place.owned[place.first_owned[rank] + i]];
            assert_int_equal(s->owner, rank);
            if (h.home[i]) own -= dlrm_slice_elements(s);
        }
        stays += own;
        assert_int_equal(h.device_elements, stays);
        assert_true(h.device_elements + h.cache_elements <= 3500);
        dlrm_host_tables_clear(&h);
        dlrm_placement_clear(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_on_device), cmocka_unit_test(test_largest_go), cmocka_unit_test(test_two_widths),
                                       cmocka_unit_test(test_uncached), cmocka_unit_test(test_host_room),
                                       cmocka_unit_test(test_element_bytes), cmocka_unit_test(test_too_small), cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
