/* Rows of tables in the host's memory: what the link and the translation of addresses let through, and the kernels that
 * use them. */
#include <time.h>

#include "cuda/cache.cuh"
#include "cuda_bench.cuh"

enum { MOVE_THREADS = 1024, ROWS = 200000, TABLES = 8, DIM = 128, IDS = 65536 };

static double seconds(void)
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- random rows --- */

enum move { READ, WRITE, SWAP };

/* `lanes` lanes a row of lanes * 16 bytes. */
__global__ void __launch_bounds__(MOVE_THREADS)
    move_kernel(int4 *home, int4 *here, const uint32_t *rows, int n, int lanes, move how)
{
    const int lane = threadIdx.x % lanes;
    for (int i = (blockIdx.x * MOVE_THREADS + threadIdx.x) / lanes; i < n; i += gridDim.x * MOVE_THREADS / lanes) {
        int4 *there = home + (int64_t)rows[i] * lanes + lane, *mine = here + (int64_t)i * lanes + lane;
        const int4 x = how == READ ? int4() : *mine;
        if (how != WRITE) *mine = *there;
        if (how != READ) *there = x;
    }
}

static void time_moves(char *home, size_t bytes)
{
    static const char *const names[] = {"read", "written", "swapped"};
    random_source r;
    device_values<uint32_t> device_rows;
    device_values<int4> here;
    char what[200];
    here.make((size_t)ROWS * DIM / 4);
    MUST(cudaMemset(here.p, 1, (size_t)ROWS * DIM * 4));
    const double copy =
        time_of([&](int) { MUST(cudaMemcpyAsync(here.p, home, (size_t)ROWS * DIM * 4, cudaMemcpyHostToDevice, 0)); });
    printf("%-70s %8.4f ms %7.2f GB/s\n", "host memory: a copy of 98 MiB to the device", copy,
           (double)ROWS * DIM * 4 / copy / 1e6);
    for (int k = 0; k < 24; k++) {
        const size_t span = k % 2 ? bytes / 16 : bytes;
        const bool in_order = k / 2 % 2;
        const int lanes = k / 4 % 2 ? 4 : 32, blocks = k / 8 == 2 ? 256 : 16;
        const move how = k / 8 ? SWAP : READ;
        std::vector<uint32_t> rows(ROWS);
        for (uint32_t &row : rows) row = (uint32_t)r.below((int64_t)(span / 16) / lanes);
        if (in_order) std::sort(rows.begin(), rows.end());
        device_rows.make(rows);
        const double ms = time_of([&](int) {
            move_kernel<<<blocks, MOVE_THREADS>>>((int4 *)home, here.p, device_rows.p, (int)rows.size(), lanes, how);
            MUST(cudaGetLastError());
        });
        snprintf(what, sizeof what, "host memory, %.2f GiB: rows of %d bytes %s%s, %d blocks", (double)span / (1 << 30),
                 lanes * 16, names[how], in_order ? " in order" : "", blocks);
        printf("%-70s %8.4f ms %7.2f GB/s a way %7.1f M rows/s\n", what, ms,
               (double)rows.size() * lanes * 16 / ms / 1e6, (double)rows.size() / ms / 1e3);
    }
}

/* --- the kernels --- */

/* Tables in the host's memory, and a pool of a tenth of their rows; without a pool they are used where they lie. */
struct host_tables {
    test_shard s;
    dlrm_cuda_pool pool = {};
    device_values<dlrm_cuda_pool> device_pool;
    device_values<char> weight;
    device_values<int64_t> place, missing[2], held;
    device_values<int32_t> batch, victims, slot, buckets;
    device_values<uint8_t> often;
    device_values<dlrm_cuda_pool_counts> counts;
    int32_t number = 1;

