/* What `pinned` promises: cut over any number of ranks, a batch gives the same bits: each sample's outputs, and the sums
 * over samples once the ranks' partial sums are joined in the tree. Other configurations promise less and are left out. */
#include <stdio.h>
#include <string.h>

#include "harness.h"

typedef struct pinned_case {
    int64_t B, in, out;
    int chunks;
} pinned_case;

static const pinned_case cases[] = {{64, 13, 16, 8}, {100, 64, 65, 32}, {1, 8, 8, 8}, {9, 33, 299, 8}, {257, 256, 1, 32}};
static const int rank_counts[] = {2, 3, 4, 7, 8};
enum { CASES = sizeof cases / sizeof *cases, COUNTS = sizeof rank_counts / sizeof *rank_counts };

/* The whole batch on the host. */
typedef struct batch {
    const float *x, *w, *bias, *dz, *logits, *labels;
} batch;

/* What one number of ranks makes of it. */
typedef struct result {
    float *y, *dx, *z, *d_logits; /* of each sample; z: interaction of y with itself */
    float *sums;                  /* [nodes of all ranks][in out + out]; the total in the first */
    double *loss;                 /* [nodes of all ranks], likewise */
    int64_t n_sums;
} result;

static void add(void *ctx, int into, int from)
{
    result *r = ctx;
    for (int64_t i = 0; i < r->n_sums; i++) r->sums[into * r->n_sums + i] += r->sums[from * r->n_sums + i];
    r->loss[into] += r->loss[from];
}

static void collect(harness *h, float *into, const float *buffer, int64_t n)
{
    memcpy(into, h_fetch(h, buffer), (size_t)n * sizeof *into);
}

/* One rank's samples, which begin at `first`; its partial sums go behind the `nodes` that are there. */
static void run_rank(harness *h, const pinned_case *c, const batch *a, const dlrm_cut *cut, int64_t first, int nodes, result *r)
{
    dlrm_backend *be = h_backend(h);
    const int64_t b = cut->at[cut->n_leaves], in = c->in, out = c->out;
    const float *x = h_input(h, "x", a->x + first * in, b * in, sizeof *x), *w = h_input(h, "w", a->w, in * out, sizeof *w);
    float *y = h_output(h, "y", b * out), *dx = h_output(h, "dx", b * in), *z = h_output(h, "z", b * (out + 1)),
          *d_logits = h_output(h, "d_logits", b), *sums = h_output(h, "sums", cut->n_nodes * r->n_sums);
    const dlrm_linear_forward_args forward = {.b = b, .in = in, .out = out, .x = x, .w = w, .y = y, .relu = true, .cut = cut,
                                              .bias = h_input(h, "bias", a->bias, out, sizeof *x)};
    be->ops->linear_forward(be, &forward);
    const dlrm_linear_backward_args backward = {
        .b = b, .in = in, .out = out, .x = x, .w = w, .dz = h_input(h, "dz", a->dz + first * out, b * out, sizeof *x), .dx = dx,
        .dw = sums, .dbias = sums + in * out, .node_stride = r->n_sums, .cut = cut};
    be->ops->linear_backward(be, &backward);
    const dlrm_vector_slot slot = {.data = y, .stride = out, .width = (int)out};
    const dlrm_interact_args interact = {.kind = DLRM_DOT, .b = b, .n_slots = 2, .slots = (dlrm_vector_slot[]){slot, slot},
                                         .out_width = (int)out + 1, .out = z};
    be->ops->interact_forward(be, &interact);
    const dlrm_loss_args loss = {.b = b, .logits = h_input(h, "logits", a->logits + first, b, sizeof *x), .d_logits = d_logits,
                                 .labels = h_input(h, "labels", a->labels + first, b, sizeof *x),
                                 .scale = 1.0f / (float)c->B, .loss = r->loss + nodes, .cut = cut};
    be->ops->loss(be, &loss);
    collect(h, r->y + first * out, y, b * out);
    collect(h, r->dx + first * in, dx, b * in);
    collect(h, r->z + first * (out + 1), z, b * (out + 1));
    collect(h, r->d_logits + first, d_logits, b);
    collect(h, r->sums + nodes * r->n_sums, sums, cut->n_nodes * r->n_sums);
}

static void run_ranks(harness *h, const pinned_case *c, const batch *a, int ranks, result *r)
{
    int levels[8 * DLRM_MAX_NODES], nodes = 0;
    int64_t first = 0;
    *r = (result){.n_sums = c->in * c->out + c->out};
    r->y = h_host(h, c->B * c->out, sizeof(float));
    r->dx = h_host(h, c->B * c->in, sizeof(float));
    r->z = h_host(h, c->B * (c->out + 1), sizeof(float));
    r->d_logits = h_host(h, c->B, sizeof(float));
    r->sums = h_host(h, ranks * DLRM_MAX_NODES * r->n_sums, sizeof(float));
    r->loss = h_host(h, ranks * DLRM_MAX_NODES, sizeof(double));
    dlrm_cut *cut = h_host(h, 1, sizeof *cut);
    for (int rank = 0; rank < ranks; rank++) {
        dlrm_cut_make(c->B, rank, ranks, true, c->chunks, cut);
        run_rank(h, c, a, cut, first, nodes, r);
        for (int i = 0; i < cut->n_nodes; i++) levels[nodes++] = cut->node[i].level;
        first += cut->at[cut->n_leaves];
    }
    if (first != c->B) h_fail(h, "the cuts have %lld samples", (long long)first);
    dlrm_tree_fold(nodes, levels, add, r);
}

static void same(harness *h, const char *what, const void *got, const void *want, int64_t n, size_t size)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size, size) != 0) {
            h_fail(h, "%s: element %lld has other bits than on one rank", what, (long long)i);
            return;
        }
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    const pinned_case *c = &cases[number / COUNTS];
    const int ranks = rank_counts[number % COUNTS];
    snprintf(label, bytes, "%d ranks, %d chunks, B %lld, in %lld, out %lld", ranks, c->chunks, (long long)c->B, (long long)c->in,
             (long long)c->out);
    if (!h_pinned(h)) return;
    float *labels = h_draw(h, c->B, POSITIVE);
    for (int64_t i = 0; i < c->B; i++) labels[i] = labels[i] > 0.5f;
    const batch a = {.x = h_draw(h, c->B * c->in, RELU), .w = h_draw(h, c->in * c->out, SIGNED), .bias = h_draw(h, c->out, SIGNED),
                     .dz = h_draw(h, c->B * c->out, SIGNED), .logits = h_draw(h, c->B, SIGNED), .labels = labels};
    result one, many;
    run_ranks(h, c, &a, 1, &one);
    run_ranks(h, c, &a, ranks, &many);
    same(h, "y", many.y, one.y, c->B * c->out, sizeof *one.y);
    same(h, "dx", many.dx, one.dx, c->B * c->in, sizeof *one.dx);
    same(h, "z", many.z, one.z, c->B * (c->out + 1), sizeof *one.z);
    same(h, "d_logits", many.d_logits, one.d_logits, c->B, sizeof *one.d_logits);
    same(h, "dw and dbias", many.sums, one.sums, one.n_sums, sizeof *one.sums);
    same(h, "loss", many.loss, one.loss, 1, sizeof *one.loss);
}

const family pinned_family = {"pinned", {{0}}, false, CASES * COUNTS, run};
