/* Flat arrays: dense update, initial values, conversion, and sums over partial results. Threads stride over the grid.
 */
#include "cuda/rows.cuh"

enum { THREADS = 256 };

__device__ __forceinline__ int64_t thread_index()
{
    return blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
}

__device__ __forceinline__ int64_t grid_threads()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* --- dense update: per element 12 bytes, 8 per state, and the copy --- */

template <rule_kind KIND, class T>
__global__ void __launch_bounds__(THREADS)
    dense_kernel(int64_t n, float *w, const float *g, float *state0, float *state1, const dlrm_cuda_step *step, T *copy)
{
    if (step->skip) return;
    const dlrm_rule rule = step->dense;
    for (int64_t i = thread_index(); i < n; i += grid_threads()) {
        float x = w[i], s0 = 0, s1 = 0;
        if constexpr (rule_states<KIND>() > 0) s0 = state0[i];
        if constexpr (rule_states<KIND>() > 1) s1 = state1[i];
        rule_apply<KIND>(rule, rule.lr, x, g[i] * step->unscale, s0, s1);
        w[i] = x;
        if constexpr (rule_states<KIND>() > 0) state0[i] = s0;
        if constexpr (rule_states<KIND>() > 1) state1[i] = s1;
        if (copy) copy[i] = from_float<T>(x);
    }
}

cudaError_t dlrm_cuda_dense_update(int64_t n, float *w, const float *g, float *state0, float *state1,
                                   dlrm_optimizer_name name, bool momentum, const dlrm_cuda_step *step, void *copy,
                                   dlrm_dtype copy_type, cudaStream_t stream)
{
    if (n == 0) return cudaSuccess;
    const unsigned blocks = blocks_for(n, THREADS);
    const rule_kind rule = rule_of(name, momentum);
    if (rule == RULE_ROWWISE) return cudaErrorInvalidValue;
    WITH_RULE(rule, KIND,
              WITH_TYPE(copy_type, T,
                        (dense_kernel<KIND, T><<<blocks, THREADS, 0, stream>>>(n, w, g, state0, state1, step, (T *)copy))));
    return cudaGetLastError();
}

/* --- initial values, filling, conversion --- */

/* Four elements share one call of the generator. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    table_init_kernel(T *weight, int64_t first, int64_t n, uint64_t seed, uint64_t tensor, float scale)
{
    const int64_t first_quad = first / 4, quads = (first + n + 3) / 4 - first_quad;
    for (int64_t q = thread_index(); q < quads; q += grid_threads()) {
        const dlrm_u32x4 r = dlrm_philox(seed, tensor, (uint64_t)(first_quad + q));
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int64_t i = (first_quad + q) * 4 + k - first;
            if (i >= 0 && i < n) weight[i] = from_float<T>((2 * dlrm_unit_float(r.v[k]) - 1) * scale);
        }
    }
}

cudaError_t dlrm_cuda_table_init(void *weight, dlrm_dtype type, int64_t first, int64_t n, uint64_t seed,
                                 uint64_t tensor, double scale, cudaStream_t stream)
{
    if (n == 0) return cudaSuccess;
    WITH_TYPE(type, T,
              (table_init_kernel<T><<<blocks_for(n, 4 * THREADS), THREADS, 0, stream>>>((T *)weight, first, n, seed,
                                                                                        tensor, (float)scale)));
    return cudaGetLastError();
}

/* Rows that do not follow each other in the table: a call of the generator for each element. */
template <class T>
__global__ void __launch_bounds__(THREADS) slice_init_kernel(T *weight, const dlrm_table_init_args a)
{
    const float scale = (float)a.scale;
    for (int64_t i = thread_index(); i < a.rows * a.columns; i += grid_threads()) {
        const int64_t row = i / a.columns, column = i - row * a.columns;
        const int64_t element = (a.first_row + row * a.row_step) * a.dim + a.first_column + column;
        weight[i] = from_float<T>((2 * dlrm_rng_uniform(a.seed, a.stream, (uint64_t)element) - 1) * scale);
    }
}

