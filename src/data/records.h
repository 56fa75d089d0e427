/* Rows as fixed-size records without any header, as facebook's dlrm (MLPerf v1, `mlperf_bin`) and HugeCTR (Raw) have
 * them. A record is 4-byte little-endian words: int32 label; n_dense dense values; then the ids, table by table, a table's
 * hotness ids side by side, each 0 <= id < rows of its table. Dense values are either raw counts (int32 >= 0, the value
 * is ln(x+1)) or floats (float32, used as they are). The file does not say which: three different records of 160 bytes
 * exist. This module knows the layout, reads it, and tells the two kinds apart by their bit patterns; it opens
 * no file. Used by the trainer's readers and by dlrm_data. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlrm_record_dense { DLRM_RECORD_COUNTS, DLRM_RECORD_FLOATS } dlrm_record_dense;

typedef struct dlrm_record_layout {
    int n_dense;
    dlrm_record_dense dense;
    int n_ids; /* of a record: the sum of all features' hotness */
} dlrm_record_layout;

enum { DLRM_RECORD_WORD = 4, DLRM_RECORD_SAMPLE = 1024 };

int64_t dlrm_record_bytes(const dlrm_record_layout *l);

/* A file's rows. DLRM_E_INPUT: no record, or not a whole number of them; names path, bytes and the record's make-up. */
dlrm_status dlrm_record_rows(const dlrm_record_layout *l, const char *path, int64_t file_bytes, int64_t *rows) DLRM_MUST_USE;

/* --- which kind of dense value: evidence from records, then a verdict --- */

typedef struct dlrm_record_evidence { /* {0} to begin with */
    int64_t records;
    int64_t zeros;                    /* dense words that are 0, which both kinds have */
    int64_t counts;                   /* 1 … 2^23-1: as a float, a subnormal, which no logarithm of a count is */
    int64_t floats;                   /* a float of magnitude 2^-20 … 2^20; as a count, 8.9e8 or more, or negative */
    int64_t others;                   /* neither */
    int64_t float_labels, bad_labels; /* words that are 1.0f; neither 0 nor 1, nor 1.0f */
} dlrm_record_evidence;

/* Adds n records. l->dense is not looked at. Look at several places of a file: the first rows may be unlike the others. */
void dlrm_record_inspect(const dlrm_record_layout *l, const void *records, int64_t n, dlrm_record_evidence *e);

/* DLRM_E_INPUT where labels are floats or no labels at all (the layout is another one), where both kinds of dense word
 * are there, or neither. Counts with a share of at most 1 % of float-like words are counts (some are that large). Where
 * n_dense is 0: counts. */
dlrm_status dlrm_record_judge(const dlrm_record_evidence *e, const char *path, dlrm_record_dense *out) DLRM_MUST_USE;
/* Judges and compares with what the user says the file holds: the message names both. */
dlrm_status dlrm_record_expect(const dlrm_record_evidence *e, const char *path, dlrm_record_dense said) DLRM_MUST_USE;
const char *dlrm_record_dense_text(dlrm_record_dense d); /* "int32 counts", "float32 values" */

/* --- reading: n records to columns. Each returns whether all values are valid; else dlrm_record_offender says what is
 * wrong with the first one that is not --- */

float dlrm_record_log1p(int32_t count); /* ln(count+1), rounded once; count >= 0 */
bool dlrm_record_labels(const dlrm_record_layout *l, const void *records, int64_t n, float *out); /* 0 or 1 */
/* out: [n][n_dense]. Valid: counts >= 0, floats finite. */
bool dlrm_record_dense_values(const dlrm_record_layout *l, const void *records, int64_t n, float *out);
/* Ids [first, first+hotness) of each record; out: [n][hotness]. Valid: below `rows`, at most 2^32; unsigned, so that a
 * negative one is too large. */
bool dlrm_record_ids(const dlrm_record_layout *l, const void *records, int64_t n, int first, int hotness, int64_t rows, uint32_t *out);

/* The first bad label, then dense value, of the n records, of which the first is number `row` of the file. DLRM_OK: none.
 * Float labels and floats read as counts are named as what they are. */
dlrm_status dlrm_record_offender(const dlrm_record_layout *l, const void *records, int64_t n, const char *path, int64_t row) DLRM_MUST_USE;
/* The first bad id of dlrm_record_ids' range; `table` names it. */
dlrm_status dlrm_record_id_offender(const dlrm_record_layout *l, const void *records, int64_t n, int first, int hotness, int64_t rows,
                                    const char *table, const char *path, int64_t row) DLRM_MUST_USE;
