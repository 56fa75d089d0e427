/* Headerless row records: their values, the kinds of dense value are told apart by their bits, and what is
 * wrong is named by file, row and value. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/records.h"

static const dlrm_record_layout v1 = {13, DLRM_RECORD_COUNTS, 26}, v1_float = {13, DLRM_RECORD_FLOATS, 26},
                                dcn = {13, DLRM_RECORD_FLOATS, 214};

static void says(dlrm_status st, const char *text)
{
    assert_int_equal(st, DLRM_E_INPUT);
    if (!strstr(dlrm_error_message(), text)) fail_msg("found \"%s\", expected in it \"%s\"", dlrm_error_message(), text);
}

static void test_sizes(void **state)
{
    (void)state;
    int64_t rows;
    assert_int_equal(dlrm_record_bytes(&v1), 160);
    assert_int_equal(dlrm_record_bytes(&dcn), 912);
    assert_int_equal(dlrm_record_rows(&v1, "x", 671231630720, &rows), DLRM_OK); /* Terabyte's days 0 to 22 */
    assert_int_equal(rows, 4195197692);
    assert_int_equal(dlrm_record_rows(&dcn, "x", 3826020295104, &rows), DLRM_OK);
    assert_int_equal(rows, 4195197692);
    says(dlrm_record_rows(&v1, "x.bin", 0, &rows), "x.bin: the file is empty");
    says(dlrm_record_rows(&v1, "x.bin", 160 * 7 + 4, &rows),
         "x.bin: found 1124 bytes, which are 7 records and 4 bytes; expected a multiple of 160 ");
}

static void fill(uint32_t words[40], uint32_t label, uint32_t dense, uint32_t id)
{
    words[0] = label;
    for (int j = 0; j < 13; j++) words[1 + j] = dense;
    for (int k = 0; k < 26; k++) words[14 + k] = id;
}

static void test_values(void **state)
{
    (void)state;
    static char file[1 + 3 * 160]; /* read at an odd address */
    int32_t dense[13];
    uint32_t ids[26], out_ids[3 * 2];
    float labels[3], values[3 * 13];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 13; j++) dense[j] = j == 12 ? INT32_MAX : i * 100000 + j;
        for (int k = 0; k < 26; k++) ids[k] = (uint32_t)(1000 * i + k);
        const int32_t label = i % 2;
        char *record = file + 1 + 160 * i;
        memcpy(record, &label, sizeof label);
        memcpy(record + 4, dense, sizeof dense);
        memcpy(record + 4 + sizeof dense, ids, sizeof ids);
    }
    assert_true(dlrm_record_labels(&v1, file + 1, 3, labels));
    assert_true(labels[0] == 0 && labels[1] == 1 && labels[2] == 0);
    assert_true(dlrm_record_dense_values(&v1, file + 1, 3, values));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 13; j++) {
            double x = j == 12 ? INT32_MAX : i * 100000 + j;
            assert_true(values[13 * i + j] == (float)log(x + 1));
            assert_true(j == 12 || dlrm_record_log1p((int32_t)x) == (float)log(x + 1));
        }
    assert_true(dlrm_record_ids(&v1, file + 1, 3, 24, 2, 2026, out_ids));
    for (int i = 0; i < 3; i++) assert_true(out_ids[2 * i] == (uint32_t)(1000 * i + 24) && out_ids[2 * i + 1] == (uint32_t)(1000 * i + 25));
    assert_false(dlrm_record_ids(&v1, file + 1, 3, 24, 2, 2025, out_ids));
    says(dlrm_record_id_offender(&v1, file + 1, 3, 24, 2, 2025, "C25", "x.bin", 10),
         "x.bin: row 12: id 2025 is outside [0, 2025) of table C25: one too many; is the number of rows the largest id?");
    assert_int_equal(dlrm_record_id_offender(&v1, file + 1, 3, 24, 2, 2026, "C25", "x.bin", 10), DLRM_OK);
    assert_int_equal(dlrm_record_offender(&v1, file + 1, 3, "x.bin", 10), DLRM_OK);
}

