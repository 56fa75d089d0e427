/* `dot` on tensor cores, one warp a sample: bf16, fp16, and fp32 as TF32. The vectors go from memory to the matrix
 * units' registers without a stop in shared memory: a lane loads 16 bytes of a row, and as a dot product does not care
 * for the order of its terms, nor a product of matrices for the order of its columns, these are declared to be the
 * elements that the lane must hold. Lane 4g+t (g < 8, t < 4) in what follows. E: the type of slot 0, out and products, W:
 * of the other slots, which are converted between memory and registers where it is another. */
#include "cuda/interact.cuh"

enum { WARPS = 4 };

/* --- the matrix units: C[16 x 8] += A[16 x k] B[k x 8], k = 16 of 16 bits or 8 of 32 bits. A: rows g, g+8 of the lower
 * k, then of the upper; B: column g of the lower k, upper k; C: rows g, g, g+8, g+8, columns 2t, 2t+1 --- */

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A register of operands: TF32 is rounded from fp32, 16-bit types are as they are. */
template <class E> __device__ __forceinline__ uint32_t operand(uint32_t x)
{
    if constexpr (sizeof(E) == 4) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
    return x;
}

/* --- 16 bytes of E from, or to, as many elements of S --- */

template <class S, class E> __device__ __forceinline__ uint4 load_piece(const char *p)
{
    constexpr int EP = 16 / sizeof(E);
    if constexpr (std::is_same_v<S, E>) {
        return __ldg((const uint4 *)p);
    } else {
        constexpr int LOADS = EP * sizeof(S) <= 16 ? 1 : 2;
        std::conditional_t<EP * sizeof(S) == 8, uint2, uint4> raw[LOADS];
        S from[EP];
        E to[EP];
        uint4 q;
#pragma unroll
        for (int k = 0; k < LOADS; k++) raw[k] = __ldg((decltype(&raw[0]))p + k);
        static_assert(sizeof raw == sizeof from, "whole loads");
        memcpy((void *)from, raw, sizeof from);
#pragma unroll
        for (int e = 0; e < EP; e++) to[e] = from_float<E>(to_float(from[e]));
        memcpy(&q, (const void *)to, sizeof q);
        return q;
    }
}

template <class S, int EP> __device__ __forceinline__ void store_piece(char *p, const float (&x)[EP])
{
    constexpr int STORES = EP * sizeof(S) <= 16 ? 1 : 2;
    std::conditional_t<EP * sizeof(S) == 8, uint2, uint4> raw[STORES];
    S out[EP];
#pragma unroll
    for (int e = 0; e < EP; e++) out[e] = from_float<S>(x[e]);
    static_assert(sizeof raw == sizeof out, "whole stores");
    memcpy(raw, (const void *)out, sizeof raw);
#pragma unroll
    for (int k = 0; k < STORES; k++) ((decltype(&raw[0]))p)[k] = raw[k];
}

/* Of slot i, which is of type E or W. */
template <class E, class W> __device__ __forceinline__ uint4 load_of(int i, const char *p)
{
    if constexpr (!std::is_same_v<E, W>)
        if (i != 0) return load_piece<W, E>(p);
    return load_piece<E, E>(p);
}

template <class E, class W> __device__ __forceinline__ int size_of(int i)
{
    return i == 0 ? (int)sizeof(E) : (int)sizeof(W);
}

/* --- shared memory of a block: where the slots are, then a row of out or d_out for each warp --- */

struct dot_slots {
    const char *data[DOT_SLOTS];
    char *grad[DOT_SLOTS];
    int64_t stride[DOT_SLOTS], grad_stride[DOT_SLOTS]; /* bytes */
};

template <class E, class W> __device__ __forceinline__ void load_slots(const dlrm_cuda_interact &a, dot_slots &s)
{
    for (int i = threadIdx.x; i < a.n_slots; i += WARPS * 32) {
        const dlrm_cuda_slot &v = a.slots[i];
        s.data[i] = (const char *)v.data;
        s.grad[i] = (char *)v.grad;
        s.stride[i] = v.stride * size_of<E, W>(i);
        s.grad_stride[i] = v.grad_stride * size_of<E, W>(i);
    }
    __syncthreads();
}

/* Bytes of a warp's row, with one element more, that is 0. */
template <class E> __host__ __device__ static int row_bytes(int64_t out_stride)
{
    return (int)(((out_stride + 1) * (int64_t)sizeof(E) + 15) / 16 * 16);
}

/* Copies a row by 16 bytes, or by elements where it is not aligned. */
template <class E> __device__ __forceinline__ void copy_row(E *to, const E *from, int64_t n, bool aligned, int lane)
{
    if (aligned)
        for (int i = lane; i < n * (int)sizeof(E) / 16; i += 32) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    else
        for (int i = lane; i < n; i += 32) to[i] = from[i];
}

