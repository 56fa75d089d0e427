/* Dense values on disk: a count x becomes ln(x+3) or ln(max(x,0)+1), or stays max(x,0), an int32; a missing one, or
 * x <= -3, is 0. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlrm_dense_kind { DLRM_DENSE_LOG3, DLRM_DENSE_LOG1, DLRM_DENSE_COUNTS } dlrm_dense_kind;

typedef struct dlrm_dense {
    dlrm_dense_kind kind;
    int bytes;   /* of a value on disk: 2 (float16) or 4 (float32, int32) */
    void *table; /* the values of the small counts, ready to copy */
} dlrm_dense;

dlrm_status dlrm_dense_open(dlrm_dense_kind kind, int bytes, dlrm_dense *out) DLRM_MUST_USE;
void dlrm_dense_close(dlrm_dense *d);
/* n counts; bit j of `missing`: count j is missing. out: [n] values of `bytes`. */
void dlrm_dense_encode(const dlrm_dense *d, const int32_t *counts, uint32_t missing, int n, void *out);

/* IEEE binary16, rounded to nearest even. For finite x. */
uint16_t dlrm_half_of_float(float x);
