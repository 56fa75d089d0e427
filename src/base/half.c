#include "base/half.h"

#include "base/hot.h"

enum { BLOCK = 64 /* numbers whose random bits are made at a time */ };

DLRM_HOT static void widen_bf16(const uint16_t *restrict from, int64_t n, float *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = dlrm_float_of_bf16(from[i]);
}

DLRM_HOT static void widen_f16(const uint16_t *restrict from, int64_t n, float *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = dlrm_float_of_f16(from[i]);
}

DLRM_HOT static void narrow_bf16(const float *restrict from, int64_t n, uint16_t *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = dlrm_bf16_of_float(from[i]);
}

DLRM_HOT static void narrow_f16(const float *restrict from, int64_t n, uint16_t *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = dlrm_f16_of_float(from[i]);
}

void dlrm_widen(dlrm_dtype type, const void *from, int64_t n, float *to)
{
    if (type == DLRM_BF16)
        widen_bf16(from, n, to);
    else if (type == DLRM_FP16)
        widen_f16(from, n, to);
    else if (from != to && n > 0)
        memcpy(to, from, (size_t)n * sizeof *to);
}

void dlrm_narrow(dlrm_dtype type, const float *from, int64_t n, void *to)
{
    if (type == DLRM_BF16)
        narrow_bf16(from, n, to);
    else if (type == DLRM_FP16)
        narrow_f16(from, n, to);
    else if (from != to && n > 0)
        memcpy(to, from, (size_t)n * sizeof *from);
}

/* Random bits of the groups of four from `group` on. */
DLRM_HOT static void random_bits(uint64_t seed, uint64_t stream, uint64_t group, int groups, uint32_t *restrict bits)
{
    for (int g = 0; g < groups; g++) {
        dlrm_u32x4 u = dlrm_philox(seed, stream, group + (uint64_t)g);
        for (int k = 0; k < 4; k++) bits[4 * g + k] = u.v[k];
    }
}

DLRM_HOT static void bf16_randomly(const float *restrict from, const uint32_t *restrict bits, int64_t n, uint16_t *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = dlrm_bf16_randomly(from[i], bits[i]);
}

DLRM_HOT static void f16_randomly(const float *restrict from, const uint32_t *restrict bits, int64_t n, uint16_t *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = dlrm_f16_randomly(from[i], bits[i]);
}

void dlrm_narrow_randomly(dlrm_dtype type, const float *from, int64_t n, void *to, uint64_t seed, uint64_t stream, int64_t element)
{
    uint32_t bits[BLOCK];
    uint16_t *out = to;
    if (type != DLRM_BF16 && type != DLRM_FP16) {
        dlrm_narrow(type, from, n, to);
        return;
    }
    while (n > 0) {
        const int64_t first = element % 4, part = n < BLOCK - first ? n : BLOCK - first;
        random_bits(seed, stream, (uint64_t)element / 4, (int)((first + part + 3) / 4), bits);
        if (type == DLRM_BF16)
            bf16_randomly(from, bits + first, part, out);
        else
            f16_randomly(from, bits + first, part, out);
        from += part;
        out += part;
        element += part;
        n -= part;
    }
}
