/* Feature interaction: which kernel computes it, and `dot` in fp32 arithmetic for any number and width of vectors, with
 * one block a sample. dot_tensor.cu has `dot` on tensor cores, concat.cu has `cat` and `pool`. */
#include "cuda/interact.cuh"

enum {
    THREADS = 128,
    TILE = 4 /* rows and columns of products, or elements, in registers */,
    ROWS = 8,
    MAX_SHARED = 200 << 10
};

/* Four elements at p as fp32; from the n-th on they are 0. */
template <class S> __device__ __forceinline__ vec<4> load_four(const S *p, int n)
{
    if (n >= 4 && (uintptr_t)p % (4 * sizeof(S)) == 0) return load_vec<4>(p);
    vec<4> v = zero_vec<4>();
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < n) v.v[k] = to_float(p[k]);
    return v;
}

template <class S> __device__ __forceinline__ void store_four(S *p, int n, const vec<4> &v)
{
    if (n >= 4 && (uintptr_t)p % (4 * sizeof(S)) == 0) {
        store_vec(p, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < n) p[k] = from_float<S>(v.v[k]);
}

/* The vectors of a sample, four elements at a time, as fp32; beyond their width they are 0. Slot 0 is of type E, the others
 * of type W. Staged in shared memory where they fit; rows are a multiple of 4 elements and 4 more, against bank conflicts.
 */
template <class E, class W, bool STAGED> struct vectors {
    const dlrm_cuda_slot *slots;
    int n, D;
    int64_t sample;
    float *staged;

    __host__ __device__ static int64_t stride(int D)
    {
        return (D + 3) / 4 * 4 + 4;
    }
    __device__ vec<4> fetch(int i, int c) const
    {
        const int64_t at = sample * slots[i].stride + c;
        return i == 0 ? load_four((const E *)slots[i].data + at, D - c) : load_four((const W *)slots[i].data + at, D - c);
    }
    __device__ void stage()
    {
        if constexpr (STAGED) {
            const int quads = (D + 3) / 4;
            for (int x = threadIdx.x; x < n * quads; x += THREADS)
                store_vec(staged + x / quads * stride(D) + x % quads * 4, fetch(x / quads, x % quads * 4));
            __syncthreads();
        }
    }
    __device__ vec<4> at(int i, int c) const
    {
        if (i >= n) return zero_vec<4>();
        if constexpr (STAGED) return load_vec<4>(staged + i * stride(D) + c);
        return fetch(i, c);
    }
};

/* --- forward: tiles of 4 x 4 products on and below the diagonal, each by four lanes that share the elements out --- */

/* Row of tiles that holds tile b, counted row by row below the diagonal. */
__device__ __forceinline__ int tile_row(int b)
{
    int i = (int)((sqrtf(8.0f * (float)b + 1) - 1) / 2);
    while (i * (i + 1) / 2 > b) i--;
    while ((i + 1) * (i + 2) / 2 <= b) i++;
    return i;
}

template <class E, class W, bool STAGED>
__global__ void __launch_bounds__(THREADS) dot_forward(const dlrm_cuda_interact a, const int D)
{
    extern __shared__ float4 memory[];
    const int side = (a.n_slots + TILE - 1) / TILE, tiles = side * (side + 1) / 2, part = threadIdx.x % 4;
    for (int64_t s = blockIdx.x; s < a.b; s += gridDim.x) {
        E *out = (E *)a.out + s * a.out_stride;
        vectors<E, W, STAGED> v = {a.slots, a.n_slots, D, s, (float *)memory};
        v.stage();
        for (int c = threadIdx.x; c < D; c += THREADS) out[c] = ((const E *)a.slots[0].data)[s * a.slots[0].stride + c];
        for (int c = a.out_width + threadIdx.x; c < a.out_stride; c += THREADS) out[c] = from_float<E>(0);
        for (int first = 0; first < tiles; first += THREADS / 4) {
            const int b = first + threadIdx.x / 4, bi = tile_row(b), i0 = bi * TILE,
                      j0 = (b - bi * (bi + 1) / 2) * TILE;
            float sum[TILE][TILE] = {};
            for (int c = part * 4; c < D && b < tiles; c += 16) {
                vec<4> x[TILE], y[TILE];
#pragma unroll
                for (int k = 0; k < TILE; k++) x[k] = v.at(i0 + k, c), y[k] = v.at(j0 + k, c);
#pragma unroll
                for (int i = 0; i < TILE; i++)
#pragma unroll
                    for (int j = 0; j < TILE; j++)
#pragma unroll
                        for (int k = 0; k < 4; k++) sum[i][j] += x[i].v[k] * y[j].v[k];
            }
#pragma unroll
            for (int i = 0; i < TILE; i++)
#pragma unroll
                for (int j = 0; j < TILE; j++) {
                    const float total = sum_over_lanes(sum[i][j], 4, ~0u);
                    if (part == i && i0 + i < a.n_slots && j0 + j < i0 + i)
                        out[D + pair_index(i0 + i, j0 + j)] = from_float<E>(total);
                }
        }
        __syncthreads(); /* before the next sample is staged */
    }
}

/* --- backward: ROWS gradients of 4 elements a thread --- */

/* The symmetric matrix of the products' gradients, 0 on the diagonal; rows of a multiple of ROWS, staged behind the
 * vectors. */
__host__ __device__ static int matrix_stride(int n)
{
    return (n + ROWS - 1) / ROWS * ROWS;
}

template <class E> __device__ __forceinline__ float product_gradient(const E *d_out, int n, int D, int i, int j)
{
    return i == j || i >= n ? 0 : to_float(d_out[D + (i > j ? pair_index(i, j) : pair_index(j, i))]);
}

template <class E, class W, bool STAGED>
__global__ void __launch_bounds__(THREADS) dot_backward(const dlrm_cuda_interact a, const int D)
{
    extern __shared__ float4 memory[];
    const int n = a.n_slots, quads = (D + 3) / 4, tiles = (n + ROWS - 1) / ROWS;
    for (int64_t s = blockIdx.x; s < a.b; s += gridDim.x) {
        const E *d_out = (const E *)a.d_out + s * a.out_stride;
        vectors<E, W, STAGED> v = {a.slots, n, D, s, (float *)memory};
        float *S = v.staged + n * v.stride(D);
        if constexpr (STAGED)
            for (int x = threadIdx.x; x < n * matrix_stride(n); x += THREADS)
                S[x] = product_gradient(d_out, n, D, x % matrix_stride(n), x / matrix_stride(n));
        v.stage();
        for (int x = threadIdx.x; x < tiles * quads; x += THREADS) {
            const int i0 = x / quads * ROWS, c = x % quads * 4;
            vec<4> sum[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++) sum[i] = zero_vec<4>();
            for (int j = 0; j < n; j++) {
                const vec<4> y = v.at(j, c);
                float p[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r += 4) {
                    if constexpr (STAGED) {
                        const vec<4> q = load_vec<4>(S + j * matrix_stride(n) + i0 + r);
#pragma unroll
                        for (int k = 0; k < 4; k++) p[r + k] = q.v[k];
                    } else {
#pragma unroll
                        for (int k = r; k < r + 4; k++) p[k] = product_gradient(d_out, n, D, i0 + k, j);
                    }
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int k = 0; k < 4; k++) sum[r].v[k] += p[r] * y.v[k];
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int i = i0 + r;
                if (i >= n || !a.slots[i].grad) continue;
                if (i == 0) {
                    const vec<4> y = v.at(0, c);
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        sum[r].v[k] += c + k < D ? to_float(d_out[c + k]) : 0;
                        if (a.slot0_is_relu && !(y.v[k] > 0)) sum[r].v[k] = 0;
                    }
                }
                const int64_t at = s * a.slots[i].grad_stride + c;
                if (i == 0)
                    store_four((E *)a.slots[i].grad + at, D - c, sum[r]);
                else
                    store_four((W *)a.slots[i].grad + at, D - c, sum[r]);
            }
        }
        __syncthreads();
    }
}

