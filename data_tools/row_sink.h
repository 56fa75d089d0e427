/* Where rows go: one interface for every format that dlrm_data writes. Each split's rows come in order, from 0, in stretches
 * of the shape that the sink was opened with. */
#pragma once
#include "row_source.h"

typedef struct dlrm_row_sink dlrm_row_sink;
struct dlrm_row_sink {
    dlrm_shape shape;
    dlrm_status (*write)(dlrm_row_sink *s, int split, const dlrm_stretch *rows);
    dlrm_status (*finish)(dlrm_row_sink *s); /* to the disk, with the description */
    void (*close)(dlrm_row_sink *s);         /* the twin's own */
};

typedef struct dlrm_sink_args {
    dlrm_format format;
    const char *folder;      /* exists */
    const dlrm_shape *shape; /* its form is the one that is wanted on disk: see dlrm_transcode_form */
    int64_t rows[DLRM_OUT_SPLITS];
    int dense_bytes;   /* split_binary: 2 or 4 */
    const char *vocab; /* text: a converted folder whose vocabularies turn ids back into hashes; NULL: an id is its own */
    int64_t memory;    /* text: bytes that these may take */
} dlrm_sink_args;

/* DLRM_E_INPUT where the format cannot hold such rows. */
dlrm_status dlrm_sink_open(const dlrm_sink_args *args, dlrm_row_sink **out) DLRM_MUST_USE;
void dlrm_sink_close(dlrm_row_sink **s);

/* A count that is not there: in counts made from log3, where 0 says so. Row records have 0 for it. */
#define DLRM_NO_COUNT INT32_MIN

/* Rewrites n dense values in place from one form to another. Counts are exact or an error: a value that is no logarithm of a
 * count is named with its row and column. */
dlrm_status dlrm_dense_recode(dlrm_dense_form from, dlrm_dense_form to, const dlrm_shape *shape, const char *path,
                              dlrm_stretch *rows) DLRM_MUST_USE;

/* The dense values of float rows as float16, into out[n][n_dense]. */
const uint16_t *dlrm_dense_halves(const dlrm_shape *shape, const dlrm_stretch *rows, uint16_t *out);

/* The twin that is not in row_sink.c. */
dlrm_status dlrm_text_sink_open(const dlrm_sink_args *args, dlrm_row_sink **out) DLRM_MUST_USE;
