/* Sums over samples of a matrix's columns, for kernels that read it anyway. Thread map: 8 neighbouring columns a thread
 * where rows are padded to 8 (16 bytes of bf16), ACROSS threads beside each other, DOWN rows of threads; ROWS samples a
 * block in a fixed order, then the blocks' sums in order. */
#pragma once
#include "cuda/reduce.cuh"

enum { ACROSS = 32, DOWN = 8, ROWS = 256 };

/* Runs the statement with V columns at a time and the C++ type T of a storage type. */
#define WITH_COLUMNS(type, w, T, V, statement) \
    do {                                       \
        if ((w) % 8 == 0) {                    \
            constexpr int V = 8;               \
            WITH_TYPE(type, T, statement)      \
        } else {                               \
            constexpr int V = 1;               \
            WITH_TYPE(type, T, statement)      \
        }                                      \
    } while (0)

static inline dim3 column_grid(int64_t b, int64_t groups)
{
    return dim3((unsigned)ceil_div(b, ROWS), (unsigned)ceil_div(groups, ACROSS));
}

/* What a thread works on: columns [group * V, +V) of samples first, first + DOWN, … below end. */
struct column_share {
    int64_t group, first, end;
};

__device__ __forceinline__ column_share share_of_thread(int64_t b, int64_t groups)
{
    const int64_t group = blockIdx.y * (int64_t)ACROSS + threadIdx.x, end = min(b, (blockIdx.x + 1) * (int64_t)ROWS);
    return {group, blockIdx.x * (int64_t)ROWS + threadIdx.y, group < groups ? end : 0};
}

/* Adds what the DOWN rows of threads have, in order, and writes this block's partial sum of their columns. */
template <int V> __device__ void write_partial(const vec<V> &sum, int64_t group, int64_t groups, float *partial)
{
    __shared__ float shared[DOWN][ACROSS][V + 1];
#pragma unroll
    for (int k = 0; k < V; k++) shared[threadIdx.y][threadIdx.x][k] = sum.v[k];
    __syncthreads();
    if (threadIdx.y == 0 && group < groups) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            float total = shared[0][threadIdx.x][k];
            for (int y = 1; y < DOWN; y++) total += shared[y][threadIdx.x][k];
            partial[group * V + k] = total;
        }
    }
}

/* out[i] = sum over blocks of partial[block][i]: a warp's lane each takes every 32nd block, then the lanes in order. */
static __global__ void sum_partials(int64_t blocks, int64_t n, int64_t stride, const float *partial, float *out)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    float sum = 0;
    for (int64_t k = threadIdx.x; k < blocks && i < n; k += 32) sum += partial[k * stride + i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x == 0 && i < n) out[i] = sum;
}

/* The sums of b samples' n columns from the blocks' partial ones, which lie `stride` apart. */
static inline cudaError_t finish_columns(int64_t b, int64_t n, int64_t stride, const float *partial, float *out, cudaStream_t stream)
{
    sum_partials<<<(unsigned)ceil_div(n, 8), dim3(32, 8), 0, stream>>>(ceil_div(b, ROWS), n, stride, partial, out);
    return cudaGetLastError();
}
