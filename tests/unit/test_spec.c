/* The model resolved from config and data: names, counts, shared tables, hotness from either side, rows against
 * cardinalities, widths of every interaction. */
#include "config_fixture.h"

/* A description of data made by hand: features are "name cardinality hotness", hotness 0: not given, negative:
 * variable. */
typedef struct feature {
    const char *name;
    int64_t cardinality;
    int hotness;
} feature;

enum { MOST_FEATURES = 8 };
static dlrm_categorical categorical[MOST_FEATURES];
static char *no_files[MOST_FEATURES], *offset_files[MOST_FEATURES];

static dlrm_feature_spec data_of(int n_dense, int n, const feature *features)
{
    dlrm_feature_spec data = {
        .path = (char *)"d/feature_spec.yaml", .n_dense = n_dense, .n_categorical = n, .categorical = categorical};
    for (int j = 0; j < n; j++) {
        int h = features[j].hotness;
        categorical[j] = (dlrm_categorical){.name = (char *)features[j].name,
                                            .dtype = DLRM_INT32,
                                            .cardinality = features[j].cardinality,
                                            .has_hotness = h != 0,
                                            .hotness = h == 0 ? 1 : abs(h),
                                            .variable = h < 0,
                                            .where = "d/feature_spec.yaml:7:5"};
        offset_files[j] = h < 0 ? (char *)"d/offsets.bin" : NULL;
    }
    data.split[DLRM_TRAIN_SPLIT] = (dlrm_split_files){.present = true, .ids = no_files, .offsets = offset_files};
    return data;
}

static dlrm_status resolve(const char *overrides, const dlrm_feature_spec *data, dlrm_model_spec *spec)
{
    dlrm_config cfg;
    assert_taken(parse_with(overrides, &cfg));
    dlrm_status st = dlrm_model_spec_resolve(&cfg, data, spec);
    dlrm_config_clear(&cfg); /* the spec owns what it has */
    if (st != DLRM_OK) assert_null(spec->tables);
    return st;
}

static void assert_refused_model(const char *overrides, const dlrm_feature_spec *data, const char *expected)
{
    dlrm_model_spec spec;
    assert_message(resolve(overrides, data, &spec), expected);
}

static void assert_table(const dlrm_model_spec *s, int t, const char *name, int64_t rows, int dim)
{
    assert_string_equal(s->tables[t].name, name);
    assert_int_equal(s->tables[t].rows, rows);
    assert_int_equal(s->tables[t].dim, dim);
}

static void assert_input(const dlrm_model_spec *s, int j, const char *name, int table, int hotness, bool variable,
                         dlrm_combiner combiner)
{
    assert_string_equal(s->inputs[j].name, name);
    assert_int_equal(s->inputs[j].table, table);
    assert_int_equal(s->inputs[j].hotness, hotness);
    assert_int_equal(s->inputs[j].variable, variable);
    assert_int_equal(s->inputs[j].combiner, combiner);
}

static void test_expansion(void **state)
{
    (void)state;
    dlrm_model_spec s;
    assert_taken(resolve("model.interaction=cat\n"
                         "model.tables=[{name: C1, rows: 10}, {count: 2, rows: 20, dim: 8}, {name: X, count: 2, rows: "
                         "30, hotness: [1, 5], "
                         "combiner: mean}, {name: Y, count: 1, rows: 40, hotness: {max: 9}}, {rows: 50}]",
                         NULL, &s));
    assert_int_equal(s.n_tables, 7);
    assert_table(&s, 0, "C1", 10, 16);
    assert_table(&s, 1, "t1", 20, 8);
    assert_table(&s, 2, "t2", 20, 8);
    assert_table(&s, 3, "X_0", 30, 16);
    assert_table(&s, 4, "X_1", 30, 16);
    assert_table(&s, 5, "Y_0", 40, 16);
    assert_table(&s, 6, "t6", 50, 16);
    assert_int_equal(s.n_inputs, 9);
    assert_input(&s, 0, "C1", 0, 1, false, DLRM_SUM);
    assert_input(&s, 2, "t2", 2, 1, false, DLRM_SUM);
    assert_input(&s, 3, "X_0.0", 3, 1, false, DLRM_MEAN);
    assert_input(&s, 4, "X_0.1", 3, 5, false, DLRM_MEAN);
    assert_input(&s, 6, "X_1.1", 4, 5, false, DLRM_MEAN);
    assert_input(&s, 7, "Y_0", 5, 9, true, DLRM_SUM);
    assert_input(&s, 8, "t6", 6, 1, false, DLRM_SUM);
    assert_int_equal(s.vectors_width, 7 * 16 + 2 * 8);
    assert_int_equal(s.table_elements, 10 * 16 + 2 * 20 * 8 + 2 * 30 * 16 + 40 * 16 + 50 * 16);
    dlrm_model_spec_clear(&s);
    dlrm_model_spec_clear(&s);
}

