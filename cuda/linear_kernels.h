/* What of a linear layer is not a matrix product: launchers for linear.c. As in kernels.h: they enqueue, allocate nothing,
 * return the launch's error, and give the same bits on every run. Widths are pitches; `type` is the activations'. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/kinds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does this build hold code for the GPU? Makes it the current one. */
bool dlrm_cuda_has_code(int device);

/* y [b, w] += bias [w], then max(0, ·) if relu; in place. */
cudaError_t dlrm_cuda_bias_relu(int64_t b, int64_t w, void *y, dlrm_dtype type, const float *bias, bool relu, cudaStream_t stream);
/* sums [w] = column sums of z [b, w]. work: floats of dlrm_cuda_column_work. */
int64_t dlrm_cuda_column_work(int64_t b, int64_t w);
cudaError_t dlrm_cuda_column_sums(int64_t b, int64_t w, const void *z, dlrm_dtype type, float *sums, float *work, cudaStream_t stream);
/* dx [b, w] = 0 where x [b, w] is not above 0; sums [w] = column sums of the result. work: as above. */
cudaError_t dlrm_cuda_relu_mask(int64_t b, int64_t w, void *dx, const void *x, dlrm_dtype type, float *sums, float *work, cudaStream_t stream);

/* y = x0 z + x, all [b, w]. */
cudaError_t dlrm_cuda_cross_forward(int64_t b, int64_t w, const void *x0, const void *x, const void *z, void *y, dlrm_dtype type,
                                    cudaStream_t stream);
/* dlrm_cross_backward_args (backend.h) of [b, w]; sums [w] = column sums of the new z. work: as above. */
cudaError_t dlrm_cuda_cross_backward(int64_t b, int64_t w, const void *x0, const void *dy, void *z, void *dx0, bool add_dx0, bool x_is_x0,
                                     dlrm_dtype type, float *sums, float *work, cudaStream_t stream);

/* The layer of width 1: z [b] = x [b, w] · weight [w] + bias (or NULL), then max(0, ·) if relu. */
cudaError_t dlrm_cuda_logit_forward(int64_t b, int64_t w, const void *x, dlrm_dtype type, const float *weight, const float *bias, bool relu,
                                    float *z, cudaStream_t stream);
/* dx [b, w] (or NULL) = dz weight, or += with add_dx, 0 where x is not above 0 if x_is_relu; d_weight [w] (or NULL) =
 * sum of dz x, d_bias (or NULL) = sum of dz. work: floats of dlrm_cuda_logit_work. */
int64_t dlrm_cuda_logit_work(int64_t b, int64_t w);
cudaError_t dlrm_cuda_logit_backward(int64_t b, int64_t w, const void *x, dlrm_dtype type, const float *weight, const float *dz, void *dx,
                                     bool x_is_relu, bool add_dx, float *d_weight, float *d_bias, float *work, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