template <class E> __host__ __device__ static bool rows_aligned(const void *rows, int64_t stride)
{
    return (uintptr_t)rows % 16 == 0 && stride * (int64_t)sizeof(E) % 16 == 0;
}

/* --- forward: per sample reads n rows of D, writes D + n(n-1)/2 elements --- */

/* NT: tiles of 8 slots, even. Only tiles that reach below the diagonal are made; CHUNKS x 64 bytes of each row are
 * loaded at once. */
template <class E, class W, int NT, int CHUNKS>
__global__ void __launch_bounds__(WARPS * 32) dot_forward_kernel(const dlrm_cuda_interact a, const int D)
{
    constexpr int EP = 16 / sizeof(E), HALF = NT / 2, TILES = HALF * (HALF + 1);
    extern __shared__ uint4 memory[];
    __shared__ dot_slots slots;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    E *row = (E *)((char *)memory + warp * row_bytes<E>(a.out_stride));
    const bool aligned = rows_aligned<E>(a.out, a.out_stride);
    load_slots<E, W>(a, slots);
    for (int i = a.out_width + lane; i < a.out_stride; i += 32) row[i] = from_float<E>(0);
    for (int64_t s = (int64_t)blockIdx.x * WARPS + warp; s < a.b; s += (int64_t)gridDim.x * WARPS) {
        const char *v[NT];
#pragma unroll
        for (int i = 0; i < NT; i++)
            v[i] = g + 8 * i < a.n_slots ? slots.data[g + 8 * i] + s * slots.stride[g + 8 * i] +
                                               t * EP * size_of<E, W>(g + 8 * i)
                                         : NULL;
        float c[TILES][4] = {};
        for (int d = t * EP; d - t * EP < D; d += CHUNKS * 4 * EP) {
            uint4 q[CHUNKS][NT];
#pragma unroll
            for (int k = 0; k < CHUNKS; k++)
#pragma unroll
                for (int i = 0; i < NT; i++) {
                    const int size = size_of<E, W>(g + 8 * i);
                    q[k][i] = v[i] && d + k * 4 * EP < D ? load_of<E, W>(g + 8 * i, v[i] + k * 4 * EP * size)
                                                         : make_uint4(0, 0, 0, 0);
                    if (k == CHUNKS - 1 && v[i]) v[i] += CHUNKS * 4 * EP * size;
                }
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                if (g == 0 && d + k * 4 * EP < D) *(uint4 *)(row + d + k * 4 * EP) = q[k][0];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint32_t lo[NT], hi[NT];
#pragma unroll
                    for (int i = 0; i < NT; i++) {
                        lo[i] = operand<E>(h ? q[k][i].z : q[k][i].x);
                        hi[i] = operand<E>(h ? q[k][i].w : q[k][i].y);
                    }
#pragma unroll
                    for (int m = 0; m < HALF; m++) {
                        const uint32_t A[4] = {lo[2 * m], lo[2 * m + 1], hi[2 * m], hi[2 * m + 1]};
#pragma unroll
                        for (int j = 0; j <= 2 * m + 1; j++) mma(c[m * (m + 1) + j], A, lo[j], hi[j], E());
                    }
                }
            }
        }
#pragma unroll
        for (int m = 0; m < HALF; m++)
#pragma unroll
            for (int k = 0; k <= 2 * m + 1; k++)
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const int i = 16 * m + g + r / 2 * 8, j = 8 * k + 2 * t + r % 2;
                    if (j < i && i < a.n_slots) row[D + pair_index(i, j)] = from_float<E>(c[m * (m + 1) + k][r]);
                }
        __syncwarp();
        copy_row((E *)a.out + s * a.out_stride, row, a.out_stride, aligned, lane);
        __syncwarp();
    }
}

/* --- backward: gradients G = S V, S the symmetric matrix of the products' gradients. Per sample reads n rows of D and
 * a row of d_out, writes n rows of D --- */

/* A row's offset of S[i][j] in d_out; that of a 0 where there is none. */
__device__ __forceinline__ uint32_t gradient_offset(const dlrm_cuda_interact &a, int D, int i, int j)
{
    return i >= a.n_slots || j >= a.n_slots || i == j ? a.out_width : D + (i > j ? pair_index(i, j) : pair_index(j, i));
}