cudaError_t dlrm_cuda_slice_init(const dlrm_table_init_args *a, cudaStream_t stream)
{
    const int64_t n = a->rows * a->columns;
    if (a->columns == a->dim && a->row_step == 1)
        return dlrm_cuda_table_init(a->weight, a->dtype, a->first_row * a->dim, n, a->seed, a->stream, a->scale, stream);
    if (n == 0) return cudaSuccess;
    WITH_TYPE(a->dtype, T, (slice_init_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, stream>>>((T *)a->weight, *a)));
    return cudaGetLastError();
}

/* Numbers of rows that travel with a launch, whose arguments may take 4 KB. */
enum { ROWS_A_LAUNCH = 900 };
struct row_numbers {
    uint32_t v[ROWS_A_LAUNCH];
};

/* A thread for each element of the rows' weights, then of their state. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    rows_renew_kernel(const dlrm_cuda_table *table, const dlrm_rows_renew_args r, bool rowwise, const row_numbers rows, int n)
{
    const dlrm_cuda_table t = *table;
    const dlrm_table_init_args &a = r.init;
    T *weight = (T *)t.weight;
    const int width = rowwise ? 1 : t.dim;
    const float scale = (float)a.scale;
    for (int64_t i = thread_index(); i < (int64_t)n * a.columns; i += grid_threads()) {
        const int64_t k = i / a.columns, column = i - k * a.columns, row = rows.v[k];
        const int64_t element = (a.first_row + row * a.row_step) * a.dim + a.first_column + column;
        weight[where_row_is(t, row) * a.columns + column] =
            from_float<T>((2 * dlrm_rng_uniform(a.seed, a.stream, (uint64_t)element) - 1) * scale);
    }
    for (int64_t i = thread_index(); i < (int64_t)n * width; i += grid_threads()) {
        const int64_t k = i / width, at = where_row_is(t, rows.v[k]) * width + i - k * width;
        if (t.state[0]) t.state[0][at] = r.state_value;
        if (t.state[1]) t.state[1][at] = r.state_value;
    }
}

cudaError_t dlrm_cuda_rows_renew(const dlrm_cuda_shard *s, const dlrm_rows_renew_args *r, cudaStream_t stream)
{
    row_numbers rows = {};
    for (int64_t at = 0; at < r->n; at += ROWS_A_LAUNCH) {
        const int n = r->n - at < ROWS_A_LAUNCH ? (int)(r->n - at) : (int)ROWS_A_LAUNCH;
        memcpy(rows.v, r->rows + at, (size_t)n * sizeof *rows.v);
        WITH_TYPE(r->init.dtype, T,
                  (rows_renew_kernel<T><<<blocks_for((int64_t)n * r->init.columns, THREADS), THREADS, 0, stream>>>(
                      s->tables + r->table, *r, r->shard->rowwise, rows, n)));
    }
    return cudaGetLastError();
}

__global__ void __launch_bounds__(THREADS) fill_kernel(float *p, int64_t n, float value)
{
    for (int64_t i = thread_index(); i < n; i += grid_threads()) p[i] = value;
}

cudaError_t dlrm_cuda_fill(float *p, int64_t n, float value, cudaStream_t stream)
{
    if (n == 0) return cudaSuccess;
    fill_kernel<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(p, n, value);
    return cudaGetLastError();
}

struct store_words {
    uint32_t v[DLRM_CUDA_STORE / 4];
};

__global__ void __launch_bounds__(DLRM_CUDA_STORE / 4) store_kernel(uint32_t *to, const store_words from)
{
    to[threadIdx.x] = from.v[threadIdx.x];
}

cudaError_t dlrm_cuda_store(void *to, const void *from_host, size_t bytes, cudaStream_t stream)
{
    store_words words = {};
    if (bytes == 0 || bytes > sizeof words || bytes % 4) return cudaErrorInvalidValue;
    memcpy(&words, from_host, bytes);
    store_kernel<<<1, (unsigned)(bytes / 4), 0, stream>>>((uint32_t *)to, words);
    return cudaGetLastError();
}

template <class F, class T>
__global__ void __launch_bounds__(THREADS)
    convert_kernel(const F *from, int64_t from_stride, T *to, int64_t to_stride, int64_t rows, int64_t width)
{
    for (int64_t i = thread_index(); i < rows * to_stride; i += grid_threads()) {
        const int64_t row = i / to_stride, column = i - row * to_stride;
        to[i] = from_float<T>(column < width ? to_float(from[row * from_stride + column]) : 0.0f);
    }
}

cudaError_t dlrm_cuda_convert_rows(const void *from, dlrm_dtype from_type, int64_t from_stride, void *to,
                                   dlrm_dtype to_type, int64_t to_stride, int64_t rows, int64_t width,
                                   cudaStream_t stream)
{
    if (rows * to_stride == 0) return cudaSuccess;
    WITH_TYPE(from_type, F,
              WITH_TYPE(to_type, T,
                        (convert_kernel<F, T><<<blocks_for(rows * to_stride, THREADS), THREADS, 0, stream>>>(
                            (const F *)from, from_stride, (T *)to, to_stride, rows, width))));
    return cudaGetLastError();
}

/* --- sums over partial results --- */

