#include "checkpoint/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t dlrm_sum(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

int64_t dlrm_sum_blocks(int64_t bytes)
{
    return (bytes + DLRM_SUM_BLOCK - 1) / DLRM_SUM_BLOCK;
}