static void test_vocabularies(void **state)
{
    (void)state;
    dlrm_model_spec s;
    const dlrm_feature_spec data = data_of(13, 4, (feature[]){{"a", 1000, 0}, {"b", 99, 0}, {"c", 4294967295, 0}, {"d", 10, 0}});
    assert_taken(resolve("model.interaction=cat\nmodel.features=null\n"
                         "model.tables=[{name: C1, rows: 1000}, {name: K, count: 2, rows: dynamic, capacity: 50, evict: lfu, admission: 3}, "
                         "{rows: dynamic, capacity: 5}]", &data, &s)); /* the data's cardinality is no bound */
    assert_int_equal(s.n_vocabularies, 3);
    assert_int_equal(s.tables[0].capacity, 0);
    assert_false(dlrm_input_has_keys(&s, 0));
    assert_table(&s, 1, "K_0", 51, 16);
    assert_table(&s, 3, "t3", 6, 16);
    for (int t = 1; t < 4; t++) {
        assert_int_equal(s.tables[t].vocabulary, t - 1);
        assert_int_equal(s.tables[t].capacity, t < 3 ? 50 : 5);
        assert_int_equal(s.tables[t].evict, t < 3 ? DLRM_EVICT_LFU : DLRM_EVICT_NONE);
        assert_int_equal(s.tables[t].admission, t < 3 ? 3 : 1);
        assert_true(dlrm_input_has_keys(&s, t));
    }
    dlrm_model_spec_clear(&s);
}

/* What the data say are keys goes to a table with a vocabulary, and nowhere else. */
static void test_keys(void **state)
{
    (void)state;
    dlrm_model_spec s;
    const dlrm_feature_spec data = data_of(13, 2, (feature[]){{"a", 1000, 0}, {"b", 1, 0}});
    data.categorical[1].keys = true;
    assert_taken(resolve("model.interaction=cat\nmodel.features=null\nmodel.tables=[{rows: 1000}, {rows: dynamic, capacity: 5}]", &data, &s));
    dlrm_model_spec_clear(&s);
    assert_refused_model("model.interaction=cat\nmodel.features=null\nmodel.tables=[{rows: 1000}, {name: K, rows: 50}]", &data,
                         "command line: model.tables.1.rows: table \"K\" has 50 rows, but the data's feature b has keys (d/feature_spec.yaml:7:5); expected "
                         "dynamic, with a capacity");
    assert_refused_model("data={format: split_binary, path: d}\nmodel.tables=from_dataset\nmodel.features=null", &data,
                         "command line: model.tables: found from_dataset, but the data's feature b has keys (d/feature_spec.yaml:7:5); expected a list of "
                         "tables, of which this one has rows: dynamic and a capacity");
}

static void test_features(void **state)
{
    (void)state;
    dlrm_model_spec s;
    assert_taken(resolve(
        "model.interaction=cat\nmodel.tables=[{name: A, rows: 10, hotness: 3, combiner: mean}, {rows: 20, dim: 4}]\n"
        "model.features=[t1, A, {table: A, hotness: {max: 7}}, {table: A, hotness: 2, combiner: sum}]",
        NULL, &s));
    assert_int_equal(s.n_inputs, 4);
    assert_input(&s, 0, "t1", 1, 1, false, DLRM_SUM);
    assert_input(&s, 1, "A.0", 0, 3, false, DLRM_MEAN);
    assert_input(&s, 2, "A.1", 0, 7, true, DLRM_MEAN);
    assert_input(&s, 3, "A.2", 0, 2, false, DLRM_SUM);
    assert_int_equal(s.vectors_width, 4 + 3 * 16);
    dlrm_model_spec_clear(&s);
    assert_refused_model(
        "model.features=[C1, t3]", NULL,
        "command line: model.features.1.table: found \"t3\", expected the name of one of the 3 tables; the "
        "nearest is t1");
    assert_refused_model("model.tables.1.hotness=[1, 2]\nmodel.features=[C1]", NULL,
                         "command line: model.tables.1.hotness: a list of features cannot stand here together with "
                         "model.features");
}

