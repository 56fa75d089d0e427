/* The cache's rules (cuda/cache.cuh) as its kernels apply them, run here one element after the other on the host, which
 * needs no GPU: random batches on small pools, beside a plain table. */
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
    int dim, lanes; /* lanes of a warp that share a row, here one after the other */
    std::vector<float> weight, state, home[TABLES], home_state[TABLES];
    std::vector<int64_t> place, missing[2], held;
    std::vector<int32_t> batch, victims, slot;
    std::vector<uint8_t> often;
    dlrm_cuda_pool_counts counts = {};
    dlrm_cuda_pool pool = {};
    dlrm_cuda_table tables[TABLES] = {};
    int64_t looked_at = 0; /* chunks */

    cache(int d, int slots, int state_width, int l) : dim(d), lanes(l)
    {
        const int64_t all = rows[0] + rows[1];
        weight.assign(slots * d, NAN);
        state.assign(slots * state_width, NAN);
        place.assign(slots, -1);
        batch.assign(slots, 0);
        often.assign(all, 0);
        slot.assign(all, -1);
        for (auto &list : missing) list.assign(LISTED, 0);
        held.assign(LISTED, -1);
        victims.assign(LISTED, -1);
        pool.dim = d;
        pool.slots = slots;
        pool.rows = all;
        pool.weight = weight.data();
        pool.state[0] = state.data();
        pool.state_width[0] = state_width;
        pool.place = place.data();
        pool.batch = batch.data();
        pool.slot = slot.data();
        pool.often = often.data();
        pool.victims = victims.data();
        pool.held = held.data();
        for (int k = 0; k < 2; k++) pool.missing[k] = missing[k].data();
        pool.counts = &counts;
        for (int t = 0; t < TABLES; t++) {
            home[t].resize(rows[t] * d);
            home_state[t].resize(rows[t] * state_width);
            for (size_t i = 0; i < home[t].size(); i++) home[t][i] = (float)(i + 7 * t);
            for (size_t i = 0; i < home_state[t].size(); i++) home_state[t][i] = (float)i / 2;
            tables[t].slot = slot.data() + (t ? rows[0] : 0);
            tables[t].home = home[t].data();
            tables[t].home_state[0] = home_state[t].data();
        }
    }
    int64_t number(int64_t p) const
    {
        return cache_number(pool, tables[place_table(p)], place_row(p));
    }
    int32_t slot_of(int64_t p) const
    {
        return slot[number(p)];
    }
    /* What is claimed in chunks side by side comes in any order, and may be more than is wanted. */
    void sweep(int32_t now)
    {
        const int32_t chunks = cache_chunks(pool.rows), chunk = cache_chunk(pool.rows);
        while (counts.taken < counts.wanted && counts.next < CACHE_ROUNDS * chunks) {
            const int32_t mine = counts.next++;
            counts.swept = mine + 1;
            for (int64_t i = 0, row = (counts.hand + mine) % chunks * (int64_t)chunk; i < chunk && row < pool.rows;
                 i++, row++) {
                const int32_t s = cache_claim(pool, row, cache_level(&counts, mine / chunks), now);
                if (s >= 0) cache_take(pool, counts.taken++, s, now);
            }
        }
        looked_at += counts.swept;
    }
    void fetch(const std::set<int64_t> &listed, int32_t now)
    {
        counts.missing = 0;
        for (int64_t p : listed) {
            const bool found = cache_touch(pool, number(p), now);
            counts.listed++;
            counts.found += found;
            if (!found) missing[0][counts.missing++] = p;
        }
        if (now % CACHE_HALVE == 0)
            for (uint8_t &n : often) n >>= 1;
        cache_aim(pool);
        sweep(now);
        EXPECT(counts.taken >= counts.wanted, "batch %d: no room for %d rows", now, counts.missing);
        EXPECT(counts.used + counts.fresh <= pool.slots, "%d slots are used", counts.used + counts.fresh);
        order(counts.missing);
        for (int32_t i = 0; i < counts.missing; i++)
            for (int lane = lanes - 1; lane >= 0; lane--) cache_give(pool, tables, i, 4, now, lane, lanes);
    }
    /* By their buckets, which are to be in the order of rows. */
    void order(int n)
    {
        missing[1] = missing[0];
        std::stable_sort(missing[1].begin(), missing[1].begin() + n, [&](int64_t x, int64_t y) {
            return cache_bucket(pool, tables, x) < cache_bucket(pool, tables, y);
        });
        for (int i = 1; i < n; i++) EXPECT(missing[1][i - 1] < missing[1][i], "rows are not in order");
        for (int i = 0; i < n; i++) {
            const int at = cache_bucket(pool, tables, missing[1][i]);
            EXPECT(at >= 0 && at < DLRM_CUDA_BUCKETS, "bucket %d", at);
        }
    }
    void write_back()
    {
        for (int32_t s : slot)
            for (int lane = 0; s >= 0 && lane < lanes; lane++) cache_home(pool, tables, s, 4, lane, lanes);
    }
};

