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

/* IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static inline float dlrm_float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FF;
    if (exponent == 31) return dlrm_float_of_bits(sign | 0x7F800000 | fraction << 13); /* inf, NaN */
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, which fp32 holds exactly */
        float f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    }
    return dlrm_float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

/* bfloat16: the upper half of an fp32. */
static inline float dlrm_float_of_bf16(uint16_t b)
{
    return dlrm_float_of_bits((uint32_t)b << 16);
}
