/* A split-binary folder's description: feature_spec.yaml (NVIDIA DeepLearningExamples' layout with our hotness keys), or
 * Merlin's model_size.json where there is no such file. Loading checks the description alone; dlrm_feature_spec_check
 * looks at the files it names. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlrm_elem { DLRM_BOOL, DLRM_INT8, DLRM_INT16, DLRM_INT32, DLRM_INT64, DLRM_FLOAT16, DLRM_FLOAT32 } dlrm_elem;
size_t dlrm_elem_size(dlrm_elem e);
const char *dlrm_elem_text(dlrm_elem e);

typedef struct dlrm_categorical {
    char *name;
    dlrm_elem dtype;
    int64_t cardinality;  /* rows: ids are 0 … cardinality-1 */
    bool has_hotness;     /* the spec says hotness or max_hotness; else the config may */
    int hotness;          /* ids per row; the maximum where variable; 1 where not given */
    bool variable;        /* max_hotness */
    bool keys;            /* ids are keys, any integers, for a table with rows: dynamic; the cardinality counts for nothing */
    const char *where;    /* "FILE:LINE:COLUMN" of its entry ("FILE: KEY" in model_size.json) */
} dlrm_categorical;

enum { DLRM_TRAIN_SPLIT, DLRM_TEST_SPLIT, DLRM_SPLITS };

typedef struct dlrm_split_files { /* paths from the working directory */
    bool present;
    int64_t told_rows; /* by metadata.rows; 0: it does not say */
    int64_t rows;      /* filled by dlrm_feature_spec_check */
    char *label, *dense; /* dense NULL: no numerical features */
    char **ids, **offsets; /* [n_categorical]; offsets[j] NULL: no such file, hotness is fixed */
} dlrm_split_files;

typedef struct dlrm_feature_spec {
    char *path; /* of the description */
    int n_dense;
    dlrm_elem dense_dtype, label_dtype;
    int n_categorical; /* in the order of channel_spec.categorical */
    dlrm_categorical *categorical;
    dlrm_split_files split[DLRM_SPLITS];
} dlrm_feature_spec;

/* `folder` is data.path. DLRM_E_INPUT names file, line and column. File names that are absolute or leave the folder
 * are refused. */
dlrm_status dlrm_feature_spec_load(const char *folder, dlrm_feature_spec *out) DLRM_MUST_USE;
/* Sizes of all files of all splits by rows, against metadata.rows, or against each other where it says nothing; fills rows.
 * Names the file, its bytes, the bytes per row and the rows that it should have. Offsets files: rows+1 values from 0 to the ids file's count. Goes by the
 * hotness in `categorical`, so dlrm_dataset_open calls it, with what config and spec say together. */
dlrm_status dlrm_feature_spec_check(dlrm_feature_spec *spec) DLRM_MUST_USE;
void dlrm_feature_spec_clear(dlrm_feature_spec *spec); /* copes with {0} */

/* The two descriptions as text that is in memory already; `path` stands for the file in messages. The second leaves
 * the numerical features out, for model_size.json does not speak of them: load counts them in the files. */
dlrm_status dlrm_feature_spec_parse_yaml(const char *folder, const char *path, const char *text, size_t bytes,
                                         dlrm_feature_spec *out) DLRM_MUST_USE;
dlrm_status dlrm_feature_spec_parse_sizes(const char *folder, const char *path, const char *text, size_t bytes,
                                          dlrm_feature_spec *out) DLRM_MUST_USE;
