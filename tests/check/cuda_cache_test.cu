/* The cache's rules (cuda/cache.cuh) as its kernels apply them, run here one element after the other on the host, which needs no GPU:
 * random batches on small pools, beside a plain table. */
#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <vector>

#include "cuda/cache.cuh"

static int failures;
#define EXPECT(condition, ...)              \
    do {                                    \
        if (!(condition)) {                 \
            failures++;                     \
            printf("FAILED: " __VA_ARGS__); \
            putchar('\n');                  \
        }                                   \
    } while (0)

enum { TABLES = 2, LISTED = 40, BATCHES = 400 };
static const int64_t rows[TABLES] = {1000, 300};

struct cache {
    int dim;
    std::vector<float> weight, state, home[TABLES], home_state[TABLES];
    std::vector<int64_t> place, missing[2];
    std::vector<int32_t> batch, victims[2], slot[TABLES];
    std::vector<uint8_t> often;
    dlrm_cuda_pool_counts counts = {};
    dlrm_cuda_pool pool = {};
    dlrm_cuda_table tables[TABLES] = {};

    cache(int d, int slots, int state_width) : dim(d)
    {
        weight.assign(slots * d, NAN);
        state.assign(slots * state_width, NAN);
        place.assign(slots, -1);
        batch.assign(slots, 0);
        often.assign(slots, 0);
        for (int k = 0; k < 2; k++) {
            missing[k].assign(LISTED, 0);
            victims[k].assign(LISTED, -1);
        }
        pool.dim = d;
        pool.slots = slots;
        pool.weight = weight.data();
        pool.state[0] = state.data();
        pool.state_width[0] = state_width;
        pool.place = place.data();
        pool.batch = batch.data();
        pool.often = often.data();
        pool.counts = &counts;
        for (int t = 0; t < TABLES; t++) {
            slot[t].assign(rows[t], -1);
            home[t].resize(rows[t] * d);
            home_state[t].resize(rows[t] * state_width);
            for (size_t i = 0; i < home[t].size(); i++) home[t][i] = (float)(i + 7 * t);
            for (size_t i = 0; i < home_state[t].size(); i++) home_state[t][i] = (float)i / 2;
            tables[t].slot = slot[t].data();
            tables[t].home = home[t].data();
            tables[t].home_state[0] = home_state[t].data();
            tables[t].first_key = t ? rows[0] : 0;
        }
    }
    void fetch(const std::set<int64_t> &listed, int32_t number)
    {
        counts.missing = counts.taken[0] = counts.taken[1] = 0;
        for (int32_t &n : counts.slots) n = 0;
        for (int64_t p : listed) {
            const bool found = cache_touch(pool, slot[place_table(p)][place_row(p)], number);
            counts.listed++;
            counts.found += found;
            if (!found) missing[0][counts.missing++] = p;
        }
        for (int32_t i = 0; i < pool.slots; i++) {
            if (number % CACHE_HALVE == 0) often[i] >>= 1;
            if (cache_may_go(pool, i, number)) counts.slots[often[i]]++;
        }
        EXPECT(cache_choose(&counts), "batch %d: no room for %d rows", number, counts.missing);
        for (int32_t i = 0; i < pool.slots; i++) {
            if (!cache_may_go(pool, i, number)) continue;
            if (often[i] < counts.often)
                victims[0][counts.taken[0]++] = i;
            else if (often[i] == counts.often && counts.taken[1] < counts.missing - counts.below)
                victims[0][counts.below + counts.taken[1]++] = i;
        }
        EXPECT(counts.taken[0] + counts.taken[1] == counts.missing, "%d victims for %d rows", counts.taken[0] + counts.taken[1],
               counts.missing);
        order(counts.missing);
        for (int32_t i = 0; i < counts.missing; i++) cache_give(pool, tables, victims[1][i], missing[1][i], 4, number, 0, 1);
    }
    /* Both lists by their buckets, which are to be in the order of rows. */
    void order(int n)
    {
        dlrm_cuda_shard s = {};
        for (s.key_bits = 1; rows[0] + rows[1] > 1 << s.key_bits;) s.key_bits++;
        auto by_bucket = [&](int64_t a, int64_t b) { return cache_bucket(s, tables, a) < cache_bucket(s, tables, b); };
        missing[1] = missing[0];
        victims[1] = victims[0];
        std::stable_sort(missing[1].begin(), missing[1].begin() + n, by_bucket);
        std::stable_sort(victims[1].begin(), victims[1].begin() + n, [&](int a, int b) { return by_bucket(place[a], place[b]); });
        for (int i = 1; i < n; i++) EXPECT(missing[1][i - 1] < missing[1][i], "rows are not in order");
        for (int i = 0; i < n; i++) {
            const int at = cache_bucket(s, tables, missing[1][i]);
            EXPECT(at >= 0 && at < DLRM_CUDA_BUCKETS, "bucket %d", at);
        }
    }
    void write_back()
    {
        for (int32_t i = 0; i < pool.slots; i++)
            if (place[i] >= 0) cache_move(pool, tables[place_table(place[i])], i, place_row(place[i]), 4, true, 0, 1);
    }
};

