#include "dense.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { LEAST = -2, SMALL = 1 << 14 }; /* table: counts LEAST … LEAST+SMALL-1; almost all are in it */

uint16_t dlrm_half_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and more round to infinity */
    if (rest <
        0x38800000) { /* below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to in float's own last place */
        float magnitude;
        memcpy(&magnitude, &rest, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&rest, &magnitude, sizeof rest);
        return (uint16_t)(sign | (rest - 0x3F000000));
    }
    rest += 0xFFF + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - 0x38000000) >> 13);
}

static float transform(dlrm_dense_kind kind, int64_t x)
{
    if (kind == DLRM_DENSE_LOG1) return (float)log((double)(x > 0 ? x : 0) + 1.0);
    return x > -3 ? (float)log((double)x + 3.0) : 0.0f;
}

static void store(const dlrm_dense *d, float value, char *out)
{
    uint16_t half = dlrm_half_of_float(value);
    memcpy(out, d->bytes == 2 ? (const void *)&half : &value, (size_t)d->bytes);
}

dlrm_status dlrm_dense_open(dlrm_dense_kind kind, int bytes, dlrm_dense *out)
{
    *out = (dlrm_dense){.kind = kind, .bytes = bytes};
    if (kind == DLRM_DENSE_COUNTS) return DLRM_OK;
    TRY(dlrm_alloc(SMALL, (size_t)bytes, "the dense values' table", &out->table));
    for (int i = 0; i < SMALL; i++) store(out, transform(kind, LEAST + i), (char *)out->table + i * bytes);
    return DLRM_OK;
}

void dlrm_dense_close(dlrm_dense *d)
{
    dlrm_free(&d->table);
}

static void encode_counts(const int32_t *counts, uint32_t missing, int n, void *out)
{
    int32_t *to = out;
    for (int j = 0; j < n; j++) to[j] = missing >> j & 1 || counts[j] < 0 ? 0 : counts[j];
}

void dlrm_dense_encode(const dlrm_dense *d, const int32_t *counts, uint32_t missing, int n, void *out)
{
    if (d->kind == DLRM_DENSE_COUNTS) {
        encode_counts(counts, missing, n, out);
        return;
    }
    for (int j = 0; j < n; j++) {
        char *to = (char *)out + j * d->bytes;
        int64_t at = (int64_t)counts[j] - LEAST;
        if (missing >> j & 1)
            memset(to, 0, (size_t)d->bytes);
        else if (at >= 0 && at < SMALL)
            memcpy(to, (const char *)d->table + at * d->bytes, (size_t)d->bytes);
        else
            store(d, transform(d->kind, counts[j]), to);
    }
}
