/* The arithmetic of a step on one device: a table of ops with one implementation per device (cpu/; cuda). A backend
 * knows no model, no file and no other rank. Matrices are row-major fp32. Pointers are to the backend's own memory
 * unless marked host. Letters: B samples of the global batch, b samples of this rank, D width of a vector.
 *
 * Repeatability: every op gives the same bits on every call with the same arguments, on any number of threads. With
 * `pinned` set at opening, a sample's results also do not depend on how many samples the call has, and sums over samples
 * follow the cut's tree (base/tree.h), so they do not depend on the number of ranks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/tree.h"
#include "config/config.h"

typedef struct dlrm_backend dlrm_backend;

/* y = x w^T + bias, then max(0, ·) if relu. */
typedef struct dlrm_linear_forward_args {
    int64_t b, in, out;
    const float *x;    /* [b, in] */
    const float *w;    /* [out, in] */
    const float *bias; /* [out] */
    float *y;          /* [b, out] = */
    bool relu;
    const dlrm_cut *cut;
} dlrm_linear_forward_args;

/* dw = dz^T x, dbias = column sums of dz, both per node of the cut; dx = dz w, set to 0 where x is 0 if x came out of a
 * ReLU. */
typedef struct dlrm_linear_backward_args {
    int64_t b, in, out;
    const float *x;  /* [b, in] */
    const float *w;  /* [out, in] */
    const float *dz; /* [b, out], gradient of y before its ReLU */
    float *dx;       /* [b, in] =, or NULL: not wanted */
    bool x_is_relu;
    float *dw;           /* node i: [out, in] at dw + i*node_stride, = */
    float *dbias;        /* node i: [out] at dbias + i*node_stride, = */
    int64_t node_stride; /* elements */
    const dlrm_cut *cut;
} dlrm_linear_backward_args;

/* One vector per sample and slot, wherever it lies: sample s at data + s*stride. Slot 0 is the bottom output (or the
 * dense features, or absent: width 0); slots 1…n-1 are the inputs' pooled vectors. */
typedef struct dlrm_vector_slot {
    const float *data;
    int64_t stride;
    int width;
    float *grad;         /* backward: where its gradient goes, = ; NULL: not wanted */
    int64_t grad_stride;
} dlrm_vector_slot;

/* dot: out = [v0, v_i·v_j for i from 1, j < i, row by row]; cat: all slots; pool: means of windows over slots 1…, then
 * slot 0 (design.md section 5). */
typedef struct dlrm_interact_args {
    dlrm_interaction kind;
    int pool_stride;
    int64_t b;
    int n_slots;
    const dlrm_vector_slot *slots;
    int out_width;
    float *out;         /* forward: [b, out_width] = */
    const float *d_out; /* backward: [b, out_width] */
    bool slot0_is_relu; /* backward: slot 0's gradient is 0 where slot 0 is 0 */
} dlrm_interact_args;

/* Binary cross entropy of sigmoid(z): loss = max(z,0) - z y + log(1 + exp(-|z|)). */
typedef struct dlrm_loss_args {
    int64_t b;
    const float *logits, *labels; /* [b] */
    float *d_logits;              /* [b] = (sigmoid(z) - y) * scale, or NULL: loss alone */
    float scale;                  /* 1/B */
    double *loss;                 /* host, [n_nodes] = sum over the node's samples */
    const dlrm_cut *cut;
} dlrm_loss_args;

/* Tables of one rank and the inputs that look into them. */
typedef struct dlrm_table_shard {
    float *weight;   /* [rows, dim] */
    float *state[2]; /* as the optimizer needs: NULL, [rows, dim], or [rows] (rowwise_adagrad) */
    int64_t rows;
    int dim;
} dlrm_table_shard;

typedef struct dlrm_shard_input {
    int table;
    int hotness; /* maximum where variable */
    bool variable;
    bool mean;
    int column; /* of its vector in a row of the pooled matrix */
} dlrm_shard_input;

typedef struct dlrm_shard {
    int n_tables, n_inputs;
    dlrm_table_shard *tables;
    dlrm_shard_input *inputs;
    int64_t width;     /* W: row width of the pooled matrix */
    int64_t max_batch; /* largest B */
    void *work;        /* the backend's: made by shard_open, freed by shard_close */
} dlrm_shard;

