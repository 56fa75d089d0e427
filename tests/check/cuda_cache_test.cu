/* The cache's rules (cuda/cache.cuh) as its kernels apply them, run here one element after the other on the host, which
 * needs no GPU: random batches on small pools, beside a plain table. */
#include <algorithm>
#include <cmath>
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

/* `beside` blocks look at a chunk each, and what they claim is counted when all have: more may be claimed than is
 * wanted. */
static void sweep(const dlrm_cuda_pool &pool, int32_t batch, int beside)
{
    dlrm_cuda_pool_counts &c = *pool.counts;
    const int32_t chunks = cache_chunks(pool.rows), chunk = cache_chunk(pool.rows);
    std::vector<int32_t> claimed;
    while (c.taken < c.wanted && c.next < CACHE_ROUNDS * chunks) {
        for (int k = 0; k < beside && c.next < CACHE_ROUNDS * chunks; k++) {
            const int32_t mine = c.next++;
            c.swept = mine + 1;
            for (int64_t i = 0, row = (c.hand + mine) % chunks * (int64_t)chunk; i < chunk && row < pool.rows;
                 i++, row++) {
                const int32_t slot = cache_cold(pool, row, cache_level(&c, mine / chunks));
                if (slot >= 0 && cache_claim(pool, slot, pool.batch[slot], batch)) claimed.push_back(slot);
            }
        }
        for (int32_t slot : claimed) cache_take(pool, c.taken++, slot, batch);
        claimed.clear();
    }
}

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
    void sweep(int32_t now)
    {
        ::sweep(pool, now, 1);
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

/* Rows of a power law, of which a pool holds a twentieth, at the sizes of a real cache: what is found, in the second
 * half of the batches. Slots given to whoever was listed least often of all would find 0.587. */
static void test_found(int beside, double least)
{
    enum { ROWS = 1000000, SLOTS = ROWS / 20, IDS = 16384, BATCHES = 120 };
    std::vector<int32_t> slot(ROWS, -1), batch(SLOTS), victims(IDS), row_of(ROWS);
    std::vector<int64_t> place(SLOTS, -1), held(IDS), missing;
    std::vector<uint8_t> often(ROWS);
    std::vector<double> up_to(ROWS);
    dlrm_cuda_pool_counts counts = {};
    dlrm_cuda_pool pool = {};
    std::mt19937 random(3);
    std::uniform_real_distribution<double> part(0, 1);
    double sum = 0, listed = 0, found = 0;
    pool.slots = SLOTS;
    pool.rows = ROWS;
    pool.slot = slot.data();
    pool.often = often.data();
    pool.batch = batch.data();
    pool.place = place.data();
    pool.victims = victims.data();
    pool.held = held.data();
    pool.counts = &counts;
    for (int i = 0; i < ROWS; i++) {
        up_to[i] = sum += std::pow(i + 1.0, -1.05);
        row_of[i] = i;
    }
    std::shuffle(row_of.begin(), row_of.end(), random);
    for (int32_t now = 2; now < 2 + BATCHES; now++) {
        std::set<int64_t> rows_of_batch;
        for (int i = 0; i < IDS; i++)
            rows_of_batch.insert(
                row_of[std::upper_bound(up_to.begin(), up_to.end() - 1, part(random) * sum) - up_to.begin()]);
        missing.clear();
        for (int64_t row : rows_of_batch)
            if (!cache_touch(pool, row, now)) missing.push_back(row);
        counts.missing = (int32_t)missing.size();
        cache_aim(pool);
        sweep(pool, now, beside);
        EXPECT(counts.taken >= counts.wanted, "batch %d: no room", now);
        for (int32_t i = 0; i < counts.missing; i++) {
            int64_t before;
            const int32_t mine = cache_slot(pool, i, &before);
            if (before >= 0) slot[before] = -1;
            slot[missing[i]] = mine;
            place[mine] = missing[i];
            batch[mine] = now;
        }
        if (now < BATCHES / 2) continue;
        listed += (double)rows_of_batch.size();
        found += (double)rows_of_batch.size() - counts.missing;
    }
    printf("%d chunks side by side: %.3f of a power law's rows were in the cache, level %d\n", beside, found / listed,
           counts.level);
    EXPECT(found / listed >= least, "only %.3f were found, expected %.3f", found / listed, least);
}

static void test_no_room()
{
    cache none(4, 3, 0, 1);
    none.counts.missing = 3;
    for (int i = 0; i < 3; i++) none.missing[1][i] = i;
    cache_aim(none.pool);
    for (int i = 0; i < 3; i++) cache_give(none.pool, none.tables, i, 4, 2, 0, 1);
    none.counts.missing = 1;
    cache_aim(none.pool);
    none.sweep(3);
    EXPECT(none.counts.wanted == 1 && none.counts.taken == 0, "a row found room among three of the batch before");
}

int main()
{
    run(4, 2 * LISTED, 4, 0, 1, 0);        /* just enough room */
    run(5, 2 * LISTED + 1, 1, 5, 8, 0.35); /* odd rows, one value of state each; half of the rows are frequent */
    run(1, 400, 0, 8, 1, 0.75);
    run(8, 1300, 8, 10, 2, 0.95); /* room for all */
    run(8, 200, 8, 5, 4, 0.4);    /* words of 16 bytes, for fewer lanes than there are */
    run(12, 200, 12, 5, 2, 0.4);  /* and for more */
    run(3, 200, 5, 5, 2, 0.4);    /* words of 4 bytes, for more */
    test_found(1, 0.56);
    test_found(128, 0.56);
    test_no_room();
    printf("%d failures\n", failures);
    return failures != 0;
}
