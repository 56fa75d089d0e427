/* Bias, ReLU, column sums, what of a cross layer is no product, and the layer of width 1, which is a product of a matrix and a vector and so bound by memory.
 * Thread map of all: 8 neighbouring columns a thread where rows are padded to 8 (16 bytes of bf16), 32 threads across, 8
 * rows of threads; sums over samples: ROWS samples a block in a fixed order, then the blocks' sums in order. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "linear_kernels.h"

namespace {

constexpr int ACROSS = 32, DOWN = 8, ROWS = 256, FLAT = 256;

template <typename T> __device__ float to_float(T v)
{
    return (float)v;
}

template <typename T> __device__ T from_float(float v)
{
    return (T)v;
}

/* V values at an address aligned to V * sizeof(T), at most 16 bytes at a time. */
template <typename T, int V> struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) pack {
    T v[V];
};

__global__ void probe()
{
}

template <typename T, int V> __global__ void bias_relu(int64_t b, int64_t groups, T *y, const float *bias, bool relu)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= b * groups) return;
    const float *add = bias + i % groups * V;
    pack<T, V> p = *reinterpret_cast<pack<T, V> *>(y + i * V);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float v = to_float(p.v[k]) + add[k];
        p.v[k] = from_float<T>(relu && v < 0 ? 0.0f : v);
    }
    *reinterpret_cast<pack<T, V> *>(y + i * V) = p;
}

/* Adds what the DOWN rows of threads have, in order, and writes columns [group * V, +V) of this block's partial sum. */
template <int V> __device__ void write_partial(float (&sum)[V], int64_t group, int64_t groups, float *partial)
{
    __shared__ float shared[DOWN][ACROSS][V + 1];
#pragma unroll
    for (int k = 0; k < V; k++) shared[threadIdx.y][threadIdx.x][k] = sum[k];
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

/* Column sums of z; with x, z is first set to 0 where x is not above 0. AHEAD loads are in flight. */
template <typename T, int V, bool MASK> __global__ void column_partials(int64_t b, int64_t groups, T *z, const T *x, float *partial)
{
    constexpr int AHEAD = 4;
    int64_t group = blockIdx.y * (int64_t)ACROSS + threadIdx.x, end = min(b, (blockIdx.x + 1) * (int64_t)ROWS);
    float sum[V] = {};
    for (int64_t s = blockIdx.x * (int64_t)ROWS + threadIdx.y; s < end && group < groups; s += AHEAD * DOWN) {
        pack<T, V> p[AHEAD], q[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int64_t at = (s + i * DOWN) * groups + group;
            if (s + i * DOWN >= end) continue;
            p[i] = *reinterpret_cast<const pack<T, V> *>(z + at * V);
            if (MASK) q[i] = *reinterpret_cast<const pack<T, V> *>(x + at * V);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (s + i * DOWN >= end) continue;
#pragma unroll
            for (int k = 0; k < V; k++) {
                if (MASK && !(to_float(q[i].v[k]) > 0)) p[i].v[k] = from_float<T>(0.0f);
                sum[k] += to_float(p[i].v[k]);
            }
            if (MASK) *reinterpret_cast<pack<T, V> *>(z + ((s + i * DOWN) * groups + group) * V) = p[i];
        }
    }
    write_partial<V>(sum, group, groups, partial + blockIdx.x * groups * V);
}

/* out[i] = sum over blocks of partial[block][i]: a warp's lane each takes every 32nd block, then the lanes in order. */
__global__ void sum_partials(int64_t blocks, int64_t n, int64_t stride, const float *partial, float *out)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    float sum = 0;
    for (int64_t k = threadIdx.x; k < blocks && i < n; k += 32) sum += partial[k * stride + i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, d);
    if (threadIdx.x == 0 && i < n) out[i] = sum;
}

