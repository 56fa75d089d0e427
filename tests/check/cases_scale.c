/* Loss scaling: an overflow is found wherever it is, raises the flag, skips the step's updates and halves the scale; good
 * steps give what they give without a scale, and double it in time; Adam counts updates. On CPU there is none. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "ref.h"

enum { N = 1000, FLAG = 8 /* elements behind */ };

static void find(harness *h, dlrm_dtype type, float *flag, const float *values, int64_t n)
{
    const void *p = h_input_as(h, "gradients", type, values, n);
    const dlrm_overflow_args a = {.type = type, .part = {{p, n / 2}, {(const char *)p + n / 2 * (int64_t)dlrm_dtype_bytes(type), n - n / 2}},
                                  .flag = flag};
    h_backend(h)->ops->find_overflow(h_backend(h), &a);
}

/* Every place and kind of what is not finite, in each type. */
static void check_find(harness *h)
{
    static const dlrm_dtype types[] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};
    static const int64_t sizes[] = {1, 2, 7, 70000};
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 4; k++)
            for (int where = -1; where < 3; where++) {
                const int64_t n = sizes[k], at = where == 0 ? 0 : where == 1 ? n / 2 : n - 1;
                float *v = h_draw_as(h, types[t], n, SIGNED), *flag = h_output(h, "flag", 1);
                if (where >= 0) v[at] = where == 0 ? NAN : where == 1 ? INFINITY : -INFINITY;
                find(h, types[t], flag, v, n);
                double got = h_fetch(h, flag)[0];
                if (where < 0 ? got != 0 : !(isinf(got) && got > 0)) h_fail(h, "type %d, %lld elements, place %d: flag %g", t, (long long)n, where, got);
            }
}

/* One step's settling and dense update with gradient g; returns the weights. */
static const double *update(harness *h, const dlrm_rule *rule, float *w, const float *g, float *m, float *v)
{
    dlrm_backend *be = h_backend(h);
    float *on = h_inout(h, "g", g, N + FLAG), *flag = on + N;
    static const float fine[2] = {1, 2};
    const dlrm_dense_update_args a = {.n = N, .w = w, .g = on, .state = {m, v}, .rule = *rule};
    find(h, DLRM_FP32, flag, fine, 2);
    be->ops->settle_scale(be, &(dlrm_settle_args){.g = on, .n = N + FLAG, .dense_betas = {0.9, 0.999}, .embedding_betas = {0.9, 0.999}});
    be->ops->dense_update(be, &a);
    return h_fetch(h, w);
}

static void expect_scale(harness *h, float scale, int64_t skipped)
{
    dlrm_scale s;
    h_backend(h)->ops->scale_get(h_backend(h), &s);
    if (s.scale != scale || s.skipped != skipped)
        h_fail(h, "scale %g, %lld skipped; expected %g, %lld", (double)s.scale, (long long)s.skipped, (double)scale, (long long)skipped);
}

static void check_updates(harness *h)
{
    dlrm_backend *be = h_backend(h);
    const bool scales = strcmp(be->ops->name, "cuda") == 0;
    const float scale = scales ? 1024 : 1;
    const dlrm_rule rule = {.name = DLRM_SGD, .lr = 0.5f};
    float *w0 = h_draw(h, N, SIGNED), *g = h_draw(h, N + FLAG, SIGNED), *w = h_weights(h, w0, N);
    for (int i = N; i < N + FLAG; i++) g[i] = 0;
    for (int i = 0; i < N; i++) g[i] *= scale; /* as a scaled loss gives them */
    be->ops->scale_set(be, &(dlrm_scale){.scale = scale});
    const double *first = update(h, &rule, w, g, NULL, NULL);
    for (int i = 0; i < N; i++)
        if (fabs(first[i] - ((double)w0[i] - 0.5 * (double)(g[i] / scale))) > 0x1p-22) h_fail(h, "element %d is %g", i, first[i]);
    expect_scale(h, scale, 0);
    if (!scales) return;
    const float good = g[N / 3];
    for (int k = 0; k < 2; k++) {
        g[N / 3] = k ? NAN : -INFINITY;
        const double *same = update(h, &rule, w, g, NULL, NULL);
        for (int i = 0; i < N; i++)
            if (same[i] != first[i]) h_fail(h, "a skipped step changed element %d", i);
        expect_scale(h, scale / (float)(2 << k), k + 1);
    }
    g[N / 3] = good;
    const double *third = update(h, &rule, w, g, NULL, NULL); /* by a quarter of the scale: steps of four times the size */
    for (int i = 0; i < N; i++)
        if (fabs(third[i] - (first[i] - 2 * (double)(g[i] / scale))) > 0x1p-20) h_fail(h, "element %d is %g after a skipped step", i, third[i]);
    expect_scale(h, scale / 4, 2);
    be->ops->scale_set(be, &(dlrm_scale){.scale = 8, .good = DLRM_GOOD_STEPS - 2, .skipped = 5});
    update(h, &rule, w, g, NULL, NULL);
    expect_scale(h, 8, 5);
    update(h, &rule, w, g, NULL, NULL);
    expect_scale(h, 16, 5);
}

