/* What `pinned` promises: cut over any number of ranks, a batch gives the same bits: each sample's outputs, and the
 * sums over samples once the ranks' partial sums are joined in the tree. Other configurations promise less and are left
 * out. */
#include <stdio.h>
#include <string.h>

#include "harness.h"

typedef struct pinned_case {
    int64_t B, in, out;
    int chunks;
} pinned_case;

static const pinned_case cases[] = {
    {64, 13, 16, 8}, {100, 64, 65, 32}, {1, 8, 8, 8}, {9, 33, 299, 8}, {257, 256, 1, 32}};
static const int rank_counts[] = {2, 3, 4, 7, 8};
enum { CASES = sizeof cases / sizeof *cases, COUNTS = sizeof rank_counts / sizeof *rank_counts };

/* The whole batch on the host. */
typedef struct batch {
    const float *x, *dz, *logits, *labels, *zeros;
    layer own;
} batch;

/* What one number of ranks makes of it. */
typedef struct result {
    double *y, *dx, *z, *d_logits; /* of each sample; z: interaction of y with itself */
    double *sums;                  /* [nodes of all ranks][dw and dbias], fp32 values; the total in the first */
    double *loss;                  /* [nodes of all ranks], likewise */
    int64_t n_sums;
} result;

static void add(void *ctx, int into, int from)
{
    result *r = ctx;
    for (int64_t i = 0; i < r->n_sums; i++) {
        double *sum = &r->sums[into * r->n_sums + i];
        *sum = (double)(float)(*sum + r->sums[from * r->n_sums + i]); /* the rounding of an addition in fp32 */
    }
    r->loss[into] += r->loss[from];
}

static void collect(harness *h, double *into, const void *buffer, int64_t n)
{
    if (n) memcpy(into, h_fetch(h, buffer), (size_t)n * sizeof *into);
}

/* One rank's samples, which begin at `first`; its partial sums go behind the `nodes` that are there. */
static void run_rank(harness *h, const pinned_case *c, const batch *a, const dlrm_cut *cut, int64_t first, int nodes,
                     result *r)
{
    dlrm_backend *be = h_backend(h);
    const int64_t b = cut->at[cut->n_leaves], in = c->in, out = c->out,
                  bias_at = dlrm_pitch(be, (int)out) * dlrm_pitch(be, (int)in);
    const bool logits = out == 1;
    const void *x = h_act_input(h, "x", a->x + first * in, b, in),
               *dz = logits ? h_input(h, "dz", a->dz + first, b, sizeof *a->dz)
                            : h_act_input(h, "dz", a->dz + first * out, b, out);
    void *y = logits ? h_output(h, "y", b) : h_act_output(h, "y", b, out), *dx = h_act_output(h, "dx", b, in),
         *z = h_act_output(h, "z", b, out + 1);
    float *d_logits = h_output(h, "d_logits", b), *sums = h_inout(h, "sums", a->zeros, cut->n_nodes * r->n_sums);
    const dlrm_linear_forward_args forward = {
        .b = b,
        .in = in,
        .out = out,
        .x = x,
        .w = a->own.at_w,
        .bias = a->own.at_bias,
        .y = y,
        .relu = !logits,
        .cut = cut};
    be->ops->linear_forward(be, &forward);
    const dlrm_linear_backward_args backward = {.b = b,
                                                .in = in,
                                                .out = out,
                                                .x = x,
                                                .w = a->own.at_w,
                                                .dz = dz,
                                                .dx = dx,
                                                .dw = sums,
                                                .dbias = sums + bias_at,
                                                .node_stride = r->n_sums,
                                                .cut = cut};
    be->ops->linear_backward(be, &backward);
    const dlrm_vector_slot slot = {.data = y, .stride = dlrm_pitch(be, (int)out), .width = (int)out};
    const dlrm_interact_args interact = {.kind = DLRM_DOT,
                                         .wire = be->act,
                                         .b = b,
                                         .n_slots = 2,
                                         .slots = (dlrm_vector_slot[]){slot, slot},
                                         .out_width = (int)out + 1,
                                         .out = z};
    if (!logits) be->ops->interact_forward(be, &interact);
    double *loss_at = h_output_doubles(h, "loss", cut->n_nodes);
    const dlrm_loss_args loss = {.b = b,
                                 .logits = h_input(h, "logits", a->logits + first, b, sizeof *a->logits),
                                 .d_logits = d_logits,
                                 .labels = h_input(h, "labels", a->labels + first, b, sizeof *a->labels),
                                 .scale = 1.0f / (float)c->B,
                                 .loss = loss_at,
                                 .cut = cut};
    be->ops->loss(be, &loss);
    collect(h, r->y + first * out, y, b * out);
    collect(h, r->dx + first * in, dx, b * in);
    if (!logits) collect(h, r->z + first * (out + 1), z, b * (out + 1));
    collect(h, r->d_logits + first, d_logits, b);
    collect(h, r->sums + nodes * r->n_sums, sums, cut->n_nodes * r->n_sums);
    collect(h, r->loss + nodes, loss_at, cut->n_nodes);
}