/* y = x0 z + x over n groups of V elements. AHEAD loads of each are in flight. */
template <typename T, int V> __global__ void cross_forward(int64_t n, const T *x0, const T *x, const T *z, T *y)
{
    constexpr int AHEAD = 2;
    const int64_t first = blockIdx.x * (int64_t)(AHEAD * FLAT) + threadIdx.x;
    pack<T, V> p0[AHEAD], p[AHEAD], pz[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const int64_t at = (first + i * FLAT) * V;
        if (first + i * FLAT >= n) continue;
        p0[i] = *reinterpret_cast<const pack<T, V> *>(x0 + at);
        pz[i] = *reinterpret_cast<const pack<T, V> *>(z + at);
        p[i] = *reinterpret_cast<const pack<T, V> *>(x + at);
    }
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        if (first + i * FLAT >= n) continue;
#pragma unroll
        for (int k = 0; k < V; k++) p[i].v[k] = from_float<T>(to_float(p0[i].v[k]) * to_float(pz[i].v[k]) + to_float(p[i].v[k]));
        *reinterpret_cast<pack<T, V> *>(y + (first + i * FLAT) * V) = p[i];
    }
}

/* z becomes dz = x0 dy, and dx0 z dy, with what it was and with dy itself as asked; with the column sums of dz, all in
 * one pass. */
template <typename T, int V>
__global__ void cross_backward(int64_t b, int64_t groups, const T *x0, const T *dy, T *z, T *dx0, bool add, bool through, float *partial)
{
    constexpr int AHEAD = 2;
    int64_t group = blockIdx.y * (int64_t)ACROSS + threadIdx.x, end = min(b, (blockIdx.x + 1) * (int64_t)ROWS);
    float sum[V] = {};
    for (int64_t s = blockIdx.x * (int64_t)ROWS + threadIdx.y; s < end && group < groups; s += AHEAD * DOWN) {
        pack<T, V> p0[AHEAD], py[AHEAD], pz[AHEAD], old[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t at = ((s + i * DOWN) * groups + group) * V;
            if (s + i * DOWN >= end) continue;
            p0[i] = *reinterpret_cast<const pack<T, V> *>(x0 + at);
            py[i] = *reinterpret_cast<const pack<T, V> *>(dy + at);
            pz[i] = *reinterpret_cast<const pack<T, V> *>(z + at);
            if (add) old[i] = *reinterpret_cast<const pack<T, V> *>(dx0 + at);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t at = ((s + i * DOWN) * groups + group) * V;
            if (s + i * DOWN >= end) continue;
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float d = to_float(py[i].v[k]);
                float g = to_float(pz[i].v[k]) * d;
                if (add) g += to_float(old[i].v[k]);
                if (through) g += d;
                old[i].v[k] = from_float<T>(g);
                pz[i].v[k] = from_float<T>(to_float(p0[i].v[k]) * d);
                sum[k] += to_float(pz[i].v[k]);
            }
            *reinterpret_cast<pack<T, V> *>(dx0 + at) = old[i];
            *reinterpret_cast<pack<T, V> *>(z + at) = pz[i];
        }
    }
    write_partial<V>(sum, group, groups, partial + blockIdx.x * groups * V);
}

template <typename T, int V> __global__ void logit_forward(int64_t b, int64_t groups, const T *x, const float *w, const float *bias, bool relu,
                                                              float *z)
{
    int64_t s = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    float sum = 0;
    for (int64_t g = threadIdx.x; g < groups && s < b; g += 32) {
        pack<T, V> p = *reinterpret_cast<const pack<T, V> *>(x + (s * groups + g) * V);
#pragma unroll
        for (int k = 0; k < V; k++) sum += to_float(p.v[k]) * w[g * V + k];
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, d);
    if (bias) sum += *bias;
    if (threadIdx.x == 0 && s < b) z[s] = relu && sum < 0 ? 0.0f : sum;
}

