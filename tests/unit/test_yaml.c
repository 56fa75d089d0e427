/* YAML trees: positions, aliases, every way to be refused, conversions, overrides. */
#include "config_fixture.h"

#include <unistd.h>

static dlrm_status parse(const char *text, dlrm_yaml_doc *doc)
{
    return dlrm_yaml_parse("a.yaml", text, strlen(text), doc);
}

static void test_tree(void **state)
{
    (void)state;
    dlrm_yaml_doc doc;
    assert_taken(parse("# comment\nb: 1\na:\n  - x\n  - {k: 'v w', z: \"\"}\n  - |\n    text\n", &doc));
    const dlrm_yaml *a = dlrm_yaml_get(doc.root, "a"), *map = a->items[1];
    assert_int_equal(doc.root->kind, DLRM_YAML_MAP);
    assert_int_equal(doc.root->n, 2);
    assert_string_equal(doc.root->keys[0]->text, "b"); /* file order */
    assert_int_equal(a->kind, DLRM_YAML_LIST);
    assert_int_equal(a->n, 3);
    assert_string_equal(a->file, "a.yaml");
    assert_int_equal(a->items[0]->line, 4);
    assert_int_equal(a->items[0]->column, 5);
    assert_int_equal(map->kind, DLRM_YAML_MAP);
    assert_string_equal(dlrm_yaml_get(map, "k")->text, "v w");
    assert_true(dlrm_yaml_get(map, "k")->quoted);
    assert_false(dlrm_yaml_is_null(dlrm_yaml_get(map, "z")));
    assert_string_equal(a->items[2]->text, "text\n");
    assert_null(dlrm_yaml_get(map, "none"));
    assert_null(dlrm_yaml_get(a, "k"));
    dlrm_yaml_clear(&doc);
    dlrm_yaml_clear(&doc);
}

static void test_empty(void **state)
{
    (void)state;
    static const char *const texts[] = {"", " \n\n", "# only this\n", "---\n", "~\n", "\xEF\xBB\xBF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dlrm_yaml_doc doc;
        assert_taken(parse(texts[i], &doc));
        assert_int_equal(doc.root->kind, DLRM_YAML_MAP);
        assert_int_equal(doc.root->n, 0);
        dlrm_yaml_clear(&doc);
    }
}

static void test_aliases_share(void **state)
{
    (void)state;
    dlrm_yaml_doc doc;
    assert_taken(parse("a: &x [1, 2]\nb: *x\nc: &x 3\nd: *x\n*x : 5\n", &doc));
    assert_ptr_equal(dlrm_yaml_get(doc.root, "a"), dlrm_yaml_get(doc.root, "b"));
    assert_string_equal(dlrm_yaml_get(doc.root, "d")->text, "3"); /* the last use of the name counts */
    assert_string_equal(dlrm_yaml_get(doc.root, "3")->text, "5");
    dlrm_yaml_clear(&doc);
}

