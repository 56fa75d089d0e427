/* Vectors put together from parts of several ranks, and their gradients taken apart. Threads stride over the elements of
 * [b, width]; neighbours read neighbouring elements. */
#include "cuda/reduce.cuh"

enum { JOIN_THREADS = 256 };

/* The vector that a column belongs to. */
__device__ __forceinline__ int vector_of(const dlrm_join_vector *vectors, int n, int column)
{
    int low = 0, high = n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (vectors[middle].column <= column)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

template <class T>
__global__ void __launch_bounds__(JOIN_THREADS)
    join_kernel(int64_t b, int width, const dlrm_join_part *parts, const dlrm_join_vector *vectors, int n_vectors, T *joined)
{
    for (int64_t i = blockIdx.x * (int64_t)JOIN_THREADS + threadIdx.x; i < b * width;
         i += (int64_t)gridDim.x * JOIN_THREADS) {
        const int64_t s = i / width;
        const int column = (int)(i - s * width);
        const dlrm_join_vector v = vectors[vector_of(vectors, n_vectors, column)];
        float sum = 0;
        bool first = true;
        for (int k = v.first_part; k < v.first_part + v.n_parts; k++) {
            const int d = column - parts[k].column;
            if (d < 0 || d >= parts[k].width) continue;
            const T *part = (const T *)parts[k].data + s * parts[k].stride;
            const float x = parts[k].exact ? ((const float *)part)[d] : to_float(part[d]);
            sum = first ? x : sum + x;
            first = false;
        }
        const int64_t n = v.whole ? v.whole[s + 1] - v.whole[s] : 1;
        if (n > 1) sum *= 1.0f / (float)n;
        joined[i] = from_float<T>(sum);
    }
}

/* Block y: a part. */
template <class T>
__global__ void __launch_bounds__(JOIN_THREADS)
    split_kernel(int64_t b, int width, const dlrm_join_part *parts, const T *d_joined)
{
    const dlrm_join_part p = parts[blockIdx.y];
    for (int64_t i = blockIdx.x * (int64_t)JOIN_THREADS + threadIdx.x; i < b * p.width;
         i += (int64_t)gridDim.x * JOIN_THREADS) {
        const int64_t s = i / p.width, d = i - s * p.width;
        ((T *)p.grad)[s * p.grad_stride + d] = d_joined[s * width + p.column + d];
    }
}

cudaError_t dlrm_cuda_join_forward(const dlrm_join_args *a, const dlrm_join_part *parts,
                                   const dlrm_join_vector *vectors, dlrm_dtype type, cudaStream_t stream)
{
    const int64_t n = a->b * a->width;
    if (n == 0) return cudaSuccess;
    WITH_TYPE(type, T, (join_kernel<T><<<blocks_for(n, JOIN_THREADS), JOIN_THREADS, 0, stream>>>(
                           a->b, a->width, parts, vectors, a->n_vectors, (T *)a->joined)));
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_join_backward(const dlrm_join_args *a, const dlrm_join_part *parts, dlrm_dtype type,
                                    cudaStream_t stream)
{
    int widest = 0;
    for (int i = 0; i < a->n_parts; i++)
        if (a->parts[i].width > widest) widest = a->parts[i].width;
    if (a->b * widest == 0) return cudaSuccess;
    for (int from = 0; from < a->n_parts; from += 32768) { /* a grid has at most 65535 of y */
        const int count = a->n_parts - from < 32768 ? a->n_parts - from : 32768;
        const dim3 grid(blocks_for(a->b * widest, JOIN_THREADS, 4096), (unsigned)count);
        WITH_TYPE(type, T, (split_kernel<T><<<grid, JOIN_THREADS, 0, stream>>>(a->b, a->width, parts + from,
                                                                               (const T *)a->d_joined)));
    }
    return cudaGetLastError();
}