template <typename T, int V>
__global__ void logit_backward(int64_t b, int64_t groups, const T *x, const float *w, const float *dz, T *dx, bool x_is_relu, bool add,
                               float *partial)
{
    int64_t group = blockIdx.y * (int64_t)ACROSS + threadIdx.x, end = min(b, (blockIdx.x + 1) * (int64_t)ROWS);
    float sum[V] = {}, weight[V] = {}, bias = 0;
    add &= dx != NULL;
    if (group < groups)
#pragma unroll
        for (int k = 0; k < V; k++) weight[k] = w[group * V + k];
    for (int64_t s = blockIdx.x * (int64_t)ROWS + threadIdx.y; s < end && group < groups; s += DOWN) {
        pack<T, V> p = *reinterpret_cast<const pack<T, V> *>(x + (s * groups + group) * V), g;
        if (add) g = *reinterpret_cast<const pack<T, V> *>(dx + (s * groups + group) * V);
        float d = dz[s];
        bias += d;
#pragma unroll
        for (int k = 0; k < V; k++) {
            float v = to_float(p.v[k]);
            sum[k] += d * v;
            g.v[k] = from_float<T>(x_is_relu && !(v > 0) ? 0.0f : add ? to_float(g.v[k]) + d * weight[k] : d * weight[k]);
        }
        if (dx) *reinterpret_cast<pack<T, V> *>(dx + (s * groups + group) * V) = g;
    }
    float *row = partial + blockIdx.x * (groups * V + 1);
    write_partial<V>(sum, group, groups, row);
    __shared__ float biases[DOWN];
    if (threadIdx.x == 0) biases[threadIdx.y] = bias;
    __syncthreads();
    if (blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
        for (int y = 1; y < DOWN; y++) bias += biases[y];
        row[groups * V] = bias;
    }
}

int64_t blocks_for(int64_t n, int64_t per)
{
    return (n + per - 1) / per;
}

cudaError_t finish(int64_t blocks, int64_t n, int64_t stride, const float *partial, float *out, cudaStream_t stream)
{
    sum_partials<<<(unsigned)blocks_for(n, 8), dim3(32, 8), 0, stream>>>(blocks, n, stride, partial, out);
    return cudaGetLastError();
}

