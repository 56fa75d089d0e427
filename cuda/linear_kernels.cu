/* Bias, ReLU, column sums, and the layer of width 1, which is a product of a matrix and a vector and so bound by memory.
 * Thread map: columns.cuh; forward, a warp has a sample of the layer of width 1. */
#include "cuda/linear_kernels.h"

#include "cuda/columns.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

static __global__ void probe()
{
}

template <class T, int V> __global__ void __launch_bounds__(THREADS) bias_relu(int64_t b, int64_t groups, T *y, const float *bias, bool relu)
{
    const int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= b * groups) return;
    const float *add = bias + i % groups * V;
    vec<V> v = load_vec<V>(y + i * V);
#pragma unroll
    for (int k = 0; k < V; k++) {
        v.v[k] += add[k];
        if (relu && v.v[k] < 0) v.v[k] = 0; /* a NaN stays */
    }
    store_vec(y + i * V, v);
}

/* Column sums of z; with MASK, z is first set to 0 where x is not above 0. AHEAD loads are in flight. */
template <class T, int V, bool MASK>
__global__ void __launch_bounds__(ACROSS *DOWN) column_partials(int64_t b, int64_t groups, T *z, const T *x, float *partial)
{
    constexpr int AHEAD = 4;
    const column_share s = share_of_thread(b, groups);
    vec<V> sum = zero_vec<V>();
    for (int64_t first = s.first; first < s.end; first += AHEAD * DOWN) {
        raw_vec<V, T> raw_z[AHEAD], raw_x[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t at = ((first + i * DOWN) * groups + s.group) * V;
            if (first + i * DOWN >= s.end) continue;
            raw_z[i] = load_raw<V>(z + at);
            if (MASK) raw_x[i] = load_raw<V>(x + at);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i * DOWN >= s.end) continue;
            vec<V> v = widen<V, T>(raw_z[i]);
            if (MASK) {
                const vec<V> y = widen<V, T>(raw_x[i]);
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (!(y.v[k] > 0)) v.v[k] = 0;
                store_vec(z + ((first + i * DOWN) * groups + s.group) * V, v);
            }
#pragma unroll
            for (int k = 0; k < V; k++) sum.v[k] += v.v[k];
        }
    }
    write_partial(sum, s.group, groups, partial + blockIdx.x * groups * V);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    logit_forward(int64_t b, int64_t groups, const T *x, const float *w, const float *bias, bool relu, float *z)
{
    const int64_t s = blockIdx.x * (int64_t)WARPS + threadIdx.y;
    float sum = 0;
    for (int64_t g = threadIdx.x; g < groups && s < b; g += 32) {
        const vec<V> v = load_vec<V>(x + (s * groups + g) * V);
#pragma unroll
        for (int k = 0; k < V; k++) sum += v.v[k] * w[g * V + k];
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (bias) sum += *bias;
    if (threadIdx.x == 0 && s < b) z[s] = relu && sum < 0 ? 0.0f : sum;
}

/* partial: of each block, the weights' sums and, behind them, the bias's. */
template <class T, int V>
__global__ void __launch_bounds__(ACROSS *DOWN)
    logit_backward(int64_t b, int64_t groups, const T *x, const float *w, const float *dz, T *dx, bool x_is_relu, bool add, float *partial)
{
    const column_share s = share_of_thread(b, groups);
    vec<V> sum = zero_vec<V>(), weight = zero_vec<V>();
    float bias = 0;
    if (s.group < groups) weight = load_vec<V>(w + s.group * V);
    for (int64_t i = s.first; i < s.end; i += DOWN) {
        const int64_t at = (i * groups + s.group) * V;
        const vec<V> v = load_vec<V>(x + at);
        const float d = dz[i];
        vec<V> g = zero_vec<V>();
        if (dx && add) g = load_vec<V>(dx + at);
        bias += d;
#pragma unroll
        for (int k = 0; k < V; k++) {
            sum.v[k] += d * v.v[k];
            g.v[k] += x_is_relu && !(v.v[k] > 0) ? 0.0f : d * weight.v[k];
        }
        if (dx) store_vec(dx + at, g);
    }
    float *row = partial + blockIdx.x * (groups * V + 1);
    write_partial(sum, s.group, groups, row);
    __shared__ float biases[DOWN];
    if (threadIdx.x == 0) biases[threadIdx.y] = bias;
    __syncthreads();
    if (blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
        for (int y = 1; y < DOWN; y++) bias += biases[y];
        row[groups * V] = bias;
    }
}

bool dlrm_cuda_has_code(int device)
{
    cudaFuncAttributes a;
    bool has = cudaSetDevice(device) == cudaSuccess && cudaFuncGetAttributes(&a, probe) == cudaSuccess;
    (void)cudaGetLastError();
    return has;
}

cudaError_t dlrm_cuda_bias_relu(int64_t b, int64_t w, void *y, dlrm_dtype type, const float *bias, bool relu, cudaStream_t stream)
{
    if (b == 0) return cudaSuccess;
    WITH_COLUMNS(type, w, T, V, (bias_relu<T, V><<<(unsigned)ceil_div(b * w / V, THREADS), THREADS, 0, stream>>>(b, w / V, (T *)y, bias, relu)));
    return cudaGetLastError();
}

int64_t dlrm_cuda_column_work(int64_t b, int64_t w)
{
    return ceil_div(b, ROWS) * w;
}

template <bool MASK>
static cudaError_t column_sums(int64_t b, int64_t w, void *z, const void *x, dlrm_dtype type, float *sums, float *work, cudaStream_t stream)
{
    if (b > 0)
        WITH_COLUMNS(type, w, T, V, (column_partials<T, V, MASK><<<column_grid(b, w / V), dim3(ACROSS, DOWN), 0, stream>>>(
                                        b, w / V, (T *)z, (const T *)x, work)));
    return finish_columns(b, w, w, work, sums, stream);
}

cudaError_t dlrm_cuda_column_sums(int64_t b, int64_t w, const void *z, dlrm_dtype type, float *sums, float *work, cudaStream_t stream)
{
    return column_sums<false>(b, w, (void *)z, NULL, type, sums, work, stream);
}

cudaError_t dlrm_cuda_relu_mask(int64_t b, int64_t w, void *dx, const void *x, dlrm_dtype type, float *sums, float *work, cudaStream_t stream)
{
    return column_sums<true>(b, w, dx, x, type, sums, work, stream);
}

cudaError_t dlrm_cuda_logit_forward(int64_t b, int64_t w, const void *x, dlrm_dtype type, const float *weight, const float *bias, bool relu,
                                    float *z, cudaStream_t stream)
{
    if (b == 0) return cudaSuccess;
    WITH_COLUMNS(type, w, T, V, (logit_forward<T, V><<<(unsigned)ceil_div(b, WARPS), dim3(32, WARPS), 0, stream>>>(
                                    b, w / V, (const T *)x, weight, bias, relu, z)));
    return cudaGetLastError();
}

int64_t dlrm_cuda_logit_work(int64_t b, int64_t w)
{
    return ceil_div(b, ROWS) * (w + 1);
}

cudaError_t dlrm_cuda_logit_backward(int64_t b, int64_t w, const void *x, dlrm_dtype type, const float *weight, const float *dz, void *dx,
                                     bool x_is_relu, bool add_dx, float *d_weight, float *d_bias, float *work, cudaStream_t stream)
{
    if (b > 0)
        WITH_COLUMNS(type, w, T, V, (logit_backward<T, V><<<column_grid(b, w / V), dim3(ACROSS, DOWN), 0, stream>>>(
                                        b, w / V, (const T *)x, weight, dz, (T *)dx, x_is_relu, add_dx, work)));
    if (d_weight) TRY_CUDA(finish_columns(b, w, w + 1, work, d_weight, stream));
    return d_bias ? finish_columns(b, 1, w + 1, work + w, d_bias, stream) : cudaSuccess;
}
