/* Descriptions of split-binary folders: NVIDIA's YAML as their tools write it, Merlin's model_size.json, every way to
 * be wrong, and the check of the files' sizes. */
#include "data_fixture.h"

#include "config/feature_spec.h"

/* Sorted keys, an alias for the numerical features and names that end in .bin, as PyYAML dumps it. */
static const char good[] = "channel_spec:\n"
                           "  categorical:\n"
                           "  - cat_0.bin\n"
                           "  - cat_1.bin\n"
                           "  - cat_10.bin\n"
                           "  - bag\n"
                           "  label:\n"
                           "  - label\n"
                           "  numerical: &id001\n"
                           "  - num_0\n"
                           "  - num_1\n"
                           "  - num_2\n"
                           "feature_spec:\n"
                           "  bag:\n"
                           "    cardinality: 100\n"
                           "    dtype: int64\n"
                           "    max_hotness: 7\n"
                           "  cat_0.bin:\n"
                           "    cardinality: 126\n"
                           "    dtype: int8\n"
                           "  cat_1.bin:\n"
                           "    alpha: 1.05\n"
                           "    cardinality: 4000000000\n"
                           "    dtype: int32\n"
                           "    hotness: 3\n"
                           "  cat_10.bin:\n"
                           "    cardinality: 32766\n"
                           "    dtype: int16\n"
                           "  label:\n"
                           "    dtype: bool\n"
                           "  num_0:\n"
                           "    dtype: float16\n"
                           "  num_1:\n"
                           "    dtype: float16\n"
                           "  num_2:\n"
                           "    dtype: float16\n"
                           "  unused:\n"
                           "    dtype: complex\n"
                           "metadata: {}\n"
                           "source_spec:\n"
                           "  test:\n"
                           "  - features: *id001\n"
                           "    files:\n"
                           "    - test/numerical.bin\n"
                           "    type: split_binary\n"
                           "  - {type: split_binary, features: [label], files: [test/label.bin]}\n"
                           "  - {type: split_binary, features: [cat_0.bin], files: [test/cat_0.bin]}\n"
                           "  - {type: split_binary, features: [cat_10.bin], files: [test/cat_10.bin]}\n"
                           "  - {type: split_binary, features: [cat_1.bin], files: [test/cat_1.bin]}\n"
                           "  - {type: split_binary, features: [bag], files: [test/bag.bin, test/bag.offsets.bin]}\n"
                           "  train:\n"
                           "  - features: *id001\n"
                           "    files:\n"
                           "    - train/numerical.bin\n"
                           "    type: split_binary\n"
                           "  - {type: split_binary, features: [label], files: [train/label.bin]}\n"
                           "  - {type: split_binary, features: [cat_0.bin], files: [train/cat_0.bin]}\n"
                           "  - {type: split_binary, features: [cat_10.bin], files: [train/cat_10.bin]}\n"
                           "  - {type: split_binary, features: [cat_1.bin], files: [./train/cat_1..bin]}\n"
                           "  - {type: split_binary, features: [bag], files: [train/bag.bin, train/bag.offsets.bin]}\n"
                           "\n";

static dlrm_status parse(const char *text, dlrm_feature_spec *out)
{
    return dlrm_feature_spec_parse_yaml("data", "data/feature_spec.yaml", text, strlen(text), out);
}