/* One addition of the tree. */
__global__ void __launch_bounds__(THREADS) add_kernel(float *into, const float *from, int64_t n)
{
    for (int64_t i = thread_index(); i < n; i += grid_threads()) into[i] += from[i];
}

/* Sums of 2^LEVEL neighbouring parts, as a balanced tree held in registers. Block y: the y-th such sum. */
template <int LEVEL> __device__ __forceinline__ float tree_of(const float *p, int64_t stride)
{
    if constexpr (LEVEL == 0) {
        return *p;
    } else {
        const float left = tree_of<LEVEL - 1>(p, stride);
        return left + tree_of<LEVEL - 1>(p + (stride << (LEVEL - 1)), stride);
    }
}

template <int LEVEL> __global__ void __launch_bounds__(THREADS) tree_kernel(float *parts, int64_t stride, int64_t n)
{
    float *p = parts + ((int64_t)blockIdx.y * stride << LEVEL);
    for (int64_t i = thread_index(); i < n; i += grid_threads()) p[i] = tree_of<LEVEL>(p + i, stride);
}

template <int LEVEL>
static cudaError_t tree_rounds(float *parts, int64_t stride, int64_t n, int n_parts, cudaStream_t stream)
{
    const dim3 grid(blocks_for(n, THREADS, 4096), (unsigned)(n_parts >> LEVEL));
    tree_kernel<LEVEL><<<grid, THREADS, 0, stream>>>(parts, stride, n);
    return cudaGetLastError();
}

/* A power of two of parts that all have the same level: rounds of up to 32. */
static cudaError_t balanced_sum(float *parts, int64_t stride, int64_t n, int n_parts, cudaStream_t stream)
{
    for (; n_parts >= 32; n_parts /= 32, stride *= 32) TRY_CUDA(tree_rounds<5>(parts, stride, n, n_parts, stream));
    switch (n_parts) {
    case 16:
        return tree_rounds<4>(parts, stride, n, n_parts, stream);
    case 8:
        return tree_rounds<3>(parts, stride, n, n_parts, stream);
    case 4:
        return tree_rounds<2>(parts, stride, n, n_parts, stream);
    case 2:
        return tree_rounds<1>(parts, stride, n, n_parts, stream);
    default:
        return cudaSuccess;
    }
}

struct fold {
    float *parts;
    int64_t stride, n;
    cudaStream_t stream;
};

