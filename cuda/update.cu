/* The update of the rows that a batch touched: their gradients summed along the sorted list, the optimizer applied to
 * the sums while they are in registers. Three launches: pieces of at most 32 pairs, of which most are whole runs and
 * update their row at once; groups of up to 32 pieces of a longer run; and the groups of a run of more than 1024 pairs.
 * The work is the same for any distribution of ids, within a factor. */
#include "cuda/rows.cuh"

enum { UPDATE_THREADS = 256, UPDATE_AHEAD = 4, GROUP_THREADS = 128, GROUP_AHEAD = 8 };

/* --- pieces --- */

/* A block's pairs, decoded once, in shared memory; and PIECE more, where its last piece may end. */
struct span {
    int64_t *gradient; /* element of d_pooled */
    int64_t *row; /* where_row_is */
    float *by; /* what its gradient is multiplied by */
    uint8_t *flags;
};

enum { SPAN_BYTES = 2 * sizeof(int64_t) + sizeof(float) + 1 }; /* per pair */

/* Pairs of a block. Rows that take few lanes leave many for the pairs, of which a long run keeps but one group of lanes
 * in PIECE busy: they need more pairs for as many loads in flight. */
static int span_pairs(const dlrm_cuda_shard *s)
{
    return s->max_dim <= 32 ? 2048 : s->max_dim <= 64 ? 1024 : 256;
}

template <class T, class G> struct update_job {
    const dlrm_cuda_shard *shard;
    const G *d_pooled;
    const dlrm_cuda_step *step;
    const dlrm_cuda_squares *squares;
    int64_t B, begin; /* begin: first pair of the block */
};

/* --- squares of whole rows --- */

template <rule_kind KIND> using square_sum = std::conditional_t<KIND == RULE_ROWWISE, double, dlrm_squares>;

/* What a row's squares are for, `mine` being this lane's share of those of the columns here. `pair`: number of the row's first
 * pair among the table's, which is its place with the peers. Returns the row's rate. */
template <rule_kind KIND, class T>
__device__ __forceinline__ float use_squares(const dlrm_cuda_step &step, const dlrm_cuda_squares &squares, int64_t B,
                                             const dlrm_cuda_table &t, const row_ref<T> &row, const square_sum<KIND> &mine,
                                             int64_t pair, int lanes, unsigned mask, int lane)
{
    auto sum = sum_over_lanes(mine, lanes, mask);
    if constexpr (KIND == RULE_SQUARES) {
        for (int i = lane; i < t.n_peers; i += lanes) squares.own[B * t.peer_at[i] + pair] = sum;
        return 0;
    } else if constexpr (KIND == RULE_ROWWISE_EXACT) {
        for (int i = 0; i < t.n_peers; i++) dlrm_squares_join(&sum, squares.peers[B * t.peer_at[i] + pair]);
        return rowwise_rate(step, row, dlrm_squares_value(&sum), t.n_peers ? t.row_elements : t.dim, mask, lane == 0);
    } else {
        return rowwise_rate(step, row, sum, t.dim, mask, lane == 0);
    }
}

template <int V, class G>
__device__ __forceinline__ vec<V> pair_gradient(const span &p, int i, const G *d_pooled, int c)
{
    vec<V> g = load_vec<V>(d_pooled + p.gradient[i] + c);
#pragma unroll
    for (int k = 0; k < V; k++) g.v[k] *= p.by[i];
    return g;
}

/* Adds the squares of the sum of pairs [from, to], this lane's share of them, for rows that do not fit the lanes. */
template <int V, class G, class S>
__device__ void piece_squares(const span &p, int from, int to, const G *d_pooled, int dim, int first, int stride, S &squares)
{
    for (int c = first; c < dim; c += stride) {
        vec<V> sum = pair_gradient<V>(p, from, d_pooled, c);
        for (int i = from + 1; i <= to; i++) {
            vec<V> g = pair_gradient<V>(p, i, d_pooled, c);
#pragma unroll
            for (int k = 0; k < V; k++) sum.v[k] += g.v[k];
        }
        add_squares(squares, sum);
    }
}

/* Pieces that start at pairs [begin, end) of the span, by `lanes` lanes. AHEAD pairs, with the rows of those that end
 * a whole run, are loaded at once; where widths are odd (V 1) one, which keeps the code of that rare case small. */