static void test_offenders(void **state)
{
    (void)state;
    uint32_t words[2][40], ids[2];
    float labels[2], values[26];
    fill(words[0], 1, 5, 7);
    fill(words[1], 2, 5, 7);
    assert_false(dlrm_record_labels(&v1, words, 2, labels));
    says(dlrm_record_offender(&v1, words, 2, "x", 5), "x: row 6: label 2 is neither 0 nor 1");
    words[1][0] = 0x3F800000;
    says(dlrm_record_offender(&v1, words, 2, "x", 5), "x: row 6: label 1065353216, the bits of float 1");
    words[1][0] = 0;
    words[1][3] = (uint32_t)-2;
    assert_false(dlrm_record_dense_values(&v1, words, 2, values));
    says(dlrm_record_offender(&v1, words, 2, "x", 5), "x: row 6: count -2 in column 2 is negative");
    words[1][3] = 0x7F800000;
    assert_true(dlrm_record_dense_values(&v1, words, 2, values));
    assert_false(dlrm_record_dense_values(&v1_float, words, 2, values));
    says(dlrm_record_offender(&v1_float, words, 2, "x", 5), "x: row 6: value inf in column 2 is not finite");
    words[1][3] = 5;
    words[1][39] = UINT32_MAX; /* a hash in an int32 */
    assert_false(dlrm_record_ids(&v1, words, 2, 25, 1, 40000000, ids));
    says(dlrm_record_id_offender(&v1, words, 2, 25, 1, 40000000, "C26", "x", 5),
         "x: row 6: id 4294967295 is outside [0, 40000000) of table C26, or negative");
    assert_true(dlrm_record_ids(&v1, words, 2, 25, 1, (int64_t)1 << 32, ids));
}

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* 40 records of both kinds; `other` stands in `places` dense words of them. */
static dlrm_record_evidence look(bool floats, uint32_t other, int places)
{
    dlrm_record_evidence e = {0};
    for (int i = 0; i < 40; i++) {
        uint32_t words[40];
        fill(words, (uint32_t)i % 2, 0, 3);
        for (int j = 0; j < 13; j++) words[1 + j] = floats ? bits(logf((float)(i * j) + 1)) : (uint32_t)(i * j);
        for (int j = 0; j < 13 && places > 0; j++, places--) words[1 + j] = other;
        dlrm_record_inspect(&v1, words, 1, &e);
    }
    return e;
}

static void test_verdict(void **state)
{
    (void)state;
    dlrm_record_dense kind = DLRM_RECORD_FLOATS;
    dlrm_record_evidence e = look(false, 0, 0);
    assert_int_equal(e.records, 40);
    assert_int_equal(dlrm_record_judge(&e, "x", &kind), DLRM_OK);
    assert_int_equal(kind, DLRM_RECORD_COUNTS);
    says(dlrm_record_expect(&e, "x", DLRM_RECORD_FLOATS), "x: the dense values are int32 counts");
    e = look(true, 0, 0);
    assert_int_equal(dlrm_record_judge(&e, "x", &kind), DLRM_OK);
    assert_int_equal(kind, DLRM_RECORD_FLOATS);
    assert_int_equal(dlrm_record_expect(&e, "x", DLRM_RECORD_FLOATS), DLRM_OK);
    says(dlrm_record_expect(&e, "x", DLRM_RECORD_COUNTS), "x: the dense values are float32 values (of");
    e = look(false, 2000000000, 4); /* some counts are huge */
    assert_int_equal(dlrm_record_judge(&e, "x", &kind), DLRM_OK);
    assert_int_equal(kind, DLRM_RECORD_COUNTS);
    e = look(false, 1100000000, 40); /* too many of those */
    says(dlrm_record_judge(&e, "x", &kind), "x: cannot tell whether the dense values are int32 counts or float32: of 520 looked at");
    e = look(true, 7, 1);
    says(dlrm_record_judge(&e, "x", &kind), "1 look like counts");
    e = look(true, 0, 520);
    says(dlrm_record_judge(&e, "x", &kind), "520 are 0 and 0 look like neither");
    e = look(true, 0xFFFFFFFF, 300);
    says(dlrm_record_judge(&e, "x", &kind), "300 look like neither");
    e = look(true, bits(-1.5f), 300); /* normalised values */
    assert_int_equal(dlrm_record_judge(&e, "x", &kind), DLRM_OK);
    assert_int_equal(kind, DLRM_RECORD_FLOATS);
    e = (dlrm_record_evidence){.records = 3, .float_labels = 1, .counts = 3};
    says(dlrm_record_judge(&e, "x", &kind), "x: of 3 records looked at, 1 have a label of 1065353216, the bits of float 1");
    e.bad_labels = 1;
    says(dlrm_record_judge(&e, "x", &kind), "2 have a label other than 0 and 1: the records are others than said");
    e = (dlrm_record_evidence){.records = 3};
    assert_int_equal(dlrm_record_judge(&e, "x", &kind), DLRM_OK); /* no dense values */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_offenders),
        cmocka_unit_test(test_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
