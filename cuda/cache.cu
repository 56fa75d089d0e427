/* A cache on the device of rows of tables that lie in the host's memory. Before a batch is worked on, all its rows come in: those
 * that are missing take the slots of rows that were listed least often of late, of which the values go home first. It all
 * happens on the device, behind the sort of the batch and beside the work on the batch before; the host is not asked. The kernels
 * reach the host's memory by themselves, page-locked as it is. Which slots are given varies from run to run where several were
 * listed equally often; no value depends on it. */
#include "cuda/cache.cuh"
#include "cuda/embedding.cuh"

/* Rows move at the speed of the link, which a few multiprocessors keep busy; on all they would hold up the step's products, whose blocks
 * need a multiprocessor to themselves. */
enum { CACHE_THREADS = 256, SCAN_THREADS = 1024, MOVE_THREADS = 1024, MOVE_BLOCKS = 16, WRITE_BACK_BLOCKS = 132 };

/* *n += 1 for each lane that wants; what it was, counting those before. The whole warp calls. */
__device__ static inline int32_t take_places(int32_t *n, bool want, int lane)
{
    const unsigned wanting = __ballot_sync(~0u, want);
    int32_t first = 0;
    if (wanting && lane == 0) first = atomicAdd(n, __popc(wanting));
    return __shfl_sync(~0u, first, 0) + __popc(wanting & ((1u << lane) - 1));
}

/* One thread a pair: the first of each run of equal rows stands for the row. Reads 9 bytes, and 4 at random. */
template <class K>
__global__ void __launch_bounds__(CACHE_THREADS)
    touch_kernel(const dlrm_cuda_shard s, int64_t n, const dlrm_cuda_sorted sorted, const dlrm_cuda_pool *pools, int n_pools, int32_t number)
{
    const int64_t at = blockIdx.x * (int64_t)CACHE_THREADS + threadIdx.x;
    const int lane = threadIdx.x % 32, heads = PAIR_STARTS | PAIR_FIRST;
    int pool = -1;
    int64_t place = 0;
    bool found = false;
    if (at < n && (sorted.flags[at] & (heads | PAIR_PAD)) == heads) {
        const int table = s.vectors[sorted.bags[at] % (uint32_t)s.n_vectors].table;
        const dlrm_cuda_table *t = &s.tables[table];
        if (t->slot) {
            const int64_t row = (int64_t)((const K *)sorted.keys)[at] - t->first_key;
            pool = t->pool;
            place = cache_place(table, row);
            found = cache_touch(pools[pool], t->slot[row], number);
        }
    }
    for (int k = 0; k < n_pools; k++) {
        dlrm_cuda_pool_counts *c = pools[k].counts;
        const int listed = __syncthreads_count(pool == k), here = __syncthreads_count(pool == k && found);
        if (threadIdx.x == 0 && listed) {
            atomicAdd((unsigned long long *)&c->listed, (unsigned long long)listed);
            atomicAdd((unsigned long long *)&c->found, (unsigned long long)here);
        }
        const bool missing = pool == k && !found;
        const int32_t i = take_places(&c->missing, missing, lane);
        if (missing) pools[k].missing[0][i] = place;
    }
}

