/* Arithmetic on counts. */
#pragma once
#include <stdint.h>

static inline int64_t dlrm_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t dlrm_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