static void test_names(void **state)
{
    (void)state;
    assert_refused_model(
        "model.tables.0.name=t2", NULL,
        "good.yaml:10:7: model.tables.1: a second table is called \"t2\" here, after that of model.tables.0");
    assert_refused_model(
        "model.tables=[{name: t_1, rows: 5}, {name: t, count: 2, rows: 5}]", NULL,
        "command line: model.tables.1: a second table is called \"t_1\" here, after that of model.tables.0");
    assert_refused_model(
        "model.tables.0.name=a/b", NULL,
        "command line: model.tables.0.name: the name \"a/b\" has a space, a control character or a '/' in it");
    assert_refused_model(
        "model.tables.0.name=\"a b\"", NULL,
        "command line: model.tables.0.name: the name \"a b\" has a space, a control character or a '/' in it");
    char longest[300] = "model.tables.0.name=";
    memset(longest + strlen(longest), 'x', 200);
    dlrm_model_spec s;
    assert_taken(resolve(longest, NULL, &s));
    dlrm_model_spec_clear(&s);
    longest[strlen(longest)] = 'x';
    assert_int_equal(resolve(longest, NULL, &s), DLRM_E_INPUT);
    assert_non_null(strstr(dlrm_error_message(), "is longer than 200 bytes"));
}

static const char from_data[] = "data={format: split_binary, path: d}\nmodel.tables=from_dataset";
static const char with_data[] = "data={format: split_binary, path: d}";

static void test_from_dataset(void **state)
{
    (void)state;
    dlrm_model_spec s;
    dlrm_feature_spec data =
        data_of(13, 4, (feature[]){{"cat_0.bin", 126, 0}, {".bin", 5, 3}, {"b.bin.x", 7, -9}, {"c", 1, 1}});
    assert_taken(resolve(from_data, &data, &s));
    assert_int_equal(s.n_tables, 4);
    assert_table(&s, 0, "cat_0", 126, 16);
    assert_table(&s, 1, ".bin", 5, 16);
    assert_table(&s, 2, "b.bin.x", 7, 16);
    assert_input(&s, 0, "cat_0.bin", 0, 1, false, DLRM_SUM);
    assert_input(&s, 1, ".bin", 1, 3, false, DLRM_SUM);
    assert_input(&s, 2, "b.bin.x", 2, 9, true, DLRM_SUM);
    assert_input(&s, 3, "c", 3, 1, false, DLRM_SUM);
    dlrm_model_spec_clear(&s);

    data = data_of(13, 2, (feature[]){{"a.bin", 5, 0}, {"a", 5, 0}});
    assert_refused_model(
        from_data, &data,
        "d/feature_spec.yaml:7:5: a second table would be called \"a\", after the feature at d/feature_spec.yaml:7:5");
    data = data_of(13, 1, (feature[]){{"a b", 5, 0}});
    assert_refused_model(
        from_data, &data,
        "d/feature_spec.yaml:7:5: the feature's name \"a b\" has a space, a control character or a '/' in it and "
        "cannot name a table; list the tables in the config");
    data = data_of(13, 0, NULL);
    assert_refused_model(
        from_data, &data,
        "command line: model.tables: found from_dataset, but d/feature_spec.yaml has no categorical features");
    data = data_of(13, 2, (feature[]){{"a", 5, 0}, {"b", 9, 2}});
    assert_taken(resolve("data={format: split_binary, path: d}\nmodel.tables=from_dataset\n"
                         "model.features=[b, {table: b, combiner: mean}]",
                         &data, &s));
    assert_input(&s, 0, "a", 1, 1, false, DLRM_SUM);
    assert_input(&s, 1, "b", 1, 2, false, DLRM_MEAN);
    dlrm_model_spec_clear(&s);
    assert_refused_model(
        "data={format: split_binary, path: d}\nmodel.tables=from_dataset\nmodel.features=[b, a]", &data,
        "command line: model.features.1.table: table \"a\" has 5 rows, but the data's feature b needs 9 "
        "(d/feature_spec.yaml:7:5)");
}