/* Twenty doublings: a million leaves for who walks them, twenty nodes here. */
static void test_alias_bomb_is_small(void **state)
{
    (void)state;
    char text[2000] = "a0: &a0 [x, x]\n";
    for (int i = 1; i <= 20; i++) sprintf(text + strlen(text), "a%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1);
    dlrm_yaml_doc doc;
    int64_t before = dlrm_mem_live_bytes();
    assert_taken(parse(text, &doc));
    assert_true(dlrm_mem_live_bytes() - before < 100000);
    dlrm_yaml_clear(&doc);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a: 1\nb: 2\na: 3\nb: 4\n", "a.yaml:3:1: a: duplicate key, set in line 1 already"},
        {"x: {k: 1, 'k': 2}\n", "a.yaml:1:11: x.k: duplicate key, set in line 1 already"},
        {"x: [1, {y: [2, {a: 1, b: 2, a: 3}]}]\n", "a.yaml:1:29: x.1.y.1.a: duplicate key, set in line 1 already"},
        {"a: 1\n---\nb: 2\n", "a.yaml:2:1: a second document begins; one is expected"},
        {"a: *b\n", "a.yaml:1:4: no anchor before this alias is called &b"},
        {"a: &b [1, *b]\n", "a.yaml:1:11: this alias stands inside the very node it names, &b"},
        {"a: !!str 5\n", "a.yaml:1:4: tags are not supported: tag:yaml.org,2002:str"},
        {"a: !x {}\n", "a.yaml:1:4: tags are not supported: !x"},
        {"a: !x []\n", "a.yaml:1:4: tags are not supported: !x"},
        {"? [1]\n: 2\n", "a.yaml:1:3: a key must be text, not a list or map"},
        {"a: &m {}\n*m : 2\n", "a.yaml:2:1: a key must be text, not a list or map"},
        {"a: \"x\\0y\"\n", "a.yaml:1:4: text with a NUL character"},
        {"a: [1, 2\n",
         "a.yaml:2:1: not YAML: did not find expected ',' or ']' (while parsing a flow sequence in line 1)"},
        {"a: b: c\n", "a.yaml:1:5: not YAML: mapping values are not allowed in this context"},
        {"ok: 1\na: \xFF\n", "a.yaml:2:4: not YAML: invalid leading UTF-8 octet (byte 0xFF)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlrm_yaml_doc doc;
        assert_message(parse(cases[i].text, &doc), cases[i].message);
        assert_null(doc.root);
        assert_null(doc.pool);
    }
}

static void test_nesting(void **state)
{
    (void)state;
    char text[200] = "";
    dlrm_yaml_doc doc;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_taken(parse(text, &doc));
    dlrm_yaml_clear(&doc);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_message(parse(text, &doc), "a.yaml:1:65: lists and maps are nested more than 64 deep");
}

static void test_many_anchors(void **state)
{
    (void)state;
    char text[16000] = "";
    dlrm_yaml_doc doc;
    for (int i = 0; i < 1025; i++) sprintf(text + strlen(text), "- &a%d x\n", i);
    assert_message(parse(text, &doc), "a.yaml:1025:3: more than 1024 anchors");
}

/* 10^5 keys: a quadratic check for duplicates would take minutes. */
static void test_large_map(void **state)
{
    (void)state;
    enum { KEYS = 100000 };
    char *text = malloc(KEYS * 16), *end = text;
    for (int i = 0; i < KEYS; i++) end += sprintf(end, "k%d: %d\n", i, i);
    dlrm_yaml_doc doc;
    assert_taken(parse(text, &doc));
    assert_int_equal(doc.root->n, KEYS);
    assert_string_equal(dlrm_yaml_get(doc.root, "k99999")->text, "99999");
    dlrm_yaml_clear(&doc);
    sprintf(end, "k7: 0\n");
    assert_message(parse(text, &doc), "a.yaml:100001:1: k7: duplicate key, set in line 8 already");
    free(text);
}

static void test_load(void **state)
{
    (void)state;
    char path[] = "/tmp/dlrm-test-yaml-XXXXXX", expected[200];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: 12345", 8), 8);
    close(fd);
    dlrm_yaml_doc doc;
    assert_taken(dlrm_yaml_load(path, 8, &doc));
    assert_string_equal(dlrm_yaml_get(doc.root, "a")->text, "12345");
    assert_string_equal(doc.root->file, path);
    dlrm_yaml_clear(&doc);
    snprintf(expected, sizeof expected, "%s: larger than 7 bytes, too large for a YAML file here", path);
    assert_message(dlrm_yaml_load(path, 7, &doc), expected);
    assert_null(doc.pool);
    remove(path);
    snprintf(expected, sizeof expected, "%s: cannot be opened: No such file or directory", path);
    assert_message(dlrm_yaml_load(path, 100, &doc), expected);
    assert_message(dlrm_yaml_load("/tmp", 100, &doc), "/tmp: found a folder, expected a file");
    assert_message(dlrm_yaml_load("/dev/zero", 100, &doc), "/dev/zero: found a device, expected a file");
}

static dlrm_yaml scalar(const char *text)
{
    return (dlrm_yaml){.kind = DLRM_YAML_SCALAR, .file = "f", .line = 1, .column = 2, .text = (char *)text};
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_int;
        int64_t i;
        bool is_float;
        double d;
    } cases[] = {
        {"0", true, 0, true, 0},
        {"-17", true, -17, true, -17},
        {"+5", true, 5, true, 5},
        {"010", true, 10, true, 10},
        {"64e3", true, 64000, true, 64000},
        {"1.5e1", true, 15, true, 15},
        {"2.", true, 2, true, 2},
        {"9223372036854775807", true, INT64_MAX, true, 0x1p63},
        {"9223372036854775808", false, 0, true, 0x1p63},
        {"9007199254740993e0", false, 0, true, 0x1p53},
        {"1e18", false, 0, true, 1e18},
        {"1e-7", false, 0, true, 1e-7},
        {"1E+2", true, 100, true, 100},
        {".5", false, 0, true, .5},
        {"-.5e-1", false, 0, true, -.05},
        {"1e400", false, 0, false, 0},
        {".inf", false, 0, false, 0},
        {"inf", false, 0, false, 0},
        {"nan", false, 0, false, 0},
        {".nan", false, 0, false, 0},
        {"0x10", false, 0, false, 0},
        {"1_000", false, 0, false, 0},
        {"1e", false, 0, false, 0},
        {"e5", false, 0, false, 0},
        {".", false, 0, false, 0},
        {"-", false, 0, false, 0},
        {"", false, 0, false, 0},
        {" 1", false, 0, false, 0},
        {"1 ", false, 0, false, 0},
        {"--1", false, 0, false, 0},
        {"1.2.3", false, 0, false, 0},
        {"true", false, 0, false, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        dlrm_yaml node = scalar(cases[k].text);
        int64_t i = 0;
        double d = 0;
        if (dlrm_yaml_int(&node, &i) != cases[k].is_int || (cases[k].is_int && i != cases[k].i))
            fail_msg("\"%s\" as an integer: %lld", cases[k].text, (long long)i);
        if (dlrm_yaml_float(&node, &d) != cases[k].is_float || (cases[k].is_float && d != cases[k].d))
            fail_msg("\"%s\" as a number: %.17g", cases[k].text, d);
        node.quoted = true;
        assert_false(dlrm_yaml_int(&node, &i) || dlrm_yaml_float(&node, &d));
    }
}

static void test_bool_and_null(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int is_bool; /* -1: no boolean */
        bool is_null;
    } cases[] = {{"true", 1, false},  {"True", 1, false},  {"TRUE", 1, false},  {"false", 0, false},
                 {"False", 0, false}, {"FALSE", 0, false}, {"tRUE", -1, false}, {"yes", -1, false},
                 {"off", -1, false},  {"1", -1, false},    {"null", -1, true},  {"Null", -1, true},
                 {"NULL", -1, true},  {"~", -1, true},     {"", -1, true},      {"nULL", -1, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        dlrm_yaml node = scalar(cases[k].text);
        bool b = !cases[k].is_bool;
        if (dlrm_yaml_bool(&node, &b) != (cases[k].is_bool >= 0) || (cases[k].is_bool >= 0 && b != cases[k].is_bool))
            fail_msg("\"%s\" as a boolean: %d", cases[k].text, b);
        assert_int_equal(dlrm_yaml_is_null(&node), cases[k].is_null);
        node.quoted = true;
        assert_false(dlrm_yaml_bool(&node, &b) || dlrm_yaml_is_null(&node));
    }
}

static void test_describe(void **state)
{
    (void)state;
    char buf[200], small[6], text[200];
    dlrm_yaml node = scalar("a\tb\x7f");
    assert_string_equal(dlrm_yaml_describe(&node, buf, sizeof buf), "a?b?");
    for (int i = 0; i < 70; i++) strcpy(text + 2 * i, "\xC3\xA9"); /* é */
    node.text = text;
    assert_int_equal(strlen(dlrm_yaml_describe(&node, buf, sizeof buf)), 120);
    assert_string_equal(dlrm_yaml_describe(&node, small, sizeof small), "\xC3\xA9\xC3\xA9"); /* no half character */
    node.text = "~";
    assert_string_equal(dlrm_yaml_describe(&node, buf, sizeof buf), "null");
    node.kind = DLRM_YAML_MAP;
    assert_string_equal(dlrm_yaml_describe(&node, buf, sizeof buf), "map");
    node.kind = DLRM_YAML_LIST;
    assert_string_equal(dlrm_yaml_describe(&node, buf, sizeof buf), "list");
    assert_message(dlrm_yaml_fail(&node, "no %s", "good"), "f:1:2: no good");
    node.line = 0;
    assert_message(dlrm_yaml_fail(&node, "no good"), "f: no good");
}

static const dlrm_yaml *at(const dlrm_yaml *node, const char *key)
{
    assert_non_null(dlrm_yaml_get(node, key));
    return dlrm_yaml_get(node, key);
}

static void test_override(void **state)
{
    (void)state;
    dlrm_yaml_doc doc;
    assert_taken(parse("a: &x {k: 1, l: [5, {m: 6}]}\nb: *x\n", &doc));
    assert_taken(dlrm_yaml_override(&doc, "b.k", "2"));
    assert_taken(dlrm_yaml_override(&doc, "b.l.1.m", "[7, 8]"));
    assert_taken(dlrm_yaml_override(&doc, "new.deep.key", "{x: y}"));
    assert_taken(dlrm_yaml_override(&doc, "nothing", ""));
    assert_string_equal(at(at(doc.root, "a"), "k")->text, "1"); /* the alias kept its value */
    assert_string_equal(at(at(doc.root, "a"), "l")->items[1]->items[0]->text, "6");
    assert_string_equal(at(at(doc.root, "b"), "k")->text, "2");
    assert_string_equal(at(at(doc.root, "b"), "k")->file, "command line");
    assert_int_equal(at(at(doc.root, "b"), "k")->line, 0);
    assert_string_equal(at(at(doc.root, "b"), "l")->items[0]->text, "5");
    assert_int_equal(at(at(doc.root, "b"), "l")->items[1]->items[0]->n, 2);
    assert_string_equal(at(at(at(at(doc.root, "new"), "deep"), "key"), "x")->text, "y");
    assert_true(dlrm_yaml_is_null(at(doc.root, "nothing")));

    static const char *const bad[][3] = {
        {"b.l.2", "1", "command line: b.l.2: \"2\" is no element of the list of 2, counted from 0"},
        {"b.l.x", "1", "command line: b.l.x: \"x\" is no element of the list of 2, counted from 0"},
        {"b.l.-1", "1", "command line: b.l.-1: \"-1\" is no element of the list of 2, counted from 0"},
        {"b..l", "1", "command line: b..l: there is nothing between two dots, or at an end"},
        {"", "1", "command line: : there is nothing between two dots, or at an end"},
        {"b.", "1", "command line: b.: there is nothing between two dots, or at an end"},
        {"b", "[1", "command line: b: not YAML: did not find expected ',' or ']'"},
        {"b", "{x: 1, x: 2}", "command line: b: x: duplicate key"},
        {"b", "*x", "command line: b: no anchor before this alias is called &x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_message(dlrm_yaml_override(&doc, bad[i][0], bad[i][1]), bad[i][2]);
    dlrm_yaml_clear(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_tree, no_blocks_left),
        cmocka_unit_test_teardown(test_empty, no_blocks_left),
        cmocka_unit_test_teardown(test_aliases_share, no_blocks_left),
        cmocka_unit_test_teardown(test_alias_bomb_is_small, no_blocks_left),
        cmocka_unit_test_teardown(test_refused, no_blocks_left),
        cmocka_unit_test_teardown(test_nesting, no_blocks_left),
        cmocka_unit_test_teardown(test_many_anchors, no_blocks_left),
        cmocka_unit_test_teardown(test_large_map, no_blocks_left),
        cmocka_unit_test_teardown(test_load, no_blocks_left),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_bool_and_null),
        cmocka_unit_test(test_describe),
        cmocka_unit_test_teardown(test_override, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
