/* Sums over the samples of a batch, in an order that does not depend on who computes what. The batch is cut into leaves
 * (in deterministic mode the `deterministic_chunks` pieces of the global batch; else one leaf a rank), a rank owns a run
 * of leaves, and partial sums meet in one binary tree: leaves 2i and 2i+1 first, then pairs of pairs. A rank adds what
 * it can on its own, down to its maximal aligned sub-trees (nodes); reduce.h joins the nodes of all ranks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { DLRM_MAX_LEAVES = 4096, DLRM_MAX_NODES = 26 };

typedef struct dlrm_node {
    int leaf;  /* first leaf, counted from the rank's first */
    int level; /* holds 2^level leaves */
} dlrm_node;

/* What one rank has of a batch. */
typedef struct dlrm_cut {
    int n_leaves;                    /* of this rank */
    int64_t at[DLRM_MAX_LEAVES + 1]; /* leaf k: this rank's samples [at[k], at[k+1]); may be empty */
    int n_nodes;
    dlrm_node node[DLRM_MAX_NODES];
} dlrm_cut;

#ifdef __cplusplus
extern "C" {
#endif

/* Nodes of leaves [first, first+n) of the whole tree; returns how many. */
int dlrm_tree_nodes(int first, int n, dlrm_node *nodes);

/* A rank's first leaf (rank = ranks: the number of leaves). */
int dlrm_tree_first_leaf(int rank, int ranks, bool deterministic, int chunks);

/* Which samples of a batch of B belong to a rank. Default: [rank*B/ranks, (rank+1)*B/ranks). Deterministic: the batch is
 * cut into `chunks` leaves [k*B/chunks, (k+1)*B/chunks) and rank r has leaves [r*chunks/ranks, (r+1)*chunks/ranks). */
void dlrm_cut_samples(int64_t B, int rank, int ranks, bool deterministic, int chunks, int64_t *begin, int64_t *own);

/* Cuts a batch of B for a rank. Every rank can make every rank's cut. */
void dlrm_cut_make(int64_t B, int rank, int ranks, bool deterministic, int chunks, dlrm_cut *out);

/* Adds n partial sums of these levels, in leaf order, the way the tree does: calls add(ctx, into, from) with indices of
 * partial sums; the total ends in number 0. */
void dlrm_tree_fold(int n, const int *levels, void (*add)(void *ctx, int into, int from), void *ctx);

#ifdef __cplusplus
}
#endif
