#include "comm/reduce.h"

#include <string.h>

#include "base/mem.h"

dlrm_status dlrm_reduce_layout(int R, int64_t n, bool deterministic, int chunks, dlrm_reduce *r)
{
    dlrm_node nodes[DLRM_MAX_NODES];
    *r = (dlrm_reduce){.n = n, .stride = n};
    if (n > INT32_MAX)
        return FAIL(DLRM_E_INPUT, "the MLPs, or the replicated tables, have %lld parameters; at most %d are supported", (long long)n, INT32_MAX);
    TRY(dlrm_alloc(R + 1, sizeof *r->first_node, "gradient reduction", &r->first_node));
    TRY(dlrm_alloc((int64_t)R * DLRM_MAX_NODES, sizeof *r->levels, "gradient reduction", &r->levels));
    TRY(dlrm_alloc(R + 1, sizeof *r->segment, "gradient reduction", &r->segment));
    for (int p = 0; p < R; p++) {
        int first = dlrm_tree_first_leaf(p, R, deterministic, chunks);
        int count = dlrm_tree_nodes(first, dlrm_tree_first_leaf(p + 1, R, deterministic, chunks) - first, nodes);
        r->first_node[p + 1] = r->first_node[p] + count;
        for (int i = 0; i < count; i++) r->levels[r->first_node[p] + i] = nodes[i].level;
        r->segment[p + 1] = n * (p + 1) / R;
    }
    return dlrm_alloc(r->first_node[R], sizeof *r->sums, "gradient reduction", &r->sums);
}

dlrm_status dlrm_reduce_open(const dlrm_comm *c, int64_t n, bool deterministic, int chunks, dlrm_reduce *r)
{
    const int R = c->ranks;
    TRY(dlrm_reduce_layout(R, n, deterministic, chunks, r));
    TRY(dlrm_alloc(R + 1, sizeof *r->send_at, "gradient reduction", &r->send_at));
    TRY(dlrm_alloc(R + 1, sizeof *r->recv_at, "gradient reduction", &r->recv_at));
    int mine = r->first_node[c->rank + 1] - r->first_node[c->rank];
    int64_t length = r->segment[c->rank + 1] - r->segment[c->rank];
    for (int p = 0; p < R; p++) {
        r->send_at[p + 1] = r->segment[p + 1] * mine * (int64_t)sizeof(float);
        r->recv_at[p + 1] = r->first_node[p + 1] * length * (int64_t)sizeof(float);
    }
    if (R == 1) return DLRM_OK;
    if (mine > 1) TRY(dlrm_alloc(n * mine, sizeof(float), "gradient reduction", &r->send));
    return dlrm_alloc(r->first_node[R] * length, sizeof(float), "gradient reduction", &r->recv);
}

void dlrm_reduce_close(dlrm_reduce *r)
{
    dlrm_free(&r->first_node);
    dlrm_free(&r->levels);
    dlrm_free(&r->segment);
    dlrm_free(&r->send_at);
    dlrm_free(&r->recv_at);
    dlrm_free(&r->send);
    dlrm_free(&r->recv);
    dlrm_free(&r->sums);
}

typedef struct block {
    float *base;     /* element `at` of node 0 */
    int64_t stride, n;
} block;

static void add_block(void *ctx, int into, int from)
{
    const block *b = ctx;
    float *restrict to = b->base + into * b->stride;
    const float *restrict add = b->base + from * b->stride;
    for (int64_t i = 0; i < b->n; i++) to[i] += add[i];
}

void dlrm_reduce_run(dlrm_reduce *r, dlrm_comm *c, float *nodes)
{
    const int R = c->ranks, me = c->rank, mine = r->first_node[me + 1] - r->first_node[me];
    const int64_t length = r->segment[me + 1] - r->segment[me], step = 4096;
    if (R == 1) return; /* the one rank's tree is complete */
    if (mine > 1) {
        float *to = r->send;
        for (int p = 0; p < R; p++)
            for (int i = 0; i < mine; i++, to += r->segment[p + 1] - r->segment[p])
                memcpy(to, nodes + i * r->stride + r->segment[p], (size_t)(r->segment[p + 1] - r->segment[p]) * sizeof *to);
    }
    dlrm_comm_alltoallv(c, mine > 1 ? r->send : nodes, r->send_at, r->recv, r->recv_at);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < length; at += step) {
        block b = {r->recv + at, length, length - at < step ? length - at : step};
        dlrm_tree_fold(r->first_node[R], r->levels, add_block, &b);
    }
    memcpy(nodes + r->segment[me], r->recv, (size_t)length * sizeof *nodes);
    dlrm_comm_allgatherv_f32(c, nodes, r->segment);
}

static void add_double(void *ctx, int into, int from)
{
    ((double *)ctx)[into] += ((double *)ctx)[from];
}

double dlrm_reduce_fold_f64(const dlrm_reduce *r, int ranks, const double *partial, int stride)
{
    double *sums = r->sums;
    for (int p = 0; p < ranks; p++)
        for (int i = 0; i < r->first_node[p + 1] - r->first_node[p]; i++) sums[r->first_node[p] + i] = partial[p * stride + i];
    dlrm_tree_fold(r->first_node[ranks], r->levels, add_double, sums);
    return sums[0];
}

int64_t dlrm_reduce_bytes(const dlrm_reduce *r, int rank, int ranks)
{
    int64_t mine = r->first_node[rank + 1] - r->first_node[rank], length = r->segment[rank + 1] - r->segment[rank];
    return 4 * ((r->n - length) * mine + length * (ranks - 1));
}
