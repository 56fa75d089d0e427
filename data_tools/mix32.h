/* A bijection of 32 bits whose every output bit depends on all input bits. */
#pragma once
#include <stdint.h>

static inline uint32_t dlrm_mix32(uint32_t v)
{
    v ^= v >> 16;
    v *= 0x7FEB352Du;
    v ^= v >> 15;
    v *= 0x846CA68Bu;
    return v ^ v >> 16;
}
