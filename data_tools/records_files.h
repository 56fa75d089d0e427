/* Folders of headerless records: how their files are called, and the description records.yaml that dlrm_data writes beside
 * them, whose `tables` are what a config's model.tables wants. */
#pragma once
#include "config/records_spec.h"
#include "row_source.h"

/* The name of a split's file, of facebook's meaning: test is the scored part of what is held back, and what dlrm-train
 * scores without being told. (HugeCTR's DCNv2 recipe calls that part val: see source_records.c.) */
const char *dlrm_record_file_name(int split);

typedef struct dlrm_record_files {
    dlrm_format format;
    char path[DLRM_OUT_SPLITS][DLRM_PATH_MAX]; /* "": no such split */
    int64_t rows[DLRM_OUT_SPLITS];             /* that the description gives it; 0: it says nothing */
} dlrm_record_files;

/* The files of a folder without a description, or of a single file (train). False: no such files there. */
bool dlrm_record_files_find(const char *path, dlrm_format format, dlrm_record_files *out);

dlrm_status dlrm_records_describe(const char *folder, dlrm_format format, const dlrm_shape *shape,
                                  const int64_t rows[DLRM_OUT_SPLITS]) DLRM_MUST_USE;
/* Reads FOLDER/records.yaml (config/records_spec.h); shape is the caller's to clear, after an error, too. */
dlrm_status dlrm_records_load(const char *folder, dlrm_record_files *files, dlrm_shape *shape) DLRM_MUST_USE;
