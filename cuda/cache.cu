/* A cache on the device of rows of tables that lie in the host's memory. Before a batch is worked on, all its rows come
 * in: those that are missing take slots that never held a row, and then those of rows that were listed least often of
 * late, of which the values go home. Such rows are found by a hand that goes round all rows in the order of their
 * homes, so that what goes home together lies together there. It all happens on the device, behind the sort of the
 * batch and beside the work on the batch before; the host is not asked. The kernels reach the host's memory by
 * themselves, page-locked as it is. Which slots are given varies from run to run; no value depends on it. */
#include "cuda/cache.cuh"
#include "cuda/embedding.cuh"

/* Rows move at the speed of the link, which a few multiprocessors keep busy; on all they would hold up the step's
 * products, whose blocks need a multiprocessor to themselves. So would a sweep. */
enum {
    CACHE_THREADS = 256,
    SWEEP_THREADS = 1024,
    SWEEP_BLOCKS = 16,
    SCAN_THREADS = 1024,
    MOVE_THREADS = 1024,
    MOVE_BLOCKS = 16,
    WRITE_BACK_BLOCKS = 132
};

/* *n += 1 for each lane that wants; what it was, counting those before. The whole warp calls. */
__device__ static inline int32_t take_places(int32_t *n, bool want, int lane)
{
    const unsigned wanting = __ballot_sync(~0u, want);
    int32_t first = 0;
    if (wanting && lane == 0) first = atomicAdd(n, __popc(wanting));
    return __shfl_sync(~0u, first, 0) + __popc(wanting & ((1u << lane) - 1));
}

/* One thread a pair: the first of each run of equal rows stands for the row. Reads 9 bytes, and 5 at random. */
template <class K>
__global__ void __launch_bounds__(CACHE_THREADS)
    touch_kernel(const dlrm_cuda_shard s, int64_t n, const dlrm_cuda_sorted sorted, const dlrm_cuda_pool *pools,
                 int n_pools, int32_t batch)
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
            found = cache_touch(pools[pool], cache_number(pools[pool], *t, row), batch);
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

__global__ void __launch_bounds__(CACHE_THREADS) halve_kernel(const dlrm_cuda_pool p)
{
    const int64_t step = gridDim.x * (int64_t)CACHE_THREADS;
    for (int64_t i = blockIdx.x * (int64_t)CACHE_THREADS + threadIdx.x; i < p.rows; i += step)
        if (p.often[i]) p.often[i] >>= 1;
}

__global__ void aim_kernel(const dlrm_cuda_pool p)
{
    cache_aim(p);
}

/* Claims slots of a chunk that are to go; lists them in the order of their rows, but for neighbours. All threads call.
 * Loads of a thread's rows are under way together. */
__device__ static void sweep_chunk(const dlrm_cuda_pool &p, int64_t from, int level, int32_t batch, int32_t *slots,
                                   int32_t *n)
{
    enum { EACH = CACHE_CHUNK / SWEEP_THREADS };
    const int32_t rows = cache_chunk(p.rows);
    int32_t slot[EACH], last[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int32_t k = j * SWEEP_THREADS + (int32_t)threadIdx.x;
        slot[j] = k < rows && from + k < p.rows ? cache_cold(p, from + k, level) : -1;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) last[j] = slot[j] >= 0 ? p.batch[slot[j]] : batch;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (cache_claim(p, slot[j], last[j], batch)) slots[atomicAdd(n, 1)] = slot[j];
}

/* Blocks take chunks of rows, in order from the hand on, until there are victims for all. Reads 5 bytes a row, and 12
 * at random for each that goes. */
__global__ void __launch_bounds__(SWEEP_THREADS) sweep_kernel(const dlrm_cuda_pool p, int32_t batch)
{
    __shared__ int32_t slots[CACHE_CHUNK], n, mine, first;
    dlrm_cuda_pool_counts *c = p.counts;
    const int32_t chunks = cache_chunks(p.rows);
    for (;;) {
        if (threadIdx.x == 0) {
            const bool enough = *(volatile int32_t *)&c->taken >= c->wanted;
            mine = enough ? CACHE_ROUNDS * chunks : atomicAdd(&c->next, 1);
            if (mine < CACHE_ROUNDS * chunks) atomicMax(&c->swept, mine + 1);
            n = 0;
        }
        __syncthreads();
        if (mine >= CACHE_ROUNDS * chunks) return;
        sweep_chunk(p, (int64_t)((c->hand + mine) % chunks) * cache_chunk(p.rows), cache_level(c, mine / chunks), batch,
                    slots, &n);
        __syncthreads();
        if (threadIdx.x == 0 && n > 0) first = atomicAdd(&c->taken, n);
        __syncthreads();
        for (int k = threadIdx.x; k < n; k += SWEEP_THREADS) cache_take(p, first + k, slots[k], batch);
        __syncthreads();
    }
}

/* Missing rows are put in order by buckets of the host's memory: a GPU keeps the translations of about 1 GiB of it, and
 * rows at random in more of it take three times as long as the link does. Counts first; order_scan_kernel makes places
 * of them; then the rows go there. */
__global__ void __launch_bounds__(CACHE_THREADS) order_count_kernel(const dlrm_cuda_shard s, const dlrm_cuda_pool p)
{
    const int32_t n = p.counts->missing;
    for (int32_t i = blockIdx.x * CACHE_THREADS + threadIdx.x; i < n; i += gridDim.x * CACHE_THREADS)
        atomicAdd(&p.buckets[cache_bucket(p, s.tables, p.missing[0][i])], 1);
}

