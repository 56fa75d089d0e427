/* The order of an update: the (row, bag) pairs of a batch, of all tables at once, sorted by row with one radix sort
 * over the bits that the number of rows needs. Pairs start in (table, sample, input, position) order and the sort is
 * stable. A table's pairs fill the same part of the list before and after it; where bags are shorter than their
 * maximum, pads with a key behind the table's rows fill the part's end, so every size is known without asking the
 * device. */
#include <cub/device/device_radix_sort.cuh>

#include "cuda/embedding.cuh"

enum { PAIR_THREADS = 256, PAIR_SAMPLES = 256, MARK_THREADS = 256 };

/* Writes the pairs of input j, samples [begin, end), of a table whose inputs all have a fixed number of ids. */
template <class K>
__device__ __forceinline__ void fixed_pairs(const dlrm_cuda_shard &s, const dlrm_cuda_table &t,
                                            const dlrm_cuda_input &in, const uint32_t *ids, int64_t B,
                                            int64_t begin, int64_t end, K *keys, uint32_t *pairs)
{
    const uint32_t h = in.hotness * in.vectors, last = (uint32_t)(end * h);
    for (uint32_t e = (uint32_t)(begin * h) + threadIdx.x; e < last; e += PAIR_THREADS) {
        const uint32_t sample = e / h;
        const uint32_t position = e - sample * h;
        const int64_t at = B * t.first_pair + (int64_t)sample * t.pairs + in.first_pair + position;
        keys[at] = (K)(t.first_key + ids[e]);
        pairs[at] = sample * s.n_vectors + in.first_vector + (in.vectors > 1 ? position / in.hotness : 0);
    }
}

/* The same where some input's bags vary: a bag's pairs stand behind those of all earlier bags of the table; what it is
 * short of its maximum stands as pads behind the table's pairs, in the same order. */
template <class K>
__device__ __forceinline__ void variable_pairs(const dlrm_cuda_shard &s, const dlrm_cuda_table &t,
                                               const dlrm_cuda_bags *bags, int j, int64_t B, int64_t begin, int64_t end,
                                               K *keys, uint32_t *pairs)
{
    const dlrm_cuda_input in = s.inputs[j];
    for (int64_t sample = begin + threadIdx.x; sample < end; sample += PAIR_THREADS) {
        int64_t before = 0, all = 0, n = sample_begin(in, bags[j], sample + 1) - sample_begin(in, bags[j], sample);
        bool earlier = true;
        for (int k = 0; k < t.n_inputs; k++) {
            const int i = s.order[t.first_input + k];
            earlier &= i != j;
            before += sample_begin(s.inputs[i], bags[i], sample + earlier);
            all += sample_begin(s.inputs[i], bags[i], B);
        }
        const int64_t first = B * t.first_pair, from = sample_begin(in, bags[j], sample),
                      pad = first + all + sample * t.pairs + in.first_pair - before;
        int vector = 0;
        for (int64_t k = 0; k < n; k++) {
            while (from + k >= bag_begin(in, bags[j], sample * in.vectors + vector + 1)) vector++;
            keys[first + before + k] = (K)(t.first_key + bags[j].ids[from + k]);
            pairs[first + before + k] = (uint32_t)(sample * s.n_vectors + in.first_vector + vector);
        }
        for (int64_t k = n; k < in.hotness * in.vectors; k++) {
            keys[pad + k - n] = (K)(t.first_key + t.rows);
            pairs[pad + k - n] = PAD_BAG;
        }
    }
}

/* Blocks as in lookup. Reads 4 bytes of id, writes key and bag. */
template <class K>
__global__ void __launch_bounds__(PAIR_THREADS) pairs_kernel(const dlrm_cuda_shard s, const dlrm_cuda_bags *bags,
                                                             int64_t B, K *keys, uint32_t *pairs, int32_t *counts)
{
    const int j = blockIdx.x % s.n_inputs;
    const int64_t begin = (int64_t)(blockIdx.x / s.n_inputs) * PAIR_SAMPLES;
    const int64_t end = begin + PAIR_SAMPLES < B ? begin + PAIR_SAMPLES : B;
    const dlrm_cuda_table t = s.tables[s.inputs[j].table];
    bool variable = false;
    for (int k = 0; k < t.n_inputs; k++) variable |= bags[s.order[t.first_input + k]].offsets != NULL;
    if (variable)
        variable_pairs(s, t, bags, j, B, begin, end, keys, pairs);
    else
        fixed_pairs(s, t, s.inputs[j], bags[j].ids, B, begin, end, keys, pairs);
    if (blockIdx.x == 0 && threadIdx.x < 2) counts[threadIdx.x] = 0;
}

/* The first of the pairs up to `at` that have the key of pair `at`. The whole warp calls with the same arguments and
 * probes 32 places at a time. */
template <class K> __device__ __forceinline__ int64_t run_begin(const K *keys, int64_t at, int lane)
{
    const K key = keys[at];
    int64_t lo = 0, hi = at; /* the answer is in [lo, hi] */
    while (lo < hi) {
        const int64_t step = (hi - lo + 31) / 32, probe = lo + lane * step;
        const int below = __popc(__ballot_sync(~0u, probe < hi && keys[probe] < key));
        hi = lo + below * step < hi ? lo + below * step : hi;
        if (below) lo += (below - 1) * step + 1;
    }
    return lo;
}

