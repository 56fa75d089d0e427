/* 16-bit floats. To fp32: exact, every bit pattern. From fp32: to nearest, ties to even, beyond the largest number
 * infinity; or by random bits, up or down with probabilities that keep the mean, beyond the largest number that one.
 * Infinities and NaN pass. All without branches, so that loops over them vectorise. Usable from CUDA, and the same bits
 * there. */
#pragma once
#include <stdint.h>
#include <string.h>

#include "base/kinds.h"
#include "base/rng.h"

static inline DLRM_HD float dlrm_float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline DLRM_HD uint32_t dlrm_bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Moving exponent and fraction into fp32's places leaves
 * the exponent 112 too low, and subnormals are fraction * 2^-24. (An fp32 multiplication by 2^112 would do both, but only
 * while the processor does not flush subnormal operands to zero.) */
static inline DLRM_HD float dlrm_float_of_f16(uint16_t h)
{
    uint32_t magnitude = h & 0x7FFF, bits = dlrm_bits_of_float((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t is_subnormal = -(uint32_t)(magnitude < 0x0400), is_special = -(uint32_t)(magnitude >= 0x7C00);
    uint32_t normal = (magnitude << 13) + (112u << 23) + (is_special & 112u << 23); /* special: infinity, NaN */
    return dlrm_float_of_bits((bits & is_subnormal) | (normal & ~is_subnormal) | (uint32_t)(h & 0x8000) << 16);
}

/* bfloat16: the upper half of an fp32. */
static inline DLRM_HD float dlrm_float_of_bf16(uint16_t b)
{
    return dlrm_float_of_bits((uint32_t)b << 16);
}

static inline DLRM_HD uint16_t dlrm_bf16_of_float(float f)
{
    uint32_t u = dlrm_bits_of_float(f), is_nan = -(uint32_t)((u & 0x7FFFFFFF) > 0x7F800000);
    return (uint16_t)((((u + 0x7FFF + (u >> 16 & 1)) & ~is_nan) | (0x7FC00000 & is_nan)) >> 16);
}

/* Adds the upper 16 bits of `bits` to the lower 16 of the number, which are then dropped. */
static inline DLRM_HD uint16_t dlrm_bf16_randomly(float f, uint32_t bits)
{
    uint32_t u = dlrm_bits_of_float(f), magnitude = u & 0x7FFFFFFF, r = magnitude + (bits >> 16);
    uint32_t is_special = -(uint32_t)(magnitude >= 0x7F800000), is_nan = -(uint32_t)(magnitude > 0x7F800000);
    r = r > 0x7F7FFFFF ? 0x7F7F0000 : r;
    r = (r & ~is_special) | ((0x7F800000 | (0x00400000 & is_nan)) & is_special);
    return (uint16_t)((r | (u & 0x80000000)) >> 16);
}

/* What a number becomes in binary16: m of its fraction's bits, to be shifted right by `drop` (13; more for subnormals,
 * whose unit is 2^-24), and what to add to the result for its exponent. A number so small that more than 31 bits go is cut
 * to 31 first, which changes it by less than 2^-31 units. */
typedef struct dlrm_f16_parts {
    uint32_t m, drop, exponent;
} dlrm_f16_parts;

static inline DLRM_HD dlrm_f16_parts dlrm_f16_split(uint32_t magnitude)
{
    uint32_t e = magnitude >> 23, is_normal = -(uint32_t)(e >= 113), drop = (13 & is_normal) | ((126 - e) & ~is_normal);
    uint32_t over = drop > 31 ? drop - 31 : 0;
    over = over > 31 ? 31 : over;
    dlrm_f16_parts p = {((magnitude & 0x7FFFFF) | 0x800000) >> over, drop > 31 ? 31 : drop, (e - 113) << 10 & is_normal};
    return p;
}

static inline DLRM_HD uint16_t dlrm_f16_special(uint32_t u, uint32_t r)
{
    uint32_t magnitude = u & 0x7FFFFFFF, is_special = -(uint32_t)(magnitude >= 0x7F800000);
    uint32_t special = 0x7C00 | (magnitude > 0x7F800000 ? 0x0200 : 0);
    return (uint16_t)((r & ~is_special) | (special & is_special) | (u >> 16 & 0x8000));
}

static inline DLRM_HD uint16_t dlrm_f16_of_float(float f)
{
    uint32_t u = dlrm_bits_of_float(f);
    dlrm_f16_parts p = dlrm_f16_split(u & 0x7FFFFFFF);
    uint32_t r = ((p.m + (1u << (p.drop - 1)) - 1 + (p.m >> p.drop & 1)) >> p.drop) + p.exponent;
    return dlrm_f16_special(u, r > 0x7C00 ? 0x7C00 : r);
}

/* Adds as many of the upper bits of `bits` as are dropped. */
static inline DLRM_HD uint16_t dlrm_f16_randomly(float f, uint32_t bits)
{
    uint32_t u = dlrm_bits_of_float(f);
    dlrm_f16_parts p = dlrm_f16_split(u & 0x7FFFFFFF);
    uint32_t r = ((p.m + (bits >> (32 - p.drop))) >> p.drop) + p.exponent;
    return dlrm_f16_special(u, r > 0x7BFF ? 0x7BFF : r);
}

#ifdef __cplusplus
extern "C" {
#endif
/* n numbers of a storage type (fp32, bf16, fp16) as fp32, and back; `from` and `to` do not overlap, but where they are
 * the same array of fp32. */
void dlrm_widen(dlrm_dtype type, const void *from, int64_t n, float *to);
void dlrm_narrow(dlrm_dtype type, const float *from, int64_t n, void *to);
/* Element i takes the bits (element + i) of the stream (rng.h: four of them share one call of the generator). */
void dlrm_narrow_randomly(dlrm_dtype type, const float *from, int64_t n, void *to, uint64_t seed, uint64_t stream,
                          int64_t element);
#ifdef __cplusplus
}
#endif
