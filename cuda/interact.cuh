/* What the two ways to compute `dot` share. */
#pragma once
#include "cuda/reduce.cuh"

/* Place of v_i·v_j, j < i, among the products. */
__device__ __forceinline__ int pair_index(int i, int j)
{
    return i * (i - 1) / 2 + j;
}

/* dot_tensor.cu: on tensor cores; up to DOT_SLOTS slots whose rows are whole, aligned pieces of 16 bytes. */
enum { DOT_SLOTS = 64 };
bool dot_tensor_fits(const dlrm_cuda_interact *a);
cudaError_t dot_tensor_forward(const dlrm_cuda_interact *a, cudaStream_t stream);
cudaError_t dot_tensor_backward(const dlrm_cuda_interact *a, cudaStream_t stream);

/* concat.cu */
cudaError_t concat_forward(const dlrm_cuda_interact *a, cudaStream_t stream);
cudaError_t concat_backward(const dlrm_cuda_interact *a, cudaStream_t stream);
