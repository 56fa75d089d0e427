/* The line parser: every kind of field, each limit, and the reasons given for what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "criteo_line.h"

/* A copy that ends where the line ends, so that a sanitizer sees any byte read beyond. */
static bool parse(const char *line, size_t bytes, dlrm_criteo_row *row)
{
    char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, line, bytes);
    bool good = dlrm_criteo_parse(copy, bytes, row);
    free(copy);
    return good;
}

/* A good line whose field `at` (from 0) reads `value`. */
static size_t line_with(int at, const char *value, char *out)
{
    size_t n = 0;
    for (int f = 0; f < CRITEO_FIELDS; f++)
        n += (size_t)sprintf(out + n, "%s%s", f ? "\t" : "",
                             f == at             ? value
                             : f == 0            ? "1"
                             : f <= CRITEO_DENSE ? "7"
                                                 : "0000002a");
    return n;
}

static void expect_refused(int at, const char *value, const char *reason)
{
    char line[8192], text[256];
    dlrm_criteo_row row;
    size_t n = line_with(at, value, line);
    assert_false(parse(line, n, &row));
    dlrm_criteo_explain(line, n, text, sizeof text);
    assert_string_equal(text, reason);
}

static void test_plain(void **state)
{
    (void)state;
    char line[1024];
    dlrm_criteo_row row;
    size_t n = line_with(0, "1", line);
    assert_true(parse(line, n, &row));
    assert_int_equal(row.label, 1);
    assert_int_equal(row.dense_missing, 0);
    assert_int_equal(row.ids_missing, 0);
    for (int j = 0; j < CRITEO_DENSE; j++) assert_int_equal(row.dense[j], 7);
    for (int k = 0; k < CRITEO_IDS; k++) assert_int_equal(row.ids[k], 42);
    line[n] = '\r';
    assert_true(parse(line, n + 1, &row));
    assert_int_equal(row.ids[25], 42);
}

static void test_empty_fields(void **state)
{
    (void)state;
    char line[64] = "0";
    dlrm_criteo_row row;
    memset(line + 1, '\t', 39);
    assert_true(parse(line, 40, &row));
    assert_int_equal(row.dense_missing, (1 << 13) - 1);
    assert_int_equal(row.ids_missing, (1 << 26) - 1);
    line[40] = '\r';
    assert_true(parse(line, 41, &row));
    assert_int_equal(row.ids_missing, (1 << 26) - 1);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t value;
    } integers[] = {{"0", 0}, {"-1", -1}, {"2147483647", INT32_MAX}, {"-2147483648", INT32_MIN}, {"007", 7}, {"-0", 0}};
    static const struct {
        const char *text;
        uint32_t value;
    } hashes[] = {{"0", 0},
                  {"00000000", 0},
                  {"ffffffff", UINT32_MAX},
                  {"FFFFFFFF", UINT32_MAX},
                  {"80000000", 0x80000000u},
                  {"9a0f", 0x9A0F},
                  {"0123abcd", 0x0123ABCD},
                  {"0123AbCd", 0x0123ABCD},
                  {"deadbeef", 0xDEADBEEF}};
    char line[1024];
    dlrm_criteo_row row;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        for (int f = 1; f <= CRITEO_DENSE; f += 12) {
            assert_true(parse(line, line_with(f, integers[i].text, line), &row));
            assert_int_equal(row.dense[f - 1], integers[i].value);
        }
    }
    for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
        for (int f = 14; f < CRITEO_FIELDS; f += 25) {
            assert_true(parse(line, line_with(f, hashes[i].text, line), &row));
            assert_int_equal(row.ids[f - 14], hashes[i].value);
            assert_int_equal(row.ids_missing, 0);
        }
    }
}

/* Every byte in every place of an 8-digit hash: the fast path accepts what strtoul does, and nothing else. */
static void test_hash_bytes(void **state)
{
    (void)state;
    char line[1024], hash[9];
    dlrm_criteo_row row;
    for (int at = 0; at < 8; at++) {
        for (int c = 1; c < 256; c++) {
            if (c == '\t') continue;
            memcpy(hash, "89abcdef", 9);
            hash[at] = (char)c;
            bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
            assert_int_equal(parse(line, line_with(20, hash, line), &row), good);
            if (good) assert_int_equal(row.ids[6], strtoul(hash, NULL, 16));
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refused(0, "2", "field 1 (label): \"2\", expected 0 or 1");
    expect_refused(0, "", "field 1 (label): \"\", expected 0 or 1");
    expect_refused(0, "01", "field 1 (label): \"01\", expected 0 or 1");
    expect_refused(1, "-", "field 2 (I1): \"-\", expected a 32-bit integer or nothing");
    expect_refused(2, "+1", "field 3 (I2): \"+1\", expected a 32-bit integer or nothing");
    expect_refused(3, "1.5", "field 4 (I3): \"1.5\", expected a 32-bit integer or nothing");
    expect_refused(4, "2147483648", "field 5 (I4): \"2147483648\", expected a 32-bit integer or nothing");
    expect_refused(5, "-2147483649", "field 6 (I5): \"-2147483649\", expected a 32-bit integer or nothing");
    expect_refused(13, " 1", "field 14 (I13): \" 1\", expected a 32-bit integer or nothing");
    expect_refused(14, "xyz", "field 15 (C1): \"xyz\", expected at most 8 hexadecimal digits or nothing");
    expect_refused(39, "123456789", "field 40 (C26): \"123456789\", expected at most 8 hexadecimal digits or nothing");
    expect_refused(30,
                   "a\x01"
                   "b\\",
                   "field 31 (C17): \"a\\x01b\\x5c\", expected at most 8 hexadecimal digits or nothing");
    expect_refused(30, "this is a text of more than 24 bytes",
                   "field 31 (C17): \"this is a text of more t...\", expected at most 8 hexadecimal digits or nothing");
    expect_refused(39, "1\t", "41 fields, expected 40");
    dlrm_criteo_row row;
    char text[256], line[8192];
    assert_false(parse("", 0, &row));
    dlrm_criteo_explain("", 0, text, sizeof text);
    assert_string_equal(text, "1 field, expected 40");
    size_t n = line_with(0, "1", line);
    assert_false(parse(line + 2, n - 2, &row));
    dlrm_criteo_explain(line + 2, n - 2, text, sizeof text);
    assert_string_equal(text, "39 fields, expected 40 (is the label missing, as in Kaggle's test.txt?)");
    memset(line, '7', sizeof line);
    assert_false(parse(line, CRITEO_MAX_LINE + 1, &row));
    dlrm_criteo_explain(line, CRITEO_MAX_LINE + 1, text, sizeof text);
    assert_string_equal(text, "the line is longer than 4096 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_empty_fields), cmocka_unit_test(test_values),
        cmocka_unit_test(test_hash_bytes), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