/* Counts the slots that may go by how often they were listed. Reads 5 bytes a slot. */
__global__ void __launch_bounds__(CACHE_THREADS) tally_kernel(const dlrm_cuda_pool p, int32_t number)
{
    __shared__ int32_t slots[CACHE_MOST + 1];
    for (int i = threadIdx.x; i <= CACHE_MOST; i += CACHE_THREADS) slots[i] = 0;
    __syncthreads();
    const int64_t step = gridDim.x * (int64_t)CACHE_THREADS;
    for (int64_t i = blockIdx.x * (int64_t)CACHE_THREADS + threadIdx.x; i < p.slots; i += step) {
        if (number % CACHE_HALVE == 0) p.often[i] >>= 1;
        if (cache_may_go(p, (int32_t)i, number)) atomicAdd(&slots[p.often[i]], 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i <= CACHE_MOST; i += CACHE_THREADS)
        if (slots[i]) atomicAdd(&p.counts->slots[i], slots[i]);
}

__global__ void choose_kernel(dlrm_cuda_pool_counts *c)
{
    if (!cache_choose(c)) __trap(); /* the plan has made every pool large enough */
}

/* Lists the slots that are to go. */
__global__ void __launch_bounds__(CACHE_THREADS) victims_kernel(const dlrm_cuda_pool p, int32_t number)
{
    dlrm_cuda_pool_counts *c = p.counts;
    const int lane = threadIdx.x % 32;
    const int32_t wanted = c->missing - c->below; /* of those listed `often` times */
    const int64_t step = gridDim.x * (int64_t)CACHE_THREADS, first = blockIdx.x * (int64_t)CACHE_THREADS + threadIdx.x;
    for (int64_t base = first - lane; base < p.slots; base += step) {
        const int64_t i = base + lane;
        const bool may_go = i < p.slots && cache_may_go(p, (int32_t)i, number);
        const bool less = may_go && p.often[i] < c->often;
        const int32_t at = take_places(&c->taken[0], less, lane);
        if (less) p.victims[0][at] = (int32_t)i;
        const bool enough = *(volatile int32_t *)&c->taken[1] >= wanted;
        const bool equal = may_go && p.often[i] == c->often && !enough;
        const int32_t k = take_places(&c->taken[1], equal, lane);
        if (equal && k < wanted) p.victims[0][c->below + k] = (int32_t)i;
    }
}

/* Both lists are put in order by buckets of the host's memory: a GPU keeps the translations of about 1 GiB of it, and rows at random
 * in more of it take three times as long as the link does. Counts first; order_scan makes places of them; then the rows go there. */
__global__ void __launch_bounds__(CACHE_THREADS) order_count(const dlrm_cuda_shard s, const dlrm_cuda_pool p)
{
    const int32_t n = p.counts->missing;
    for (int32_t i = blockIdx.x * CACHE_THREADS + threadIdx.x; i < n; i += gridDim.x * CACHE_THREADS) {
        atomicAdd(&p.buckets[cache_bucket(s, s.tables, p.missing[0][i])], 1);
        atomicAdd(&p.buckets[DLRM_CUDA_BUCKETS + cache_bucket(s, s.tables, p.place[p.victims[0][i]])], 1);
    }
}

/* A block for each list. Counts of the buckets become the counts before them. */
__global__ void __launch_bounds__(SCAN_THREADS) order_scan(const dlrm_cuda_pool p)
{
    constexpr int EACH = DLRM_CUDA_BUCKETS / SCAN_THREADS;
    __shared__ int32_t before[SCAN_THREADS / 32];
    int32_t *mine = p.buckets + blockIdx.x * DLRM_CUDA_BUCKETS + threadIdx.x * EACH, sum = 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int k = 0; k < EACH; k++) sum += mine[k];
    int32_t up_to = sum;
    for (int d = 1; d < 32; d *= 2) {
        const int32_t x = __shfl_up_sync(~0u, up_to, d);
        if (lane >= d) up_to += x;
    }
    if (lane == 31) before[warp] = up_to;
    __syncthreads();
    int32_t at = up_to - sum;
    for (int w = 0; w < warp; w++) at += before[w];
    for (int k = 0; k < EACH; k++) {
        const int32_t count = mine[k];
        mine[k] = at;
        at += count;
    }
}

__global__ void __launch_bounds__(CACHE_THREADS) order_kernel(const dlrm_cuda_shard s, const dlrm_cuda_pool p)
{
    const int32_t n = p.counts->missing;
    for (int32_t i = blockIdx.x * CACHE_THREADS + threadIdx.x; i < n; i += gridDim.x * CACHE_THREADS) {
        const int64_t place = p.missing[0][i];
        const int32_t victim = p.victims[0][i];
        p.missing[1][atomicAdd(&p.buckets[cache_bucket(s, s.tables, place)], 1)] = place;
        p.victims[1][atomicAdd(&p.buckets[DLRM_CUDA_BUCKETS + cache_bucket(s, s.tables, p.place[victim])], 1)] = victim;
    }
}

/* `lanes` lanes a row that is missing. Per row: one row with its state to the host's memory, and one from there. */
__global__ void __launch_bounds__(MOVE_THREADS)
    give_kernel(const dlrm_cuda_shard s, const dlrm_cuda_pool p, int element, int lanes, int32_t number)
{
    const int64_t step = gridDim.x * (int64_t)(MOVE_THREADS / lanes);
    for (int64_t i = (blockIdx.x * (int64_t)MOVE_THREADS + threadIdx.x) / lanes; i < p.counts->missing; i += step)
        cache_give(p, s.tables, p.victims[1][i], p.missing[1][i], element, number, threadIdx.x % lanes, lanes);
}