static void test_yaml(void **state)
{
    (void)state;
    dlrm_feature_spec s;
    assert_ok(parse(good, &s));
    assert_string_equal(s.path, "data/feature_spec.yaml");
    assert_int_equal(s.n_dense, 3);
    assert_int_equal(s.dense_dtype, DLRM_FLOAT16);
    assert_int_equal(s.label_dtype, DLRM_BOOL);
    static const struct {
        const char *name, *where, *train;
        dlrm_elem dtype;
        int64_t cardinality;
        int hotness;
        bool has, variable;
    } want[] = {
        {"cat_0.bin", "data/feature_spec.yaml:19:5", "data/train/cat_0.bin", DLRM_INT8, 126, 1, false, false},
        {"cat_1.bin", "data/feature_spec.yaml:22:5", "data/./train/cat_1..bin", DLRM_INT32, 4000000000, 3, true, false},
        {"cat_10.bin", "data/feature_spec.yaml:27:5", "data/train/cat_10.bin", DLRM_INT16, 32766, 1, false, false},
        {"bag", "data/feature_spec.yaml:15:5", "data/train/bag.bin", DLRM_INT64, 100, 7, true, true},
    };
    assert_int_equal(s.n_categorical, 4);
    for (int j = 0; j < 4; j++) {
        const dlrm_categorical *c = &s.categorical[j];
        assert_string_equal(c->name, want[j].name);
        assert_string_equal(c->where, want[j].where);
        assert_int_equal(c->dtype, want[j].dtype);
        assert_int_equal(c->cardinality, want[j].cardinality);
        assert_int_equal(c->hotness, want[j].hotness);
        assert_int_equal(c->has_hotness, want[j].has);
        assert_int_equal(c->variable, want[j].variable);
        assert_string_equal(s.split[DLRM_TRAIN_SPLIT].ids[j], want[j].train);
    }
    const dlrm_split_files *test = &s.split[DLRM_TEST_SPLIT];
    assert_true(test->present);
    assert_string_equal(test->label, "data/test/label.bin");
    assert_string_equal(test->dense, "data/test/numerical.bin");
    assert_string_equal(test->offsets[3], "data/test/bag.offsets.bin");
    assert_null(test->offsets[0]);
    dlrm_feature_spec_clear(&s);
    dlrm_feature_spec_clear(&s);
}