/* skew: of each batch so many in ten are among the first 20 rows. */
static void run(int dim, int slots, int state_width, int skew, double least_found)
{
    cache c(dim, slots, state_width);
    std::vector<float> want[TABLES];
    std::mt19937 random(5);
    std::set<int64_t> listed, before;
    for (int t = 0; t < TABLES; t++) want[t] = c.home[t];
    for (int32_t number = 2; number < 2 + BATCHES; number++) {
        before = listed;
        listed.clear();
        while (listed.size() < LISTED) {
            const int t = random() % TABLES;
            listed.insert(cache_place(t, (int)(random() % 10) < skew ? random() % 20 : random() % rows[t]));
            if (skew == 10 && listed.size() == 30) break;
        }
        c.fetch(listed, number);
        /* the batch before is worked on only now: its rows are still there */
        for (const std::set<int64_t> *batch : {&before, &listed})
            for (int64_t p : *batch) {
                const int32_t s = c.slot[place_table(p)][place_row(p)];
                EXPECT(s >= 0 && c.place[s] == p, "batch %d: row %lld of table %d is not in the cache", number, (long long)place_row(p),
                       place_table(p));
            }
        for (int64_t p : before)
            for (int d = 0; d < dim; d++) {
                float &mine = c.weight[c.slot[place_table(p)][place_row(p)] * dim + d], &w = want[place_table(p)][place_row(p) * dim + d];
                EXPECT(mine == w, "batch %d: a value is %g and not %g", number, (double)mine, (double)w);
                mine = w += 1;
            }
    }
    int held = 0;
    for (int t = 0; t < TABLES; t++)
        for (int64_t r = 0; r < rows[t]; r++) held += c.slot[t][r] >= 0 && c.place[c.slot[t][r]] == cache_place(t, r);
    for (int64_t p : c.place) held -= p >= 0;
    EXPECT(held == 0, "%d more rows than slots that hold one", held);
    c.write_back();
    for (int t = 0; t < TABLES; t++) {
        EXPECT(c.home[t] == want[t], "table %d came home with other values", t);
        for (size_t i = 0; i < c.home_state[t].size(); i++) EXPECT(c.home_state[t][i] == (float)i / 2, "the state of table %d changed", t);
    }
    const double found = (double)c.counts.found / (double)c.counts.listed;
    EXPECT(found >= least_found, "only %.3f of the rows were in the cache, expected %.3f", found, least_found);
    printf("width %d, %d slots: %.3f of the rows were in the cache\n", dim, slots, found);
}

int main()
{
    run(4, 2 * LISTED, 4, 0, 0);      /* just enough room */
    run(5, 2 * LISTED + 1, 1, 5, 0.4); /* odd rows, one value of state each; half of the rows are frequent */
    run(1, 400, 0, 8, 0.75);
    run(8, 1300, 8, 10, 0.95); /* room for all */
    cache none(4, 3, 0);
    none.counts.missing = 4;
    none.counts.slots[0] = 3;
    EXPECT(!cache_choose(&none.counts), "four rows found room in three slots");
    printf("%d failures\n", failures);
    return failures != 0;
}