__global__ void __launch_bounds__(MOVE_THREADS) write_back_kernel(const dlrm_cuda_shard s, const dlrm_cuda_pool p, int element, int lanes)
{
    const int64_t step = gridDim.x * (int64_t)(MOVE_THREADS / lanes);
    for (int64_t i = (blockIdx.x * (int64_t)MOVE_THREADS + threadIdx.x) / lanes; i < p.slots; i += step) {
        const int64_t place = p.place[i];
        if (place >= 0)
            cache_move(p, s.tables[place_table(place)], (int32_t)i, place_row(place), element, true, threadIdx.x % lanes, lanes);
    }
}

/* The rows of `missing` in the pool. n: pairs of the batch. */
static cudaError_t bring_in(const dlrm_cuda_shard *s, int64_t n, const dlrm_cuda_pool &p, int32_t number, cudaStream_t stream)
{
    const int element = (int)dlrm_dtype_bytes(s->dtype), lanes = cache_lanes((int64_t)p.dim * element);
    const unsigned scan_blocks = blocks_for(p.slots, CACHE_THREADS, 1024), order_blocks = blocks_for(n, CACHE_THREADS, 256);
    tally_kernel<<<scan_blocks, CACHE_THREADS, 0, stream>>>(p, number);
    TRY_CUDA(cudaGetLastError());
    choose_kernel<<<1, 1, 0, stream>>>(p.counts);
    TRY_CUDA(cudaGetLastError());
    victims_kernel<<<scan_blocks, CACHE_THREADS, 0, stream>>>(p, number);
    TRY_CUDA(cudaGetLastError());
    order_count<<<order_blocks, CACHE_THREADS, 0, stream>>>(*s, p);
    TRY_CUDA(cudaGetLastError());
    order_scan<<<2, SCAN_THREADS, 0, stream>>>(p);
    TRY_CUDA(cudaGetLastError());
    order_kernel<<<order_blocks, CACHE_THREADS, 0, stream>>>(*s, p);
    TRY_CUDA(cudaGetLastError());
    give_kernel<<<blocks_for(n, MOVE_THREADS / lanes, MOVE_BLOCKS), MOVE_THREADS, 0, stream>>>(*s, p, element, lanes, number);
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_cache_fetch(const dlrm_cuda_shard *s, int64_t B, const dlrm_cuda_sorted *sorted, int n_pools,
                                  const dlrm_cuda_pool *pools, const dlrm_cuda_pool *host_pools, int32_t number,
                                  cudaStream_t stream)
{
    const int64_t n = B * s->pairs;
    if (n == 0) return cudaSuccess;
    for (int k = 0; k < n_pools; k++) {
        TRY_CUDA(cudaMemsetAsync(host_pools[k].counts, 0, offsetof(dlrm_cuda_pool_counts, listed), stream));
        TRY_CUDA(cudaMemsetAsync(host_pools[k].buckets, 0, 2 * DLRM_CUDA_BUCKETS * sizeof(int32_t), stream));
    }
    const unsigned blocks = (unsigned)ceil_div(n, CACHE_THREADS);
    if (s->wide_keys)
        touch_kernel<uint64_t><<<blocks, CACHE_THREADS, 0, stream>>>(*s, n, *sorted, pools, n_pools, number);
    else
        touch_kernel<uint32_t><<<blocks, CACHE_THREADS, 0, stream>>>(*s, n, *sorted, pools, n_pools, number);
    TRY_CUDA(cudaGetLastError());
    for (int k = 0; k < n_pools; k++) TRY_CUDA(bring_in(s, n, host_pools[k], number, stream));
    return cudaSuccess;
}

cudaError_t dlrm_cuda_cache_write_back(const dlrm_cuda_shard *s, const dlrm_cuda_pool *pool, cudaStream_t stream)
{
    if (pool->slots == 0) return cudaSuccess;
    const int element = (int)dlrm_dtype_bytes(s->dtype), lanes = cache_lanes((int64_t)pool->dim * element);
    const unsigned blocks = blocks_for(pool->slots, MOVE_THREADS / lanes, WRITE_BACK_BLOCKS);
    write_back_kernel<<<blocks, MOVE_THREADS, 0, stream>>>(*s, *pool, element, lanes);
    return cudaGetLastError();
}
