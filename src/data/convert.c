/* See convert.h. A block's verdict is one accumulated word, so that valid data pay for no branch. */
#include "data/convert.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "data files are little-endian and read as they are"
#endif

/* The sign bit of `id | (last - id)` is set just where id < 0 or id > last; no comparison of 64-bit integers, which
 * baseline x86-64 cannot vectorise. */
#define WIDEN_IDS(type)                                                                                    \
    static uint64_t widen_##type(const type *restrict in, int64_t n, uint64_t last, int64_t *restrict out) \
    {                                                                                                      \
        uint64_t bad = 0;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                  \
            int64_t id = in[i];                                                                            \
            out[i] = id;                                                                                   \
            bad |= (uint64_t)id | (last - (uint64_t)id);                                                   \
        }                                                                                                  \
        return bad;                                                                                        \
    }
WIDEN_IDS(int8_t)
WIDEN_IDS(int16_t)
WIDEN_IDS(int32_t)

static uint64_t check_ids(const int64_t *ids, int64_t n, uint64_t last)
{
    uint64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)ids[i] | (last - (uint64_t)ids[i]);
    return bad;
}

bool dlrm_convert_ids(dlrm_elem from, const void *in, int64_t n, int64_t rows, int64_t *out)
{
    uint64_t bad, last = (uint64_t)rows - 1;
    switch (from) {
    case DLRM_INT8:
        bad = widen_int8_t(in, n, last, out);
        break;
    case DLRM_INT16:
        bad = widen_int16_t(in, n, last, out);
        break;
    case DLRM_INT32:
        bad = widen_int32_t(in, n, last, out);
        break;
    default:
        DLRM_ASSERT(from == DLRM_INT64);
        if (in != out) memcpy(out, in, (size_t)n * sizeof *out);
        bad = check_ids(out, n, last);
    }
    return bad >> 63 == 0;
}

static bool check_finite(const float *v, int64_t n)
{
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= !(fabsf(v[i]) <= FLT_MAX);
    return !bad;
}

static void widen_halves(const uint16_t *restrict in, int64_t n, float *restrict out)
{
    for (int64_t i = 0; i < n; i++) out[i] = dlrm_float_of_f16(in[i]);
}

bool dlrm_convert_dense(dlrm_elem from, const void *in, int64_t n, float *out)
{
    if (from == DLRM_FLOAT16) {
        widen_halves(in, n, out);
    } else {
        DLRM_ASSERT(from == DLRM_FLOAT32);
        if (in != out) memcpy(out, in, (size_t)n * sizeof *out);
    }
    return check_finite(out, n);
}

#define WIDEN_LABELS(type)                                                             \
    static void labels_##type(const type *restrict in, int64_t n, float *restrict out) \
    {                                                                                  \
        for (int64_t i = 0; i < n; i++) out[i] = (float)in[i];                         \
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
