/* What lookup, sort and update share. */
#pragma once
#include "cuda/reduce.cuh"

/* A row's gradients are added in pieces of PIECE, pieces in groups, groups into the total: each level in order, counted
 * from the run's first pair, so that the sorted list alone fixes the sum, wherever in the list the run lies. */
enum { PIECE = 32, PIECES_PER_GROUP = 32, GROUP = PIECE * PIECES_PER_GROUP };

/* Flags of a sorted pair. */
enum {
    PAIR_STARTS = 1, /* a piece */
    PAIR_ENDS = 2,   /* a piece */
    PAIR_FIRST = 4,  /* in the run's first piece */
    PAIR_WHOLE = 8,  /* in a piece that is a whole run */
    PAIR_PAD = 16,   /* no pair */
};
#define PAD_BAG UINT32_MAX

__host__ __device__ static inline int64_t partial_stride(const dlrm_cuda_shard &s)
{
    return (s.max_dim + 3) / 4 * 4;
}

/* Where the sum of the piece (or group) that starts at pair `at` is kept. At most one piece that is its run's first and
 * one that is not start among PIECE pairs, of those that need a place. */
__device__ static inline int64_t partial_slot(int64_t at, bool first)
{
    return at / PIECE * 2 + first;
}

/* Lanes that share a row of dim elements, V each: a power of two, at most a warp. */
__host__ __device__ static inline int lanes_for(int dim, int V)
{
    int lanes = 1;
    while (lanes < 32 && lanes * V < dim) lanes *= 2;
    return lanes;
}

/* Ids of the bag that a mean is over. */
__device__ static inline int64_t whole_length(const int64_t *whole, int64_t sample, int64_t length)
{
    return whole ? whole[sample + 1] - whole[sample] : length;
}

__device__ static inline int64_t bag_begin(const dlrm_cuda_input &in, const dlrm_cuda_bags &bags, int64_t bag)
{
    return bags.offsets ? bags.offsets[bag] : bag * in.hotness;
}

/* The first of all ids of a sample. */
__device__ static inline int64_t sample_begin(const dlrm_cuda_input &in, const dlrm_cuda_bags &bags, int64_t sample)
{
    return bag_begin(in, bags, sample * in.vectors);
}