/* Calls f<T, V>(…) for the type, V = 8 where the width allows. */
#define BY_TYPE(type, w, call)                                                                                         \
    do {                                                                                                               \
        if ((w) % 8 == 0) {                                                                                            \
            constexpr int V = 8;                                                                                       \
            if ((type) == DLRM_BF16) {                                                                                 \
                typedef __nv_bfloat16 T;                                                                               \
                call;                                                                                                  \
            } else if ((type) == DLRM_FP16) {                                                                          \
                typedef __half T;                                                                                      \
                call;                                                                                                  \
            } else {                                                                                                   \
                typedef float T;                                                                                       \
                call;                                                                                                  \
            }                                                                                                          \
        } else {                                                                                                       \
            constexpr int V = 1;                                                                                       \
            if ((type) == DLRM_BF16) {                                                                                 \
                typedef __nv_bfloat16 T;                                                                               \
                call;                                                                                                  \
            } else if ((type) == DLRM_FP16) {                                                                          \
                typedef __half T;                                                                                      \
                call;                                                                                                  \
            } else {                                                                                                   \
                typedef float T;                                                                                       \
                call;                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

}  // namespace

extern "C" bool dlrm_cuda_has_code(int device)
{
    cudaFuncAttributes a;
    bool has = cudaSetDevice(device) == cudaSuccess && cudaFuncGetAttributes(&a, probe) == cudaSuccess;
    (void)cudaGetLastError();
    return has;
}

extern "C" cudaError_t dlrm_cuda_bias_relu(int64_t b, int64_t w, void *y, dlrm_dtype type, const float *bias, bool relu, cudaStream_t stream)
{
    if (b == 0) return cudaSuccess;
    BY_TYPE(type, w, (bias_relu<T, V><<<(unsigned)blocks_for(b * w / V, 256), 256, 0, stream>>>(b, w / V, (T *)y, bias, relu)));
    return cudaGetLastError();
}

extern "C" int64_t dlrm_cuda_column_work(int64_t b, int64_t w)
{
    return blocks_for(b, ROWS) * w;
}

extern "C" cudaError_t dlrm_cuda_column_sums(int64_t b, int64_t w, const void *z, dlrm_dtype type, float *sums, float *work, cudaStream_t stream)
{
    const int64_t blocks = blocks_for(b, ROWS);
    if (blocks > 0)
        BY_TYPE(type, w, (column_partials<T, V, false><<<dim3((unsigned)blocks, (unsigned)blocks_for(w / V, ACROSS)), dim3(ACROSS, DOWN), 0, stream>>>(
                              b, w / V, (T *)z, (const T *)NULL, work)));
    return finish(blocks, w, w, work, sums, stream);
}

extern "C" cudaError_t dlrm_cuda_relu_mask(int64_t b, int64_t w, void *dx, const void *x, dlrm_dtype type, float *sums, float *work,
                                           cudaStream_t stream)
{
    const int64_t blocks = blocks_for(b, ROWS);
    if (blocks > 0)
        BY_TYPE(type, w, (column_partials<T, V, true><<<dim3((unsigned)blocks, (unsigned)blocks_for(w / V, ACROSS)), dim3(ACROSS, DOWN), 0, stream>>>(
                              b, w / V, (T *)dx, (const T *)x, work)));
    return finish(blocks, w, w, work, sums, stream);
}

extern "C" cudaError_t dlrm_cuda_cross_forward(int64_t b, int64_t w, const void *x0, const void *x, const void *z, void *y, dlrm_dtype type,
                                               cudaStream_t stream)
{
    if (b == 0) return cudaSuccess;
    BY_TYPE(type, w, (cross_forward<T, V><<<(unsigned)blocks_for(b * w / V, 2 * FLAT), FLAT, 0, stream>>>(
                         b * w / V, (const T *)x0, (const T *)x, (const T *)z, (T *)y)));
    return cudaGetLastError();
}

extern "C" cudaError_t dlrm_cuda_cross_backward(int64_t b, int64_t w, const void *x0, const void *dy, void *z, void *dx0, bool add_dx0,
                                                bool x_is_x0, dlrm_dtype type, float *sums, float *work, cudaStream_t stream)
{
    const int64_t blocks = blocks_for(b, ROWS);
    if (blocks > 0)
        BY_TYPE(type, w, (cross_backward<T, V><<<dim3((unsigned)blocks, (unsigned)blocks_for(w / V, ACROSS)), dim3(ACROSS, DOWN), 0, stream>>>(
                             b, w / V, (const T *)x0, (const T *)dy, (T *)z, (T *)dx0, add_dx0, x_is_x0, work)));
    return finish(blocks, w, w, work, sums, stream);
}

extern "C" cudaError_t dlrm_cuda_logit_forward(int64_t b, int64_t w, const void *x, dlrm_dtype type, const float *weight, const float *bias,
                                               bool relu, float *z, cudaStream_t stream)
{
    if (b == 0) return cudaSuccess;
    BY_TYPE(type, w, (logit_forward<T, V><<<(unsigned)blocks_for(b, 8), dim3(32, 8), 0, stream>>>(b, w / V, (const T *)x, weight, bias, relu, z)));
    return cudaGetLastError();
}

extern "C" int64_t dlrm_cuda_logit_work(int64_t b, int64_t w)
{
    return blocks_for(b, ROWS) * (w + 1);
}

extern "C" cudaError_t dlrm_cuda_logit_backward(int64_t b, int64_t w, const void *x, dlrm_dtype type, const float *weight, const float *dz,
                                                void *dx, bool x_is_relu, bool add_dx, float *d_weight, float *d_bias, float *work,
                                                cudaStream_t stream)
{
    const int64_t blocks = blocks_for(b, ROWS);
    if (blocks > 0)
        BY_TYPE(type, w, (logit_backward<T, V><<<dim3((unsigned)blocks, (unsigned)blocks_for(w / V, ACROSS)), dim3(ACROSS, DOWN), 0, stream>>>(
                              b, w / V, (const T *)x, weight, dz, (T *)dx, x_is_relu, add_dx, work)));
    cudaError_t code = finish(blocks, w, w + 1, work, d_weight, stream);
    return code == cudaSuccess && d_bias ? finish(blocks, 1, w + 1, work + w, d_bias, stream) : code;
}