/* How many of the places at, at + step, … have this key, at most `most`. */
template <class K>
__device__ __forceinline__ int64_t run_length(const K *keys, int64_t n, int64_t at, int64_t step, int64_t most, K key,
                                              int lane)
{
    int64_t count = 0;
    for (int found = 32; found == 32 && count < most; count += found) {
        const int64_t probe = at + (count + lane) * step;
        found = __popc(__ballot_sync(~0u, probe < n && keys[probe] == key));
    }
    return count;
}

/* Lists the group that starts at pair `at`, and the run's groups if it is the first of several. */
template <class K>
__device__ __forceinline__ void list_group(const K *keys, int64_t n, int64_t at, bool first,
                                           const dlrm_cuda_sorted &out, int lane)
{
    const K key = keys[at];
    const int64_t pieces = run_length(keys, n, at, PIECE, PIECES_PER_GROUP, key, lane);
    const bool more = at + GROUP < n && keys[at + GROUP] == key;
    const int64_t groups = first && more ? run_length(keys, n, at, GROUP, INT64_MAX, key, lane) : 0;
    if (lane) return;
    out.groups[atomicAdd(&out.counts[0], 1)] = {at, (int32_t)pieces, first, first && !more};
    if (groups) out.tops[atomicAdd(&out.counts[1], 1)] = {at, (int32_t)groups, true, true};
}

/* One lane a pair. Reads key and bag, writes a byte. The lists' order varies from run to run; nothing depends on it. */
template <class K>
__global__ void __launch_bounds__(MARK_THREADS) mark_kernel(const K *keys, int64_t n, const dlrm_cuda_sorted out)
{
    const int lane = threadIdx.x % 32;
    const int64_t base = (blockIdx.x * (int64_t)MARK_THREADS + threadIdx.x) - lane, at = base + lane;
    if (base >= n) return;
    const bool valid = at < n;
    const K key = valid ? keys[at] : 0;
    const bool pad = valid && out.bags[at] == PAD_BAG;
    const bool head = valid && (at == 0 || keys[at - 1] != key), tail = valid && (at + 1 == n || keys[at + 1] != key);
    const unsigned heads = __ballot_sync(~0u, head), up_to_me = heads & (~0u >> (31 - lane));
    int64_t begin = heads & 1 ? base : run_begin(keys, base, lane);
    if (up_to_me) begin = base + 31 - __clz(up_to_me);
    const int64_t rank = at - begin;
    const bool starts = rank % PIECE == 0, first = rank < PIECE;
    if (valid)
        out.flags[at] = pad ? PAIR_PAD | PAIR_STARTS | PAIR_ENDS
                            : (starts ? PAIR_STARTS : 0) | (tail || rank % PIECE == PIECE - 1 ? PAIR_ENDS : 0) |
                                  (first ? PAIR_FIRST : 0) | (first && tail ? PAIR_WHOLE : 0);
    bool listed = valid && !pad && rank % GROUP == 0;
    listed = listed && (rank > 0 || (at + PIECE < n && keys[at + PIECE] == key));
    for (unsigned left = __ballot_sync(~0u, listed); left; left &= left - 1) {
        const int from = __ffs(left) - 1;
        list_group(keys, n, base + from, __shfl_sync(~0u, first, from), out, lane);
    }
}

template <class K>
static cudaError_t sort_pairs(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B,
                              const dlrm_cuda_sorted *sorted, void *work, cudaStream_t stream)
{
    const int64_t n = B * s->pairs, most = s->max_batch * s->pairs;
    K *keys = (K *)work, *result = (K *)sorted->keys;
    uint32_t *pairs = (uint32_t *)((char *)work + ceil_div(most * sizeof(K), 256) * 256);
    void *cub_work = (char *)pairs + ceil_div(most * sizeof(uint32_t), 256) * 256;
    size_t cub_bytes = s->sort_bytes;
    pairs_kernel<K><<<(unsigned)(ceil_div(B, PAIR_SAMPLES) * s->n_inputs), PAIR_THREADS, 0, stream>>>(
        *s, bags, B, keys, pairs, sorted->counts);
    TRY_CUDA(cudaGetLastError());
    TRY_CUDA(cub::DeviceRadixSort::SortPairs(cub_work, cub_bytes, keys, result, pairs, sorted->bags, n, 0, s->key_bits,
                                             stream));
    mark_kernel<K><<<(unsigned)ceil_div(n, MARK_THREADS), MARK_THREADS, 0, stream>>>(result, n, *sorted);
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_sort(const dlrm_cuda_shard *s, const dlrm_cuda_bags *bags, int64_t B,
                           const dlrm_cuda_sorted *sorted, void *work, cudaStream_t stream)
{
    if (B * s->pairs == 0) return cudaMemsetAsync(sorted->counts, 0, 2 * sizeof(int32_t), stream);
    return s->wide_keys ? sort_pairs<uint64_t>(s, bags, B, sorted, work, stream)
                        : sort_pairs<uint32_t>(s, bags, B, sorted, work, stream);
}
