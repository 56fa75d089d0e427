/* Linear layers of the CUDA backend: cuBLASLt products, forward with bias and ReLU as epilogue. Backward, one small kernel
 * after a product applies ReLU's mask and sums the columns, which is the bias gradient of the layer below: the library's
 * own epilogues for that cost up to three times as much (docs/benchmarks.md). The algorithm of a product is a function of its
 * shape alone. Pinned: one call per leaf of the batch's cut, the same on any number of ranks, without split-K. A layer of width
 * 1 has kernels of its own. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda_internal.h"
#include "linear_kernels.h"

enum { PLANS = 512, PART_MULTIPLE = 8, CHOICES = 8 };
static const size_t WORKSPACE = (size_t)64 << 20;

typedef enum product {
    FORWARD,      /* Y = X W^T */
    FORWARD_BIAS, /* + bias */
    FORWARD_RELU, /* and ReLU */
    INPUT,        /* dX = dZ W, or += */
    WEIGHT        /* dW = dZ^T X */
} product;

/* All matrices are row-major here and column-major there, so that [rows, cols] is its own transpose: the library computes
 * D [m x n] = op(A) op(B) with k. */
typedef struct plan {
    product what;
    int64_t m, n, k;
    bool fused; /* the epilogue is in the product */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} plan;

struct cuda_matmuls {
    cublasLtHandle_t lt;
    void *workspace;
    plan plans[PLANS];
    int n_plans;
    float *work; /* partial sums of the small kernels */
    int64_t work_size;
    const void *summed; /* whose column sums `sums` holds: of what the last call made; NULL: of nothing */
    float *sums;        /* [largest pitch] */
    int max_leaves;
    float *parts; /* pinned: weight gradients by leaf */
    int64_t parts_size;
};

static void must(const cuda_impl *c, cublasStatus_t code, const char *what)
{
    if (code != CUBLAS_STATUS_SUCCESS) cuda_die(c, what, cublasLtGetStatusString(code));
}

static cudaDataType_t type_of(dlrm_dtype t)
{
    return t == DLRM_BF16 ? CUDA_R_16BF : t == DLRM_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

dlrm_status cuda_matmuls_open(dlrm_backend *be, const dlrm_backend_args *args)
{
    cuda_impl *c = cuda_of(be);
    const int64_t width = dlrm_pitch(be, args->max_width), columns = dlrm_cuda_column_work(args->max_batch, width);
    const int64_t logit = dlrm_cuda_logit_work(args->max_batch, width);
    TRY(dlrm_alloc(1, sizeof *c->matmuls, "matrix products", &c->matmuls));
    cuda_matmuls *m = c->matmuls;
    cublasStatus_t code = cublasLtCreate(&m->lt);
    if (code != CUBLAS_STATUS_SUCCESS) return FAIL(DLRM_E_RUNTIME, "GPU %d: cuBLASLt: %s", c->device, cublasLtGetStatusString(code));
    TRY(cuda_alloc(be, 1, WORKSPACE, "matrix products", &m->workspace));
    m->work_size = columns > logit ? columns : logit;
    m->max_leaves = args->max_leaves;
    TRY(cuda_alloc(be, width, sizeof(float), "sums over samples", &m->sums));
    return cuda_alloc(be, m->work_size, sizeof(float), "sums over samples", &m->work);
}

dlrm_status cuda_matmuls_weights(dlrm_backend *be, int64_t n)
{
    cuda_matmuls *m = cuda_of(be)->matmuls;
    if (!cuda_of(be)->pinned) return DLRM_OK;
    m->parts_size = m->max_leaves * (n + PART_MULTIPLE); /* no layer has more than all weights */
    return cuda_alloc(be, m->parts_size, sizeof(float), "weight gradients by chunk", &m->parts);
}

void cuda_matmuls_close(dlrm_backend *be)
{
    cuda_matmuls *m = cuda_of(be)->matmuls;
    if (!m) return;
    for (int i = 0; i < m->n_plans; i++) {
        cublasLtMatmulDescDestroy(m->plans[i].op);
        cublasLtMatrixLayoutDestroy(m->plans[i].a);
        cublasLtMatrixLayoutDestroy(m->plans[i].b);
        cublasLtMatrixLayoutDestroy(m->plans[i].d);
    }
    cuda_release(be, &m->workspace);
    cuda_release(be, &m->work);
    cuda_release(be, &m->sums);
    cuda_release(be, &m->parts);
    if (m->lt) cublasLtDestroy(m->lt);
    dlrm_free(&cuda_of(be)->matmuls);
}

void cuda_forget_sums(const cuda_impl *c)
{
    if (c->matmuls) c->matmuls->summed = NULL;
}

/* --- plans --- */

static cublasLtMatrixLayout_t layout(const cuda_impl *c, cudaDataType_t type, int64_t rows, int64_t cols)
{
    cublasLtMatrixLayout_t l;
    must(c, cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)cols, rows), "a matrix layout");
    return l;
}

