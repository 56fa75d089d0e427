/* The update of replicated tables, whose gradients have been summed over ranks: one warp a row, blocks (x, y) stride over
 * the rows of table y. Reads the sums, reads and writes rows and state. */
#include "cuda/rows.cuh"

enum { ROWS_THREADS = 256, ROWS_BLOCKS = 1024 };

template <int V, rule_kind KIND, class T>
__device__ __forceinline__ void update_row(const dlrm_cuda_table &t, int64_t number, const float *g,
                                           const dlrm_cuda_step &step, int lane)
{
    const row_ref<T> row = row_of<T, KIND>(t, number, step.step);
    float rate = step.embedding.lr;
    if constexpr (KIND == RULE_ROWWISE) {
        double squares = 0;
        for (int c = lane * V; c < t.dim; c += 32 * V) add_squares(squares, load_vec<V>(g + c));
        rate = rowwise_rate(step, row, sum_over_lanes(squares, 32, ~0u), t.dim, ~0u, lane == 0);
    }
    for (int c = lane * V; c < t.dim; c += 32 * V)
        update_part<V, KIND>(step, rate, row, c, load_part<V, KIND>(row, c), load_vec<V>(g + c));
}

template <class T, rule_kind KIND>
__global__ void __launch_bounds__(ROWS_THREADS)
    rows_kernel(const dlrm_cuda_shard s, const float *sums, bool marked, const dlrm_cuda_step *step)
{
    if (step->skip) return;
    const dlrm_cuda_table t = s.tables[blockIdx.y];
    const int lane = threadIdx.x % 32, warps = ROWS_THREADS / 32;
    const bool aligned = t.dim % 4 == 0 && t.first_sum[marked] % 4 == 0;
    for (int64_t row = blockIdx.x * (int64_t)warps + threadIdx.x / 32; row < t.rows; row += (int64_t)gridDim.x * warps) {
        const float *g = sums + t.first_sum[marked] + row * t.sums_pitch[marked];
        if (marked && g[t.dim] == 0) continue;
        if (aligned)
            update_row<4, KIND, T>(t, row, g, *step, lane);
        else
            update_row<1, KIND, T>(t, row, g, *step, lane);
    }
}

cudaError_t dlrm_cuda_rows_update(const dlrm_cuda_shard *s, const float *sums, bool marked, int64_t most_rows,
                                  dlrm_optimizer_name name, bool momentum, const dlrm_cuda_step *step,
                                  cudaStream_t stream)
{
    if (s->n_tables == 0 || most_rows == 0) return cudaSuccess;
    const dim3 grid(blocks_for(most_rows, ROWS_THREADS / 32, ROWS_BLOCKS), (unsigned)s->n_tables);
    WITH_RULE(rule_of(name, momentum), KIND,
              WITH_TYPE(s->dtype, T, (rows_kernel<T, KIND><<<grid, ROWS_THREADS, 0, stream>>>(*s, sums, marked, step))));
    return cudaGetLastError();
}