static void run_ranks(harness *h, const pinned_case *c, const batch *a, int ranks, result *r)
{
    int levels[8 * DLRM_MAX_NODES], nodes = 0;
    int64_t first = 0;
    *r =
        (result){.n_sums = dlrm_pitch(h_backend(h), (int)c->out) * (dlrm_pitch(h_backend(h), (int)c->in) + (int64_t)1)};
    r->y = h_doubles(h, c->B * c->out);
    r->dx = h_doubles(h, c->B * c->in);
    r->z = h_doubles(h, c->B * (c->out + 1));
    r->d_logits = h_doubles(h, c->B);
    r->sums = h_doubles(h, (c->chunks + DLRM_MAX_NODES) * r->n_sums);
    r->loss = h_doubles(h, c->chunks + DLRM_MAX_NODES);
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

static void same(harness *h, const char *what, const double *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0) {
            h_fail(h, "%s: element %lld is %.9g, on one rank %.9g", what, (long long)i, got[i], want[i]);
            return;
        }
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    const pinned_case *c = &cases[number / COUNTS];
    const int ranks = rank_counts[number % COUNTS];
    snprintf(label, bytes, "%d ranks, %d chunks, B %lld, in %lld, out %lld", ranks, c->chunks, (long long)c->B,
             (long long)c->in, (long long)c->out);
    if (!h_pinned(h)) return;
    float *labels = h_draw(h, c->B, POSITIVE);
    for (int64_t i = 0; i < c->B; i++) labels[i] = labels[i] > 0.5f;
    batch a = {
        .x = h_draw_act(h, c->B * c->in, RELU),
        .dz = h_draw_act(h, c->B * c->out, SIGNED),
        .logits = h_draw(h, c->B, SIGNED),
        .labels = labels,
        .own = {.out = c->out, .in = c->in, .w = h_draw(h, c->in * c->out, SIGNED), .bias = h_draw(h, c->out, SIGNED)}};
    h_layers(h, &a.own, 1);
    result one, many;
    a.zeros = h_host(h, 1 << 19, sizeof(float));
    run_ranks(h, c, &a, 1, &one);
    run_ranks(h, c, &a, ranks, &many);
    same(h, "y", many.y, one.y, c->B * c->out);
    same(h, "dx", many.dx, one.dx, c->B * c->in);
    same(h, "z", many.z, one.z, c->B * (c->out + 1));
    same(h, "d_logits", many.d_logits, one.d_logits, c->B);
    same(h, "dw and dbias", many.sums, one.sums, one.n_sums);
    same(h, "loss", many.loss, one.loss, 1);
}

const family pinned_family = {"pinned", {{0}}, false, CASES *COUNTS, run};
