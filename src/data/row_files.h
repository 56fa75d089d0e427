/* Internal to data: the files of a row format. A split is made of parts, one after another: files of records
 * (mlperf_bin, hugectr_raw) or a day's arrays (npy). What lies side by side in one file is a strip: a whole record; or
 * the labels, the dense values, the ids of all features (one-hot) or of one feature (multi-hot). Opening finds the
 * files in data.path, looks at their sizes, headers and a sample of their values, and compares them with each other and
 * with the model; what it says of them holds until the end. */
#pragma once
#include "config/spec.h"
#include "data/records.h"

typedef struct dlrm_strip_part {
    int file;
    int64_t at; /* of its first row in the file */
    dlrm_elem elem;
} dlrm_strip_part;

typedef struct dlrm_strip {
    dlrm_elem elem;  /* the widest of its parts' */
    int64_t columns; /* of a row */
    dlrm_strip_part *parts;
} dlrm_strip;

typedef struct dlrm_row_split {
    int n_parts, n_files, n_strips;
    char **files;       /* paths */
    int64_t *first_row; /* [n_parts+1]: of each part; the last: all rows of the parts */
    int64_t from, rows; /* the split is rows [from, from+rows) of these */
    dlrm_strip *strips;
} dlrm_row_split;

/* Strips: records have one; arrays these. */
enum { DLRM_LABEL_STRIP, DLRM_DENSE_STRIP, DLRM_IDS_STRIP };

typedef struct dlrm_row_files {
    bool records;
    dlrm_record_layout layout; /* of records */
    bool signed_ids;           /* of records: int32, else uint32 */
    bool multi_hot;            /* arrays: a strip of ids for each input, else one for all */
    int *first_id;             /* [n_inputs]: of a record, or of a row of ids: the number of an input's first */
    dlrm_row_split split[DLRM_SPLITS];
} dlrm_row_files;

/* DLRM_E_INPUT names file, value and what was expected; keys are named where they decide. */
dlrm_status dlrm_row_files_open(const dlrm_config *cfg, const dlrm_model_spec *spec, dlrm_row_files *out) DLRM_MUST_USE;
void dlrm_row_files_close(dlrm_row_files *f); /* copes with {0} */

/* The part that a row of a split lies in, and its number there. */
int dlrm_row_part(const dlrm_row_split *s, int64_t row, int64_t *in_part);
int64_t dlrm_strip_row_bytes(const dlrm_strip *s);