/* 2 rows^(1/4) up to a multiple of 8, at most 256; with dot as wide as the bottom output. */
static void test_auto_widths(void **state)
{
    (void)state;
    dlrm_model_spec s;
    static const struct {
        int64_t rows;
        int dim;
    } cases[] = {{1, 8}, {256, 8}, {257, 16}, {4096, 16}, {4097, 24}, {20736, 24}, {20737, 32}, {1000000, 64}, {1048576, 64},
                 {1048577, 72}, {16777216, 128}, {40000000, 160}, {268435456, 256}, {4294967295, 256}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char overrides[300];
        snprintf(overrides, sizeof overrides, "model.interaction=cat\nmodel.tables=[{rows: %lld, dim: auto}, {rows: 7, dim: 3}, {rows: 7}]",
                 (long long)cases[i].rows);
        assert_taken(resolve(overrides, NULL, &s));
        assert_table(&s, 0, "t0", cases[i].rows, cases[i].dim);
        assert_table(&s, 1, "t1", 7, 3);
        assert_table(&s, 2, "t2", 7, 16);
        dlrm_model_spec_clear(&s);
    }
    dlrm_feature_spec data = data_of(5, 2, (feature[]){{"a", 5000, 0}, {"b", 9, 2}});
    char overrides[300];
    snprintf(overrides, sizeof overrides, "%s\nmodel.embedding_dim=auto\nmodel.dense_features=from_dataset", from_data);
    assert_taken(resolve(overrides, &data, &s));
    assert_int_equal(s.dense_features, 5);
    assert_table(&s, 0, "a", 5000, 16); /* dot */
    assert_table(&s, 1, "b", 9, 16);
    dlrm_model_spec_clear(&s);
    snprintf(overrides, sizeof overrides, "%s\nmodel.embedding_dim=auto\nmodel.dense_features=from_dataset\nmodel.interaction=cat", from_data);
    assert_taken(resolve(overrides, &data, &s));
    assert_table(&s, 0, "a", 5000, 24);
    assert_table(&s, 1, "b", 9, 8);
    dlrm_model_spec_clear(&s);
    data.n_dense = 0;
    assert_refused_model(overrides, &data,
                         "good.yaml:5:15: model.bottom_mlp: found 2 layers, expected [], since d/feature_spec.yaml has no numerical features");
}