/* --- launching --- */

template <class K> static cudaError_t start(K kernel, const dlrm_cuda_interact *a, size_t shared, cudaStream_t stream)
{
    TRY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks_for(a->b, 1, 8192), THREADS, shared, stream>>>(*a, a->max_width);
    return cudaGetLastError();
}

/* Bytes of shared memory to stage a sample, 0 where it does not fit. */
static size_t staging(const dlrm_cuda_interact *a, bool backward)
{
    int64_t bytes = a->n_slots * vectors<float, float, true>::stride(a->max_width) * (int64_t)sizeof(float);
    if (backward) bytes += a->n_slots * matrix_stride(a->n_slots) * (int64_t)sizeof(float);
    return bytes <= MAX_SHARED ? (size_t)bytes : 0;
}

cudaError_t dlrm_cuda_interact_forward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (a->b == 0) return cudaSuccess;
    if (a->kind != DLRM_DOT) return concat_forward(a, stream);
    if (dot_tensor_fits(a)) return dot_tensor_forward(a, stream);
    const size_t shared = staging(a, false);
    WITH_TYPE(a->type, E,
              WITH_TYPE(a->wire, W,
                        return shared ? start(dot_forward<E, W, true>, a, shared, stream)
                                      : start(dot_forward<E, W, false>, a, 0, stream)));
}

cudaError_t dlrm_cuda_interact_backward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (a->b == 0) return cudaSuccess;
    if (a->kind != DLRM_DOT) return concat_backward(a, stream);
    if (dot_tensor_fits(a)) return dot_tensor_backward(a, stream);
    const size_t shared = staging(a, true);
    WITH_TYPE(a->type, E,
              WITH_TYPE(a->wire, W,
                        return shared ? start(dot_backward<E, W, true>, a, shared, stream)
                                      : start(dot_backward<E, W, false>, a, 0, stream)));
}
