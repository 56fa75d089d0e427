/* What the tests of the CUDA kernels share: comparisons that count, the update rules in double, and the tests. */
#pragma once
#include "cuda_test.cuh"

void test_embeddings(void);   /* cuda_test_embedding.cu */
void test_interactions(void); /* cuda_test_interact.cu */

/* Counts of the whole program. */
extern int cases, failures;

static inline void check(bool ok, const char *what, const char *detail)
{
    cases++;
    if (ok) return;
    failures++;
    if (failures <= 40) printf("FAIL %s: %s\n", what, detail);
}

/* got within tolerance of want, everywhere; reports the first that is not. */
static inline void check_close(const std::vector<float> &got, const std::vector<double> &want,
                               const std::vector<double> &tolerance, const char *what)
{
    char detail[200] = "";
    for (size_t i = 0; i < got.size(); i++)
        if (!(std::fabs(got[i] - want[i]) <= tolerance[i])) {
            snprintf(detail, sizeof detail, "element %zu of %zu: %.9g, expected %.9g ± %.3g", i, got.size(), got[i],
                     want[i], tolerance[i]);
            break;
        }
    check(detail[0] == 0, what, detail);
}

static inline void check_same(const std::vector<float> &a, const std::vector<float> &b, const char *what)
{
    check(a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0, what, "bits differ");
}

static inline dlrm_rule make_rule(dlrm_optimizer_name name, bool momentum)
{
    dlrm_rule r = {};
    r.name = name;
    r.lr = 0.125f;
    r.momentum = momentum ? 0.9f : 0;
    r.epsilon = 1e-4f;
    r.beta1 = 0.9f;
    r.beta2 = 0.99f;
    r.adam_rate = 0.3f;
    r.adam_root = 1.25f;
    return r;
}

/* One element: new w, s0, s1 and how far the kernel may be off, given its gradient's error. square: rowwise adagrad's.
 */
struct element {
    double w, s0, s1;
};

static inline element apply(const dlrm_rule &r, element x, double g, double square)
{
    switch (r.name) {
    case DLRM_SGD:
        if (r.momentum == 0) return {x.w - r.lr * g, x.s0, x.s1};
        x.s0 = r.momentum * x.s0 + g;
        return {x.w - r.lr * x.s0, x.s0, x.s1};
    case DLRM_ADAGRAD:
        x.s0 += g * g;
        return {x.w - r.lr * g / (std::sqrt(x.s0) + r.epsilon), x.s0, x.s1};
    case DLRM_ROWWISE_ADAGRAD:
        x.s0 += square;
        return {x.w - r.lr * g / (std::sqrt(x.s0) + r.epsilon), x.s0, x.s1};
    case DLRM_ADAM:
        x.s0 = r.beta1 * x.s0 + (1.0 - r.beta1) * g;
        x.s1 = r.beta2 * x.s1 + (1.0 - r.beta2) * g * g;
        return {x.w - r.adam_rate * x.s0 / (std::sqrt(x.s1) * r.adam_root + r.epsilon), x.s0, x.s1};
    }
    return x;
}

static inline dlrm_cuda_step make_step(const dlrm_rule &rule)
{
    dlrm_cuda_step step = {};
    step.dense = step.embedding = rule;
    step.seed = 5;
    step.step = 9;
    step.loss_scale = 4;
    step.unscale = 0.25f;
    return step;
}

static const struct {
    dlrm_optimizer_name name;
    bool momentum;
} rules[] = {
    {DLRM_SGD, false}, {DLRM_SGD, true}, {DLRM_ADAGRAD, false}, {DLRM_ROWWISE_ADAGRAD, false}, {DLRM_ADAM, false}};
static const dlrm_dtype types[] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};
