#include "checkpoint/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t dlrm_sum(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
