/* Embedding tables of a rank: their descriptors, and the pooled lookup of all inputs in one launch. */
#include <cub/device/device_radix_sort.cuh>

#include "cuda/embedding.cuh"

enum { LOOKUP_THREADS = 256, LOOKUP_SAMPLES = 256, IN_FLIGHT = 4, LIST_THREADS = 128 };

/* Blocks a multiprocessor, by registers. */
__host__ __device__ constexpr int lookup_blocks(bool plain)
{
    return plain ? 4 : 3;
}

/* --- descriptors --- */

static size_t take(size_t *at, int64_t count, size_t size)
{
    size_t begin = *at;
    *at = (begin + (size_t)count * size + 255) / 256 * 256;
    return begin;
}

static int64_t partial_floats(const dlrm_cuda_shard *s)
{
    return 2 * ceil_div(s->max_batch * s->pairs, PIECE) * partial_stride(*s);
}

static int64_t most_groups(const dlrm_cuda_shard *s)
{
    int64_t n = s->max_batch * s->pairs; /* a run longer than a piece has a group for each GROUP pairs begun */
    return n / (PIECE + 1) + n / GROUP + 1;
}

static int64_t most_tops(const dlrm_cuda_shard *s)
{
    return s->max_batch * s->pairs / (GROUP + 1) + 1;
}

void dlrm_cuda_sorted_bind(const dlrm_cuda_shard *s, void *memory, dlrm_cuda_sorted *out)
{
    const int64_t n = s->max_batch * s->pairs;
    char *base = (char *)memory;
    size_t at = 0;
    out->keys = base + take(&at, n, s->wide_keys ? 8 : 4);
    out->bags = (uint32_t *)(base + take(&at, n, sizeof(uint32_t)));
    out->flags = (uint8_t *)(base + take(&at, n, 1));
    out->groups = (dlrm_cuda_run *)(base + take(&at, most_groups(s), sizeof(dlrm_cuda_run)));
    out->tops = (dlrm_cuda_run *)(base + take(&at, most_tops(s), sizeof(dlrm_cuda_run)));
    out->counts = (int32_t *)(base + take(&at, 2, sizeof(int32_t)));
}

static size_t sorted_bytes(const dlrm_cuda_shard *s)
{
    const int64_t n = s->max_batch * s->pairs;
    size_t at = 0;
    take(&at, n, s->wide_keys ? 8 : 4);
    take(&at, n, sizeof(uint32_t));
    take(&at, n, 1);
    take(&at, most_groups(s), sizeof(dlrm_cuda_run));
    take(&at, most_tops(s), sizeof(dlrm_cuda_run));
    take(&at, 2, sizeof(int32_t));
    return at;
}

/* Order of the inputs by table, and each table's and input's share of a sample's pairs. */
static void lay_out_pairs(int n_tables, dlrm_cuda_table *tables, int n_inputs, dlrm_cuda_input *inputs, int32_t *order,
                          dlrm_cuda_shard *s, int64_t *n_keys)
{
    int placed = 0;
    int64_t sums[2] = {0, 0};
    for (int t = 0; t < n_tables; t++) {
        dlrm_cuda_table *table = &tables[t];
        bool variable = false;
        table->first_input = placed;
        table->first_pair = s->pairs;
        table->pairs = 0;
        for (int j = 0; j < n_inputs; j++) {
            if (inputs[j].table != t) continue;
            inputs[j].first_pair = table->pairs;
            table->pairs += inputs[j].hotness * inputs[j].vectors;
            variable |= inputs[j].variable;
            order[placed++] = j;
        }
        table->n_inputs = placed - table->first_input;
        table->first_key = *n_keys;
        *n_keys += table->rows + variable; /* one more key, behind the rows, for pads */
        for (int marked = 0; marked < 2; marked++) {
            table->sums_pitch[marked] = dlrm_sums_pitch(table->dim, marked);
            table->first_sum[marked] = sums[marked];
            sums[marked] += table->rows * table->sums_pitch[marked];
        }
        s->pairs += table->pairs;
        if (table->dim > s->max_dim) s->max_dim = table->dim;
    }
}

/* Numbers of vectors, and blocks of a lookup: an input with bags of many ids is shared out to many blocks, or these would run long
 * after all others; each group of lanes keeps a bag. */
