/* The update rules (backend.h, dlrm_rule), element by element, and their names as template arguments. */
#pragma once
#include "cuda/reduce.cuh"

enum rule_kind {
    RULE_SGD,
    RULE_MOMENTUM,
    RULE_ADAGRAD,
    RULE_ROWWISE,
    RULE_ADAM,
    /* nobody's names: */
    RULE_SUM,           /* w = g */
    RULE_ROWWISE_EXACT, /* squares are added as base/squares.h does, and with those of peers */
    RULE_SQUARES        /* no update: they are stored for peers */
};

static inline rule_kind rule_of(dlrm_optimizer_name name, bool momentum)
{
    switch (name) {
    case DLRM_ADAGRAD:
        return RULE_ADAGRAD;
    case DLRM_ROWWISE_ADAGRAD:
        return RULE_ROWWISE;
    case DLRM_ADAM:
        return RULE_ADAM;
    default:
        return momentum ? RULE_MOMENTUM : RULE_SGD;
    }
}

/* Runs the statement with KIND standing for the rule. Not for those that are nobody's names. */
#define WITH_RULE(rule, KIND, statement)             \
    switch (rule) {                                  \
    case RULE_SGD: {                                 \
        constexpr rule_kind KIND = RULE_SGD;         \
        statement;                                   \
        break;                                       \
    }                                                \
    case RULE_MOMENTUM: {                            \
        constexpr rule_kind KIND = RULE_MOMENTUM;    \
        statement;                                   \
        break;                                       \
    }                                                \
    case RULE_ADAGRAD: {                             \
        constexpr rule_kind KIND = RULE_ADAGRAD;     \
        statement;                                   \
        break;                                       \
    }                                                \
    case RULE_ROWWISE: {                             \
        constexpr rule_kind KIND = RULE_ROWWISE;     \
        statement;                                   \
        break;                                       \
    }                                                \
    case RULE_ADAM: {                                \
        constexpr rule_kind KIND = RULE_ADAM;        \
        statement;                                   \
        break;                                       \
    }                                                \
    case RULE_SUM:                                   \
    case RULE_ROWWISE_EXACT:                         \
    case RULE_SQUARES:                               \
        break;                                       \
    }

/* Arrays of state with as many elements as weights. */
template <rule_kind KIND> __host__ __device__ constexpr int rule_states()
{
    return KIND == RULE_ADAM ? 2 : KIND == RULE_MOMENTUM || KIND == RULE_ADAGRAD ? 1 : 0;
}

template <rule_kind KIND> __host__ __device__ constexpr bool rule_rowwise()
{
    return KIND == RULE_ROWWISE || KIND == RULE_ROWWISE_EXACT;
}

/* With rowwise adagrad, `rate` is the row's: lr / (√a + eps); else lr. */
template <rule_kind KIND>
__device__ __forceinline__ void rule_apply(const dlrm_rule &r, float rate, float &w, float g, float &s0, float &s1)
{
    if constexpr (KIND == RULE_MOMENTUM) {
        s0 = r.momentum * s0 + g;
        w -= rate * s0;
    } else if constexpr (KIND == RULE_ADAGRAD) {
        s0 += g * g;
        w -= rate * g / (sqrtf(s0) + r.epsilon);
    } else if constexpr (KIND == RULE_ADAM) {
        s0 = r.beta1 * s0 + (1 - r.beta1) * g;
        s1 = r.beta2 * s1 + (1 - r.beta2) * (g * g);
        w -= r.adam_rate * s0 / (sqrtf(s1) * r.adam_root + r.epsilon);
    } else if constexpr (KIND == RULE_SUM) {
        w = g;
    } else {
        w -= rate * g;
    }
}

template <rule_kind KIND, int V>
__device__ __forceinline__ void rule_apply(const dlrm_rule &r, float rate, vec<V> &w, const vec<V> &g, vec<V> &s0,
                                           vec<V> &s1)
{
#pragma unroll
    for (int i = 0; i < V; i++) rule_apply<KIND>(r, rate, w.v[i], g.v[i], s0.v[i], s1.v[i]);
}