/* The loss's gradient takes the scale; the loss does not. */
static void check_loss(harness *h)
{
    enum { B = 33 };
    dlrm_backend *be = h_backend(h);
    const float scale = strcmp(be->ops->name, "cuda") == 0 ? 65536 : 1;
    dlrm_cut *cut = h_host(h, 1, sizeof *cut);
    dlrm_cut_make(B, 0, 1, h_pinned(h), 4, cut);
    float *z = h_draw(h, B, SIGNED), *y = h_draw(h, B, SIGNED), *d = h_output(h, "d_logits", B);
    double *loss = h_output_doubles(h, "loss", cut->n_nodes), *ref = h_doubles(h, B), *tol = h_doubles(h, B), sum = 0, bound;
    for (int i = 0; i < B; i++) {
        y[i] = y[i] > 0;
        ref[i] = ref_loss_gradient((double)z[i], (double)y[i], (double)scale / B, &tol[i]);
        sum += ref_loss((double)z[i], (double)y[i]);
    }
    be->ops->scale_set(be, &(dlrm_scale){.scale = scale});
    const dlrm_loss_args a = {.b = B, .logits = h_input(h, "logits", z, B, sizeof *z), .labels = h_input(h, "labels", y, B, sizeof *y),
                              .d_logits = d, .scale = 1.0f / B, .loss = loss, .cut = cut};
    be->ops->loss(be, &a);
    for (int i = 0; i < B; i++) tol[i] += 0x1p-22 * fabs(ref[i]); /* 1/B is rounded */
    h_compare(h, d, ref, tol);
    bound = ref_bound(B, 0, sum, sum);
    h_compare(h, loss, &sum, &bound);
}

/* Whole steps, which may be recorded and replayed: the second is skipped, and Adam's t of the third is 2. */
static void check_adam(harness *h)
{
    enum { STEPS = 5, BAD = 1 };
    dlrm_backend *be = h_backend(h);
    if (strcmp(be->ops->name, "cuda") != 0) return;
    const double b1 = 0.9, b2 = 0.999, lr = 0.01, scale = 256;
    float *w0 = h_draw(h, N, SIGNED), *g = h_draw(h, N + FLAG, SIGNED), *zeros = h_host(h, N, sizeof *zeros), *w = h_weights(h, w0, N),
          *m = h_inout(h, "m", zeros, N), *v = h_inout(h, "v", zeros, N), *on = h_inout(h, "g", g, N + FLAG), fine[2] = {1, 2};
    double *ref = h_widen(h, w0, N), *ref_m = h_doubles(h, N), *ref_v = h_doubles(h, N), *loss = h_output_doubles(h, "loss", 1);
    const void *vectors = h_input(h, "vectors", fine, 2, sizeof *fine);
    const dlrm_overflow_args find_args = {.part = {{vectors, 2}, {NULL, 0}}, .flag = on + N};
    const dlrm_settle_args settle = {.g = on, .n = N + FLAG, .dense_betas = {b1, b2}, .embedding_betas = {b1, b2}};
    be->ops->scale_set(be, &(dlrm_scale){.scale = (float)scale});
    for (int i = 0; i < STEPS; i++) {
        const double now = i > BAD ? scale / 2 : scale; /* of this step's gradients */
        const int t = i > BAD ? i : i + 1;
        for (int k = 0; k < N + FLAG; k++) g[k] = k < N ? (float)(now * sin(k + i)) : 0;
        if (i == BAD) g[5] = INFINITY;
        be->ops->upload(be, on, g, (N + FLAG) * sizeof *g);
        const dlrm_step step = {.slot = 0, .B = 1, .number = (uint64_t)i + 1, .loss = loss,
                                .dense = {.name = DLRM_ADAM, .lr = (float)lr, .epsilon = 1e-8f, .beta1 = (float)b1, .beta2 = (float)b2}};
        const dlrm_dense_update_args update_args = {.n = N, .w = w, .g = on, .state = {m, v}, .rule = step.dense};
        if (be->ops->step_begin(be, &step) != DLRM_STEP_REPLAY) {
            be->ops->find_overflow(be, &find_args);
            be->ops->settle_scale(be, &settle);
            be->ops->dense_update(be, &update_args);
        }
        be->ops->step_end(be);
        for (int k = 0; k < N && i != BAD; k++) {
            const double x = sin(k + i);
            ref_m[k] = b1 * ref_m[k] + (1 - b1) * x;
            ref_v[k] = b2 * ref_v[k] + (1 - b2) * x * x;
            ref[k] -= lr / (1 - pow(b1, t)) * ref_m[k] / (sqrt(ref_v[k]) / sqrt(1 - pow(b2, t)) + 1e-8);
        }
    }
    double *tol = h_doubles(h, N);
    for (int k = 0; k < N; k++) tol[k] = STEPS * 1e-6;
    h_compare(h, w, ref, tol);
    expect_scale(h, (float)scale / 2, 1);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    static void (*const cases[])(harness *) = {check_find, check_updates, check_loss, check_adam};
    static const char *const names[] = {"find", "updates", "loss", "adam"};
    snprintf(label, bytes, "%s", names[number]);
    cases[number](h);
}

const family scale_family = {
    "scale", {SLOT(find_overflow), SLOT(settle_scale), SLOT(scale_set), SLOT(scale_get)}, false, 4, run};