static void lay_out_lookup(const dlrm_cuda_table *tables, int n_inputs, dlrm_cuda_input *inputs, dlrm_cuda_shard *s)
{
    for (int j = 0; j < n_inputs; j++) {
        inputs[j].first_vector = s->n_vectors;
        s->n_vectors += inputs[j].vectors;
        s->plain &= inputs[j].vectors == 1 && !inputs[j].exact && !tables[inputs[j].table].slot;
        const int dim = tables[inputs[j].table].dim, lanes = lanes_for(dim, dim % 4 == 0 ? 4 : 1);
        inputs[j].first_block = s->blocks;
        const int ids = inputs[j].hotness * inputs[j].vectors;
        for (inputs[j].blocks = 1; inputs[j].blocks < lanes && inputs[j].blocks * IN_FLIGHT < ids;) inputs[j].blocks *= 2;
        s->blocks += inputs[j].blocks;
    }
}

cudaError_t dlrm_cuda_shard_plan(int n_tables, dlrm_cuda_table *tables, int n_inputs, dlrm_cuda_input *inputs,
                                 int32_t *order, dlrm_dtype dtype, int64_t width, int64_t max_batch, dlrm_cuda_shard *s)
{
    int64_t n_keys = 0;
    *s = dlrm_cuda_shard();
    s->n_tables = n_tables;
    s->n_inputs = n_inputs;
    s->max_dim = 1;
    s->dtype = dtype;
    s->width = width;
    s->max_batch = max_batch;
    s->plain = true;
    lay_out_pairs(n_tables, tables, n_inputs, inputs, order, s, &n_keys);
    lay_out_lookup(tables, n_inputs, inputs, s);
    if (max_batch * s->n_vectors >= UINT32_MAX || max_batch * s->pairs >= UINT32_MAX) return cudaErrorInvalidValue;
    s->wide_keys = n_keys > (int64_t)1 << 32;
    for (s->key_bits = 1; s->key_bits < 63 && n_keys > (int64_t)1 << s->key_bits;) s->key_bits++;

    size_t at = 0;
    take(&at, n_tables, sizeof *tables);
    take(&at, n_inputs, sizeof *inputs);
    take(&at, n_inputs, sizeof *order);
    take(&at, s->n_vectors, sizeof *s->vectors);
    take(&at, partial_floats(s), sizeof(float));
    s->shard_bytes = at;
    s->batch_bytes = sorted_bytes(s);

    const int64_t n = max_batch * s->pairs;
    if (s->wide_keys)
        TRY_CUDA(cub::DeviceRadixSort::SortPairs(NULL, s->sort_bytes, (uint64_t *)NULL, (uint64_t *)NULL,
                                                 (uint32_t *)NULL, (uint32_t *)NULL, n, 0, s->key_bits));
    else
        TRY_CUDA(cub::DeviceRadixSort::SortPairs(NULL, s->sort_bytes, (uint32_t *)NULL, (uint32_t *)NULL,
                                                 (uint32_t *)NULL, (uint32_t *)NULL, n, 0, s->key_bits));
    at = 0;
    take(&at, n, s->wide_keys ? 8 : 4);
    take(&at, n, sizeof(uint32_t));
    take(&at, 1, s->sort_bytes);
    s->work_bytes = at;
    return cudaSuccess;
}

/* Block j: the vectors of input j. */
__global__ void __launch_bounds__(LIST_THREADS) list_vectors(const dlrm_cuda_shard s)
{
    const dlrm_cuda_input in = s.inputs[blockIdx.x];
    for (int k = threadIdx.x; k < in.vectors; k += LIST_THREADS)
        s.vectors[in.first_vector + k] = {(int32_t)blockIdx.x, in.table, in.column + k * s.tables[in.table].dim, in.mean};
}

cudaError_t dlrm_cuda_shard_bind(dlrm_cuda_shard *s, const dlrm_cuda_table *tables, const dlrm_cuda_input *inputs,
                                 const int32_t *order, void *memory)
{
    char *base = (char *)memory;
    size_t at = 0;
    char *t = base + take(&at, s->n_tables, sizeof *tables), *i = base + take(&at, s->n_inputs, sizeof *inputs),
         *o = base + take(&at, s->n_inputs, sizeof *order);
    s->tables = (const dlrm_cuda_table *)t;
    s->inputs = (const dlrm_cuda_input *)i;
    s->order = (const int32_t *)o;
    s->vectors = (dlrm_cuda_vector *)(base + take(&at, s->n_vectors, sizeof *s->vectors));
    s->partial = (float *)(base + take(&at, partial_floats(s), sizeof(float)));
    TRY_CUDA(cudaMemcpy(t, tables, (size_t)s->n_tables * sizeof *tables, cudaMemcpyHostToDevice));
    TRY_CUDA(cudaMemcpy(i, inputs, (size_t)s->n_inputs * sizeof *inputs, cudaMemcpyHostToDevice));
    TRY_CUDA(cudaMemcpy(o, order, (size_t)s->n_inputs * sizeof *order, cudaMemcpyHostToDevice));
    if (s->n_inputs > 0) list_vectors<<<(unsigned)s->n_inputs, LIST_THREADS>>>(*s);
    TRY_CUDA(cudaGetLastError());
    return cudaStreamSynchronize(0);
}

