/* Sorts 64-bit words ascending, in place, without extra memory (radix sort from the top byte). */
#pragma once
#include <stdint.h>

void dlrm_sort64(uint64_t *v, int64_t n);

/* order: [n], the numbers 0 … n-1 of the keys from the least key to the largest; keys are all different and alike in their
 * first `bits` bits. word: room for n. n at most 2^32. */
void dlrm_sort_keys(const uint64_t *key, int bits, int64_t n, uint64_t *word, uint32_t *order);