static void set(const cuda_impl *c, cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    must(c, cublasLtMatmulDescSetAttribute(op, attribute, value, bytes), "a product's setting");
}

static void set_epilogue(const cuda_impl *c, const plan *p)
{
    const cublasLtEpilogue_t e = !p->fused ? CUBLASLT_EPILOGUE_DEFAULT : p->what == FORWARD_BIAS ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
    set(c, p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
}

static void set_bias(const cuda_impl *c, const plan *p, const void *bias)
{
    if (p->fused) set(c, p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

/* For 16-bit operands the library would have tiles of 128 x 256. With as few products for each result as in a layer, tiles of
 * 128 x 128 are up to 1.3 times as fast (docs/benchmarks.md). */
static bool preferred(const cuda_impl *c, const plan *p, const cublasLtMatmulHeuristicResult_t *choice)
{
    uint32_t tile = 0;
    int32_t split = 0;
    if (c->operand_bytes != 2 || p->what == WEIGHT || choice->state != CUBLAS_STATUS_SUCCESS) return false;
    cublasLtMatmulAlgoConfigGetAttribute(&choice->algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, NULL);
    cublasLtMatmulAlgoConfigGetAttribute(&choice->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, NULL);
    return tile == CUBLASLT_MATMUL_TILE_128x128 && split <= 1;
}

/* The library's first choice, or a preferred one of the first few; false: it has none. The pointer that an epilogue wants is
 * there in name only. */
static bool choose(const cuda_impl *c, plan *p)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CHOICES];
    int n = 0, best = 0;
    const uint32_t alignment = p->m == 1 || p->k == 1 ? c->operand_bytes : 16, no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    set_epilogue(c, p);
    set_bias(c, p, c->matmuls->workspace);
    must(c, cublasLtMatmulPreferenceCreate(&preference), "a preference");
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment);
    if (c->pinned)
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split, sizeof no_split);
    cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(c->matmuls->lt, p->op, p->a, p->b, p->d, p->d, preference, CHOICES, found, &n);
    cublasLtMatmulPreferenceDestroy(preference);
    if (code != CUBLAS_STATUS_SUCCESS || n == 0) return false;
    for (int i = n - 1; i >= 0; i--)
        if (preferred(c, p, &found[i])) best = i;
    if (found[best].state != CUBLAS_STATUS_SUCCESS) return false;
    p->algo = found[best].algo;
    return true;
}