template <int V, rule_kind KIND, class T, class G>
__device__ __forceinline__ void update_pieces(const update_job<T, G> &a, const span &p, const dlrm_cuda_table &t,
                                              int begin, int end, int lanes, unsigned mask)
{
    constexpr int AHEAD = V == 1 ? 1 : UPDATE_AHEAD;
    const int lane = threadIdx.x % lanes, stride = lanes * V;
    int from = begin, to = end;
    while (from < end && !(p.flags[from] & PAIR_STARTS)) from++;
    if (from == end) return;
    while (!(p.flags[to - 1] & PAIR_ENDS)) to++;
    for (int c0 = 0; c0 < t.dim; c0 += stride) {
        const int c = c0 + lane * V;
        const bool mine = c < t.dim;
        vec<V> sum = zero_vec<V>();
        int start = from;
        for (int i = from; i < to; i += AHEAD) {
            raw_vec<V, G> g[AHEAD];
            row_part<V, KIND> part[AHEAD];
            int flags[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                flags[u] = i + u < to ? p.flags[i + u] : PAIR_PAD;
                if (flags[u] & PAIR_PAD) continue;
                if (mine) g[u] = load_raw<V>(a.d_pooled + p.gradient[i + u] + c);
                if (KIND != RULE_SQUARES && mine && flags[u] & PAIR_ENDS && flags[u] & PAIR_WHOLE)
                    part[u] = load_part<V, KIND>(row_of<T, KIND>(t, p.row[i + u], 0), c);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                if (flags[u] & PAIR_PAD) continue;
                if (flags[u] & PAIR_STARTS) start = i + u;
                const float by = p.by[i + u];
                const vec<V> x = mine ? widen<V, G>(g[u]) : zero_vec<V>();
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] = flags[u] & PAIR_STARTS ? x.v[k] * by : sum.v[k] + x.v[k] * by;
                if (!(flags[u] & PAIR_ENDS)) continue;
                if (!(flags[u] & PAIR_WHOLE)) {
                    const int64_t slot = partial_slot(a.begin + start, flags[u] & PAIR_FIRST);
                    if (mine) store_vec<V>(a.shard->partial + slot * partial_stride(*a.shard) + c, sum);
                    continue;
                }
                const row_ref<T> row = row_of<T, KIND>(t, p.row[i + u], a.step->step);
                float rate = a.step->embedding.lr;
                if constexpr (rule_rowwise<KIND>() || KIND == RULE_SQUARES) {
                    if (c0 == 0) {
                        square_sum<KIND> squares = {};
                        if (t.dim <= stride)
                            add_squares(squares, sum);
                        else
                            piece_squares<V>(p, start, i + u, a.d_pooled, t.dim, lane * V, stride, squares);
                        rate = use_squares<KIND>(*a.step, *a.squares, a.B, t, row, squares, a.begin + start - a.B * t.first_pair, lanes,
                                                 mask, lane);
                    } else if constexpr (rule_rowwise<KIND>()) {
                        rate /= sqrtf(*row.state0) + a.step->embedding.epsilon;
                    }
                }
                if (mine && KIND != RULE_SQUARES) update_part<V, KIND>(*a.step, rate, row, c, part[u], sum);
            }
        }
        __syncwarp(mask);
    }
}

/* The part of a block's pairs that belongs to table t: `lanes` lanes a row, each group of lanes an equal run of pairs.
 */
template <rule_kind KIND, class T, class G>
__device__ __forceinline__ void update_table(const update_job<T, G> &a, const span &p, int size,
                                             const dlrm_cuda_table &t, int begin, int end, bool aligned)
{
    const int V = aligned ? 4 : 1, lanes = lanes_for(t.dim, V), group = threadIdx.x / lanes;
    const int share = (size + UPDATE_THREADS / lanes - 1) / (UPDATE_THREADS / lanes);
    const unsigned mask = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 / lanes * lanes);
    const int from = begin + group * share;
    if (from >= end) return;
    const int to = from + share < end ? from + share : end;
    if (aligned)
        update_pieces<4, KIND>(a, p, t, from, to, lanes, mask);
    else
        update_pieces<1, KIND>(a, p, t, from, to, lanes, mask);
}