/* The good text with one piece replaced (its last occurrence). */
static const char *changed(const char *from, const char *to)
{
    static char text[2 * sizeof good];
    const char *at = NULL;
    for (const char *p = good; (p = strstr(p, from)); p++) at = p;
    if (!at) fail_msg("the description has no '%s'", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    return text;
}

static void test_yaml_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"channel_spec:", "chanel_spec:", "data/feature_spec.yaml:1:1: channel_spec is missing; expected a map"},
        {"channel_spec:\n", "channel_spec: 5\nx:\n", "channel_spec: found \"5\", expected a map"},
        {"  label:\n  - label\n", "", "channel_spec.label is missing; expected a list"},
        {"  - label\n", "  - label\n  - other\n", ":8:3: channel_spec.label: found 2 features, expected 1"},
        {"  - cat_10.bin\n", "  - cat_10.bin\n  - {}\n",
         ":6:5: channel_spec.categorical: found map, expected a feature"},
        {"  - cat_10.bin\n", "  - cat_10.bin\n  - ''\n", "channel_spec.categorical: found \"\""},
        {"  - cat_10.bin\n", "  - cat_10.bin\n  - label\n", "channel_spec: feature \"label\" is listed twice"},
        {"  - cat_10.bin\n", "  - cat_10.bin\n  - cat_7\n",
         ":6:5: channel_spec.categorical: feature \"cat_7\" has no entry in feature_spec"},
        {"feature_spec:\n", "features:\n", "feature_spec is missing"},
        {"  num_2:\n    dtype: float16\n", "  num_2: float16\n",
         "feature_spec.num_2: found \"float16\", expected a map"},
        {"    dtype: int16\n", "", "feature_spec.cat_10.bin.dtype is missing; expected int8, int16, int32 or int64"},
        {"dtype: int16", "dtype: uint16",
         ":28:12: feature_spec.cat_10.bin.dtype: found \"uint16\", expected int8, int16"},
        {"dtype: int16", "dtype: [int16]", "feature_spec.cat_10.bin.dtype: found list"},
        {"dtype: bool", "dtype: float16",
         "feature_spec.label.dtype: found \"float16\", expected bool, int8, int32 or float32"},
        {"dtype: float16\n  unused", "dtype: bfloat16\n  unused",
         "dtype: found \"bfloat16\", expected float16 or float32"},
        {"dtype: float16\n  unused", "dtype: float32\n  unused",
         "feature_spec.num_2.dtype: found \"float32\", expected float16, as num_1 has"},
        {"    cardinality: 32766\n", "", "feature_spec.cat_10.bin.cardinality is missing"},
        {"cardinality: 32766", "cardinality: 0",
         "cardinality: found \"0\", expected an integer from 1 to 4294967295"},
        {"cardinality: 32766", "cardinality: -3", "cardinality: found \"-3\""},
        {"cardinality: 32766", "cardinality: 1.5", "cardinality: found \"1.5\""},
        {"cardinality: 32766", "cardinality: '32766'", "cardinality: found \"32766\""},
        {"cardinality: 32766", "cardinality: 99999999999999999999", "cardinality: found \"99999999999999999999\""},
        {"hotness: 3", "hotness: 0",
         ":25:14: feature_spec.cat_1.bin.hotness: found \"0\", expected an integer from 1 to 1048576"},
        {"hotness: 3", "hotness: [3]", "hotness: found list"},
        {"hotness: 3", "keys: 3", ":25:11: feature_spec.cat_1.bin.keys: found \"3\", expected true or false"},
        {"    cardinality: 32766\n", "    keys: false\n", "feature_spec.cat_10.bin.cardinality is missing; expected the number of its ids"},
        {"max_hotness: 7", "max_hotness: 9999999", "max_hotness: found \"9999999\""},
        {"    max_hotness: 7\n", "    max_hotness: 7\n    hotness: 7\n", "found both hotness and max_hotness"},
        {"source_spec:\n", "sources:\n", ":1:1: source_spec is missing: this describes no files"},
        {"source_spec:\n", "source_spec: null\nx:\n",
         ":40:14: source_spec is null: this describes no files; expected train"},
        {"source_spec:\n", "source_spec: [1]\nx:\n", "source_spec: found list, expected a map"},
        {"  train:\n", "  training:\n", "source_spec.train is missing; expected a list"},
        {"  train:\n", "  train: null\n  x:\n", "source_spec.train: found null, expected a list"},
        {"  test:\n", "  test: 3\n  x:\n", "source_spec.test: found \"3\", expected a list of chunks"},
        {"  test:\n", "  test: []\n  x:\n", "source_spec.test: no chunk has the feature cat_0.bin"},
        {"  train:\n", "  train:\n  - 7\n", "source_spec.train.0: found \"7\", expected a map"},
        {"type: split_binary, features: [bag]", "type: csv, features: [bag]",
         "source_spec.train.5.type: found \"csv\", expected split_binary"},
        {"type: split_binary, features: [bag]", "features: [bag]", "source_spec.train.5.type is missing"},
        {"features: [bag]", "features: []", "source_spec.train.5.features: found an empty list"},
        {"features: [bag]", "features: [sack]", "source_spec.train.5.features: found \"sack\", expected a feature of"},
        {"features: [bag]", "features: [unused]", "found \"unused\", expected a feature of channel_spec"},
        {"features: [bag]", "features: [bag, cat_0.bin]",
         "found 2 names, expected 1, for bag is a categorical feature"},
        {"features: [bag]", "features: [cat_0.bin]", "found \"cat_0.bin\" in a second chunk, expected it in one"},
        {"features: *id001", "features: [num_0, num_1]", "found 2 names, expected the 3 of channel_spec.numerical"},
        {"features: *id001", "features: [num_0, num_2, num_1]", "found \"num_2\" at place 1, expected num_1"},
        {"  - {type: split_binary, features: [label], files: [train/label.bin]}\n", "",
         "source_spec.train: no chunk has the feature label"},
        {"files: [train/cat_0.bin]", "files: []", "source_spec.train.2.files: found 0 files, expected 1"},
        {"files: [train/cat_0.bin]", "files: [a, b, c]", "source_spec.train.2.files: found 3 files, expected 1"},
        {"files: [./train/cat_1..bin]", "files: [a, b]", "source_spec.train.4.files: found 2 files, expected 1"},
        {"files: [train/label.bin]", "files: [a, b]", "source_spec.train.1.files: found 2 files, expected 1"},
        {"[train/bag.bin, train/bag.offsets.bin]", "[train/bag.bin]", "found 1 files, expected 2, ids and offsets"},
        {"files: [train/cat_0.bin]", "files: [{}]", "source_spec.train.2.files: found map, expected a file name"},
        {"files: [train/cat_0.bin]", "files: [/etc/passwd]",
         ":57:57: source_spec.train.2.files: found \"/etc/passwd\", expected a path inside the folder data"},
        {"files: [train/cat_0.bin]", "files: [../cat_0.bin]", "found \"../cat_0.bin\", expected a path inside"},
        {"files: [train/cat_0.bin]", "files: [train/../../cat_0.bin]", "expected a path inside the folder"},
        {"files: [train/cat_0.bin]", "files: [train/..]", "expected a path inside the folder"},
        {"metadata: {}", "metadata: {", "data/feature_spec.yaml:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlrm_feature_spec s;
        int64_t blocks = dlrm_mem_live_blocks();
        if (parse(changed(cases[i].from, cases[i].to), &s) == DLRM_OK) fail_msg("accepted: %s", cases[i].to);
        assert_has(dlrm_error_message(), cases[i].message);
        assert_has(dlrm_error_message(), "data/feature_spec.yaml:");
        assert_int_equal(dlrm_mem_live_blocks(), blocks);
    }
}

