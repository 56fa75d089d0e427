/* Launching: grid sizes that cannot overflow, and a switch from storage types to C++ types. For .cu files. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels.h"

/* Returns from the function with the error, if there is one. */
#define TRY_CUDA(expr)                            \
    do {                                          \
        cudaError_t error_ = (expr);              \
        if (error_ != cudaSuccess) return error_; \
    } while (0)

/* Runs the statement with `name` standing for the C++ type of a storage type. */
#define WITH_TYPE(storage, name, statement) \
    switch (storage) {                      \
    case DLRM_BF16: {                       \
        using name = __nv_bfloat16;         \
        statement;                          \
        break;                              \
    }                                       \
    case DLRM_FP16: {                       \
        using name = __half;                \
        statement;                          \
        break;                              \
    }                                       \
    default: {                              \
        using name = float;                 \
        statement;                          \
        break;                              \
    }                                       \
    }

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for n items where the kernel strides over the grid: enough to fill any GPU, and within a grid's limits. */
static inline unsigned blocks_for(int64_t n, int64_t per_block, int64_t most = 1 << 16)
{
    int64_t blocks = ceil_div(n, per_block);
    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

static inline bool aligned_to(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}
