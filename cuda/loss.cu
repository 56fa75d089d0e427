/* Binary cross entropy and its gradient. The losses of a leaf are added by pieces of PIECE_SAMPLES counted from the
 * leaf's start, pieces in order, leaves in the tree, all in double: the sum depends on the leaf's samples alone. */
#include "cuda/reduce.cuh"

enum { LOSS_THREADS = 256, PIECE_SAMPLES = 1024, JOIN_THREADS = 256 };

/* Pieces of the largest leaf. */
static int64_t most_pieces(const dlrm_cut *cut)
{
    int64_t most = 1;
    for (int k = 0; k < cut->n_leaves; k++)
        if (cut->at[k + 1] - cut->at[k] > most) most = cut->at[k + 1] - cut->at[k];
    return ceil_div(most, PIECE_SAMPLES);
}

int64_t dlrm_cuda_loss_work(const dlrm_cut *cut)
{
    return cut->n_leaves * (most_pieces(cut) + 1);
}

/* Block k: piece k mod n_pieces of leaf k / n_pieces. */
__global__ void __launch_bounds__(LOSS_THREADS)
    loss_kernel(const float *logits, const float *labels, float *d_logits, double scale, const dlrm_cuda_step *step,
                const dlrm_cut *cut, int n_pieces, double *pieces)
{
    const int leaf = blockIdx.x / n_pieces;
    const int64_t begin = cut->at[leaf] + (int64_t)(blockIdx.x % n_pieces) * PIECE_SAMPLES;
    const int64_t end = begin + PIECE_SAMPLES < cut->at[leaf + 1] ? begin + PIECE_SAMPLES : cut->at[leaf + 1];
    const double by = step ? scale * step->loss_scale : scale;
    double sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += LOSS_THREADS) {
        const double z = logits[i], y = labels[i], e = exp(-fabs(z)); /* e in (0, 1]: nothing overflows */
        sum += (z > 0 ? z : 0) - z * y + log1p(e);
        if (d_logits) d_logits[i] = (float)(((z >= 0 ? 1 : e) / (1 + e) - y) * by);
    }
    sum = sum_over_block<LOSS_THREADS>(sum);
    if (threadIdx.x == 0) pieces[blockIdx.x] = sum;
}

/* One block. */
__global__ void __launch_bounds__(JOIN_THREADS)
    loss_join_kernel(const dlrm_cut *cut, int n_pieces, const double *pieces, double *leaves, double *loss)
{
    for (int k = threadIdx.x; k < cut->n_leaves; k += JOIN_THREADS) {
        double sum = 0;
        for (int i = 0; i < n_pieces; i++) sum += pieces[(int64_t)k * n_pieces + i];
        leaves[k] = sum;
    }
    for (int i = 0; i < cut->n_nodes; i++) {
        const int first = cut->node[i].leaf, count = 1 << cut->node[i].level;
        for (int half = 1; half < count; half *= 2) {
            __syncthreads();
            for (int k = threadIdx.x * 2 * half; k < count; k += JOIN_THREADS * 2 * half)
                leaves[first + k] += leaves[first + k + half];
        }
        __syncthreads();
        if (threadIdx.x == 0) loss[i] = leaves[first];
    }
}

cudaError_t dlrm_cuda_loss(const float *logits, const float *labels, float *d_logits, float scale,
                           const dlrm_cuda_step *step, const dlrm_cut *cut, const dlrm_cut *host_cut, double *work,
                           double *loss, cudaStream_t stream)
{
    if (host_cut->n_leaves == 0) return cudaSuccess;
    const int n_pieces = (int)most_pieces(host_cut);
    double *leaves = work + (int64_t)host_cut->n_leaves * n_pieces;
    loss_kernel<<<(unsigned)(host_cut->n_leaves * n_pieces), LOSS_THREADS, 0, stream>>>(logits, labels, d_logits, scale,
                                                                                        step, cut, n_pieces, work);
    TRY_CUDA(cudaGetLastError());
    loss_join_kernel<<<1, JOIN_THREADS, 0, stream>>>(cut, n_pieces, work, leaves, loss);
    return cudaGetLastError();
}