/* What may be left out: hotness in the spec (the config may give it, so an offsets file is no error), the test split,
 * numerical features. */
static void test_yaml_optional(void **state)
{
    (void)state;
    dlrm_feature_spec s;
    assert_ok(parse(changed("    max_hotness: 7\n", ""), &s));
    assert_false(s.categorical[3].has_hotness);
    assert_false(s.categorical[3].variable);
    assert_string_equal(s.split[DLRM_TRAIN_SPLIT].offsets[3], "data/train/bag.offsets.bin");
    dlrm_feature_spec_clear(&s);
    assert_ok(parse(changed("    cardinality: 32766\n", "    keys: true\n"), &s));
    assert_true(s.categorical[2].keys && !s.categorical[0].keys && !s.categorical[1].keys);
    dlrm_feature_spec_clear(&s);
    assert_ok(parse(changed("  test:\n", "  test: null\n  validation:\n"), &s));
    assert_false(s.split[DLRM_TEST_SPLIT].present);
    dlrm_feature_spec_clear(&s);
    assert_ok(parse("channel_spec: {categorical: [c], numerical: [], label: [y]}\n"
                    "feature_spec: {c: {cardinality: 9, dtype: int64}, y: {dtype: float32}}\n"
                    "source_spec:\n"
                    "  train:\n"
                    "  - {type: split_binary, features: [y], files: [y.bin]}\n"
                    "  - {type: split_binary, features: [c], files: [c.bin]}\n",
                    &s));
    assert_int_equal(s.n_dense, 0);
    assert_null(s.split[DLRM_TRAIN_SPLIT].dense);
    assert_int_equal(s.label_dtype, DLRM_FLOAT32);
    dlrm_feature_spec_clear(&s);
}

/* --- files: 5 rows of the features above --- */

static void write_split(const char *split, const char *const *names, const size_t *bytes, int n)
{
    static const char zeros[256];
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", split, names[i]);
        write_file(name, zeros, bytes[i]);
    }
}

static void write_good_files(void)
{
    static const char *const names[] = {"label.bin",  "numerical.bin", "cat_0.bin", "cat_1.bin",
                                        "cat_1..bin", "cat_10.bin",    "bag.bin"};
    static const size_t bytes[] = {5, 30, 5, 60, 60, 10, 64};
    static const int64_t offsets[] = {0, 0, 7, 7, 8, 8};
    write_split("train", names, bytes, 7);
    write_split("test", names, bytes, 7);
    write_file("train/bag.offsets.bin", offsets, sizeof offsets);
    write_file("test/bag.offsets.bin", offsets, sizeof offsets);
    write_file("feature_spec.yaml", good, strlen(good));
}

