/* `cat` and `pool`: a thread has its place among the columns for all samples, so that where that place lies in memory
 * is found once and not for each sample. Four columns a thread where everything is aligned. Moves each element once. */
#include "cuda/interact.cuh"

enum { THREADS = 128, SAMPLES = 16 };

/* The slot that column `c` of the row of slots first … lies in; the row's columns rise with the slots. */
__device__ __forceinline__ int slot_at(const dlrm_cuda_slot *slots, int first, int n, int c)
{
    int lo = first, hi = n - 1; /* the last slot that begins at or before c; empty slots before it begin there, too */
    while (lo < hi) {
        const int middle = (lo + hi + 1) / 2;
        if (slots[middle].column <= c)
            lo = middle;
        else
            hi = middle - 1;
    }
    return lo;
}

struct sample_range {
    int64_t begin, end;
};

__device__ __forceinline__ sample_range samples_of_block(int64_t b)
{
    const int64_t begin = (int64_t)blockIdx.x * SAMPLES;
    return {begin, begin + SAMPLES < b ? begin + SAMPLES : b};
}

/* Copies V columns at c between a slot, of type S, and the out row, either way. */
template <int V, class E, class S, bool FORWARD>
__device__ __forceinline__ void copy_columns(const dlrm_cuda_interact &a, const dlrm_cuda_slot &v, int c, int out_c,
                                             bool masked)
{
    const sample_range r = samples_of_block(a.b);
    if (!FORWARD && !v.grad) return;
#pragma unroll 4
    for (int64_t s = r.begin; s < r.end; s++) {
        if constexpr (FORWARD) {
            store_vec((E *)a.out + s * a.out_stride + out_c, load_vec<V>((const S *)v.data + s * v.stride + c));
        } else {
            vec<V> x = load_vec<V>((const E *)a.d_out + s * a.out_stride + out_c);
            if (masked) {
                const vec<V> y = load_vec<V>((const S *)v.data + s * v.stride + c);
#pragma unroll
                for (int k = 0; k < V; k++) x.v[k] = y.v[k] > 0 ? x.v[k] : 0;
            }
            store_vec((S *)v.grad + s * v.grad_stride + c, x);
        }
    }
}

/* Columns beyond out_width. */
template <int V, class E> __device__ __forceinline__ void clear_columns(const dlrm_cuda_interact &a, int c)
{
    const sample_range r = samples_of_block(a.b);
    for (int64_t s = r.begin; s < r.end; s++) store_vec((E *)a.out + s * a.out_stride + c, zero_vec<V>());
}

/* --- cat: thread x has columns [x V, x V + V) of out --- */

template <int V, class E, class W, bool FORWARD>
__global__ void __launch_bounds__(THREADS) cat_kernel(const dlrm_cuda_interact a)
{
    const int c = (blockIdx.y * THREADS + threadIdx.x) * V;
    if (c >= a.out_width) {
        if (FORWARD && c < a.out_stride) clear_columns<V, E>(a, c);
        return;
    }
    const int i = slot_at(a.slots, 0, a.n_slots, c);
    const dlrm_cuda_slot v = a.slots[i];
    if (i == 0)
        copy_columns<V, E, E, FORWARD>(a, v, c - v.column, c, a.slot0_is_relu);
    else
        copy_columns<V, E, W, FORWARD>(a, v, c - v.column, c, false);
}

/* --- pool: x = slots 1 …, of width w; out j = mean of x[begin … end) --- */

struct pooling {
    int64_t w, n, left; /* width of x, windows, and how far the first begins before x */
};

__host__ __device__ static pooling pooling_of(const dlrm_cuda_interact &a, int64_t w)
{
    const int64_t n = (w + a.pool_stride - 1) / a.pool_stride;
    return {w, n, (n * a.pool_stride - w) / 2};
}

/* Thread x has out x; those behind the windows have slot 0's columns and the row's end. */
template <class E, class W>
__global__ void __launch_bounds__(THREADS) pool_forward_kernel(const dlrm_cuda_interact a, const pooling p)
{
    const int j = blockIdx.y * THREADS + threadIdx.x;
    if (j >= p.n) {
        if (j < a.out_width)
            copy_columns<1, E, E, true>(a, a.slots[0], (int)(j - p.n), j, false);
        else if (j < a.out_stride)
            clear_columns<1, E>(a, j);
        return;
    }
    const int64_t from = j * a.pool_stride - p.left, to = from + a.pool_stride;
    const int begin = from < 0 ? 0 : (int)from, end = to > p.w ? (int)p.w : (int)to;
    const int first = slot_at(a.slots, 1, a.n_slots, begin);
    const sample_range r = samples_of_block(a.b);
    const dlrm_cuda_slot v = a.slots[first];
    if (end - v.column <= v.width) { /* the window lies in one slot */
#pragma unroll 4
        for (int64_t s = r.begin; s < r.end; s++) {
            const W *x = (const W *)v.data + s * v.stride + (begin - v.column);
            float sum = 0;
            for (int i = 0; i < end - begin; i++) sum += to_float(x[i]);
            ((E *)a.out)[s * a.out_stride + j] = from_float<E>(sum / (float)(end - begin));
        }
        return;
    }
    for (int64_t s = r.begin; s < r.end; s++) {
        float sum = 0;
        for (int i = begin, slot = first; i < end; i++) {
            while (i - a.slots[slot].column >= a.slots[slot].width) slot++;
            sum += to_float(((const W *)a.slots[slot].data)[s * a.slots[slot].stride + (i - a.slots[slot].column)]);
        }
        ((E *)a.out)[s * a.out_stride + j] = from_float<E>(sum / (float)(end - begin));
    }
}

