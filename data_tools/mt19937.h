/* NumPy's legacy generator: the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded by their init_genrand, and
 * RandomState.randint on it. One stream of 32-bit numbers. */
#pragma once
#include <stdint.h>

enum { DLRM_MT_WORDS = 624 };

typedef struct dlrm_mt19937 {
    uint32_t state[DLRM_MT_WORDS];
    int next; /* DLRM_MT_WORDS: all have been used */
} dlrm_mt19937;

void dlrm_mt_seed(dlrm_mt19937 *g, uint32_t seed);
/* out[i] uniform in [0, n), n at most 2^32 - 1: as randint(0, n, size) gives them. Draws nothing where n is 1. */
void dlrm_mt_randint(dlrm_mt19937 *g, uint32_t n, int64_t count, uint32_t *out);
