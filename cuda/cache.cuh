/* The rules of the cache, element by element, for its kernels and for tests that run them on the host. */
#pragma once
#include "cuda/kernels.h"

enum {
    CACHE_HALVE = 256, /* batches after which how often a row was listed is halved */
    CACHE_MOST = 255,
    CACHE_CHUNK = 4096,  /* rows that a block looks at in one go, at most */
    CACHE_ROUNDS = 9,    /* of a sweep over all rows, the last of which takes whatever may go */
    CACHE_SWEEP_PART = 8 /* a sweep is to need a part of all rows that is not larger, nor smaller than a fourth of it */
};

__host__ __device__ static inline int64_t cache_place(int table, int64_t row)
{
    return (int64_t)table << 40 | row;
}
__host__ __device__ static inline int place_table(int64_t place)
{
    return (int)(place >> 40);
}
__host__ __device__ static inline int64_t place_row(int64_t place)
{
    return place & (((int64_t)1 << 40) - 1);
}

/* A row's number among those of all the pool's tables, in the order of their homes. */
__host__ __device__ static inline int64_t cache_number(const dlrm_cuda_pool &p, const dlrm_cuda_table &t, int64_t row)
{
    return t.slot - p.slot + row;
}

/* Rows of a bucket are near to each other in the host's memory, and buckets in order. */
__host__ __device__ static inline int cache_bucket(const dlrm_cuda_pool &p, const dlrm_cuda_table *tables,
                                                   int64_t place)
{
    const int64_t number = cache_number(p, tables[place_table(place)], place_row(place));
    return (int)(number / ((p.rows + DLRM_CUDA_BUCKETS - 1) / DLRM_CUDA_BUCKETS));
}

/* A batch lists the row: true if it is in the pool, and stays there then. */
__host__ __device__ static inline bool cache_touch(const dlrm_cuda_pool &p, int64_t row, int32_t batch)
{
    if (p.often[row] < CACHE_MOST) p.often[row]++;
    if (p.slot[row] < 0) return false;
    p.batch[p.slot[row]] = batch;
    return true;
}

/* --- the sweep: a hand goes round the pool's rows and takes slots of those that were listed least often --- */

/* Rows of a chunk: a power of two, a warp's at least. */
__host__ __device__ static inline int cache_chunk(int64_t rows)
{
    int chunk = 32;
    while (chunk < CACHE_CHUNK && rows / chunk > 8192) chunk *= 2;
    return chunk;
}
__host__ __device__ static inline int32_t cache_chunks(int64_t rows)
{
    return (int32_t)((rows + cache_chunk(rows) - 1) / cache_chunk(rows));
}

/* How often rows that go may have been listed at most, in the n-th round of a sweep. */
__host__ __device__ static inline int cache_level(const dlrm_cuda_pool_counts *c, int32_t round)
{
    const int level = c->level + (1 << round) - 1;
    return level < CACHE_MOST ? level : CACHE_MOST;
}

/* Sets up the sweep for a batch, of which `missing` is known, by what the one before has found. */
__host__ __device__ static inline void cache_aim(const dlrm_cuda_pool &p)
{
    dlrm_cuda_pool_counts *c = p.counts;
    const int32_t chunks = cache_chunks(p.rows);
    /* blocks had chunks under way when there were enough, and claimed more than was wanted */
    const int64_t needed = c->taken > c->wanted ? (int64_t)c->swept * c->wanted / c->taken : c->swept;
    if (needed > chunks)
        c->level = cache_level(c, (int32_t)((needed - 1) / chunks));
    else if (needed * CACHE_SWEEP_PART > chunks)
        c->level = cache_level(c, 1);
    else if (needed > 0 && needed * CACHE_SWEEP_PART * 4 < chunks && c->level > 0)
        c->level--;
    c->hand = (c->hand + c->swept) % chunks;
    c->used += c->fresh;
    c->fresh = c->missing < p.slots - c->used ? c->missing : p.slots - c->used;
    c->wanted = c->missing - c->fresh;
    c->swept = c->next = c->taken = 0;
}

/* The slot of a row that was not listed more often; -1: none. */
__host__ __device__ static inline int32_t cache_cold(const dlrm_cuda_pool &p, int64_t row, int level)
{
    const int32_t slot = p.slot[row];
    return p.often[row] <= level ? slot : -1;
}

/* Makes the slot, which batch `last` listed last, this thread's alone. False: it is another's, or this batch or the one
 * before lists its row. */
__host__ __device__ static inline bool cache_claim(const dlrm_cuda_pool &p, int32_t slot, int32_t last, int32_t batch)
{
    if (last >= batch - 1) return false;
#ifdef __CUDA_ARCH__
    return atomicCAS(&p.batch[slot], last, batch) == last;
#else
    p.batch[slot] = batch;
    return true;
#endif
}

/* The n-th slot that the sweep has claimed goes, or, where there are enough, stays. */
__host__ __device__ static inline void cache_take(const dlrm_cuda_pool &p, int32_t n, int32_t slot, int32_t batch)
{
    if (n < p.counts->wanted) {
        p.victims[n] = slot;
        p.held[n] = p.place[slot];
    } else {
        p.batch[slot] = batch - 2;
    }
}

/* --- rows that move --- */

/* Bytes of the words that a row of so many bytes is moved in. bytes: a multiple of 2. */
__host__ __device__ static inline int cache_unit(int64_t bytes)
{
    return bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 2;
}

