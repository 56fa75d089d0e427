/* Linear layers. Forward and input gradient: the batch is cut in pieces, one product per piece and tile of outputs, with
 * bias, ReLU or ReLU's mask applied while the tile is in cache. Weight gradient: tiles of rows, one product per leaf of
 * the cut, partial sums joined in the cut's tree. With `pinned` the pieces are the leaves and the tiles are fixed, so
 * each library call is the same on any number of ranks and threads. */
#include "backend/cpu/cpu.h"

#include <omp.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "base/int64.h"

enum { PINNED_TILE = 256, LEAST_PIECE = 32 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* How a [b, n] result is cut into tasks. */
typedef struct grid {
    int64_t pieces, tiles, tile; /* tile: columns of one */
} grid;

static grid make_grid(const cpu_impl *c, const dlrm_cut *cut, int64_t b, int64_t n)
{
    if (c->pinned) return (grid){cut->n_leaves, ceil_div(n, PINNED_TILE), PINNED_TILE};
    grid g = {.pieces = dlrm_min64(c->threads, ceil_div(b, LEAST_PIECE))};
    int64_t tiles = g.pieces ? ceil_div(c->threads, g.pieces) : 1;
    g.tile = ceil_div(ceil_div(n, tiles), 16) * 16;
    g.tiles = ceil_div(n, g.tile);
    return g;
}

static void piece_rows(const cpu_impl *c, const dlrm_cut *cut, const grid *g, int64_t b, int64_t p, int64_t *at, int64_t *rows)
{
    *at = c->pinned ? cut->at[p] : p * b / g->pieces;
    *rows = (c->pinned ? cut->at[p + 1] : (p + 1) * b / g->pieces) - *at;
}

DLRM_HOT static void add_bias(float *y, const float *bias, int64_t rows, int64_t n, int64_t ld, bool relu)
{
    for (int64_t i = 0; i < rows; i++, y += ld) {
        if (relu)
            for (int64_t j = 0; j < n; j++) {
                float v = y[j] + bias[j];
                y[j] = v < 0 ? 0 : v; /* a NaN stays */
            }
        else
            for (int64_t j = 0; j < n; j++) y[j] += bias[j];
    }
}

DLRM_HOT static void mask(float *dx, const float *x, int64_t rows, int64_t n, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++, dx += ld, x += ld)
        for (int64_t j = 0; j < n; j++) dx[j] = x[j] > 0 ? dx[j] : 0;
}

DLRM_HOT static void add_to(float *into, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) into[i] += from[i];
}

DLRM_HOT static void column_sums(float *sum, const float *z, int64_t rows, int64_t n, int64_t ld)
{
    for (int64_t j = 0; j < n; j++) sum[j] = 0;
    for (int64_t i = 0; i < rows; i++, z += ld)
        for (int64_t j = 0; j < n; j++) sum[j] += z[j];
}

void cpu_linear_forward(dlrm_backend *be, const dlrm_linear_forward_args *a)
{
    const cpu_impl *c = cpu_of(be);
    grid g = make_grid(c, a->cut, a->b, a->out);
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(c->threads)
    for (int64_t p = 0; p < g.pieces; p++)
        for (int64_t t = 0; t < g.tiles; t++) {
            int64_t at, rows, col = t * g.tile, n = dlrm_min64(g.tile, a->out - col);
            piece_rows(c, a->cut, &g, a->b, p, &at, &rows);
            const float *x = a->x;
            float *y = (float *)a->y + at * a->out + col;
            dlrm_gemm(false, true, rows, n, a->in, x + at * a->in, a->in, a->w + col * a->in, a->in, 0, y, a->out);
            if (a->bias) add_bias(y, a->bias + col, rows, n, a->out, a->relu);
        }
}

static void input_gradient(dlrm_backend *be, const dlrm_linear_backward_args *a)
{
    const cpu_impl *c = cpu_of(be);
    grid g = make_grid(c, a->cut, a->b, a->in);
    DLRM_ASSERT(!(a->x_is_relu && a->add_dx));
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(c->threads)
    for (int64_t p = 0; p < g.pieces; p++)
        for (int64_t t = 0; t < g.tiles; t++) {
            int64_t at, rows, col = t * g.tile, n = dlrm_min64(g.tile, a->in - col);
            piece_rows(c, a->cut, &g, a->b, p, &at, &rows);
            const float *dz = a->dz, *x = a->x;
            float *dx = (float *)a->dx + at * a->in + col;
            dlrm_gemm(false, false, rows, n, a->out, dz + at * a->out, a->out, a->w + col, a->in, a->add_dx ? 1 : 0, dx, a->in);
            if (a->x_is_relu) mask(dx, x + at * a->in + col, rows, n, a->in);
        }
}

/* Rows [row, row+n) of one node's dw and dbias, each NULL where it is not wanted. Leaves are added as a binary counter counts: partial sum number d of
 * `scratch` holds the open sub-tree at depth d, and number 0 is the result itself. */
static void weight_tile(const dlrm_linear_backward_args *a, const dlrm_node *node, int64_t row, int64_t n, float *dw,
                        float *dbias, float *scratch)
{
    int64_t size = n * a->in;
    float *bias_scratch = scratch + (int64_t)node->level * size;
    int depth = 0;
    for (int leaf = 0; leaf < 1 << node->level; leaf++, depth++) {
        int64_t at = a->cut->at[node->leaf + leaf], rows = a->cut->at[node->leaf + leaf + 1] - at;
        const float *dz = (const float *)a->dz + at * a->out + row, *x = a->x;
        float *w = depth ? scratch + (depth - 1) * size : dw, *b = depth ? bias_scratch + (depth - 1) * n : dbias;
        if (dw) dlrm_gemm(true, false, n, a->in, rows, dz, a->out, x + at * a->in, a->in, 0, w, a->in);
        if (dbias) column_sums(b, dz, rows, n, a->out);
        for (int bits = leaf; bits & 1; bits >>= 1, depth--) {
            if (dw) add_to(depth > 1 ? scratch + (depth - 2) * size : dw, scratch + (depth - 1) * size, size);
            if (dbias) add_to(depth > 1 ? bias_scratch + (depth - 2) * n : dbias, bias_scratch + (depth - 1) * n, n);
        }
    }
}

static void weight_gradient(dlrm_backend *be, const dlrm_linear_backward_args *a)
{
    const cpu_impl *c = cpu_of(be);
    int64_t tile = CPU_WEIGHT_TILE;
    if (!c->pinned) { /* one leaf, no partial sums: as large as the threads allow */
        tile = ceil_div(ceil_div(a->out, c->threads), 16) * 16;
        DLRM_ASSERT(a->cut->n_leaves == 1);
    }
    DLRM_ASSERT(a->in <= c->max_width);
    int64_t tiles = ceil_div(a->out, tile);
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(c->threads)
    for (int i = 0; i < a->cut->n_nodes; i++)
        for (int64_t t = 0; t < tiles; t++) {
            int64_t row = t * tile;
            weight_tile(a, &a->cut->node[i], row, dlrm_min64(tile, a->out - row), a->dw ? a->dw + i * a->node_stride + row * a->in : NULL,
                        a->dbias ? a->dbias + i * a->node_stride + row : NULL, c->scratch[omp_get_thread_num()]);
        }
}

void cpu_linear_backward(dlrm_backend *be, const dlrm_linear_backward_args *a)
{
    if (a->dw || a->dbias) weight_gradient(be, a);
    if (a->dx) input_gradient(be, a);
}