static void test_against_data(void **state)
{
    (void)state;
    dlrm_model_spec s;
    char overrides[300];
    dlrm_feature_spec data = data_of(13, 3, (feature[]){{"a", 1000, 0}, {"b", 99, 3}, {"c", 100, -4}});
    assert_taken(resolve(with_data, &data, &s));
    assert_table(&s, 0, "C1", 1000, 16);
    assert_input(&s, 0, "a", 0, 1, false, DLRM_SUM);
    assert_input(&s, 1, "b", 1, 3, false, DLRM_SUM);
    assert_input(&s, 2, "c", 2, 4, true, DLRM_SUM);
    dlrm_model_spec_clear(&s);

    static const struct {
        const char *features, *message;
    } cases[] = {
        {"[{table: C1, hotness: 5}, t1, {table: t2, hotness: {max: 4}}]",
         NULL}, /* the spec says nothing for a: config does */
        {"[C1, {table: t1, hotness: 3}, t2]", NULL},
        {"[C1, {table: t1, hotness: 2}, t2]",
         "model.features.1.hotness: found 2 ids per sample, but the data's feature b has 3 (d/feature_spec.yaml:7:5)"},
        {"[C1, {table: t1, hotness: {max: 3}}, t2]", "model.features.1.hotness: found up to 3 ids per sample, but the "
                                                     "data's feature b has 3 (d/feature_spec.yaml:7:5)"},
        {"[C1, t1, {table: t2, hotness: 4}]", "model.features.2.hotness: found 4 ids per sample, but the data's "
                                              "feature c has up to 4 (d/feature_spec.yaml:7:5)"},
        {"[C1, t1, {table: t2, hotness: {max: 5}}]",
         "model.features.2.hotness: found up to 5 ids per sample, but the data's feature c has up to 4 "
         "(d/feature_spec.yaml:7:5)"},
        {"[{table: C1, hotness: {max: 5}}, t1, t2]", "model.features.0.hotness: found {max: 5}, but the data has no "
                                                     "offsets file for its feature a (d/feature_spec.yaml:7:5)"},
        {"[C1, t1]", "model.features: found 2 features in all, but d/feature_spec.yaml has 3 categorical ones"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[300];
        snprintf(overrides, sizeof overrides, "%s\nmodel.features=%s", with_data, cases[i].features);
        snprintf(expected, sizeof expected, "command line: %s", cases[i].message);
        if (cases[i].message) {
            assert_refused_model(overrides, &data, expected);
            continue;
        }
        assert_taken(resolve(overrides, &data, &s));
        dlrm_model_spec_clear(&s);
    }
    snprintf(overrides, sizeof overrides, "%s\nmodel.tables.1.hotness=2", with_data);
    assert_refused_model(overrides, &data,
                         "command line: model.tables.1.hotness: found 2 ids per sample, but the data's feature b has 3 "
                         "(d/feature_spec.yaml:7:5)");
    snprintf(overrides, sizeof overrides, "%s\nmodel.tables.0.rows=999", with_data);
    assert_refused_model(
        overrides, &data,
        "command line: model.tables.0.rows: table \"C1\" has 999 rows, but the data's feature a needs 1000 "
        "(d/feature_spec.yaml:7:5)");
    snprintf(overrides, sizeof overrides, "%s\nmodel.tables.1.count=3", with_data);
    assert_refused_model(
        overrides, &data,
        "good.yaml:9:5: model.tables: found 4 features in all, but d/feature_spec.yaml has 3 categorical ones");
    data.n_dense = 12;
    assert_refused_model(
        with_data, &data,
        "good.yaml:3:19: model.dense_features: found 13, but d/feature_spec.yaml has 12 numerical features");
}

/* A variable number of vectors has no width. */
static void test_unpooled(void **state)
{
    (void)state;
    dlrm_model_spec s;
    dlrm_feature_spec data = data_of(13, 3, (feature[]){{"a", 1000, 0}, {"b", 99, 3}, {"c", 100, -4}});
    assert_taken(resolve("data={format: split_binary, path: d}\nmodel.features=[C1, {table: t1, combiner: none}, t2]", &data, &s));
    assert_input(&s, 1, "b", 1, 3, false, DLRM_UNPOOLED);
    assert_int_equal(dlrm_input_vectors(&s.inputs[1]), 3);
    assert_int_equal(dlrm_input_vectors(&s.inputs[2]), 1);
    dlrm_model_spec_clear(&s);
    assert_refused_model("data={format: split_binary, path: d}\nmodel.tables.1.combiner=none", &data,
                         "command line: model.tables.1.combiner: found none, but feature c has a variable number of ids, up to 4; "
                         "expected sum or mean, or a fixed hotness");
    assert_refused_model("data={format: split_binary, path: d}\nmodel.tables=from_dataset\n"
                         "model.features=[a, b, {table: c, combiner: none}]", &data,
                         "command line: model.features.2.combiner: found none, but feature c has a variable number of ids, up to 4; "
                         "expected sum or mean, or a fixed hotness");
    assert_refused_model("model.tables=[{rows: 5, hotness: {max: 9}, combiner: none}]", NULL,
                         "command line: model.tables.0.combiner: found none, but feature t0 has a variable number of ids, up to 9; "
                         "expected sum or mean, or a fixed hotness");
}

static void check_width(const char *overrides, int bottom, int vectors, int width, int64_t mlp)
{
    dlrm_model_spec s;
    assert_taken(resolve(overrides, NULL, &s));
    assert_int_equal(s.bottom_width, bottom);
    assert_int_equal(s.vectors_width, vectors);
    assert_int_equal(s.interaction_width, width);
    assert_int_equal(s.mlp_elements, mlp);
    dlrm_model_spec_clear(&s);
}

static void test_widths(void **state)
{
    (void)state;
    int64_t bottom = 64 * 14 + 16 * 65;
    check_width("", 16, 48, 16 + 6, bottom + 32 * 23 + 33);
    check_width("model.interaction=cat", 16, 48, 64, bottom + 32 * 65 + 33);
    check_width("model.interaction=cat\nmodel.bottom_mlp=[]", 13, 48, 61, 32 * 62 + 33);
    check_width("model.interaction=cat\nmodel.bottom_mlp=[]\nmodel.dense_features=0", 0, 48, 48, 32 * 49 + 33);
    check_width("model.interaction=dcn\nmodel.cross={layers: 3, rank: 5}", 16, 48, 64,
                bottom + 3 * (5 * 64 + 64 * 5 + 64) + 32 * 65 + 33);
    check_width("model.interaction=pool\nmodel.pool_stride=7", 16, 48, 7 + 16, bottom + 32 * 24 + 33);
    check_width("model.interaction=pool\nmodel.pool_stride=1\nmodel.bottom_mlp=[]", 13, 48, 48 + 13, 32 * 62 + 33);
    check_width("model.interaction=pool\nmodel.pool_stride=48\nmodel.bottom_mlp=[]", 13, 48, 1 + 13, 32 * 15 + 33);
    check_width("model.interaction=pool\nmodel.pool_stride=7\nmodel.bottom_mlp=[]\nmodel.dense_features=0\n"
                "model.tables=[{rows: 5, count: 135, dim: 128}]",
                0, 17280, 2469, 32 * 2470 + 33);
    check_width(
        "model.interaction=pool\nmodel.pool_stride=100\nmodel.bottom_mlp=[]\nmodel.dense_features=0\nmodel.top_mlp=[]",
        0, 48, 1, 0);
    check_width("model.tables=[{rows: 5, count: 26}]", 16, 26 * 16, 16 + 351, bottom + 32 * 368 + 33);

    /* unpooled: as so many features of one id */
    static const char two[] = "model.tables=[{rows: 5, hotness: [1, 3], combiner: none}]";
    char unpooled[200];
    snprintf(unpooled, sizeof unpooled, "%s", two);
    check_width(unpooled, 16, 4 * 16, 16 + 10, bottom + 32 * 27 + 33);
    snprintf(unpooled, sizeof unpooled, "%s\nmodel.interaction=cat", two);
    check_width(unpooled, 16, 4 * 16, 5 * 16, bottom + 32 * 81 + 33);
    snprintf(unpooled, sizeof unpooled, "%s\nmodel.interaction=pool\nmodel.pool_stride=7", two);
    check_width(unpooled, 16, 4 * 16, 10 + 16, bottom + 32 * 27 + 33);

    assert_refused_model(
        "model.top_mlp=[]", NULL,
        "command line: model.top_mlp: found [], but the interaction has 22 outputs; expected a last layer of "
        "width 1, the logit");
    assert_refused_model(
        "model.tables.1.dim=8", NULL,
        "command line: model.tables.1.dim: table \"t1\" is 8 wide, but interaction: dot needs it as wide as the "
        "bottom MLP's output, 16");
    assert_refused_model(
        "model.bottom_mlp=[8]", NULL,
        "good.yaml:9:7: model.tables.0.dim: table \"C1\" is 16 wide, but interaction: dot needs it as wide as the "
        "bottom MLP's output, 8");
}

static void test_limits(void **state)
{
    (void)state;
    assert_refused_model(
        "model.tables=[{rows: 5, count: 1048576}, {rows: 5}]", NULL,
        "command line: model.tables.1.count: the tables up to here are 1048577, expected at most 1048576");
    assert_refused_model(
        "model.tables=[{rows: 5, count: 1000000, hotness: [1, 1]}]", NULL,
        "command line: model.tables.0.hotness: the features up to here are 1048578, expected at most 1048576");
    assert_refused_model(
        "model.tables=[{rows: 4294967295, dim: 65536, count: 600}]", NULL,
        "command line: model.tables.0: the tables up to \"t32\" have more than 9007199254740992 elements");
    assert_refused_model(
        "model.tables=[{rows: 5, count: 20, hotness: 1048576}]\ntrain.batch_size=134217728", NULL,
        "command line: model.tables: 20971520 ids per sample and 134217728 samples per batch are too many, "
        "expected at most 1099511627776 ids per batch");
    assert_refused_model(
        "model.tables=[{rows: 5, count: 20000}]", NULL,
        "good.yaml:6:16: model.interaction: the interaction is 200010016 wide, expected at most 67108864");
    assert_refused_model(
        "model.tables=[{rows: 5, count: 1000, hotness: 1048576, combiner: none}]\ntrain.batch_size=1", NULL,
        "command line: model.tables: the tables' vectors are 16777216000 elements of a sample in all, expected at most 67108864");
    dlrm_feature_spec data = data_of(13, 1, (feature[]){{"a", (int64_t)1 << 32, 0}});
    assert_refused_model(from_data, &data, "d/feature_spec.yaml:7:5: feature a has 4294967296 ids, expected at most 4294967295, a table's rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_expansion, no_blocks_left), cmocka_unit_test_teardown(test_vocabularies, no_blocks_left),
        cmocka_unit_test_teardown(test_features, no_blocks_left),
        cmocka_unit_test_teardown(test_names, no_blocks_left),
        cmocka_unit_test_teardown(test_from_dataset, no_blocks_left),
        cmocka_unit_test_teardown(test_keys, no_blocks_left),
        cmocka_unit_test_teardown(test_auto_widths, no_blocks_left),
        cmocka_unit_test_teardown(test_against_data, no_blocks_left),
        cmocka_unit_test_teardown(test_unpooled, no_blocks_left),
        cmocka_unit_test_teardown(test_widths, no_blocks_left),
        cmocka_unit_test_teardown(test_limits, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
