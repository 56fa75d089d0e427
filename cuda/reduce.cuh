/* What the kernels share: V elements at a time in any storage type, rounding, sums over lanes. */
#pragma once
#include <type_traits>

#include "base/half.h"
#include "cuda/check.h"

/* V neighbouring elements of a row, as fp32. */
template <int V> struct vec {
    float v[V];
};

template <int V> __device__ __forceinline__ vec<V> zero_vec()
{
    vec<V> a;
#pragma unroll
    for (int i = 0; i < V; i++) a.v[i] = 0;
    return a;
}

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}

template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}

/* V elements (1, 4 or 8) as they lie in memory, moved up to 16 bytes at a time: the address must be a multiple of that.
 * Whole words, or the compiler would give each 16-bit element a register of its own. */
template <int V, class T> struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) raw_words {
    uint32_t word[V * sizeof(T) / 4];
};
template <int V, class T> using raw_vec = std::conditional_t<V == 1, T, raw_words<V, T>>;

template <int V, class T> __device__ __forceinline__ raw_vec<V, T> load_raw(const T *p)
{
    return *(const raw_vec<V, T> *)p;
}

template <int V, class T> __device__ __forceinline__ vec<V> widen(const raw_vec<V, T> &raw)
{
    T t[V];
    vec<V> a;
    memcpy((void *)t, &raw, sizeof t);
#pragma unroll
    for (int i = 0; i < V; i++) a.v[i] = to_float(t[i]);
    return a;
}

template <int V, class T> __device__ __forceinline__ vec<V> load_vec(const T *p)
{
    return widen<V, T>(load_raw<V>(p));
}

template <int V, class T> __device__ __forceinline__ void store_vec(T *p, vec<V> a)
{
    T t[V];
    raw_vec<V, T> raw;
#pragma unroll
    for (int i = 0; i < V; i++) t[i] = from_float<T>(a.v[i]);
    memcpy((void *)&raw, t, sizeof raw);
    *(raw_vec<V, T> *)p = raw;
}

/* By random bits, as the CPU does (base/half.h). */
__device__ __forceinline__ __nv_bfloat16 round_randomly(float x, uint32_t bits, __nv_bfloat16)
{
    return __ushort_as_bfloat16(dlrm_bf16_randomly(x, bits));
}

__device__ __forceinline__ __half round_randomly(float x, uint32_t bits, __half)
{
    return __ushort_as_half(dlrm_f16_randomly(x, bits));
}

__device__ __forceinline__ float round_randomly(float x, uint32_t, float)
{
    return x;
}

/* As store_vec, rounding T by random bits of (seed, stream, element): `element` is the index of the first. */
template <int V, class T>
__device__ __forceinline__ void store_vec_randomly(T *p, vec<V> a, uint64_t seed, uint64_t stream, int64_t element)
{
    if constexpr (sizeof(T) == 4) {
        store_vec<V, T>(p, a);
    } else {
        const int at = (int)(element & 3);
        dlrm_u32x4 r = dlrm_philox(seed, stream, (uint64_t)element >> 2);
        if constexpr (V == 1) {
            *p = round_randomly(a.v[0], at == 0 ? r.v[0] : at == 1 ? r.v[1] : at == 2 ? r.v[2] : r.v[3], T());
        } else {
            T t[4];
            raw_vec<4, T> raw;
            if (at != 0) { /* a slice that begins within a group of four */
                const dlrm_u32x4 next = dlrm_philox(seed, stream, ((uint64_t)element >> 2) + 1);
                uint32_t bits[8];
#pragma unroll
                for (int i = 0; i < 4; i++) bits[i] = r.v[i], bits[4 + i] = next.v[i];
#pragma unroll
                for (int i = 0; i < 4; i++) r.v[i] = at == 1 ? bits[i + 1] : at == 2 ? bits[i + 2] : bits[i + 3];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) t[i] = round_randomly(a.v[i], r.v[i], T());
            memcpy((void *)&raw, t, sizeof raw);
            *(raw_vec<4, T> *)p = raw;
        }
    }
}

/* Sum over `lanes` (a power of two) neighbouring lanes; all of `mask` call; every lane gets it. The tree is fixed. */
template <class F> __device__ __forceinline__ F sum_over_lanes(F x, int lanes, unsigned mask)
{
    for (int d = lanes / 2; d; d /= 2) x += __shfl_xor_sync(mask, x, d);
    return x;
}

/* Sum over a block of THREADS; thread 0 gets it. */
template <int THREADS> __device__ __forceinline__ double sum_over_block(double x)
{
    __shared__ double part[THREADS / 32];
    x = sum_over_lanes(x, 32, ~0u);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    if (threadIdx.x == 0)
        for (int i = 0; i < THREADS / 32; i++) x += part[i];
    return x;
}
