/* A row of a table under its update rule: what the updates from sorted gradients and from sums over ranks share. */
#pragma once
#include "cuda/cache.cuh"
#include "cuda/embedding.cuh"
#include "cuda/rules.cuh"

/* A row about to be updated. */
template <class T> struct row_ref {
    T *weight;
    float *state0, *state1; /* as the rule has them */
    uint64_t stream;        /* of random bits */
    int64_t element;        /* number of the row's first in the whole table */
};

/* Which row of `weight` has a row's values, while a batch that lists it is worked on. */
__device__ __forceinline__ int64_t where_row_is(const dlrm_cuda_table &t, int64_t row)
{
    return t.slot ? t.slot[row] : row;
}

/* row: of `weight`. */
template <class T, rule_kind KIND>
__device__ __forceinline__ row_ref<T> row_of(const dlrm_cuda_table &t, int64_t row, uint64_t step)
{
    const int64_t element = row * t.dim;
    int64_t number = row; /* of the row in the table, which random bits go by */
    if constexpr (sizeof(T) < sizeof(float))
        if (t.slot) number = place_row(t.place[row]);
    row_ref<T> r = {(T *)t.weight + element, NULL, NULL, dlrm_rng_at_step(t.stream, step), t.first_element + number * t.row_elements};
    if constexpr (rule_rowwise<KIND>()) r.state0 = t.state[0] + row;
    if constexpr (rule_states<KIND>() > 0) r.state0 = t.state[0] + element;
    if constexpr (rule_states<KIND>() > 1) r.state1 = t.state[1] + element;
    return r;
}

/* V elements of a row with their state, between load and store. */
template <int V, rule_kind KIND> struct row_part {
    vec<V> w, s0, s1;
};

template <int V, rule_kind KIND, class T>
__device__ __forceinline__ row_part<V, KIND> load_part(const row_ref<T> &r, int c)
{
    row_part<V, KIND> p;
    p.w = load_vec<V>(r.weight + c);
    if constexpr (rule_states<KIND>() > 0) p.s0 = load_vec<V>(r.state0 + c);
    if constexpr (rule_states<KIND>() > 1) p.s1 = load_vec<V>(r.state1 + c);
    return p;
}

template <int V, rule_kind KIND, class T>
__device__ __forceinline__ void update_part(const dlrm_cuda_step &step, float rate, const row_ref<T> &r, int c,
                                            row_part<V, KIND> p, const vec<V> &g)
{
    rule_apply<KIND>(step.embedding, rate, p.w, g, p.s0, p.s1);
    store_vec_randomly<V>(r.weight + c, p.w, step.seed, r.stream, r.element + c);
    if constexpr (rule_states<KIND>() > 0) store_vec<V>(r.state0 + c, p.s0);
    if constexpr (rule_states<KIND>() > 1) store_vec<V>(r.state1 + c, p.s1);
}

/* Squares of a row: a lane's share of their sum, then the lanes'. */
template <int V> __device__ __forceinline__ void add_squares(double &sum, const vec<V> &g)
{
    double mine = 0;
#pragma unroll
    for (int i = 0; i < V; i++) mine += (double)g.v[i] * g.v[i];
    sum += mine;
}

template <int V> __device__ __forceinline__ void add_squares(dlrm_squares &sum, const vec<V> &g)
{
#pragma unroll
    for (int i = 0; i < V; i++) dlrm_squares_add(&sum, g.v[i]);
}

__device__ __forceinline__ dlrm_squares sum_over_lanes(dlrm_squares x, int lanes, unsigned mask)
{
    for (int d = lanes / 2; d; d /= 2)
        dlrm_squares_join(&x, {__shfl_xor_sync(mask, x.high, d), __shfl_xor_sync(mask, x.low, d), __shfl_xor_sync(mask, x.bin, d)});
    return x;
}

/* Rowwise adagrad: takes a row's sum of squares over `width` columns into its state; returns the row's rate. */
template <class T>
__device__ __forceinline__ float rowwise_rate(const dlrm_cuda_step &step, const row_ref<T> &r, double squares, int64_t width,
                                              unsigned mask, bool writer)
{
    const float a = *r.state0 + (float)(squares / width);
    __syncwarp(mask); /* all have read */
    if (writer) *r.state0 = a;
    return step.embedding.lr / (sqrtf(a) + step.embedding.epsilon);
}
