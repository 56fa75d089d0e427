/* The checksum of checkpoints: XXH3, 64 bits, seed 0 (the xxHash library, several GB/s), of the bytes as they are in the
 * file. A tensor has one for each block of DLRM_SUM_BLOCK bytes, so that a part of it can be read and checked alone. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { DLRM_SUM_BLOCK = 1 << 20, DLRM_SUM_TEXT = 17 /* 16 hexadecimal digits and a zero */ };

uint64_t dlrm_sum(const void *data, size_t bytes);
/* How many blocks a tensor of so many bytes has. */
int64_t dlrm_sum_blocks(int64_t bytes);