/* Copies a row, this lane's share of it. */
__host__ __device__ static inline void cache_copy(void *to, const void *from, int64_t bytes, int lane, int lanes)
{
    const int unit = cache_unit(bytes);
    for (int64_t i = lane; i < bytes / unit; i += lanes) {
        if (unit == 16)
            ((int4 *)to)[i] = ((const int4 *)from)[i];
        else if (unit == 4)
            ((int32_t *)to)[i] = ((const int32_t *)from)[i];
        else
            ((int16_t *)to)[i] = ((const int16_t *)from)[i];
    }
}

/* Lanes that share a row of so many bytes: a power of two, at most a warp. */
__host__ __device__ static inline int cache_lanes(int64_t bytes)
{
    int lanes = 1;
    while (lanes < 32 && lanes < bytes / cache_unit(bytes)) lanes *= 2;
    return lanes;
}

/* Copies a slot's row, with its state, home. */
__host__ __device__ static inline void cache_home(const dlrm_cuda_pool &p, const dlrm_cuda_table *tables, int32_t slot,
                                                  int element, int lane, int lanes)
{
    const dlrm_cuda_table &t = tables[place_table(p.place[slot])];
    const int64_t row = place_row(p.place[slot]), bytes = (int64_t)p.dim * element;
    cache_copy((char *)t.home + row * bytes, (char *)p.weight + slot * bytes, bytes, lane, lanes);
    for (int k = 0; k < 2; k++) {
        const int64_t width = p.state_width[k];
        cache_copy(t.home_state[k] + row * width, p.state[k] + slot * width, width * 4, lane, lanes);
    }
}

/* An array of a pool, at a slot: what is there goes to `out` (NULL: nowhere), and what is at `in` comes there. */
typedef struct cache_part {
    char *here, *out;
    const char *in;
    int64_t bytes;
} cache_part;

/* This lane's share of all parts: read at once where each part has a word for each lane at most, since what comes from
 * the host is long on its way. */
__host__ __device__ static inline void cache_swap(const cache_part (&parts)[3], int lane, int lanes)
{
    int4 old[3], fresh[3];
    bool at_once = true;
    for (int k = 0; k < 3; k++)
        at_once &= cache_unit(parts[k].bytes) >= 4 && parts[k].bytes <= cache_unit(parts[k].bytes) * lanes;
    for (int k = 0; k < 3 && at_once; k++) {
        const int unit = cache_unit(parts[k].bytes);
        if (lane * unit >= parts[k].bytes) continue;
        if (unit == 16) {
            old[k] = ((const int4 *)parts[k].here)[lane];
            fresh[k] = ((const int4 *)parts[k].in)[lane];
        } else {
            old[k].x = ((const int32_t *)parts[k].here)[lane];
            fresh[k].x = ((const int32_t *)parts[k].in)[lane];
        }
    }
    for (int k = 0; k < 3; k++) {
        const cache_part &p = parts[k];
        if (!at_once) {
            if (p.out) cache_copy(p.out, p.here, p.bytes, lane, lanes);
            cache_copy(p.here, p.in, p.bytes, lane, lanes);
        } else if (lane * cache_unit(p.bytes) < p.bytes) {
            if (cache_unit(p.bytes) == 16) {
                if (p.out) ((int4 *)p.out)[lane] = old[k];
                ((int4 *)p.here)[lane] = fresh[k];
            } else {
                if (p.out) ((int32_t *)p.out)[lane] = old[k].x;
                ((int32_t *)p.here)[lane] = fresh[k].x;
            }
        }
    }
}

/* The slot for the i-th row that is missing, and what it holds: -1, nothing. */
__host__ __device__ static inline int32_t cache_slot(const dlrm_cuda_pool &p, int32_t i, int64_t *held)
{
    const dlrm_cuda_pool_counts *c = p.counts;
    *held = i < c->fresh ? -1 : p.held[i - c->fresh];
    return i < c->fresh ? c->used + i : p.victims[i - c->fresh];
}

/* Gives a slot to the i-th row that is missing. `lanes` neighbouring lanes of a warp call; the first does the books. */
__host__ __device__ static inline void cache_give(const dlrm_cuda_pool &p, const dlrm_cuda_table *tables, int32_t i,
                                                  int element, int32_t batch, int lane, int lanes)
{
    int64_t held;
    const int32_t slot = cache_slot(p, i, &held);
    const int64_t place = p.missing[1][i], bytes = (int64_t)p.dim * element;
    const dlrm_cuda_table *to = &tables[place_table(place)], *from = held < 0 ? NULL : &tables[place_table(held)];
    cache_part parts[3] = {{(char *)p.weight + slot * bytes, from ? (char *)from->home + place_row(held) * bytes : NULL,
                            (const char *)to->home + place_row(place) * bytes, bytes}};
    for (int k = 0; k < 2; k++) {
        const int64_t width = p.state_width[k];
        parts[1 + k] = {(char *)(p.state[k] + slot * width),
                        from ? (char *)(from->home_state[k] + place_row(held) * width) : NULL,
                        (const char *)(to->home_state[k] + place_row(place) * width), width * 4};
    }
    cache_swap(parts, lane, lanes);
    if (lane > 0) return;
    if (from) from->slot[place_row(held)] = -1;
    to->slot[place_row(place)] = slot;
    p.place[slot] = place;
    p.batch[slot] = batch;
}
