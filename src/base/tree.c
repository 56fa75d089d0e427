#include "base/tree.h"

#include "base/status.h"

int dlrm_tree_nodes(int first, int n, dlrm_node *nodes)
{
    int count = 0;
    for (int leaf = first; leaf < first + n; count++) {
        int level = 0;
        while (leaf % (2 << level) == 0 && leaf + (2 << level) <= first + n) level++;
        DLRM_ASSERT(count < DLRM_MAX_NODES);
        nodes[count] = (dlrm_node){leaf - first, level};
        leaf += 1 << level;
    }
    return count;
}

int dlrm_tree_first_leaf(int rank, int ranks, bool deterministic, int chunks)
{
    return deterministic ? (int)((int64_t)rank * chunks / ranks) : rank;
}

void dlrm_cut_samples(int64_t B, int rank, int ranks, bool deterministic, int chunks, int64_t *begin, int64_t *own)
{
    int leaves = deterministic ? chunks : ranks;
    *begin = dlrm_tree_first_leaf(rank, ranks, deterministic, chunks) * B / leaves;
    *own = dlrm_tree_first_leaf(rank + 1, ranks, deterministic, chunks) * B / leaves - *begin;
}

void dlrm_cut_make(int64_t B, int rank, int ranks, bool deterministic, int chunks, dlrm_cut *out)
{
    int leaves = deterministic ? chunks : ranks;
    int first = dlrm_tree_first_leaf(rank, ranks, deterministic, chunks);
    out->n_leaves = dlrm_tree_first_leaf(rank + 1, ranks, deterministic, chunks) - first;
    DLRM_ASSERT(out->n_leaves <= DLRM_MAX_LEAVES);
    for (int k = 0; k <= out->n_leaves; k++) out->at[k] = (first + k) * B / leaves - first * B / leaves;
    out->n_nodes = dlrm_tree_nodes(first, out->n_leaves, out->node);
}

void dlrm_tree_fold(int n, const int *levels, void (*add)(void *ctx, int into, int from), void *ctx)
{
    int at[64], level[64], depth = 0;
    for (int i = 0; i < n; i++) {
        at[depth] = i;
        level[depth++] = levels ? levels[i] : 0;
        while (depth > 1 && level[depth - 2] == level[depth - 1]) {
            add(ctx, at[depth - 2], at[depth - 1]);
            depth--;
            level[depth - 1]++;
        }
        DLRM_ASSERT(depth < 64);
    }
    for (; depth > 1; depth--) add(ctx, at[depth - 2], at[depth - 1]);
}
