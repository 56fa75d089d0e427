/* Sorts 64-bit words ascending, in place, without extra memory (radix sort from the top byte). */
#pragma once
#include <stdint.h>

void dlrm_sort64(uint64_t *v, int64_t n);