    host_tables(char *home, size_t bytes, bool cached)
    {
        const int64_t rows = (int64_t)(bytes / sizeof(float) / DIM / TABLES), slots = rows * TABLES / 10;
        if (cached) open_pool(rows, slots);
        for (int t = 0; t < TABLES; t++) {
            char *mine = home + (size_t)t * (size_t)rows * DIM * sizeof(float);
            s.add_table(rows, DIM);
            s.add_input(t, 1, false, false);
            s.tables[(size_t)t].weight = cached ? pool.weight : mine;
            s.tables[(size_t)t].home = mine;
            s.tables[(size_t)t].place = pool.place;
            s.tables[(size_t)t].slot = cached ? slot.p + t * rows : NULL;
        }
        s.open(DLRM_FP32, IDS);
    }
    void open_pool(int64_t rows, int64_t slots)
    {
        const size_t n = (size_t)slots;
        weight.make(n * DIM * sizeof(float));
        place.make(n);
        batch.make(n);
        often.make((size_t)rows * TABLES);
        for (auto &list : missing) list.make((size_t)IDS * TABLES);
        victims.make((size_t)IDS * TABLES);
        held.make((size_t)IDS * TABLES);
        buckets.make(DLRM_CUDA_BUCKETS);
        counts.make(1);
        slot.make((size_t)rows * TABLES);
        MUST(cudaMemset(slot.p, 0xFF, (size_t)rows * TABLES * sizeof(int32_t)));
        MUST(cudaMemset(place.p, 0xFF, n * sizeof(int64_t)));
        MUST(cudaMemset(batch.p, 0, n * sizeof(int32_t)));
        MUST(cudaMemset(often.p, 0, (size_t)rows * TABLES));
        MUST(cudaMemset(counts.p, 0, sizeof(dlrm_cuda_pool_counts)));
        pool.dim = DIM;
        pool.slots = (int32_t)slots;
        pool.rows = rows * TABLES;
        pool.weight = weight.p;
        pool.place = place.p;
        pool.batch = batch.p;
        pool.slot = slot.p;
        pool.often = often.p;
        for (int k = 0; k < 2; k++) pool.missing[k] = missing[k].p;
        pool.victims = victims.p;
        pool.held = held.p;
        pool.buckets = buckets.p;
        pool.counts = counts.p;
        device_pool.make(std::vector<dlrm_cuda_pool>{pool});
    }
    double next_ids(double alpha, random_source &r)
    {
        const double touched = make_ids(s, IDS, alpha, false, r);
        MUST(dlrm_cuda_sort(&s.shard, s.bags.p, IDS, &s.sorted, s.work.p, 0));
        return touched / DIM;
    }
    void fetch()
    {
        MUST(dlrm_cuda_cache_fetch(&s.shard, IDS, &s.sorted, 1, device_pool.p, &pool, ++number, 0));
    }
    int missed() const
    {
        return counts.download(1)[0].missing;
    }
};

static void time_kernels(char *home, size_t bytes, bool cached, random_source &r)
{
    host_tables h(home, bytes, cached);
    device_array pooled;
    device_values<dlrm_cuda_step> device_step;
    dlrm_cuda_step step = {};
    const char *where = cached ? "10 % in a cache" : "used where they lie";
    char what[200];
    step.unscale = 1;
    device_step.make(std::vector<dlrm_cuda_step>{step});
    pooled.make(DLRM_BF16, IDS * h.s.width);
    if (cached) { /* as long as it takes until the cache is full, and finds what it will find */
        double ms = time_of([&](int) { h.next_ids(0, r); }, [&](int) { h.fetch(); });
        printf("%-70s %8.4f ms %7.1f M rows/s a way\n", "cache: fetch of uniform ids", ms, h.missed() / ms / 1e3);
        ms = time_of([&](int) { h.fetch(); });
        printf("%-70s %8.4f ms\n", "cache: fetch where all are there", ms);
        for (int i = 0; i < 60; i++) {
            h.next_ids(1.05, r);
            h.fetch();
        }
    }
    double listed = 0;
    if (cached) {
        const double ms = time_of([&](int) { listed = h.next_ids(1.05, r); }, [&](int) { h.fetch(); });
        printf("%-70s %8.4f ms %7.1f M rows/s a way, %d of %.0f rows\n", "cache: fetch, alpha 1.05", ms,
               h.missed() / ms / 1e3, h.missed(), listed);
    } else {
        listed = h.next_ids(1.05, r);
    }
    snprintf(what, sizeof what, "lookup, alpha 1.05, %s", where);
    double ms =
        time_of([&](int) { MUST(dlrm_cuda_lookup(&h.s.shard, h.s.bags.p, IDS, pooled.device, DLRM_BF16, 0, 0)); });
    printf("%-70s %8.4f ms %7.1f M rows/s\n", what, ms, listed / ms / 1e3);
    snprintf(what, sizeof what, "update (sgd), alpha 1.05, %s", where);
    ms = time_of([&](int) {
        MUST(dlrm_cuda_update(&h.s.shard, h.s.bags.p, IDS, &h.s.sorted, pooled.device, DLRM_BF16, DLRM_SGD, false, NULL,
                              device_step.p, 0));
    });
    printf("%-70s %8.4f ms %7.1f M rows/s\n", what, ms, listed / ms / 1e3);
}

void time_host_memory(double gib)
{
    const size_t bytes = (size_t)(gib * 512) << 21;
    random_source r;
    void *home;
    double start = seconds();
    MUST(cudaHostAlloc(&home, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    memset(home, 0, bytes);
    printf("page-locked: %.1f s for %.1f GiB\n", seconds() - start, gib);
    time_moves((char *)home, bytes);
    time_kernels((char *)home, bytes, true, r);
    time_kernels((char *)home, bytes, false, r);
    MUST(cudaFreeHost(home));
}