/* The ids of one input for all B samples. */
typedef struct dlrm_bags {
    const int64_t *ids;     /* [count], each in [0, rows) */
    const int64_t *offsets; /* [B+1] or NULL: bag s is ids[s*hotness] … */
    int64_t count;
} dlrm_bags;

typedef struct dlrm_lookup_args {
    dlrm_shard *shard;
    int64_t B;
    const dlrm_bags *bags; /* [n_inputs] host array */
    float *pooled;         /* [B, W] = sum or mean of each bag's rows; an empty bag gives zeros */
} dlrm_lookup_args;

/* An optimizer's settings for one step. The update rules (design.md section 5), g = gradient:
 *   sgd: w -= lr g; with momentum: m = momentum m + g, w -= lr m
 *   adagrad: a += g², w -= lr g/(√a + eps);  rowwise_adagrad: a += mean of g² over the row
 *   adam: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g², w -= adam_rate m/(√v · adam_root + eps) */
typedef struct dlrm_rule {
    dlrm_optimizer_name name;
    float lr, momentum, epsilon, beta1, beta2;
    float adam_rate, adam_root; /* bias corrections; they differ for dense (torch Adam) and embedding (SparseAdam) */
} dlrm_rule;


typedef struct dlrm_update_args {
    dlrm_shard *shard;
    int64_t B;
    const dlrm_bags *bags;
    const float *d_pooled; /* [B, W] */
    dlrm_rule rule;
} dlrm_update_args;

typedef struct dlrm_dense_update_args {
    int64_t n;
    float *w;
    const float *g;
    float *state[2]; /* [n] as the rule needs */
    dlrm_rule rule;
} dlrm_dense_update_args;

typedef struct dlrm_table_init_args {
    float *weight;          /* [rows, dim] = uniform in ±scale */
    int64_t first, n;       /* elements [first, first+n) of the whole table go to weight[0…n) */
    uint64_t seed, stream;
    double scale;           /* √(1/rows) */
} dlrm_table_init_args;

/* Every slot is filled by every backend. */
typedef struct dlrm_backend_ops {
    const char *name;
    dlrm_status (*alloc)(dlrm_backend *, int64_t count, size_t size, const char *what, void *out); /* zeroed */
    void (*release)(dlrm_backend *, void *p);
    void (*upload)(dlrm_backend *, void *to, const void *from_host, size_t bytes);
    void (*download)(dlrm_backend *, void *to_host, const void *from, size_t bytes);
    void (*linear_forward)(dlrm_backend *, const dlrm_linear_forward_args *);
    void (*linear_backward)(dlrm_backend *, const dlrm_linear_backward_args *);
    void (*interact_forward)(dlrm_backend *, const dlrm_interact_args *);
    void (*interact_backward)(dlrm_backend *, const dlrm_interact_args *);
    void (*loss)(dlrm_backend *, const dlrm_loss_args *);
    dlrm_status (*shard_open)(dlrm_backend *, dlrm_shard *);
    void (*shard_close)(dlrm_backend *, dlrm_shard *);
    void (*lookup)(dlrm_backend *, const dlrm_lookup_args *);
    void (*sort)(dlrm_backend *, const dlrm_lookup_args *); /* `pooled` unused: orders the batch's rows for update */
    void (*update)(dlrm_backend *, const dlrm_update_args *);
    void (*dense_update)(dlrm_backend *, const dlrm_dense_update_args *);
    void (*table_init)(dlrm_backend *, const dlrm_table_init_args *);
    void (*fill)(dlrm_backend *, float *p, int64_t n, float value);
    void (*close)(dlrm_backend *);
} dlrm_backend_ops;

struct dlrm_backend {
    const dlrm_backend_ops *ops;
    void *impl;
};

typedef struct dlrm_backend_args {
    int threads;   /* of this rank, CPU */
    bool pinned;   /* see above */
    int max_width; /* largest layer input */
    int max_leaves;
    int max_slots, max_vector; /* of an interaction: slots, widest slot */
} dlrm_backend_args;

dlrm_status dlrm_cpu_backend_open(const dlrm_backend_args *args, dlrm_backend *out) DLRM_MUST_USE;