static dlrm_status check(void)
{
    dlrm_feature_spec s;
    assert_ok(dlrm_feature_spec_load(folder, &s));
    dlrm_status st = dlrm_feature_spec_check(&s);
    if (st == DLRM_OK)
        for (int k = 0; k < DLRM_SPLITS; k++) assert_int_equal(s.split[k].rows, s.split[k].present ? 5 : 0);
    dlrm_feature_spec_clear(&s);
    return st;
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int64_t bytes;
        const char *message;
    } cases[] = {
        {"train/cat_10.bin", 8, "train/cat_10.bin: found 8 bytes, which are 4 rows of 2 bytes; expected 5 rows as in "},
        {"train/cat_10.bin", 12, "found 12 bytes, which are 6 rows of 2 bytes; expected 5 rows"},
        {"train/cat_10.bin", 9, "found 9 bytes, expected a multiple of the 2 bytes of a row"},
        {"test/cat_1.bin", 64, "test/cat_1.bin: found 64 bytes, expected a multiple of the 12 bytes of a row"},
        {"train/numerical.bin", 24,
         "train/numerical.bin: found 24 bytes, which are 4 rows of 6 bytes; expected 5 rows"},
        {"train/label.bin", 4, "train/label.bin: found 4 bytes, which are 4 rows of 1 bytes; expected 5 rows as in"},
        {"train/cat_0.bin", 0, "train/cat_0.bin: the file is empty, expected rows of 1 bytes"},
        {"train/label.bin", 0, "train/label.bin: the file is empty"},
        {"test/bag.offsets.bin", 40,
         "test/bag.offsets.bin: found 40 bytes, which are 4 rows of 8 bytes and one more offset; expected 5 rows"},
        {"test/bag.offsets.bin", 8, "test/bag.offsets.bin: found 8 bytes, which are no rows"},
        {"test/bag.offsets.bin", 47, "found 47 bytes, expected a multiple of the 8 bytes"},
        {"test/bag.bin", 56, "test/bag.offsets.bin: found 8 as the last offset, expected 7, the number of ids in "},
        {"test/bag.bin", 63, "test/bag.bin: found 63 bytes, expected a multiple of the 8 bytes of an id"},
    };
    write_good_files();
    assert_ok(check());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_good_files();
        assert_int_equal(truncate(in_folder(cases[i].file), cases[i].bytes), 0);
        assert_refused(check(), cases[i].message);
        assert_has(dlrm_error_message(), in_folder(cases[i].file));
    }
    write_good_files();
    static const int64_t shifted[] = {1, 1, 7, 7, 8, 8}, empty[] = {0, 0, 0, 0, 0, 0};
    write_file("train/bag.offsets.bin", shifted, sizeof shifted);
    assert_refused(check(), "train/bag.offsets.bin: row 0: found offset 1, expected 0");
    write_file("train/bag.offsets.bin", empty, sizeof empty);
    write_file("train/bag.bin", "", 0);
    assert_ok(check()); /* every bag may be empty */

    write_good_files();
    assert_int_equal(unlink(in_folder("test/cat_10.bin")), 0);
    assert_refused(check(), "test/cat_10.bin: No such file or directory");
    assert_int_equal(mkdir(in_folder("test/cat_10.bin"), 0777), 0);
    assert_refused(check(), "test/cat_10.bin: found a folder, expected a file");
}

