/* dense_update: every rule. */
#include <stdio.h>

#include "harness.h"
#include "ref.h"

static const dlrm_rule rules[] = {
    {.name = DLRM_SGD, .lr = 24},
    {.name = DLRM_SGD, .lr = 0.125f, .momentum = 0.9f},
    {.name = DLRM_ADAGRAD, .lr = 0.01f, .epsilon = 1e-10f},
    {.name = DLRM_ADAGRAD, .lr = 0.01f, .epsilon = 0.1f},
    {.name = DLRM_ADAM,
     .lr = 0.001f,
     .epsilon = 1e-8f,
     .beta1 = 0.9f,
     .beta2 = 0.999f,
     .adam_rate = 0.01f,
     .adam_root = 31.6f},
    {.name = DLRM_ADAM,
     .lr = 0.001f,
     .epsilon = 0.5f,
     .beta1 = 0,
     .beta2 = 0.5f,
     .adam_rate = 0.001f,
     .adam_root = 1.4142f},
};
static const int64_t sizes[] = {1, 17, 64, 1000, (1 << 14) + 1, 50000};
enum { RULES = sizeof rules / sizeof *rules, SIZES = sizeof sizes / sizeof *sizes };

static void run(harness *h, int number, char *label, size_t bytes)
{
    static const char *const names[] = {"sgd",  "momentum",           "adagrad", "adagrad, large epsilon",
                                        "adam", "adam, large epsilon"};
    const dlrm_rule *rule = &rules[number % RULES];
    const int64_t n = sizes[number / RULES];
    const bool zero_state = number / RULES % 2; /* a first step */
    snprintf(label, bytes, "%s, n %lld%s", names[number % RULES], (long long)n, zero_state ? ", first step" : "");
    float *w = h_draw(h, n, SIGNED), *g = h_draw(h, n, WIDE), *s[2] = {NULL, NULL};
    double *ref_s[2] = {NULL, NULL}, *tol_s[2] = {NULL, NULL};
    dlrm_dense_update_args args = {
        .n = n, .w = h_weights(h, w, n), .g = h_input(h, "g", g, n, sizeof *g), .rule = *rule};
    const int n_states = rule->name == DLRM_ADAM ? 2 : rule->name == DLRM_ADAGRAD || rule->momentum != 0;
    for (int k = 0; k < n_states; k++) {
        s[k] = zero_state ? h_host(h, n, sizeof(float))
                          : h_draw(h, n, k == 0 && rule->name != DLRM_ADAGRAD ? SIGNED : POSITIVE);
        args.state[k] = h_inout(h, k ? "second state" : "state", s[k], n);
        ref_s[k] = h_widen(h, s[k], n);
        tol_s[k] = h_doubles(h, n);
    }
    h_backend(h)->ops->dense_update(h_backend(h), &args);
    double *ref = h_widen(h, w, n), *tol = h_doubles(h, n), *exact = h_doubles(h, n);
    ref_update(rule, n, h_widen(h, g, n), exact, ref, ref_s[0], ref_s[1], tol, tol_s[0], tol_s[1]);
    h_compare(h, args.w, ref, tol);
    for (int k = 0; k < n_states; k++) h_compare(h, args.state[k], ref_s[k], tol_s[k]);
}

const family dense_update_family = {"dense_update", {SLOT(dense_update)}, false, RULES *SIZES, run};
