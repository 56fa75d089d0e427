/* Rows from a source to a sink, one reading while the other writes; memory for a few stretches of rows. */
#pragma once
#include "row_sink.h"

/* The form that dense values get in format `to`: `wanted` (-1: none said), as far as the source's can be turned into it. Errors
 * name --dense or --from-dense. */
dlrm_status dlrm_transcode_form(dlrm_dense_form from, dlrm_format to, int wanted, dlrm_dense_form *out) DLRM_MUST_USE;

/* All rows of all splits; the sink's shape differs from the source's in form alone. `path` names the source. */
dlrm_status dlrm_transcode(dlrm_row_source *from, const char *path, dlrm_row_sink *to) DLRM_MUST_USE;

/* Rows of a stretch such that it takes a few MiB. */
int64_t dlrm_stretch_rows(const dlrm_shape *s);
