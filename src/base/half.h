/* 16-bit floats to fp32; exact, every bit pattern. */
#pragma once
#include <stdint.h>
#include <string.h>

static inline float dlrm_float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Without branches, so that loops over it vectorise:
 * moving exponent and fraction into fp32's places leaves the exponent 112 too low, and subnormals are fraction * 2^-24.
 * (An fp32 multiplication by 2^112 would do both, but only while the processor does not flush subnormal operands to
 * zero.) */
static inline float dlrm_float_of_f16(uint16_t h)
{
    uint32_t magnitude = h & 0x7FFF, bits;
    float subnormal = (float)(int32_t)magnitude * 0x1p-24f;
    memcpy(&bits, &subnormal, sizeof bits);
    uint32_t is_subnormal = -(uint32_t)(magnitude < 0x0400), is_special = -(uint32_t)(magnitude >= 0x7C00);
    uint32_t normal = (magnitude << 13) + (112u << 23) + (is_special & 112u << 23); /* special: infinity, NaN */
    return dlrm_float_of_bits((bits & is_subnormal) | (normal & ~is_subnormal) | (uint32_t)(h & 0x8000) << 16);
}

/* bfloat16: the upper half of an fp32. */
static inline float dlrm_float_of_bf16(uint16_t b)
{
    return dlrm_float_of_bits((uint32_t)b << 16);
}
