/* Sums of squares of floats that do not depend on the order, or the grouping, of their terms: for a row whose columns lie on
 * several ranks, and that any number of threads or lanes may share.
 *
 * A square is exact in a double. Its bits are cut at fixed places, the multiples of 2^DLRM_SQUARES_STEP, into two integers: what
 * lies in the bin of its leading bit, and in the one below. A sum keeps the two highest bins that occur; integers are added
 * exactly, and which of a term's bits count is a function of the largest term alone. (Demmel and Nguyen's indexed summation,
 * of which this is the case of two bins and terms that are not negative.) What is left out is, of n terms, less than n 2^-40 of
 * the sum: fp32 has 2^-24. Up to 2^23 terms. Any infinity or NaN makes the sum infinite. Usable from CUDA. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

enum { DLRM_SQUARES_STEP = 40, DLRM_SQUARES_OFFSET = 320 /* bin k begins at 2^(40 k - 320); squares of floats are in 0 … 14 */,
       DLRM_SQUARES_INFINITE = 15 };

typedef struct dlrm_squares {
    uint64_t high, low; /* in units of the bin's beginning, and of the one below */
    int64_t bin;        /* all 0: no terms */
} dlrm_squares;

/* Sums of two bins with high in `bin`, into *sum. */
static inline DLRM_HD void dlrm_squares_join(dlrm_squares *sum, dlrm_squares x)
{
    if (x.bin > sum->bin) {
        const dlrm_squares lower = *sum;
        *sum = x;
        x = lower;
    }
    if (x.bin == sum->bin) {
        sum->high += x.high;
        sum->low += x.low;
    } else if (x.bin + 1 == sum->bin) {
        sum->low += x.high;
    }
}

static inline DLRM_HD void dlrm_squares_add(dlrm_squares *sum, float f)
{
    const double square = (double)f * f;
    uint64_t bits;
    memcpy(&bits, &square, sizeof bits);
    if (bits == 0) return;
    const int exponent = (int)(bits >> 52) - 1023 + DLRM_SQUARES_OFFSET, bin = exponent / DLRM_SQUARES_STEP;
    const int below = 52 - exponent % DLRM_SQUARES_STEP; /* bits of the fraction that are below the bin: 13 … 52 */
    const uint64_t one = 1, fraction = (bits & ((one << 52) - 1)) | one << 52, rest = fraction & ((one << below) - 1);
    dlrm_squares x = {fraction >> below, below > DLRM_SQUARES_STEP ? rest >> (below - DLRM_SQUARES_STEP) : rest << (DLRM_SQUARES_STEP - below), bin};
    if (bin >= DLRM_SQUARES_INFINITE) x.bin = DLRM_SQUARES_INFINITE;
    dlrm_squares_join(sum, x);
}

static inline DLRM_HD double dlrm_squares_value(const dlrm_squares *sum)
{
    if (sum->bin == DLRM_SQUARES_INFINITE) return (double)INFINITY;
    const double unit = ldexp(1.0, (int)sum->bin * DLRM_SQUARES_STEP - DLRM_SQUARES_OFFSET);
    return (double)sum->high * unit + (double)sum->low * (unit * 0x1p-40);
}
