/* The rules of the cache, element by element, for its kernels and for tests that run them on the host. */
#pragma once
#include "cuda/kernels.h"

enum { CACHE_HALVE = 128 /* batches after which how often a slot was listed is halved */, CACHE_MOST = 255 };

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

/* Rows of a bucket are near to each other in the host's memory, and buckets in order. */
__host__ __device__ static inline int cache_bucket(const dlrm_cuda_shard &s, const dlrm_cuda_table *tables, int64_t place)
{
    const int64_t key = place < 0 ? 0 : tables[place_table(place)].first_key + place_row(place);
    return (int)(s.key_bits > DLRM_CUDA_BUCKET_BITS ? key >> (s.key_bits - DLRM_CUDA_BUCKET_BITS) : key);
}

/* A batch lists the row: true if it is in the pool, and stays there then. */
__host__ __device__ static inline bool cache_touch(const dlrm_cuda_pool &p, int32_t slot, int32_t number)
{
    if (slot < 0) return false;
    p.batch[slot] = number;
    if (p.often[slot] < CACHE_MOST) p.often[slot]++;
    return true;
}

/* May the slot be given to another row? Not if this batch or the one before lists it. */
__host__ __device__ static inline bool cache_may_go(const dlrm_cuda_pool &p, int32_t slot, int32_t number)
{
    return p.batch[slot] < number - 1;
}

/* Chooses `often` and `below`: so that slots listed less often are fewer than are needed, with the others enough. False:
 * the pool is too small. */
__host__ __device__ static inline bool cache_choose(dlrm_cuda_pool_counts *c)
{
    int32_t below = 0;
    for (int often = 0; often <= CACHE_MOST; often++) {
        if (below + c->slots[often] >= c->missing) {
            c->often = often;
            c->below = below;
            return true;
        }
        below += c->slots[often];
    }
    return false;
}

/* Copies a row, this lane's share of it. bytes: a multiple of 2. */
__host__ __device__ static inline void cache_copy(void *to, const void *from, int64_t bytes, int lane, int lanes)
{
    if (bytes % 16 == 0)
        for (int64_t i = lane; i < bytes / 16; i += lanes) ((int4 *)to)[i] = ((const int4 *)from)[i];
    else if (bytes % 4 == 0)
        for (int64_t i = lane; i < bytes / 4; i += lanes) ((int32_t *)to)[i] = ((const int32_t *)from)[i];
    else
        for (int64_t i = lane; i < bytes / 2; i += lanes) ((int16_t *)to)[i] = ((const int16_t *)from)[i];
}

/* Lanes that share a row of so many bytes: a power of two, at most a warp. */
__host__ __device__ static inline int cache_lanes(int64_t bytes)
{
    const int64_t words = bytes / (bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 2);
    int lanes = 1;
    while (lanes < 32 && lanes < words) lanes *= 2;
    return lanes;
}

/* A slot's row, with its state, to (or from) its place in the table's home. */
__host__ __device__ static inline void cache_move(const dlrm_cuda_pool &p, const dlrm_cuda_table &t, int32_t slot, int64_t row, int element,
                                                  bool home, int lane, int lanes)
{
    const int64_t bytes = (int64_t)p.dim * element;
    char *here = (char *)p.weight + slot * bytes, *there = (char *)t.home + row * bytes;
    cache_copy(home ? there : here, home ? here : there, bytes, lane, lanes);
    for (int k = 0; k < 2; k++) {
        float *state = p.state[k] + (int64_t)slot * p.state_width[k], *state_home = t.home_state[k] + row * p.state_width[k];
        cache_copy(home ? state_home : state, home ? state : state_home, p.state_width[k] * 4, lane, lanes);
    }
}

/* Gives slot `slot` to the row at `place`. `lanes` neighbouring lanes of a warp call; the first does the books. */
__host__ __device__ static inline void cache_give(const dlrm_cuda_pool &p, const dlrm_cuda_table *tables, int32_t slot, int64_t place,
                                                  int element, int32_t number, int lane, int lanes)
{
    const int64_t before = p.place[slot];
    if (before >= 0) cache_move(p, tables[place_table(before)], slot, place_row(before), element, true, lane, lanes);
    cache_move(p, tables[place_table(place)], slot, place_row(place), element, false, lane, lanes);
#ifdef __CUDA_ARCH__
    const unsigned all = lanes == 32 ? ~0u : ((1u << lanes) - 1) << threadIdx.x % 32 / lanes * lanes;
    __syncwarp(all); /* all have read `before` */
#endif
    if (lane > 0) return;
    if (before >= 0) tables[place_table(before)].slot[place_row(before)] = -1;
    tables[place_table(place)].slot[place_row(place)] = slot;
    p.place[slot] = place;
    p.batch[slot] = number;
    p.often[slot] = 1;
}
