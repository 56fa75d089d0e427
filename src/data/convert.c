/* See convert.h. A block's verdict is one accumulated word, so that valid data pay for no branch. */
#include "data/convert.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/hot.h"
#include "base/kinds.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "data files are little-endian and read as they are"
#endif

/* The sign bit of `id | (last - id)` is set just where id < 0 or id > last: no comparison, which baseline x86-64 cannot
 * vectorise for unsigned or 64-bit integers. Narrow ids are checked in 32 bits, `last` cut to what they can hold. */
#define WIDEN_IDS(type)                                                                                              \
    DLRM_HOT static uint32_t widen_##type(const type *restrict in, int64_t n, uint32_t last, uint32_t *restrict out) \
    {                                                                                                                \
        uint32_t bad = 0;                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                            \
            uint32_t id = (uint32_t)in[i];                                                                           \
            out[i] = id;                                                                                             \
            bad |= id | (last - id);                                                                                 \
        }                                                                                                            \
        return bad;                                                                                                  \
    }
WIDEN_IDS(int8_t)
WIDEN_IDS(int16_t)

DLRM_HOT static uint32_t check_ids(const uint32_t *ids, int64_t n, uint32_t last)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= ids[i] | (last - ids[i]);
    return bad;
}

DLRM_HOT static uint64_t narrow_ids(const uint64_t *restrict in, int64_t n, uint64_t last, uint32_t *restrict out)
{
    uint64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (uint32_t)in[i];
        bad |= in[i] | (last - in[i]);
    }
    return bad;
}

bool dlrm_convert_ids(dlrm_elem from, const void *in, int64_t n, int64_t rows, uint32_t *out)
{
    const uint32_t last = (uint32_t)(rows <= INT32_MAX ? rows - 1 : INT32_MAX);
    DLRM_ASSERT(rows <= DLRM_MAX_ROWS);
    switch (from) {
    case DLRM_INT8:
        return widen_int8_t(in, n, last, out) >> 31 == 0;
    case DLRM_INT16:
        return widen_int16_t(in, n, last, out) >> 31 == 0;
    case DLRM_INT32:
        if (in != out) memcpy(out, in, (size_t)n * sizeof *out);
        return check_ids(out, n, last) >> 31 == 0;
    default:
        DLRM_ASSERT(from == DLRM_INT64);
        return narrow_ids(in, n, (uint64_t)rows - 1, out) >> 63 == 0;
    }
}

#define WIDEN_KEYS(type)                                      \
    for (int64_t i = 0; i < n; i++) {                         \
        type v;                                               \
        memcpy(&v, (const char *)in + i * (int64_t)sizeof v, sizeof v); \
        out[i] = v;                                           \
    }

void dlrm_convert_keys(dlrm_elem from, const void *in, int64_t n, int64_t *out)
{
    switch (from) {
    case DLRM_INT8:
        WIDEN_KEYS(int8_t)
        break;
    case DLRM_INT16:
        WIDEN_KEYS(int16_t)
        break;
    case DLRM_INT32:
        WIDEN_KEYS(int32_t)
        break;
    default:
        DLRM_ASSERT(from == DLRM_INT64);
        if (n > 0) memcpy(out, in, (size_t)n * sizeof *out);
    }
}

int64_t dlrm_convert_id(dlrm_elem from, const void *in, int64_t i)
{
    switch (from) {
    case DLRM_INT8:
        return ((const int8_t *)in)[i];
    case DLRM_INT16:
        return ((const int16_t *)in)[i];
    case DLRM_INT32:
        return ((const int32_t *)in)[i];
    default:
        DLRM_ASSERT(from == DLRM_INT64);
        return ((const int64_t *)in)[i];
    }
}

DLRM_HOT static bool check_finite(const float *v, int64_t n)
{
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= !(fabsf(v[i]) <= FLT_MAX);
    return !bad;
}

bool dlrm_convert_dense(dlrm_elem from, const void *in, int64_t n, float *out)
{
    if (from == DLRM_FLOAT16) {
        dlrm_widen(DLRM_FP16, in, n, out);
    } else {
        DLRM_ASSERT(from == DLRM_FLOAT32);
        if (in != out) memcpy(out, in, (size_t)n * sizeof *out);
    }
    return check_finite(out, n);
}

#define WIDEN_LABELS(type)                                                                      \
    DLRM_HOT static void labels_##type(const type *restrict in, int64_t n, float *restrict out) \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++) out[i] = (float)in[i];                                  \
    }
WIDEN_LABELS(int8_t)
WIDEN_LABELS(int32_t)

bool dlrm_convert_labels(dlrm_elem from, const void *in, int64_t n, float *out)
{
    switch (from) {
    case DLRM_BOOL:
    case DLRM_INT8:
        labels_int8_t(in, n, out);
        break;
    case DLRM_INT32:
        labels_int32_t(in, n, out);
        break;
    default:
        DLRM_ASSERT(from == DLRM_FLOAT32);
        if (in != out) memcpy(out, in, (size_t)n * sizeof *out);
    }
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= !((out[i] == 0.0f) | (out[i] == 1.0f));
    return !bad;
}

bool dlrm_convert_outside(dlrm_index_check check, int64_t id, int64_t rows, uint32_t *out, int64_t *clamped)
{
    if (check == DLRM_INDEX_ERROR || (check == DLRM_INDEX_MODULO && id < 0)) return false;
    *out = check == DLRM_INDEX_MODULO ? (uint32_t)(id % rows) : 0;
    *clamped += check == DLRM_INDEX_CLAMP;
    return true;
}
