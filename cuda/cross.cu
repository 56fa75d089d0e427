/* What of a cross layer is not linear. Bound by memory: 4 arrays forward, 5 or 6 backward, each moved once. */
#include "cuda/columns.cuh"
#include "cuda/linear_kernels.h"

enum { THREADS = 256, AHEAD = 2 /* elements of V in flight a thread */ };

/* y = x0 z + x, of n groups of V elements. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) forward_kernel(int64_t n, const T *x0, const T *x, const T *z, T *y)
{
    const int64_t first = blockIdx.x * (int64_t)(AHEAD * THREADS) + threadIdx.x;
    raw_vec<V, T> raw0[AHEAD], raw[AHEAD], raw_z[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const int64_t at = (first + i * THREADS) * V;
        if (first + i * THREADS >= n) continue;
        raw0[i] = load_raw<V>(x0 + at);
        raw_z[i] = load_raw<V>(z + at);
        raw[i] = load_raw<V>(x + at);
    }
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        if (first + i * THREADS >= n) continue;
        const vec<V> a = widen<V, T>(raw0[i]), b = widen<V, T>(raw_z[i]);
        vec<V> c = widen<V, T>(raw[i]);
#pragma unroll
        for (int k = 0; k < V; k++) c.v[k] += a.v[k] * b.v[k];
        store_vec(y + (first + i * THREADS) * V, c);
    }
}

/* z becomes dz = x0 dy; dx0 = z dy, with what it was and with dy itself as asked; and the columns of dz are summed. */
template <class T, int V>
__global__ void __launch_bounds__(ACROSS *DOWN)
    backward_kernel(int64_t b, int64_t groups, const T *x0, const T *dy, T *z, T *dx0, bool add, bool x_is_x0, float *partial)
{
    const column_share s = share_of_thread(b, groups);
    vec<V> sum = zero_vec<V>();
    for (int64_t first = s.first; first < s.end; first += AHEAD * DOWN) {
        raw_vec<V, T> raw0[AHEAD], raw_dy[AHEAD], raw_z[AHEAD], before[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t at = ((first + i * DOWN) * groups + s.group) * V;
            if (first + i * DOWN >= s.end) continue;
            raw0[i] = load_raw<V>(x0 + at);
            raw_dy[i] = load_raw<V>(dy + at);
            raw_z[i] = load_raw<V>(z + at);
            if (add) before[i] = load_raw<V>(dx0 + at);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t at = ((first + i * DOWN) * groups + s.group) * V;
            if (first + i * DOWN >= s.end) continue;
            const vec<V> a = widen<V, T>(raw0[i]), d = widen<V, T>(raw_dy[i]);
            vec<V> g = widen<V, T>(raw_z[i]), dz, old = zero_vec<V>();
            if (add) old = widen<V, T>(before[i]);
#pragma unroll
            for (int k = 0; k < V; k++) {
                g.v[k] = g.v[k] * d.v[k] + old.v[k];
                if (x_is_x0) g.v[k] += d.v[k];
                dz.v[k] = to_float(from_float<T>(a.v[k] * d.v[k])); /* the sums are of what is stored */
                sum.v[k] += dz.v[k];
            }
            store_vec(dx0 + at, g);
            store_vec(z + at, dz);
        }
    }
    write_partial(sum, s.group, groups, partial + blockIdx.x * groups * V);
}

cudaError_t dlrm_cuda_cross_forward(int64_t b, int64_t w, const void *x0, const void *x, const void *z, void *y, dlrm_dtype type,
                                    cudaStream_t stream)
{
    if (b == 0) return cudaSuccess;
    WITH_COLUMNS(type, w, T, V, (forward_kernel<T, V><<<(unsigned)ceil_div(b * w / V, AHEAD * THREADS), THREADS, 0, stream>>>(
                                    b * w / V, (const T *)x0, (const T *)x, (const T *)z, (T *)y)));
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_cross_backward(int64_t b, int64_t w, const void *x0, const void *dy, void *z, void *dx0, bool add_dx0, bool x_is_x0,
                                     dlrm_dtype type, float *sums, float *work, cudaStream_t stream)
{
    if (b > 0)
        WITH_COLUMNS(type, w, T, V, (backward_kernel<T, V><<<column_grid(b, w / V), dim3(ACROSS, DOWN), 0, stream>>>(
                                        b, w / V, (const T *)x0, (const T *)dy, (T *)z, (T *)dx0, add_dx0, x_is_x0, work)));
    return finish_columns(b, w, w, work, sums, stream);
}