/* Files that are cut off alike agree with each other, but not with metadata.rows. */
static void test_told_rows(void **state)
{
    (void)state;
    static const char none[] = "metadata: {}";
    const char *before = strstr(good, none), *after = before + sizeof none - 1;
    static const struct {
        const char *metadata, *message;
    } cases[] = {
        {"metadata: {rows: {train: 5, test: 5, validation: 3}, dense: log1}", NULL},
        {"metadata: {rows: {test: 5}}", NULL},
        {"metadata: {rows: {}}", NULL},
        {"metadata: some text", NULL},
        {"metadata: {rows: {train: 6}}", "train/label.bin: found 5 bytes, which are 5 rows of 1 bytes; expected 6 rows as metadata.rows says in "},
        {"metadata: {rows: {train: 5, test: 4}}", "test/label.bin: found 5 bytes, which are 5 rows of 1 bytes; expected 4 rows as metadata.rows says in "},
        {"metadata: {rows: 5}", ":39:18: metadata.rows: found \"5\", expected a map, such as {train: 1000, test: 10}"},
        {"metadata: {rows: {train: 0}}", ":39:26: metadata.rows.train: found \"0\", expected an integer from 1"},
        {"metadata: {rows: {test: many}}", ":39:25: metadata.rows.test: found \"many\", expected an integer from 1"},
    };
    write_good_files();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[sizeof good + 200];
        snprintf(text, sizeof text, "%.*s%s%s", (int)(before - good), good, cases[i].metadata, after);
        write_file("feature_spec.yaml", text, strlen(text));
        dlrm_feature_spec s;
        dlrm_status st = dlrm_feature_spec_load(folder, &s);
        if (st == DLRM_OK) st = dlrm_feature_spec_check(&s);
        dlrm_feature_spec_clear(&s);
        if (cases[i].message)
            assert_refused(st, cases[i].message);
        else
            assert_ok(st);
    }
    /* a split by another name */
    char text[sizeof good + 200];
    snprintf(text, sizeof text, "%.*s%s%s", (int)(before - good), good, "metadata: {rows: {test: 5}}", after);
    memcpy(strstr(text, "\n  test:") + 3, "rest", 4);
    write_file("feature_spec.yaml", text, strlen(text));
    dlrm_feature_spec s;
    assert_refused(dlrm_feature_spec_load(folder, &s), "metadata.rows.test: found \"5\", but source_spec has no test split");
    dlrm_feature_spec_clear(&s);
}

/* --- finding the description; model_size.json --- */

static dlrm_status load(dlrm_feature_spec *s)
{
    dlrm_status st = dlrm_feature_spec_load(folder, s);
    if (st != DLRM_OK) assert_null(s->path);
    return st;
}

static void test_load_refused(void **state)
{
    (void)state;
    dlrm_feature_spec s;
    assert_refused(dlrm_feature_spec_load("/nonexistent/data", &s), "/nonexistent/data: No such file or directory");
    assert_refused(load(&s), "found neither feature_spec.yaml nor model_size.json in this folder");
    assert_int_equal(mkdir(in_folder("feature_spec.yaml"), 0777), 0);
    assert_refused(load(&s), "feature_spec.yaml: found a folder, expected a file");
    assert_int_equal(rmdir(in_folder("feature_spec.yaml")), 0);
    write_file("feature_spec.yaml", "", 0);
    assert_refused(load(&s), "channel_spec is missing");
    assert_int_equal(truncate(in_folder("feature_spec.yaml"), (64 << 20) + 1), 0);
    assert_refused(load(&s), "feature_spec.yaml: 67108865 bytes, expected at most 67108864");
}

