/* loss: sums per node of the cut, and the gradient. */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

typedef struct loss_case {
    int64_t B;
    int rank, ranks, chunks;
    float range; /* of the logits */
    bool no_gradient;
    const char *why;
} loss_case;

static const loss_case cases[] = {
    {1, 0, 1, 1, 1, false, "smallest"},           {1, 0, 1, 32, 3, false, "batch 1: all leaves but one are empty"},
    {100, 0, 1, 8, 3, true, "loss alone"},        {333, 2, 7, 32, 10, false, "one rank of seven"},
    {0, 0, 1, 4, 1, false, "no sample"},          {64, 0, 1, 4, 200, false, "logits that would overflow exp"},
    {64, 0, 1, 4, 1e30f, false, "absurd logits"}, {50000, 0, 1, 32, 4, false, "a long sum"},
};
enum { CASES = sizeof cases / sizeof *cases };

static void run(harness *h, int number, char *label, size_t bytes)
{
    const loss_case *c = &cases[number];
    dlrm_cut *cut = h_host(h, 1, sizeof *cut);
    dlrm_cut_make(c->B, c->rank, c->ranks, h_pinned(h), c->chunks, cut);
    const int64_t b = cut->at[cut->n_leaves];
    snprintf(label, bytes, "b %lld (%s)", (long long)b, c->why);
    float *z = h_draw(h, b, SIGNED), *y = h_draw(h, b, SIGNED), *d = c->no_gradient ? NULL : h_output(h, "d_logits", b);
    for (int64_t i = 0; i < b; i++) {
        z[i] *= c->range;
        y[i] = y[i] > 0.5f;
    }
    double ref[DLRM_MAX_NODES] = {0}, tol[DLRM_MAX_NODES] = {0}, *loss = h_output_doubles(h, "loss", cut->n_nodes);
    const float scale = 1.0f / (float)(c->B ? c->B : 1);
    const dlrm_loss_args args = {.b = b,
                                 .logits = h_input(h, "logits", z, b, sizeof *z),
                                 .labels = h_input(h, "labels", y, b, sizeof *y),
                                 .d_logits = d,
                                 .scale = scale,
                                 .loss = loss,
                                 .cut = cut};
    h_backend(h)->ops->loss(h_backend(h), &args);

    for (int i = 0; i < cut->n_nodes; i++) {
        const dlrm_node *k = &cut->node[i];
        for (int64_t s = cut->at[k->leaf]; s < cut->at[k->leaf + (1 << k->level)]; s++)
            ref[i] += ref_loss((double)z[s], (double)y[s]);
        tol[i] = ref_bound(b, 0, ref[i], ref[i]); /* terms are positive */
    }
    h_compare(h, loss, ref, tol);
    if (!d) return;
    double *ref_d = h_doubles(h, b), *tol_d = h_doubles(h, b);
    for (int64_t i = 0; i < b; i++) ref_d[i] = ref_loss_gradient((double)z[i], (double)y[i], (double)scale, &tol_d[i]);
    h_compare(h, d, ref_d, tol_d);
}

const family loss_family = {"loss", {SLOT(loss)}, false, CASES, run};