static void add_parts(void *ctx, int into, int from)
{
    const fold *f = (const fold *)ctx;
    add_kernel<<<blocks_for(f->n, THREADS), THREADS, 0, f->stream>>>(f->parts + into * f->stride,
                                                                     f->parts + from * f->stride, f->n);
}

cudaError_t dlrm_cuda_tree_sum(float *parts, int64_t stride, int64_t n, int n_parts, const int *levels,
                               cudaStream_t stream)
{
    bool equal = (n_parts & (n_parts - 1)) == 0;
    for (int i = 1; levels && i < n_parts; i++) equal &= levels[i] == levels[0];
    if (n == 0 || n_parts <= 1) return cudaSuccess;
    if (equal) return balanced_sum(parts, stride, n, n_parts, stream);
    fold f = {parts, stride, n, stream};
    dlrm_tree_fold(n_parts, levels, add_parts, &f);
    return cudaGetLastError();
}

/* --- what fp16 asks --- */

template <class T> __global__ void __launch_bounds__(THREADS) nonfinite_kernel(const T *p, int64_t n, int32_t *found)
{
    bool bad = false;
    for (int64_t i = thread_index(); i < n; i += grid_threads()) bad |= !isfinite(to_float(p[i]));
    if (bad) *found = 1; /* all that write, write the same */
}

cudaError_t dlrm_cuda_find_nonfinite(const void *p, dlrm_dtype type, int64_t n, int32_t *found, cudaStream_t stream)
{
    if (n == 0) return cudaSuccess;
    WITH_TYPE(type, T,
              (nonfinite_kernel<T><<<blocks_for(n, 8 * THREADS), THREADS, 0, stream>>>((const T *)p, n, found)));
    return cudaGetLastError();
}

__global__ void raise_kernel(dlrm_cuda_step *step, float *flag)
{
    *flag = step->found ? INFINITY : 0;
    step->found = 0;
    step->skip = 0;
    step->unscale = 1 / step->loss_scale;
}

cudaError_t dlrm_cuda_raise_flag(dlrm_cuda_step *step, float *flag, cudaStream_t stream)
{
    raise_kernel<<<1, 1, 0, stream>>>(step, flag);
    return cudaGetLastError();
}

/* As dlrm_optimizer_rule (model/optimizer.c), for update t. */
__device__ static void correct_bias(dlrm_rule *r, double beta1, double beta2, double t, bool sparse)
{
    if (r->name != DLRM_ADAM) return;
    const double c1 = 1 - pow(beta1, t), c2 = 1 - pow(beta2, t);
    r->adam_rate = (float)(sparse ? r->lr * sqrt(c2) / c1 : r->lr / c1);
    r->adam_root = (float)(sparse ? 1 : 1 / sqrt(c2));
}

__global__ void settle_kernel(dlrm_cuda_step *step, const dlrm_settle_args a)
{
    const float least = 0x1p-24f, most = 0x1p100f; /* far from where a run ends; so that 1/scale stays a number */
    step->skip = step->found;
    step->found = 0;
    if (step->skip) {
        step->skipped++;
        step->good = 0;
        if (step->loss_scale > least) step->loss_scale /= 2;
        return;
    }
    if (++step->good == DLRM_GOOD_STEPS) {
        step->good = 0;
        if (step->loss_scale < most) step->loss_scale *= 2;
    }
    const double t = (double)(step->step - (uint64_t)step->skipped);
    correct_bias(&step->dense, a.dense_betas[0], a.dense_betas[1], t, false);
    correct_bias(&step->embedding, a.embedding_betas[0], a.embedding_betas[1], t, true);
}

cudaError_t dlrm_cuda_settle_scale(dlrm_cuda_step *step, const dlrm_settle_args *a, cudaStream_t stream)
{
    settle_kernel<<<1, 1, 0, stream>>>(step, *a);
    return cudaGetLastError();
}