static plan *plan_of(dlrm_backend *be, product what, int64_t m, int64_t n, int64_t k)
{
    cuda_impl *c = cuda_of(be);
    cuda_matmuls *all = c->matmuls;
    for (int i = 0; i < all->n_plans; i++) {
        plan *p = &all->plans[i];
        if (p->what == what && p->m == m && p->n == n && p->k == k) return p;
    }
    if (all->n_plans == PLANS) cuda_die(c, "a matrix product", "more shapes than there is room for");
    plan *p = &all->plans[all->n_plans];
    const cudaDataType_t in = type_of(be->act), out = what == WEIGHT ? CUDA_R_32F : in;
    const cublasComputeType_t compute = c->precision == DLRM_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transpose = CUBLAS_OP_T;
    const bool forward = what <= FORWARD_RELU;
    *p = (plan){.what = what, .m = m, .n = n, .k = k, .fused = what == FORWARD_BIAS || what == FORWARD_RELU};
    must(c, cublasLtMatmulDescCreate(&p->op, compute, CUDA_R_32F), "a product");
    if (forward) set(c, p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
    if (what == WEIGHT) set(c, p->op, CUBLASLT_MATMUL_DESC_TRANSB, &transpose, sizeof transpose);
    p->a = forward ? layout(c, in, k, m) : layout(c, in, m, k);
    p->b = what == WEIGHT ? layout(c, in, n, k) : layout(c, in, k, n);
    p->d = layout(c, out, m, n);
    if (!choose(c, p)) {
        const bool more = p->fused;
        p->fused = false;
        if (!more || !choose(c, p)) {
            char text[200];
            snprintf(text, sizeof text, "cuBLASLt has no kernel for %lld x %lld x %lld", (long long)m, (long long)n, (long long)k);
            cuda_die(c, "a matrix product", text);
        }
    }
    all->n_plans++;
    return p;
}

/* d = a b, or += where `add`. */
static void multiply(dlrm_backend *be, const plan *p, const void *a, const void *b, void *d, bool add, const void *bias)
{
    cuda_impl *c = cuda_of(be);
    const float one = 1, beta = add ? 1 : 0;
    char what[120];
    set_bias(c, p, bias);
    cublasStatus_t code = cublasLtMatmul(c->matmuls->lt, p->op, &one, a, p->a, b, p->b, &beta, d, p->d, d, p->d, &p->algo,
                                         c->matmuls->workspace, WORKSPACE, c->compute.stream);
    if (code == CUBLAS_STATUS_SUCCESS) return;
    snprintf(what, sizeof what, "a matrix product (kind %d%s, %lld x %lld x %lld)", p->what, p->fused ? ", fused" : "", (long long)p->m,
             (long long)p->n, (long long)p->k);
    must(c, code, what);
}

/* --- layers --- */

/* A weight as products read it. */
static const void *operand(dlrm_backend *be, const float *w)
{
    const cuda_impl *c = cuda_of(be);
    return c->weights_copy ? (const char *)c->weights_copy + (w - c->weights) * (int64_t)be->act_bytes : (const void *)w;
}

static const void *samples(const dlrm_backend *be, const void *p, int64_t at, int64_t pitch)
{
    return (const char *)p + at * pitch * (int64_t)be->act_bytes;
}

/* The pieces that a pass works on: the leaves if pinned, else all samples. */
static int pieces(const cuda_impl *c, const dlrm_cut *cut)
{
    return c->pinned ? cut->n_leaves : 1;
}

static int64_t piece(const cuda_impl *c, const dlrm_cut *cut, int64_t b, int i, int64_t *at)
{
    *at = c->pinned ? cut->at[i] : 0;
    return c->pinned ? cut->at[i + 1] - cut->at[i] : b;
}

void cuda_linear_forward(dlrm_backend *be, const dlrm_linear_forward_args *a)
{
    cuda_impl *c = cuda_of(be);
    const int64_t in = dlrm_pitch(be, a->in), out = dlrm_pitch(be, a->out);
    DLRM_ASSERT(a->bias || !a->relu);
    if (a->out == 1) { /* a sample's sum does not depend on how many there are */
        cuda_must(c, dlrm_cuda_logit_forward(a->b, in, a->x, be->act, a->w, a->bias, a->relu, a->y, c->compute.stream), "the logits");
        return;
    }
    for (int i = 0; i < pieces(c, a->cut); i++) {
        int64_t at, n = piece(c, a->cut, a->b, i, &at);
        if (n == 0) continue;
        void *y = (char *)a->y + at * out * (int64_t)be->act_bytes;
        const plan *p = plan_of(be, a->relu ? FORWARD_RELU : a->bias ? FORWARD_BIAS : FORWARD, out, n, in);
        multiply(be, p, operand(be, a->w), samples(be, a->x, at, in), y, false, a->bias ? operand(be, a->bias) : NULL);
        if (a->bias && !p->fused)
            cuda_must(c, dlrm_cuda_bias_relu(n, out, y, be->act, a->bias, a->relu, c->compute.stream), "bias and ReLU");
    }
}

static void input_gradient(dlrm_backend *be, const dlrm_linear_backward_args *a)
{
    cuda_impl *c = cuda_of(be);
    cuda_matmuls *m = c->matmuls;
    const int64_t in = dlrm_pitch(be, a->in), out = dlrm_pitch(be, a->out);
    DLRM_ASSERT(!(a->x_is_relu && a->add_dx));
    for (int i = 0; i < pieces(c, a->cut); i++) {
        int64_t at, n = piece(c, a->cut, a->b, i, &at);
        if (n == 0) continue;
        void *dx = (char *)a->dx + at * in * (int64_t)be->act_bytes;
        multiply(be, plan_of(be, INPUT, in, n, out), operand(be, a->w), samples(be, a->dz, at, out), dx, a->add_dx, NULL);
    }
    if (!a->x_is_relu) return;
    DLRM_ASSERT(dlrm_cuda_column_work(a->b, in) <= m->work_size);
    cuda_must(c, dlrm_cuda_relu_mask(a->b, in, a->dx, a->x, be->act, m->sums, m->work, c->compute.stream), "ReLU's mask");
    m->summed = c->pinned ? NULL : a->dx;
}

static void copy(const cuda_impl *c, float *to, const float *from, int64_t n, const char *what)
{
    cuda_must(c, cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDeviceToDevice, c->compute.stream), what);
}

/* dw, dbias (NULL: not wanted) of samples [at, at+n), which are already summed up or not; with a layer of width 1, dx of
 * these, too. */
