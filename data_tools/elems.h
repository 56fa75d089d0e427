/* Values of a data file's element type, one at a time. */
#pragma once
#include <string.h>

#include "base/half.h"
#include "config/feature_spec.h"

static inline double dlrm_elem_label(dlrm_elem e, const void *raw, int64_t i)
{
    if (e == DLRM_INT32) return ((const int32_t *)raw)[i];
    if (e == DLRM_FLOAT32) return (double)((const float *)raw)[i];
    return ((const int8_t *)raw)[i];
}

static inline int64_t dlrm_elem_id(dlrm_elem e, const void *raw, int64_t i)
{
    if (e == DLRM_INT8) return ((const int8_t *)raw)[i];
    if (e == DLRM_INT16) return ((const int16_t *)raw)[i];
    if (e == DLRM_INT32) return ((const int32_t *)raw)[i];
    return ((const int64_t *)raw)[i];
}

/* An id outside its table may be a key of 64 bits: what to say of these then, else nothing. */
static inline const char *dlrm_elem_hint(int64_t id, const char *of_keys)
{
    return id < INT32_MIN || id > UINT32_MAX ? of_keys : "";
}

/* float16 widened; 4 bytes as they are. */
static inline void dlrm_elem_floats(dlrm_elem e, const void *raw, int64_t n, float *out)
{
    if (e == DLRM_FLOAT16)
        for (int64_t i = 0; i < n; i++) out[i] = dlrm_float_of_f16(((const uint16_t *)raw)[i]);
    else
        memcpy(out, raw, (size_t)n * sizeof *out);
}