/* One block. Counts of the buckets become the counts before them. */
__global__ void __launch_bounds__(SCAN_THREADS) order_scan_kernel(const dlrm_cuda_pool p)
{
    constexpr int EACH = DLRM_CUDA_BUCKETS / SCAN_THREADS;
    __shared__ int32_t before[SCAN_THREADS / 32];
    int32_t *mine = p.buckets + threadIdx.x * EACH, sum = 0;
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
        p.missing[1][atomicAdd(&p.buckets[cache_bucket(p, s.tables, place)], 1)] = place;
    }
}

/* `lanes` lanes a row that is missing. Per row: one row with its state to the host's memory, and one from there. */
__global__ void __launch_bounds__(MOVE_THREADS)
    give_kernel(const dlrm_cuda_shard s, const dlrm_cuda_pool p, int element, int lanes, int32_t batch)
{
    if (p.counts->taken < p.counts->wanted) __trap(); /* the plan has made every pool large enough */
    const int32_t step = gridDim.x * (MOVE_THREADS / lanes);
    for (int32_t i = (blockIdx.x * MOVE_THREADS + threadIdx.x) / lanes; i < p.counts->missing; i += step)
        cache_give(p, s.tables, i, element, batch, threadIdx.x % lanes, lanes);
}

__global__ void __launch_bounds__(MOVE_THREADS)
    write_back_kernel(const dlrm_cuda_shard s, const dlrm_cuda_pool p, int element, int lanes)
{
    const int64_t step = gridDim.x * (int64_t)(MOVE_THREADS / lanes);
    for (int64_t i = (blockIdx.x * (int64_t)MOVE_THREADS + threadIdx.x) / lanes; i < p.rows; i += step)
        if (p.slot[i] >= 0) cache_home(p, s.tables, p.slot[i], element, threadIdx.x % lanes, lanes);
}

static int lanes_of(const dlrm_cuda_pool &p, int element)
{
    int lanes = cache_lanes((int64_t)p.dim * element);
    for (int k = 0; k < 2; k++)
        if (cache_lanes(p.state_width[k] * 4) > lanes) lanes = cache_lanes(p.state_width[k] * 4);
    return lanes;
}

/* The rows of `missing` in the pool. n: pairs of the batch. */
static cudaError_t bring_in(const dlrm_cuda_shard *s, int64_t n, const dlrm_cuda_pool &p, int32_t batch,
                            cudaStream_t stream)
{
    const int element = (int)dlrm_dtype_bytes(s->dtype), lanes = lanes_of(p, element);
    const unsigned order_blocks = blocks_for(n, CACHE_THREADS, 256);
    if (batch % CACHE_HALVE == 0) {
        halve_kernel<<<blocks_for(p.rows, CACHE_THREADS, 1024), CACHE_THREADS, 0, stream>>>(p);
        TRY_CUDA(cudaGetLastError());
    }
    aim_kernel<<<1, 1, 0, stream>>>(p);
    TRY_CUDA(cudaGetLastError());
    sweep_kernel<<<blocks_for(cache_chunks(p.rows), 1, SWEEP_BLOCKS), SWEEP_THREADS, 0, stream>>>(p, batch);
    TRY_CUDA(cudaGetLastError());
    order_count_kernel<<<order_blocks, CACHE_THREADS, 0, stream>>>(*s, p);
    TRY_CUDA(cudaGetLastError());
    order_scan_kernel<<<1, SCAN_THREADS, 0, stream>>>(p);
    TRY_CUDA(cudaGetLastError());
    order_kernel<<<order_blocks, CACHE_THREADS, 0, stream>>>(*s, p);
    TRY_CUDA(cudaGetLastError());
    give_kernel<<<blocks_for(n, MOVE_THREADS / lanes, MOVE_BLOCKS), MOVE_THREADS, 0, stream>>>(*s, p, element, lanes,
                                                                                               batch);
    return cudaGetLastError();
}

cudaError_t dlrm_cuda_cache_fetch(const dlrm_cuda_shard *s, int64_t B, const dlrm_cuda_sorted *sorted, int n_pools,
                                  const dlrm_cuda_pool *pools, const dlrm_cuda_pool *host_pools, int32_t batch,
                                  cudaStream_t stream)
{
    const int64_t n = B * s->pairs;
    if (n == 0) return cudaSuccess;
    for (int k = 0; k < n_pools; k++) {
        TRY_CUDA(cudaMemsetAsync(&host_pools[k].counts->missing, 0, sizeof(int32_t), stream));
        TRY_CUDA(cudaMemsetAsync(host_pools[k].buckets, 0, DLRM_CUDA_BUCKETS * sizeof(int32_t), stream));
    }
    const unsigned blocks = (unsigned)ceil_div(n, CACHE_THREADS);
    if (s->wide_keys)
        touch_kernel<uint64_t><<<blocks, CACHE_THREADS, 0, stream>>>(*s, n, *sorted, pools, n_pools, batch);
    else
        touch_kernel<uint32_t><<<blocks, CACHE_THREADS, 0, stream>>>(*s, n, *sorted, pools, n_pools, batch);
    TRY_CUDA(cudaGetLastError());
    for (int k = 0; k < n_pools; k++) TRY_CUDA(bring_in(s, n, host_pools[k], batch, stream));
    return cudaSuccess;
}

cudaError_t dlrm_cuda_cache_write_back(const dlrm_cuda_shard *s, const dlrm_cuda_pool *pool, cudaStream_t stream)
{
    if (pool->slots == 0) return cudaSuccess;
    const int element = (int)dlrm_dtype_bytes(s->dtype), lanes = lanes_of(*pool, element);
    const unsigned blocks = blocks_for(pool->rows, MOVE_THREADS / lanes, WRITE_BACK_BLOCKS);
    write_back_kernel<<<blocks, MOVE_THREADS, 0, stream>>>(*s, *pool, element, lanes);
    return cudaGetLastError();
}