static void weight_gradient(dlrm_backend *be, const dlrm_linear_backward_args *a, int64_t at, int64_t n, float *dw, float *dbias, bool summed)
{
    cuda_impl *c = cuda_of(be);
    cuda_matmuls *m = c->matmuls;
    const int64_t in = dlrm_pitch(be, a->in), out = dlrm_pitch(be, a->out);
    if (a->out == 1) {
        void *dx = a->dx ? (char *)a->dx + at * in * (int64_t)be->act_bytes : NULL;
        DLRM_ASSERT(dlrm_cuda_logit_work(n, in) <= m->work_size);
        cuda_must(c, dlrm_cuda_logit_backward(n, in, samples(be, a->x, at, in), be->act, a->w, (const float *)a->dz + at, dx, a->x_is_relu,
                                              a->add_dx, dw, dbias, m->work, c->compute.stream), "the logits' gradients");
        return;
    }
    if (n == 0) {
        if (dw) cuda_must(c, cudaMemsetAsync(dw, 0, (size_t)(in * out) * sizeof *dw, c->compute.stream), "a gradient of no samples");
        if (dbias)
            cuda_must(c, cudaMemsetAsync(dbias, 0, (size_t)out * sizeof *dbias, c->compute.stream), "a gradient of no samples");
        return;
    }
    const void *dz = samples(be, a->dz, at, out);
    if (dw) multiply(be, plan_of(be, WEIGHT, in, out, n), samples(be, a->x, at, in), dz, dw, false, NULL);
    if (!dbias) return;
    if (summed) {
        copy(c, dbias, m->sums, out, "a bias gradient");
        return;
    }
    DLRM_ASSERT(dlrm_cuda_column_work(n, out) <= m->work_size);
    cuda_must(c, dlrm_cuda_column_sums(n, out, dz, be->act, dbias, m->work, c->compute.stream), "a bias gradient");
}

/* One node of the cut: its leaves apart, then their sum. */
static void node_gradient(dlrm_backend *be, const dlrm_linear_backward_args *a, const dlrm_node *node, float *dw, float *dbias)
{
    cuda_impl *c = cuda_of(be);
    cuda_matmuls *m = c->matmuls;
    const int64_t in = dlrm_pitch(be, a->in), out = dlrm_pitch(be, a->out), weights = dw ? in * out : 0, sums = dbias ? out : 0;
    const int64_t stride = (weights + sums + PART_MULTIPLE - 1) / PART_MULTIPLE * PART_MULTIPLE;
    const int leaves = 1 << node->level;
    DLRM_ASSERT(leaves * stride <= m->parts_size);
    for (int i = 0; i < leaves; i++) {
        int64_t at = a->cut->at[node->leaf + i], n = a->cut->at[node->leaf + i + 1] - at;
        float *part = m->parts + i * stride;
        weight_gradient(be, a, at, n, dw ? part : NULL, dbias ? part + weights : NULL, false);
    }
    cuda_must(c, dlrm_cuda_tree_sum(m->parts, stride, weights + sums, leaves, NULL, c->compute.stream), "a sum of chunks");
    if (dw) copy(c, dw, m->parts, weights, "a sum of chunks");
    if (dbias) copy(c, dbias, m->parts + weights, sums, "a sum of chunks");
}

void cuda_linear_backward(dlrm_backend *be, const dlrm_linear_backward_args *a)
{
    const cuda_impl *c = cuda_of(be);
    cuda_matmuls *m = c->matmuls;
    DLRM_ASSERT(c->pinned || (a->cut->n_leaves == 1 && a->cut->n_nodes == 1));
    const bool summed = a->dz == m->summed;
    m->summed = NULL;
    for (int i = 0; i < a->cut->n_nodes; i++) {
        float *dw = a->dw ? a->dw + i * a->node_stride : NULL, *dbias = a->dbias ? a->dbias + i * a->node_stride : NULL;
        if (c->pinned)
            node_gradient(be, a, &a->cut->node[i], dw, dbias);
        else
            weight_gradient(be, a, 0, a->b, dw, dbias, summed);
    }
    if (a->dx && a->out > 1) input_gradient(be, a);
}

/* --- cross layers --- */

void cuda_cross_forward(dlrm_backend *be, const dlrm_cross_forward_args *a)
{
    cuda_impl *c = cuda_of(be);
    cuda_must(c, dlrm_cuda_cross_forward(a->b, dlrm_pitch(be, a->width), a->x0, a->x, a->z, a->y, be->act, c->compute.stream), "a cross layer");
}

void cuda_cross_backward(dlrm_backend *be, const dlrm_cross_backward_args *a)
{
    cuda_impl *c = cuda_of(be);
    cuda_matmuls *m = c->matmuls;
    const int64_t width = dlrm_pitch(be, a->width);
    DLRM_ASSERT(dlrm_cuda_column_work(a->b, width) <= m->work_size);
    cuda_must(c, dlrm_cuda_cross_backward(a->b, width, a->x0, a->dy, a->z, a->dx0, a->add_dx0, a->x_is_x0, be->act, m->sums, m->work,
                                          c->compute.stream), "a cross layer's gradient");
    m->summed = c->pinned ? NULL : a->z;
}
