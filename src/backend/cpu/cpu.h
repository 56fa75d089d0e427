/* Inside the CPU backend: what its files share. Threads are OpenMP threads over pieces of the batch, tiles of a weight
 * gradient, or pieces of the sorted ids; each piece runs on one thread, so results do not depend on their number. */
#pragma once
#include "backend/backend.h"
#include "base/hot.h"

typedef struct cpu_impl {
    int threads;
    bool pinned;
    int max_width, levels;
    uint64_t seed;
    float **scratch; /* [threads]: for linear_backward (tiles of partial sums) and interact (a sample's vectors) */
    int64_t scratch_floats;
    dlrm_vector_slot **wide; /* [threads][max_slots]: an interaction's slots where they do not travel as fp32 */
    double lap, seconds[DLRM_PHASES];
} cpu_impl;

static inline cpu_impl *cpu_of(dlrm_backend *be)
{
    return (cpu_impl *)be->impl;
}

void cpu_linear_forward(dlrm_backend *, const dlrm_linear_forward_args *);
void cpu_linear_backward(dlrm_backend *, const dlrm_linear_backward_args *);
void cpu_cross_forward(dlrm_backend *, const dlrm_cross_forward_args *);
void cpu_cross_backward(dlrm_backend *, const dlrm_cross_backward_args *);
void cpu_interact_forward(dlrm_backend *, const dlrm_interact_args *);
void cpu_interact_backward(dlrm_backend *, const dlrm_interact_args *);
void cpu_join_forward(dlrm_backend *, const dlrm_join_args *);
void cpu_join_backward(dlrm_backend *, const dlrm_join_args *);
void cpu_loss(dlrm_backend *, const dlrm_loss_args *);
dlrm_status cpu_shard_open(dlrm_backend *, dlrm_shard *);
void cpu_shard_close(dlrm_backend *, dlrm_shard *);
void cpu_lookup(dlrm_backend *, const dlrm_lookup_args *);
void cpu_sort(dlrm_backend *, const dlrm_lookup_args *);
void cpu_update(dlrm_backend *, const dlrm_update_args *);
void cpu_row_sums(dlrm_backend *, const dlrm_update_args *);
void cpu_row_squares(dlrm_backend *, const dlrm_update_args *);
void cpu_rows_update(dlrm_backend *, const dlrm_rows_update_args *);
void cpu_dense_update(dlrm_backend *, const dlrm_dense_update_args *);
void cpu_table_init(dlrm_backend *, const dlrm_table_init_args *);
void cpu_rows_renew(dlrm_backend *, const dlrm_rows_renew_args *);
void cpu_find_overflow(dlrm_backend *, const dlrm_overflow_args *);
void cpu_settle_scale(dlrm_backend *, const dlrm_settle_args *);
void cpu_scale_set(dlrm_backend *, const dlrm_scale *);
void cpu_scale_get(dlrm_backend *, dlrm_scale *);

/* One application of a rule to n elements whose gradient is known. s0, s1: state of these elements. Not for
 * rowwise_adagrad, which has the next. */
void cpu_rule_apply(const dlrm_rule *rule, int64_t n, float *w, const float *g, float *s0, float *s1);
/* n elements of a row; *a: its value, mean_square: of its gradient, over the whole row. */
void cpu_rowwise_apply(const dlrm_rule *rule, int64_t n, float *w, const float *g, float *a, float mean_square);
/* Sum of g²; exact: in no order (base/squares.h), else in double and in order: the same for any vector width. */
double cpu_sum_squares(int64_t n, const float *g, bool exact);
/* As dlrm_squares_add, n times. */
dlrm_squares cpu_exact_squares(int64_t n, const float *g);

/* Room that one thread needs for a sample of an interaction. */
int64_t cpu_interact_scratch(int slots, int max_width);
enum { CPU_WEIGHT_TILE = 64 }; /* rows of a weight gradient that one thread makes at a time */
