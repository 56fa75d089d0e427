/* records.yaml, which `dlrm_data` writes beside files of records, for these say nothing about themselves: what is in them,
 * which files there are and how many rows they have, and the tables. */
#pragma once
#include "config/feature_spec.h"

/* What dense values mean. Counts are int32, the others float32. */
typedef enum dlrm_dense_form {
    DLRM_FORM_COUNTS, /* raw counts */
    DLRM_FORM_LOG1,   /* ln(max(x,0)+1) */
    DLRM_FORM_LOG3,   /* ln(x+3); missing, or x <= -3: 0 */
    DLRM_FORM_FLOATS, /* values whose making nothing tells */
    DLRM_FORMS
} dlrm_dense_form;
extern const char *const dlrm_form_names[DLRM_FORMS + 1]; /* "counts", "log1", "log3", "floats", NULL */

enum { DLRM_RECORD_FILES = 3 }; /* train, test, validation */
extern const char *const dlrm_record_split_names[DLRM_RECORD_FILES];

typedef struct dlrm_records_spec {
    bool hugectr_raw; /* else mlperf_bin */
    dlrm_dense_form form;
    char *file[DLRM_RECORD_FILES]; /* names in the folder; NULL: no such split */
    int64_t rows[DLRM_RECORD_FILES]; /* 0: not said */
    dlrm_feature_spec features;      /* n_dense and the tables as categorical features; no files */
} dlrm_records_spec;

extern const char dlrm_records_description[]; /* "records.yaml" */
/* Reads FOLDER/records.yaml; DLRM_E_INPUT names file, line and column. An error leaves {0}. parse: its text, which is in memory;
 * `path` stands for the file. */
dlrm_status dlrm_records_spec_load(const char *folder, dlrm_records_spec *out) DLRM_MUST_USE;
dlrm_status dlrm_records_spec_parse(const char *path, const char *text, size_t bytes, dlrm_records_spec *out) DLRM_MUST_USE;
void dlrm_records_spec_clear(dlrm_records_spec *r); /* copes with {0} */