__device__ __forceinline__ float window_size(const dlrm_cuda_interact &a, const pooling &p, int64_t j)
{
    const int64_t from = j * a.pool_stride - p.left, to = from + a.pool_stride;
    return (float)((to > p.w ? p.w : to) - (from < 0 ? 0 : from));
}

/* Thread x has elements [x V, x V + V) of x; those behind have slot 0's. Each element takes its window's gradient. */
template <int V, class E, class W>
__global__ void __launch_bounds__(THREADS) pool_backward_kernel(const dlrm_cuda_interact a, const pooling p)
{
    const int64_t c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * V;
    if (c >= p.w) {
        for (int64_t k = c - p.w; k < c - p.w + V && k < a.slots[0].width; k++)
            copy_columns<1, E, E, false>(a, a.slots[0], (int)k, (int)(p.n + k), a.slot0_is_relu);
        return;
    }
    const dlrm_cuda_slot v = a.slots[slot_at(a.slots, 1, a.n_slots, (int)c)];
    if (!v.grad) return;
    int64_t window[V];
    float size[V];
#pragma unroll
    for (int k = 0; k < V; k++) {
        window[k] = (c + k + p.left) / a.pool_stride;
        size[k] = window_size(a, p, window[k]);
    }
    const sample_range r = samples_of_block(a.b);
#pragma unroll 2
    for (int64_t s = r.begin; s < r.end; s++) {
        const E *d_out = (const E *)a.d_out + s * a.out_stride;
        vec<V> g;
#pragma unroll
        for (int k = 0; k < V; k++) g.v[k] = to_float(d_out[window[k]]) / size[k];
        store_vec((W *)v.grad + s * v.grad_stride + (c - v.column), g);
    }
}

/* --- launching --- */

/* All slots from `first` on can be moved four elements at a time. */
static bool four_at_once(const dlrm_cuda_interact *a, int first)
{
    bool yes = true;
    for (int i = first; i < a->n_slots; i++) {
        const dlrm_cuda_slot *v = &a->host_slots[i];
        const size_t bytes = 4 * dlrm_dtype_bytes(i == 0 ? a->type : a->wire);
        yes &= v->width % 4 == 0 && v->stride % 4 == 0 && v->grad_stride % 4 == 0 && aligned_to(v->data, bytes) &&
               aligned_to(v->grad, bytes);
    }
    return yes;
}

static bool out_four_at_once(const dlrm_cuda_interact *a, const void *rows)
{
    return a->out_stride % 4 == 0 && a->out_width % 4 == 0 && aligned_to(rows, 4 * dlrm_dtype_bytes(a->type));
}

static dim3 grid_for(const dlrm_cuda_interact *a, int64_t threads)
{
    return dim3((unsigned)ceil_div(a->b, SAMPLES), (unsigned)ceil_div(threads, THREADS));
}

template <class E, class W> static void cat_forward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (four_at_once(a, 0) && out_four_at_once(a, a->out))
        cat_kernel<4, E, W, true><<<grid_for(a, a->out_stride / 4), THREADS, 0, stream>>>(*a);
    else
        cat_kernel<1, E, W, true><<<grid_for(a, a->out_stride), THREADS, 0, stream>>>(*a);
}

template <class E, class W> static void cat_backward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (four_at_once(a, 0) && out_four_at_once(a, a->d_out))
        cat_kernel<4, E, W, false><<<grid_for(a, a->out_width / 4), THREADS, 0, stream>>>(*a);
    else
        cat_kernel<1, E, W, false><<<grid_for(a, a->out_width), THREADS, 0, stream>>>(*a);
}

template <class E, class W> static void pool_backward(const dlrm_cuda_interact *a, const pooling &p, cudaStream_t stream)
{
    const int64_t elements = p.w + a->host_slots[0].width;
    if (four_at_once(a, 1))
        pool_backward_kernel<4, E, W><<<grid_for(a, ceil_div(elements, 4)), THREADS, 0, stream>>>(*a, p);
    else
        pool_backward_kernel<1, E, W><<<grid_for(a, elements), THREADS, 0, stream>>>(*a, p);
}

static pooling pooling_of_slots(const dlrm_cuda_interact *a)
{
    int64_t w = 0;
    for (int i = 1; i < a->n_slots; i++) w += a->host_slots[i].width;
    return pooling_of(*a, w);
}

cudaError_t concat_forward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (a->kind == DLRM_POOL) {
        const pooling p = pooling_of_slots(a);
        WITH_TYPE(a->type, E,
                  WITH_TYPE(a->wire, W,
                            (pool_forward_kernel<E, W><<<grid_for(a, a->out_stride), THREADS, 0, stream>>>(*a, p))));
    } else {
        WITH_TYPE(a->type, E, WITH_TYPE(a->wire, W, (cat_forward<E, W>(a, stream))));
    }
    return cudaGetLastError();
}

cudaError_t concat_backward(const dlrm_cuda_interact *a, cudaStream_t stream)
{
    if (a->kind == DLRM_POOL) {
        const pooling p = pooling_of_slots(a);
        WITH_TYPE(a->type, E, WITH_TYPE(a->wire, W, (pool_backward<E, W>(a, p, stream))));
    } else {
        WITH_TYPE(a->type, E, WITH_TYPE(a->wire, W, (cat_backward<E, W>(a, stream))));
    }
    return cudaGetLastError();
}
