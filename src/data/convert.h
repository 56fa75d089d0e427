/* Values of data files as the trainer's types. Each function converts n values and returns whether all of them are
 * valid; if not, the caller looks for the offender: in `in` among ids, in `out`, unchanged, among floats. `in` and `out`
 * may be the same memory where the types are as wide. The loops are plain so that compilers vectorise them, check
 * included. */
#pragma once
#include "config/config.h"
#include "config/feature_spec.h"

/* int8 … int64; valid: 0 <= id < rows, rows <= DLRM_MAX_ROWS. */
bool dlrm_convert_ids(dlrm_elem from, const void *in, int64_t n, int64_t rows, uint32_t *out);
/* int8 … int64; all are valid. `in` need not be aligned. */
void dlrm_convert_keys(dlrm_elem from, const void *in, int64_t n, int64_t *out);
/* Number i of them. */
int64_t dlrm_convert_id(dlrm_elem from, const void *in, int64_t i);
/* float16, float32; valid: finite. */
bool dlrm_convert_dense(dlrm_elem from, const void *in, int64_t n, float *out);
/* bool, int8, int32, float32; valid: 0 or 1. */
bool dlrm_convert_labels(dlrm_elem from, const void *in, int64_t n, float *out);
/* What data.index_check makes of an id outside its table of `rows`; false: it must not be. Counts the clamped. */
bool dlrm_convert_outside(dlrm_index_check check, int64_t id, int64_t rows, uint32_t *out, int64_t *clamped);
/* What an id outside its table may be, for the end of a message. */
static inline const char *dlrm_convert_hint(int64_t id)
{
    return id < INT32_MIN || id > UINT32_MAX ? "; keys of 64 bits are for a table with rows: dynamic" : "";
}