/* Per pair: reads 13 bytes of the list and a gradient; per whole run: reads and writes a row and its state. */
template <class T, class G, rule_kind KIND>
__global__ void __launch_bounds__(UPDATE_THREADS, 3)
    pieces_kernel(const dlrm_cuda_shard s, const dlrm_cuda_bags *bags, int64_t B, const dlrm_cuda_sorted sorted,
                  const G *d_pooled, int size, bool aligned, const dlrm_cuda_squares squares, const dlrm_cuda_step *step)
{
    extern __shared__ int64_t memory[];
    __shared__ int first_table;
    if (step->skip) return;
    const int64_t n = B * s.pairs, begin = (int64_t)blockIdx.x * size;
    const int count = (int)(n - begin < size ? n - begin : size), room = size + PIECE;
    const span p = {memory, memory + room, (float *)(memory + 2 * room),
                    (uint8_t *)((float *)(memory + 2 * room) + room)};
    for (int i = threadIdx.x; i < room && begin + i < n; i += UPDATE_THREADS) {
        const uint32_t bag = sorted.bags[begin + i];
        p.flags[i] = sorted.flags[begin + i];
        if (bag == PAD_BAG) continue;
        const int64_t sample = bag / (uint32_t)s.n_vectors;
        const dlrm_cuda_vector v = s.vectors[bag % (uint32_t)s.n_vectors];
        const int64_t key =
            s.wide_keys ? ((const int64_t *)sorted.keys)[begin + i] : ((const uint32_t *)sorted.keys)[begin + i];
        const int64_t row = key - s.tables[v.table].first_key;
        p.row[i] = s.plain ? row : where_row_is(s.tables[v.table], row);
        p.gradient[i] = sample * s.width + v.column;
        p.by[i] = step->unscale;
        if (v.mean) {
            const dlrm_cuda_input in = s.inputs[v.input];
            const dlrm_cuda_bags of = bags[v.input];
            p.by[i] *= 1.0f / (float)whole_length(of.whole, sample, sample_begin(in, of, sample + 1) - sample_begin(in, of, sample));
        }
    }
    for (int t = threadIdx.x; t < s.n_tables; t += UPDATE_THREADS) {
        const int64_t first = B * s.tables[t].first_pair;
        if (first <= begin && begin < first + B * s.tables[t].pairs) first_table = t;
    }
    __syncthreads();
    const update_job<T, G> a = {&s, d_pooled, step, &squares, B, begin};
    for (int t = first_table; t < s.n_tables; t++) {
        const dlrm_cuda_table table = s.tables[t];
        const int64_t from = B * table.first_pair - begin, to = from + B * table.pairs;
        if (from >= count) break;
        if (KIND == RULE_SQUARES && table.n_peers == 0) continue;
        bool vectors = aligned && table.dim % 4 == 0;
        for (int k = 0; k < table.n_inputs; k++) vectors &= s.inputs[s.order[table.first_input + k]].column % 4 == 0;
        update_table<KIND>(a, p, size, table, from < 0 ? 0 : (int)from, to < count ? (int)to : count, vectors);
    }
}

/* --- groups and totals --- */