/* --- lookup --- */

/* What one block does: one input, bags [begin, end). PLAIN: of a plain shard; what only others have costs nothing then. */
template <class T, class O, bool PLAIN> struct lookup_job {
    const T *weight;
    const T *home;       /* with a cache: what of the table is not in `weight` */
    const int32_t *slot; /* or NULL */
    O *out;              /* first column of the input in row 0 */
    const uint32_t *ids;
    const int64_t *offsets, *whole;
    int64_t begin, end, width;
    int32_t dim, hotness, vectors;
    bool mean;

    __device__ O *vector(int64_t bag) const
    {
        if (PLAIN || vectors == 1) return out + bag * width;
        const uint32_t sample = (uint32_t)bag / (uint32_t)vectors; /* plan: the batch's bags are fewer than 2^32 */
        return out + sample * width + ((uint32_t)bag - sample * vectors) * dim;
    }
};

template <class T, class O, bool PLAIN> __device__ __forceinline__ const T *row_at(const lookup_job<T, O, PLAIN> &a, uint32_t id)
{
    if (PLAIN || !a.slot) return a.weight + (int64_t)id * a.dim;
    const int32_t slot = __ldg(a.slot + id);
    return slot < 0 ? a.home + (int64_t)id * a.dim : a.weight + (int64_t)slot * a.dim;
}

/* Bags of one id: `lanes` lanes a row, each IN_FLIGHT rows at a time. */
template <int V, class T, class O, bool PLAIN> __device__ __forceinline__ void lookup_single(const lookup_job<T, O, PLAIN> &a, int lanes)
{
    const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, first = threadIdx.x % lanes * V;
    for (int64_t s = a.begin + group; s < a.end; s += groups * IN_FLIGHT) {
        const T *row[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            int64_t at = s + u * groups;
            row[u] = row_at(a, at < a.end ? __ldg(a.ids + at) : 0);
        }
        for (int c = first; c < a.dim; c += lanes * V) {
            vec<V> v[IN_FLIGHT];
#pragma unroll
            for (int u = 0; u < IN_FLIGHT; u++)
                if (s + u * groups < a.end) v[u] = load_vec<V>(row[u] + c);
#pragma unroll
            for (int u = 0; u < IN_FLIGHT; u++)
                if (s + u * groups < a.end) store_vec(a.vector(s + u * groups) + c, v[u]);
        }
    }
}

/* Bags of any length: one bag at a time, its rows added in order. */
template <int V, class T, class O, bool PLAIN> __device__ __forceinline__ void lookup_pooled(const lookup_job<T, O, PLAIN> &a, int lanes)
{
    const int groups = blockDim.x / lanes, group = threadIdx.x / lanes, first = threadIdx.x % lanes * V;
    for (int64_t s = a.begin + group; s < a.end; s += groups) { /* with a mean, one bag a sample */
        const int64_t begin = a.offsets ? a.offsets[s] : s * a.hotness,
                      end = a.offsets ? a.offsets[s + 1] : begin + a.hotness;
        const float by = a.mean && end > begin ? 1.0f / (float)whole_length(a.whole, s, end - begin) : 1.0f;
        for (int c = first; c < a.dim; c += lanes * V) {
            vec<V> sum = zero_vec<V>();
            for (int64_t i = begin; i < end; i += IN_FLIGHT) {
                vec<V> v[IN_FLIGHT];
#pragma unroll
                for (int u = 0; u < IN_FLIGHT; u++)
                    v[u] = i + u < end ? load_vec<V>(row_at(a, __ldg(a.ids + i + u)) + c) : zero_vec<V>();
#pragma unroll
                for (int u = 0; u < IN_FLIGHT; u++)
#pragma unroll
                    for (int k = 0; k < V; k++) sum.v[k] += v[u].v[k];
            }
#pragma unroll
            for (int k = 0; k < V; k++) sum.v[k] *= by;
            store_vec(a.vector(s) + c, sum);
        }
    }
}

template <int V, class T, class O, bool PLAIN> __device__ __forceinline__ void lookup_input(const lookup_job<T, O, PLAIN> &a)
{
    const int lanes = lanes_for(a.dim, V);
    if (a.hotness == 1 && !a.offsets)
        lookup_single<V>(a, lanes);
    else
        lookup_pooled<V>(a, lanes);
}

