/* Where rows come from: one iterator for every format, with twins split_binary, records (mlperf_bin, hugectr_raw) npy
 * and hugectr_norm. Values are checked as they are read: a label is 0 or 1, floats are finite, counts are from 0, an id is below
 * its feature's cardinality, a bag is no longer than its most. */
#pragma once
#include "data/records.h"
#include "findings.h"
#include "shape.h"
#include "spool.h"
#include "tool.h"

extern const char *const dlrm_key_widths[]; /* "tried", "32", "64", NULL */

typedef enum dlrm_format {
    DLRM_FORMAT_TEXT,
    DLRM_FORMAT_SPLIT_BINARY,
    DLRM_FORMAT_MLPERF_BIN,
    DLRM_FORMAT_HUGECTR_RAW,
    DLRM_FORMAT_HUGECTR_NORM,
    DLRM_FORMAT_NPY,
    DLRM_FORMATS
} dlrm_format;
extern const char *const dlrm_format_names[DLRM_FORMATS + 1]; /* NULL-terminated */

typedef struct dlrm_row_source dlrm_row_source;
struct dlrm_row_source {
    dlrm_format format;
    dlrm_shape shape;
    int64_t rows[DLRM_OUT_SPLITS]; /* 0: no such split */
    int64_t disk_bytes;            /* of all files */
    int dense_bytes;               /* of a dense value on disk */
    const char *note;              /* what the format alone does not say, for info; or NULL */
    const bool *wanted;            /* [n_features], the caller's: features whose ids are wanted; NULL: all. The others may be left out */
    dlrm_findings *findings;       /* the caller's; NULL: the first bad value ends the reading */
    /* Rows [row, row+n) of a split, n at most the stretch's capacity. hugectr_norm: in order, from 0. */
    dlrm_status (*read)(dlrm_row_source *s, int split, int64_t row, int64_t n, dlrm_stretch *out);
    void (*close)(dlrm_row_source *s); /* the twin's own */
};

/* What the user says about files that do not say it themselves. */
typedef struct dlrm_source_hints {
    int format;                          /* of dlrm_format; -1: to be recognised */
    int form;                            /* of dlrm_dense_form; -1: as found */
    int64_t n_dense;                     /* -1: 13 */
    const char *cardinalities, *hotness; /* lists; NULL: as the description says, else as source_records.c has it */
    int key_width;                       /* of hugectr_norm: index into dlrm_key_widths */
} dlrm_source_hints;

/* Opens whatever stands at `path`: a folder or a file. findings: may be NULL. */
dlrm_status dlrm_source_open(const char *path, const dlrm_source_hints *hints, dlrm_findings *findings,
                             dlrm_row_source **out) DLRM_MUST_USE;
void dlrm_source_close(dlrm_row_source **s);

/* Headerless files do not say how many ids there are: cardinality 0, and any id is taken. This reads all rows and sets such
 * cardinalities to the largest id + 1. */
dlrm_status dlrm_source_scan_cardinalities(dlrm_row_source *s) DLRM_MUST_USE;

/* Which format; DLRM_E_INPUT says what it is instead. */
dlrm_status dlrm_recognise(const char *path, dlrm_format *out) DLRM_MUST_USE;

/* The twins; paths are as in dlrm_source_open. *out is allocated by them. */
dlrm_status dlrm_split_source_open(const char *path, const dlrm_source_hints *h, dlrm_row_source **out) DLRM_MUST_USE;
dlrm_status dlrm_record_source_open(const char *path, dlrm_format format, const dlrm_source_hints *h, dlrm_findings *findings,
                                    dlrm_row_source **out) DLRM_MUST_USE;
dlrm_status dlrm_npy_source_open(const char *path, const dlrm_source_hints *h, dlrm_row_source **out) DLRM_MUST_USE;
dlrm_status dlrm_norm_source_open(const char *path, const dlrm_source_hints *h, dlrm_row_source **out) DLRM_MUST_USE;

extern const char *const dlrm_out_split_names[DLRM_OUT_SPLITS]; /* "train", "test", "validation" */