/* The lane's A operands of tile rows m, columns k: S in the type of E. */
template <class E>
__device__ __forceinline__ void load_products(uint32_t (&A)[4], const uint32_t *offsets, const E *row)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const uint32_t at = offsets[r * 32];
        if constexpr (sizeof(E) == 2) {
            E pair[2] = {row[at & 0xFFFF], row[at >> 16]};
            memcpy(&A[r], pair, 4);
        } else {
            A[r] = operand<E>(__float_as_uint(row[at & 0xFFFF]));
        }
    }
}

/* Which EP columns of 8 EP the matrix units' column n stands for: such that the results of lanes t, t+1, … lie side by
 * side. */
__device__ __forceinline__ int column_block(int n)
{
    return n / 2 + n % 2 * 4;
}

/* The lane's B operands: rows of V of one k step, EP columns from d on; the e-th of them is column g of product e. */
template <class E, class W>
__device__ __forceinline__ void load_vectors(uint32_t (&B)[16 / sizeof(E)][2], const dot_slots &slots, int n, int64_t s,
                                             int first, int d, int D, int t)
{
    constexpr int ROWS = sizeof(E) == 2 ? 4 : 2;
    uint4 q[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int j = first + (sizeof(E) == 2 ? 2 * t + r % 2 + r / 2 * 8 : t + 4 * r);
        q[r] = j < n && d < D ? load_of<E, W>(j, slots.data[j] + s * slots.stride[j] + d * size_of<E, W>(j))
                              : make_uint4(0, 0, 0, 0);
    }
    if constexpr (sizeof(E) == 2) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 x = q[2 * h], y = q[2 * h + 1];
            const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int e = 0; e < 8; e++) B[e][h] = __byte_perm(xs[e / 2], ys[e / 2], e % 2 ? 0x7632 : 0x5410);
        }
    } else {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            B[0][h] = operand<E>(q[h].x), B[1][h] = operand<E>(q[h].y);
            B[2][h] = operand<E>(q[h].z), B[3][h] = operand<E>(q[h].w);
        }
    }
}

/* EP results of row i at column d. Slot 0 also has the gradient that passes straight through, and none
 * where it is 0 if it came out of a ReLU. */
template <class E, class W>
__device__ __forceinline__ void store_gradient(const dlrm_cuda_interact &a, const dot_slots &slots, int64_t s, int i,
                                               int d, int D, float (&x)[16 / sizeof(E)], const E *row)
{
    constexpr int EP = 16 / sizeof(E);
    if (i >= a.n_slots || d >= D || !slots.grad[i]) return;
    if (i == 0) {
        uint4 q = *(const uint4 *)(slots.data[0] + s * slots.stride[0] + d * (int)sizeof(E));
        E v[EP];
        memcpy(v, &q, sizeof q);
#pragma unroll
        for (int e = 0; e < EP; e++) {
            x[e] += to_float(row[d + e]);
            if (a.slot0_is_relu && !(to_float(v[e]) > 0)) x[e] = 0;
        }
    }
    char *to = slots.grad[i] + s * slots.grad_stride[i] + d * size_of<E, W>(i);
    if constexpr (!std::is_same_v<E, W>)
        if (i != 0) return store_piece<W, EP>(to, x);
    store_piece<E, EP>(to, x);
}

template <class E, class W, int NT>
__global__ void __launch_bounds__(WARPS * 32) dot_backward_kernel(const dlrm_cuda_interact a, const int D)
{
    constexpr int EP = 16 / sizeof(E), HALF = NT / 2;
    constexpr int KROWS = 32 / sizeof(E) /* rows of V in the k of one product */, KT = NT * 8 / KROWS;
    extern __shared__ uint4 memory[];
    __shared__ dot_slots slots;
    __shared__ uint32_t offsets[HALF * KT * 4 * 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    E *row = (E *)((char *)memory + warp * row_bytes<E>(a.out_stride));
    const bool aligned = rows_aligned<E>(a.d_out, a.out_stride);
    for (int x = threadIdx.x; x < HALF * KT * 4 * 32; x += WARPS * 32) {
        const int xt = x % 4, i = x / 32 / 4 / KT * 16 + x % 32 / 4 + x / 32 % 2 * 8;
        const int j = x / 32 / 4 % KT * KROWS + (sizeof(E) == 2 ? 2 * xt : xt) + x / 32 / 2 % 2 * (KROWS / 2);
        offsets[x] = gradient_offset(a, D, i, j) | (sizeof(E) == 2 ? gradient_offset(a, D, i, j + 1) << 16 : 0);
    }
    load_slots<E, W>(a, slots);
    for (int64_t s = (int64_t)blockIdx.x * WARPS + warp; s < a.b; s += (int64_t)gridDim.x * WARPS) {
        uint32_t B[KT][EP][2];
#pragma unroll
        for (int k = 0; k < KT; k++) load_vectors<E, W>(B[k], slots, a.n_slots, s, k * KROWS, column_block(g) * EP, D, t);
        copy_row(row, (const E *)a.d_out + s * a.out_stride, a.out_stride, aligned, lane);
        __syncwarp();
        if (lane == 0) row[a.out_width] = from_float<E>(0);
        __syncwarp();
        for (int d0 = 0; d0 < D; d0 += 8 * EP) {
#pragma unroll
            for (int m = 0; m < HALF; m++) {
                float c[EP][4] = {};
#pragma unroll
                for (int k = 0; k < KT; k++) {
                    uint32_t A[4];
                    load_products<E>(A, offsets + (m * KT + k) * 4 * 32 + lane, row);
#pragma unroll
                    for (int e = 0; e < EP; e++) mma(c[e], A, B[k][e][0], B[k][e][1], E());
                }
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    float x[EP];
#pragma unroll
                    for (int e = 0; e < EP; e++) x[e] = c[e][r];
                    store_gradient<E, W>(a, slots, s, 16 * m + g + r / 2 * 8, d0 + column_block(2 * t + r % 2) * EP, D, x,
                                      row);
                }
            }
            if (d0 + 8 * EP < D)
#pragma unroll
                for (int k = 0; k < KT; k++)
                    load_vectors<E, W>(B[k], slots, a.n_slots, s, k * KROWS, d0 + (8 + column_block(g)) * EP, D, t);
        }
        __syncwarp();
    }
}