/* Adds up the partial sums of a run, `step` pairs apart, and either updates the row or keeps the sum. One warp. */
template <int V, rule_kind KIND, class T>
__device__ __forceinline__ void add_up(const dlrm_cuda_shard &s, const dlrm_cuda_run &run, int64_t distance,
                                       const dlrm_cuda_table &t, const row_ref<T> &row, const dlrm_cuda_squares &whole,
                                       int64_t B, const dlrm_cuda_step &step, int lane)
{
    constexpr int AHEAD = V == 1 ? 1 : GROUP_AHEAD;
    const int64_t stride = partial_stride(s);
    float *kept = s.partial + partial_slot(run.at, run.first) * stride;
    const float *others = s.partial + partial_slot(run.at, false) * stride;
    auto sum_at = [&](int c) {
        vec<V> sum = load_vec<V>(kept + c);
        for (int i = 1; i < run.count; i += AHEAD) {
            vec<V> x[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (i + u < run.count) x[u] = load_vec<V>(others + (i + u) * (distance / PIECE * 2) * stride + c);
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (i + u < run.count)
#pragma unroll
                    for (int k = 0; k < V; k++) sum.v[k] += x[u].v[k];
        }
        return sum;
    };
    float rate = step.embedding.lr;
    if constexpr (rule_rowwise<KIND>() || KIND == RULE_SQUARES)
        if (run.last) {
            square_sum<KIND> squares = {};
            for (int c = lane * V; c < t.dim; c += 32 * V) add_squares(squares, sum_at(c));
            rate = use_squares<KIND>(step, whole, B, t, row, squares, run.at - B * t.first_pair, 32, ~0u, lane);
            if (KIND == RULE_SQUARES) return;
        }
    for (int c = lane * V; c < t.dim; c += 32 * V) {
        const vec<V> sum = sum_at(c);
        if (run.last)
            update_part<V, KIND>(step, rate, row, c, load_part<V, KIND>(row, c), sum);
        else
            store_vec<V>(kept + c, sum);
    }
}

/* One warp a run, as many as *n_runs says. Reads 4 bytes per element and partial sum. */
template <class T, rule_kind KIND>
__global__ void __launch_bounds__(GROUP_THREADS)
    runs_kernel(const dlrm_cuda_shard s, const dlrm_cuda_sorted sorted, const dlrm_cuda_run *runs,
                const int32_t *n_runs, int64_t distance, const dlrm_cuda_squares squares, int64_t B, const dlrm_cuda_step *step)
{
    if (step->skip) return;
    const int lane = threadIdx.x % 32, warps = gridDim.x * (GROUP_THREADS / 32);
    for (int k = (blockIdx.x * GROUP_THREADS + threadIdx.x) / 32; k < *n_runs; k += warps) {
        const dlrm_cuda_run run = runs[k];
        const dlrm_cuda_table t = s.tables[s.vectors[sorted.bags[run.at] % (uint32_t)s.n_vectors].table];
        const int64_t key =
            s.wide_keys ? ((const int64_t *)sorted.keys)[run.at] : ((const uint32_t *)sorted.keys)[run.at];
        if (KIND == RULE_SQUARES && t.n_peers == 0) continue;
        const row_ref<T> row = row_of<T, KIND>(t, where_row_is(t, key - t.first_key), step->step);
        if (t.dim % 4 == 0)
            add_up<4, KIND>(s, run, distance, t, row, squares, B, *step, lane);
        else
            add_up<1, KIND>(s, run, distance, t, row, squares, B, *step, lane);
    }
}

template <class T, class G, rule_kind KIND>
static cudaError_t launch(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B,
                          const dlrm_cuda_sorted *sorted, const void *d_pooled, const dlrm_cuda_squares *shared,
                          const dlrm_cuda_step *step, cudaStream_t stream)
{
    const bool aligned = s->width % 4 == 0 && aligned_to(d_pooled, 4 * sizeof(G));
    const dlrm_cuda_squares squares = shared ? *shared : dlrm_cuda_squares();
    const int64_t n = B * s->pairs;
    const int size = span_pairs(s);
    pieces_kernel<T, G, KIND><<<(unsigned)ceil_div(n, size), UPDATE_THREADS, (size + PIECE) * SPAN_BYTES, stream>>>(
        *s, bags, B, *sorted, (const G *)d_pooled, size, aligned, squares, step);
    TRY_CUDA(cudaGetLastError());
    if (n > PIECE)
        runs_kernel<T, KIND><<<blocks_for(n, PIECE * GROUP_THREADS / 32, 2048), GROUP_THREADS, 0, stream>>>(
            *s, *sorted, sorted->groups, &sorted->counts[0], PIECE, squares, B, step);
    TRY_CUDA(cudaGetLastError());
    if (n > GROUP)
        runs_kernel<T, KIND><<<blocks_for(n, GROUP * GROUP_THREADS / 32, 512), GROUP_THREADS, 0, stream>>>(
            *s, *sorted, sorted->tops, &sorted->counts[1], GROUP, squares, B, step);
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_update(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B,
                             const dlrm_cuda_sorted *sorted, const void *d_pooled, dlrm_dtype type,
                             dlrm_optimizer_name name, bool momentum, const dlrm_cuda_squares *squares,
                             const dlrm_cuda_step *step, cudaStream_t stream)
{
    if (B * s->pairs == 0) return cudaSuccess;
    cudaError_t result = cudaSuccess;
    if (name == DLRM_ROWWISE_ADAGRAD && squares) {
        WITH_TYPE(s->dtype, T,
                  WITH_TYPE(type, G, (result = launch<T, G, RULE_ROWWISE_EXACT>(s, bags, B, sorted, d_pooled, squares, step, stream))));
        return result;
    }
    WITH_RULE(rule_of(name, momentum), KIND,
              WITH_TYPE(s->dtype, T,
                        WITH_TYPE(type, G, (result = launch<T, G, KIND>(s, bags, B, sorted, d_pooled, NULL, step, stream)))));
    return result;
}

cudaError_t dlrm_cuda_row_squares(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B,
                                  const dlrm_cuda_sorted *sorted, const void *d_pooled, dlrm_dtype type,
                                  const dlrm_cuda_squares *squares, const dlrm_cuda_step *step, cudaStream_t stream)
{
    if (B * s->pairs == 0) return cudaSuccess;
    cudaError_t result = cudaSuccess;
    WITH_TYPE(type, G, (result = launch<float, G, RULE_SQUARES>(s, bags, B, sorted, d_pooled, squares, step, stream)));
    return result;
}

cudaError_t dlrm_cuda_row_sums(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B,
                               const dlrm_cuda_sorted *sorted, const void *d_pooled, dlrm_dtype type,
                               const dlrm_cuda_step *step, cudaStream_t stream)
{
    if (B * s->pairs == 0) return cudaSuccess;
    if (s->dtype != DLRM_FP32) return cudaErrorInvalidValue;
    cudaError_t result = cudaSuccess;
    WITH_TYPE(type, G, (result = launch<float, G, RULE_SUM>(s, bags, B, sorted, d_pooled, NULL, step, stream)));
    return result;
}