/* What block `block` of those that share some samples does: for an input whose column of row 0 is at `out`. */
template <class T, bool PLAIN, class O>
__device__ __forceinline__ lookup_job<T, O, PLAIN> lookup_job_of(const dlrm_cuda_shard &s, const dlrm_cuda_input &in,
                                                                 const dlrm_cuda_bags &bags, int64_t B, unsigned at, O *out, int64_t width)
{
    const dlrm_cuda_table *t = &s.tables[in.table];
    const int vectors = PLAIN ? 1 : in.vectors;
    lookup_job<T, O, PLAIN> a;
    a.weight = (const T *)t->weight;
    a.home = (const T *)t->home;
    a.slot = t->slot;
    a.out = out;
    a.ids = bags.ids;
    a.offsets = bags.offsets;
    const int block = at % s.blocks;
    const int64_t begin = (int64_t)(at / s.blocks) * LOOKUP_SAMPLES + (block - in.first_block) * (LOOKUP_SAMPLES / in.blocks);
    const int64_t end = begin + LOOKUP_SAMPLES / in.blocks < B ? begin + LOOKUP_SAMPLES / in.blocks : B;
    a.begin = begin * vectors;
    a.end = end * vectors;
    a.width = width;
    a.dim = t->dim;
    a.hotness = in.hotness;
    a.vectors = vectors;
    a.whole = bags.whole;
    a.mean = in.mean && !in.undivided;
    return a;
}

/* Each s.blocks shares of the work have the next LOOKUP_SAMPLES samples; of these each input has one or more. */
template <class T, class O, bool PLAIN>
__device__ __forceinline__ void lookup_share(const dlrm_cuda_shard &s, const dlrm_cuda_bags *bags, int64_t B, O *out, bool aligned, unsigned at)
{
    const int block = at % s.blocks;
    int j = -1; /* the last input that begins at or before this share */
    for (int i = threadIdx.x; i - (int)threadIdx.x < s.n_inputs; i += blockDim.x)
        j += __syncthreads_count(i < s.n_inputs && s.inputs[i].first_block <= block);
    const dlrm_cuda_input in = s.inputs[j];
    if constexpr (!PLAIN && sizeof(O) < sizeof(float))
        if (in.exact) { /* fp32 in the place of two elements */
            lookup_input<1>(lookup_job_of<T, PLAIN>(s, in, bags[j], B, at, (float *)(out + in.column), s.width / 2));
            return;
        }
    const lookup_job<T, O, PLAIN> a = lookup_job_of<T, PLAIN>(s, in, bags[j], B, at, out + in.column, s.width);
    if (aligned && a.dim % 4 == 0 && in.column % 4 == 0)
        lookup_input<4>(a);
    else
        lookup_input<1>(a);
}

/* Moves, per bag of one id, a row of the table and a row of O. */
template <class T, class O, bool PLAIN>
__global__ void __launch_bounds__(LOOKUP_THREADS *lookup_blocks(PLAIN))
    lookup_kernel(const dlrm_cuda_shard s, const dlrm_cuda_bags *bags, int64_t B, O *out, bool aligned, unsigned shares)
{
    for (unsigned at = blockIdx.x; at < shares; at += gridDim.x) lookup_share<T, O, PLAIN>(s, bags, B, out, aligned, at);
}

template <bool PLAIN>
static cudaError_t launch_lookup(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B, void *out, dlrm_dtype type, int most,
                                 cudaStream_t stream)
{
    const bool aligned = s->width % 4 == 0 && aligned_to(out, 4 * dlrm_dtype_bytes(type));
    const unsigned shares = (unsigned)(ceil_div(B, LOOKUP_SAMPLES) * s->blocks), blocks = most > 0 && shares > (unsigned)most ? most : shares;
    const unsigned threads = LOOKUP_THREADS * (blocks < shares ? lookup_blocks(PLAIN) : 1);
    WITH_TYPE(s->dtype, T,
              WITH_TYPE(type, O, (lookup_kernel<T, O, PLAIN><<<blocks, threads, 0, stream>>>(*s, bags, B, (O *)out, aligned, shares))));
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_lookup(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B, void *out, dlrm_dtype type, int most,
                             cudaStream_t stream)
{
    if (B == 0 || s->n_inputs == 0) return cudaSuccess;
    return s->plain ? launch_lookup<true>(s, bags, B, out, type, most, stream) : launch_lookup<false>(s, bags, B, out, type, most, stream);
}