/* --- launching --- */

bool dot_tensor_fits(const dlrm_cuda_interact *a)
{
    const int64_t piece = 16 / (int64_t)dlrm_dtype_bytes(a->type); /* elements */
    if (a->type != a->wire && a->type != DLRM_FP32 && a->wire != DLRM_FP32) return false; /* bf16 and fp16: not worth it */
    if (a->n_slots > DOT_SLOTS || a->max_width > 32768 || (a->type == DLRM_FP32 && a->exact)) return false;
    if (4 * (size_t)row_bytes<float>(a->out_stride) > 160 << 10) return false;
    for (int i = 0; i < a->n_slots; i++) {
        const dlrm_cuda_slot *v = &a->host_slots[i];
        const int64_t size = (int64_t)dlrm_dtype_bytes(i == 0 ? a->type : a->wire), load = piece * size < 16 ? piece * size : 16;
        if (v->width % piece || v->stride * size % load || v->grad_stride * size % load) return false;
        if (!aligned_to(v->data, (size_t)load) || !aligned_to(v->grad, (size_t)load)) return false;
    }
    return true;
}

template <class E, class K> static cudaError_t start(K kernel, const dlrm_cuda_interact *a, cudaStream_t stream)
{
    const size_t bytes = (size_t)WARPS * row_bytes<E>(a->out_stride);
    TRY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    kernel<<<blocks_for(a->b, WARPS, 2112), WARPS * 32, bytes, stream>>>(*a, a->max_width);
    return cudaGetLastError();
}

template <class E, class W> static cudaError_t forward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (a->n_slots <= 16) return start<E>(dot_forward_kernel<E, W, 2, 4>, a, stream);
    if (a->n_slots <= 32) return start<E>(dot_forward_kernel<E, W, 4, 4>, a, stream);
    return start<E>(dot_forward_kernel<E, W, 8, 1>, a, stream);
}

template <class E, class W> static cudaError_t backward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (a->n_slots <= 16) return start<E>(dot_backward_kernel<E, W, 2>, a, stream);
    if (a->n_slots <= 32) return start<E>(dot_backward_kernel<E, W, 4>, a, stream);
    return start<E>(dot_backward_kernel<E, W, 8>, a, stream);
}

/* The pairs of types that dot_tensor_fits lets through. */
template <class E> static cudaError_t of_type(const dlrm_cuda_interact *a, bool is_forward, cudaStream_t stream)
{
    if (a->type == a->wire) return is_forward ? forward<E, E>(a, stream) : backward<E, E>(a, stream);
    if constexpr (sizeof(E) == 2) {
        return is_forward ? forward<E, float>(a, stream) : backward<E, float>(a, stream);
    } else {
        if (a->wire == DLRM_BF16) return is_forward ? forward<E, __nv_bfloat16>(a, stream) : backward<E, __nv_bfloat16>(a, stream);
        return is_forward ? forward<E, __half>(a, stream) : backward<E, __half>(a, stream);
    }
}

cudaError_t dot_tensor_forward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    WITH_TYPE(a->type, E, return of_type<E>(a, true, stream));
}

cudaError_t dot_tensor_backward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    WITH_TYPE(a->type, E, return of_type<E>(a, false, stream));
}