/* skew: of each batch so many in ten are among the first 20 rows. */
static void run(int dim, int slots, int state_width, int skew, int lanes, double least_found)
{
    cache c(dim, slots, state_width, lanes);
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
                const int32_t s = c.slot_of(p);
                EXPECT(s >= 0 && c.place[s] == p, "batch %d: row %lld of table %d is not in the cache", number,
                       (long long)place_row(p), place_table(p));
            }
        for (int64_t p : before)
            for (int d = 0; d < dim; d++) {
                float &mine = c.weight[c.slot_of(p) * dim + d], &w = want[place_table(p)][place_row(p) * dim + d];
                EXPECT(mine == w, "batch %d: a value is %g and not %g", number, (double)mine, (double)w);
                mine = w += 1;
            }
    }
    int held = 0;
    for (int t = 0; t < TABLES; t++)
        for (int64_t r = 0; r < rows[t]; r++) {
            const int32_t s = c.slot_of(cache_place(t, r));
            held += s >= 0 && c.place[s] == cache_place(t, r);
        }
    for (int64_t p : c.place) held -= p >= 0;
    EXPECT(held == 0, "%d more rows than slots that hold one", held);
    c.write_back();
    for (int t = 0; t < TABLES; t++) {
        EXPECT(c.home[t] == want[t], "table %d came home with other values", t);
        for (size_t i = 0; i < c.home_state[t].size(); i++)
            EXPECT(c.home_state[t][i] == (float)i / 2, "the state of table %d changed", t);
    }
    const double found = (double)c.counts.found / (double)c.counts.listed;
    EXPECT(found >= least_found, "only %.3f of the rows were in the cache, expected %.3f", found, least_found);
    printf("width %d, %d slots: %.3f of the rows were in the cache, %.2f rounds a batch\n", dim, slots, found,
           (double)c.looked_at / BATCHES / cache_chunks(c.pool.rows));
}

int main()
{
    run(4, 2 * LISTED, 4, 0, 1, 0);       /* just enough room */
    run(5, 2 * LISTED + 1, 1, 5, 8, 0.35); /* odd rows, one value of state each; half of the rows are frequent */
    run(1, 400, 0, 8, 1, 0.75);
    run(8, 1300, 8, 10, 2, 0.95); /* room for all */
    run(8, 200, 8, 5, 4, 0.4);    /* words of 16 bytes, for fewer lanes than there are */
    run(12, 200, 12, 5, 2, 0.4);  /* and for more */
    run(3, 200, 5, 5, 2, 0.4);    /* words of 4 bytes, for more */
    cache none(4, 3, 0, 1);
    none.counts.missing = 3;
    for (int i = 0; i < 3; i++) none.missing[1][i] = i;
    cache_aim(none.pool);
    for (int i = 0; i < 3; i++) cache_give(none.pool, none.tables, i, 4, 2, 0, 1);
    none.counts.missing = 1;
    cache_aim(none.pool);
    none.sweep(3);
    EXPECT(none.counts.wanted == 1 && none.counts.taken == 0, "a row found room among three of the batch before");
    printf("%d failures\n", failures);
    return failures != 0;
}