static void test_model_size(void **state)
{
    (void)state;
    /* Largest ids: one less than cardinality. 127 and 32767 are the first sizes that do not fit, by the strict rule. */
    static const char json[] = "{\"_c14\": 125, \"_c15\": 126, \"_c2\": 32765, \"_c1\": 32766, \"_c0\": 2147483645}";
    static const char *const names[] = {"label.bin", "numerical.bin", "cat_0.bin", "cat_1.bin",
                                        "cat_2.bin", "cat_3.bin",     "cat_4.bin"};
    static const size_t bytes[] = {5, 130, 5, 10, 10, 20, 20};
    static const dlrm_elem dtypes[] = {DLRM_INT8, DLRM_INT16, DLRM_INT16, DLRM_INT32, DLRM_INT32};
    static const int64_t sizes[] = {126, 127, 32766, 32767, 2147483646};
    dlrm_feature_spec s;
    write_file("model_size.json", json, strlen(json));
    write_split("train", names, bytes, 7);
    write_split("test", names, bytes, 7);
    assert_ok(load(&s));
    assert_int_equal(s.n_dense, 13);
    assert_int_equal(s.dense_dtype, DLRM_FLOAT16);
    assert_int_equal(s.label_dtype, DLRM_BOOL);
    assert_int_equal(s.n_categorical, 5);
    for (int j = 0; j < 5; j++) {
        char name[16];
        snprintf(name, sizeof name, "cat_%d", j);
        assert_string_equal(s.categorical[j].name, name);
        assert_int_equal(s.categorical[j].dtype, dtypes[j]);
        assert_int_equal(s.categorical[j].cardinality, sizes[j]);
        assert_int_equal(s.categorical[j].hotness, 1);
    }
    assert_has(s.categorical[2].where, "model_size.json: _c2");
    assert_string_equal(s.split[DLRM_TEST_SPLIT].ids[4], in_folder("test/cat_4.bin"));
    assert_ok(dlrm_feature_spec_check(&s));
    assert_int_equal(s.split[DLRM_TEST_SPLIT].rows, 5);
    dlrm_feature_spec_clear(&s);

    assert_int_equal(truncate(in_folder("train/numerical.bin"), 126), 0);
    assert_refused(load(&s),
                   "train/numerical.bin: found 126 bytes, expected a multiple of 10: one or more float16 columns "
                   "for the 5 rows of ");
    assert_int_equal(truncate(in_folder("test/numerical.bin"), 120), 0);
    assert_int_equal(truncate(in_folder("train/numerical.bin"), 130), 0);
    assert_ok(load(&s));
    assert_refused(dlrm_feature_spec_check(&s),
                   "test/numerical.bin: found 120 bytes, expected a multiple of the 26 bytes");
    dlrm_feature_spec_clear(&s);
    assert_int_equal(unlink(in_folder("train/label.bin")), 0);
    assert_refused(load(&s), "train/label.bin: No such file or directory");

    write_split("train", names, bytes, 1);
    assert_int_equal(unlink(in_folder("train/numerical.bin")), 0);
    assert_int_equal(rename(in_folder("test"), in_folder("spare")), 0);
    assert_ok(load(&s)); /* neither dense values nor a test split */
    assert_int_equal(s.n_dense, 0);
    assert_false(s.split[DLRM_TEST_SPLIT].present);
    assert_ok(dlrm_feature_spec_check(&s));
    dlrm_feature_spec_clear(&s);

    write_file("feature_spec.yaml", good, strlen(good));
    assert_ok(load(&s)); /* the YAML goes first */
    assert_int_equal(s.n_categorical, 4);
    dlrm_feature_spec_clear(&s);
}

static void test_model_size_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "d/model_size.json:1:0: "},
        {"{\"_c14\": 3", "d/model_size.json:1:10: "},
        {"{\"_c14\": 3, \"_c14\": 4}", "duplicate object key"},
        {"[1, 2]", "d/model_size.json: expected an object with the largest id of each categorical feature"},
        {"{}", "expected an object with the largest id"},
        {"{\"_c14\": \"3\"}", "d/model_size.json: _c14: found \"3\", expected the largest id, from 0 to 2147483645"},
        {"{\"_c14\": 3.0}", "_c14: found 3.0, expected the largest id"},
        {"{\"_c14\": 3, \"_c15\": -1}", "_c15: found -1"},
        {"{\"_c14\": 2147483646}", "_c14: found 2147483646"},
        {"{\"_c14\": null}", "_c14: found null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlrm_feature_spec s;
        const char *text = cases[i].text;
        assert_refused(dlrm_feature_spec_parse_sizes("d", "d/model_size.json", text, strlen(text), &s),
                       cases[i].message);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_yaml),
        IN_FOLDER(test_yaml_refused),
        IN_FOLDER(test_yaml_optional),
        IN_FOLDER(test_sizes),
        IN_FOLDER(test_told_rows),
        IN_FOLDER(test_load_refused),
        IN_FOLDER(test_model_size),
        IN_FOLDER(test_model_size_refused),
    };
    return cmocka_run_group_tests_name("feature_spec", tests, NULL, NULL);
}
