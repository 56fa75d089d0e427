/* The arithmetic of a step on one device: a table of ops with one implementation per device (cpu/; cuda/ in the root
 * folder). A backend knows no model, no file and no other rank. Pointers are to the backend's own memory unless marked
 * host. Letters: B samples of the global batch, b samples of this rank, D width of a vector.
 *
 * Types: activations (layer inputs and outputs and their gradients; void * here) have the backend's dtype `act`; weights,
 * their gradients and optimizer state are fp32, and so are the logits and their gradient: a layer of width 1 has them as
 * output. Tables, and the vectors that travel (`wire`: pooled ones and their gradients), are fp32, bf16 or fp16, whatever
 * act is; sums of rows and of gradients are fp32 and rounded to nearest once. Matrices are row-major; a row of w activations, and of a weight matrix with w inputs,
 * takes dlrm_pitch(w) elements, of which those beyond w are 0 and stay 0.
 *
 * Queues: an op may return before it has run. `feed` and `sort` run in order on one queue, all other ops in order on
 * another; slot_begin makes the second wait for the first. Collectives, and what is told to run `beside`, are in order on a
 * third, each behind what was on the second when it was started.
 *
 * Repeatability: every op gives the same bits on every call with the same arguments, of a backend opened alike: without
 * `pinned`, linear layers cut their products by the number of threads. With `pinned` set at opening, results do not
 * depend on that, nor a sample's on how many samples the call has, and sums over samples follow the cut's tree
 * (base/tree.h), so they do not depend on the number of ranks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/kinds.h"
#include "base/squares.h"
#include "base/status.h"
#include "base/tree.h"

typedef struct dlrm_backend dlrm_backend;

enum { DLRM_STAGES = 3 /* slots for batches on the device */, DLRM_SORTED = 2 /* the first so many can be sorted */ };

/* Where a step's time goes. */
typedef enum dlrm_phase {
    DLRM_PHASE_DATA,        /* waiting for the reader */
    DLRM_PHASE_LOOKUP,      /* of keys, of rows, pooling, sorting of ids */
    DLRM_PHASE_EXCHANGE,    /* vectors, their gradients, the MLPs' gradients */
    DLRM_PHASE_MLP,
    DLRM_PHASE_INTERACTION,
    DLRM_PHASE_UPDATE,
    DLRM_PHASES
} dlrm_phase;

/* y = x w^T + bias, then max(0, ·) if relu. */
typedef struct dlrm_linear_forward_args {
    int64_t b, in, out;
    const void *x;     /* [b, in] */
    const float *w;    /* [out, in] */
    const float *bias; /* [out], or NULL: none, and no ReLU */
    void *y;           /* [b, out] = */
    bool relu;
    const dlrm_cut *cut;
} dlrm_linear_forward_args;

/* dw = dz^T x, dbias = column sums of dz, both per node of the cut; dx = dz w (or dx += dz w), set to 0 where x is 0 if x
 * came out of a ReLU. */
typedef struct dlrm_linear_backward_args {
    int64_t b, in, out;
    const void *x;   /* [b, in] */
    const float *w;  /* [out, in] */
    const void *dz;  /* [b, out], gradient of y before its ReLU */
    void *dx;        /* [b, in] = (add_dx: +=), or NULL: not wanted */
    bool x_is_relu, add_dx; /* not both */
    float *dw;           /* node i: [out, in] at dw + i*node_stride, =; or NULL: not wanted */
    float *dbias;        /* node i: [out] at dbias + i*node_stride, =; or NULL: not wanted */
    int64_t node_stride; /* elements */
    const dlrm_cut *cut;
} dlrm_linear_backward_args;

/* What of a cross layer (model/cross.h) is not linear: y = x0 z + x, element by element. */
typedef struct dlrm_cross_forward_args {
    int64_t b;
    int width;
    const void *x0, *x, *z; /* [b, width] */
    void *y;                /* [b, width] = */
} dlrm_cross_forward_args;

/* dz = x0 dy, in the place of z; dx0 = z dy, the gradient that x0 has of being a factor. */
typedef struct dlrm_cross_backward_args {
    int64_t b;
    int width;
    const void *x0, *dy; /* [b, width] */
    void *z;             /* [b, width]: z, then = dz */
    void *dx0;           /* [b, width] =, or += with add_dx0 */
    bool add_dx0;
    bool x_is_x0;        /* x is x0 itself: dx0 gets its share of being x, dy, too */
} dlrm_cross_backward_args;

/* One vector per sample and slot, wherever it lies: sample s at data + s*stride. Slot 0 is the bottom output (or the
 * dense features, or absent: width 0); slots 1…n-1 are the inputs' pooled vectors. */
typedef struct dlrm_vector_slot {
    const void *data;
    int64_t stride; /* elements */
    int width;
    void *grad;     /* backward: where its gradient goes, = ; NULL: not wanted */
    int64_t grad_stride;
} dlrm_vector_slot;

/* dot: out = [v0, v_i·v_j for i from 1, j < i, row by row]; cat, dcn: all slots, to which dcn's cross layers come; pool:
 * means of windows over the w elements of slots 1…, then slot 0. n = ceil(w / pool_stride) windows: window j begins at
 * j*pool_stride - (n*pool_stride - w) / 2, is pool_stride long, and its mean is that of what lies inside [0, w). */
typedef struct dlrm_interact_args {
    dlrm_interaction kind;
    dlrm_dtype wire; /* of slots 1 …, their data and gradients; slot 0, out and d_out are activations */
    int pool_stride;
    int64_t b;
    int n_slots;
    const dlrm_vector_slot *slots;
    int out_width;
    void *out;          /* forward: [b, out_width] = */
    const void *d_out;  /* backward: [b, out_width] */
    bool slot0_is_relu; /* backward: slot 0's gradient is 0 where slot 0 is 0 */
} dlrm_interact_args;

/* Vectors whose parts come from several ranks, put together: `joined` = of each vector, its parts side by side, or added
 * in their order; then divided by the length of the sample's bag. Backward: each part's gradient = its columns of the
 * vector's, not divided (the update does that). */
typedef struct dlrm_join_part {
    const void *data; /* sample s at data + s*stride */
    void *grad;       /* backward, = */
    int64_t stride, grad_stride; /* elements */
    int width, column; /* column: in a row of `joined` */
    bool exact;        /* data is fp32 in the place of elements of `wire`: strides count those */
} dlrm_join_part;

typedef struct dlrm_join_vector {
    int first_part, n_parts; /* those that cover the same column are added */
    int column, width;
    const int64_t *whole;    /* [b+1] offsets of the bags that a mean divides by the lengths of; NULL: none */
} dlrm_join_vector;

typedef struct dlrm_join_args {
    dlrm_dtype wire; /* of all vectors here */
    int64_t b;
    int n_parts, n_vectors;
    const dlrm_join_part *parts;
    const dlrm_join_vector *vectors; /* side by side, without gaps */
    int width;                       /* of them all */
    void *joined;                    /* forward: [b, width] = */
    const void *d_joined;            /* backward: [b, width] */
} dlrm_join_args;

/* Binary cross entropy of sigmoid(z): loss = max(z,0) - z y + log(1 + exp(-|z|)). */
typedef struct dlrm_loss_args {
    int64_t b;
    const float *logits, *labels; /* [b] */
    float *d_logits;              /* [b] = (sigmoid(z) - y) * scale, or NULL: loss alone */
    float scale;                  /* 1/B */
    double *loss;                 /* [n_nodes] = sum over the node's samples */
    const dlrm_cut *cut;
} dlrm_loss_args;

/* Tables of one rank and the inputs that look into them. */
typedef struct dlrm_table_shard {
    void *weight;    /* [rows, dim] of the shard's dtype */
    float *state[2]; /* as the optimizer needs: NULL, [rows, dim], or [rows] (rowwise_adagrad) */
    int64_t rows;
    int dim;
    /* Names the table and its elements for random roundings: element c of row r here is number first_element +
     * r*row_elements + c of the whole table. */
    uint64_t stream;
    int64_t first_element, row_elements;
    bool home; /* weight and state are in the host's memory (alloc_host) */
    /* Of a slice by columns whose optimizer keeps a value for a whole row, of row_elements: other owners of columns, and
     * where in dlrm_update_args' squares each has its place, per sample. */
    int n_peers;
    const int64_t *peer_at; /* [n_peers] */
} dlrm_table_shard;

/* Room for rows of one width, with their state, in a cache on the device. */
typedef struct dlrm_cache_pool {
    int dim;
    int64_t rows;
} dlrm_cache_pool;

typedef struct dlrm_shard_input {
    int table;
    int hotness; /* ids of a bag; maximum where variable */
    int vectors; /* bags of a sample, which become as many vectors side by side: 1, or more where ids are not pooled */
    bool variable;
    bool mean;
    bool partial; /* its bags are parts of longer ones (of rows that other ranks have), whose lengths means divide by */
    bool undivided; /* lookup gives sums even so: who puts the parts together divides; so it is with several vectors */
    bool exact; /* lookup gives fp32, whatever `wire` is, in the place of twice as many elements; gradients are of `wire`, in the
                   first half. Column and W are even */
    int column; /* of its first vector in a row of the pooled matrix */
} dlrm_shard_input;

typedef struct dlrm_shard {
    dlrm_dtype dtype; /* of the tables' weights */
    dlrm_dtype wire;  /* of the pooled matrix and its gradient */
    int n_tables, n_inputs;
    dlrm_table_shard *tables;
    dlrm_shard_input *inputs;
    int64_t width;     /* W: row width of the pooled matrix */
    int64_t max_batch; /* largest B */
    /* Of tables that are `home`: rows that are sorted for an update are brought into a cache, where they stay as long as they are
     * used often; a pool for each width, with room for all rows that two batches may list. None: rows are used where they lie. */
    int n_pools;
    dlrm_cache_pool *pools;
    bool rowwise;      /* state is one value a row */
    void *work;        /* the backend's: made by shard_open, freed by shard_close */
} dlrm_shard;

/* Rows that sorted batches listed, each once a batch, of tables with a cache; and those of them that were in it. */
typedef struct dlrm_cache_use {
    int64_t listed, found;
} dlrm_cache_use;

/* The ids of one input for all B samples. Vector k of sample s is that of bag s*vectors + k. */
typedef struct dlrm_bags {
    const uint32_t *ids;    /* [count], each in [0, rows) */
    const int64_t *offsets; /* [B*vectors+1] or NULL: bag n is ids[n*hotness] … */
    int64_t count;
    const int64_t *whole;   /* [B+1] with `mean` and `partial`: offsets of what a sample's bags are parts of */
} dlrm_bags;

/* A batch as the reader has it, to be taken to the device. */
typedef struct dlrm_feed_args {
    dlrm_shard *shard;
    int slot; /* below DLRM_STAGES; free: the last batch in it has had its slot_end */
    int64_t B, b;
    int dense_features;
    const float *dense, *labels; /* host: [b, dense_features] without padding, [b] */
    const dlrm_bags *bags;       /* host: [n_inputs], of host memory; a backend without memory of its own (CPU) reads these ids
                                    until slot_end, so they stay as they are until then */
    void *to_dense;              /* [b, dense_features] = */
    float *to_labels;            /* [b] = */
    dlrm_bags *to_bags;          /* host: [n_inputs] = the same bags in the backend's memory */
} dlrm_feed_args;

typedef struct dlrm_lookup_args {
    dlrm_shard *shard;
    int64_t B;
    const dlrm_bags *bags; /* host: [n_inputs] of backend memory */
    void *pooled;          /* [B, W] = sum or mean of each bag's rows; an empty bag gives zeros */
    int slot;              /* sort: whose rows these are; below DLRM_SORTED. CPU keeps one batch sorted, whatever its slot:
                              update it before the next sort */
    bool beside;           /* lookup: runs beside the ops that follow, in the order of collectives that are started; a ticket of one that
                              is started later ends it, too */
} dlrm_lookup_args;

/* An optimizer's settings for one step. The update rules, g = gradient:
 *   sgd: w -= lr g; with momentum: m = momentum m + g, w -= lr m
 *   adagrad: a += g², w -= lr g/(√a + eps);  rowwise_adagrad: a += mean of g² over the whole row, whose squares are added
 *     as base/squares.h does with `pinned` or where columns have peers, else in doubles
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
    const void *d_pooled; /* [B, W] */
    dlrm_rule rule;
    uint64_t step;        /* from 1. Weights narrower than fp32 are read, updated in fp32 and rounded by random bits of
                             (seed of the backend, dlrm_rng_at_step(stream, step), element): base/half.h */
    int slot;             /* that sort filled */
    /* Of tables with peers: squares of the rows' gradients, over the own columns, as often as there are peers, and over each
     * peer's. Table t, peer i, the row whose first pair is number k of the table's sorted ones: at B*peer_at[i] + k, where k is
     * below B times the ids of the table's inputs, at most. NULL: no table has peers. */
    dlrm_squares *own_squares;
    const dlrm_squares *peer_squares;
} dlrm_update_args;

/* Loss scaling, for activations of few exponents: a step's d_logits are multiplied by a power of two, and gradients divided
 * by it as they are applied, which changes no result where nothing overflows. A step whose gradients are not all finite
 * updates nothing: skipped. The decision, the scale and Adam's bias corrections, which count updates that were made, are the
 * backend's, so that the host need not wait for a step's end. Scale 1: off; the ops below are not used then. CPU: always. */
typedef struct dlrm_scale {
    float scale;     /* of the next step */
    int good;        /* steps since it last changed, or one was skipped */
    int64_t skipped; /* steps so far */
} dlrm_scale;
/* After a skipped step half of it, after so many good ones in a row twice. */
enum { DLRM_FIRST_SCALE = 65536, DLRM_GOOD_STEPS = 2000 };

/* Vectors' gradients, before they are sent and summed. */
typedef struct dlrm_overflow_args {
    dlrm_dtype type;
    struct {
        const void *p;
        int64_t n;
    } part[2];
    float *flag; /* = 0, or infinity if any element is infinite or NaN; it is summed over ranks as a gradient */
} dlrm_overflow_args;

/* Before the updates of a step, with the summed gradients and the flag among them: the same on all ranks. Decides whether it
 * is skipped, and the next scale; sets Adam's adam_rate and adam_root of the step's rules (dense as torch.optim.Adam,
 * embedding as SparseAdam) from lr, the betas, and the number of updates: step number less steps skipped. */
typedef struct dlrm_settle_args {
    const float *g; /* [n] */
    int64_t n;
    double dense_betas[2], embedding_betas[2];
} dlrm_settle_args;

/* The update of tables whose gradients have been summed already, as those of replicated tables are over ranks. */
typedef struct dlrm_rows_update_args {
    dlrm_shard *shard;
    const float *sums; /* table after table: [rows, dlrm_sums_pitch], a row's gradient */
    bool marked;       /* behind a row's gradient stands a mark: the row does not change if it is 0. Else all rows take the rule:
                          only for rules that a gradient of 0 does not make a difference to */
    dlrm_rule rule;
    uint64_t step;     /* as in dlrm_update_args */
} dlrm_rows_update_args;

typedef struct dlrm_dense_update_args {
    int64_t n;
    float *w;
    const float *g;
    float *state[2]; /* [n] as the rule needs */
    dlrm_rule rule;
} dlrm_dense_update_args;

typedef struct dlrm_table_init_args {
    void *weight;                      /* [rows, columns] of this dtype = uniform in ±scale, rounded to nearest: a slice of the
                                          whole table, each element as there */
    dlrm_dtype dtype;
    int64_t first_row, row_step, rows; /* row i is the table's row first_row + i*row_step */
    int first_column, columns, dim;    /* dim: width of the table */
    uint64_t seed, stream;
    double scale;                      /* √(1/rows of the table) */
} dlrm_table_init_args;

/* Rows of a table that start anew: their initial weights, as table_init gave them, and `state_value` in their state. They are
 * among those that the batch whose slot has begun lists (so they are where its ops look for them). */
typedef struct dlrm_rows_renew_args {
    const dlrm_shard *shard;
    int table;                 /* of the shard */
    dlrm_table_init_args init; /* as of the whole table; `weight` unused */
    int64_t n;
    const uint32_t *rows;      /* host: [n] different rows, which may be changed once the op has returned */
    float state_value;
} dlrm_rows_renew_args;

/* A training step: what its ops are given that differs from one step to the next. All else that they are given is the same
 * in all steps of a slot and a B. */
typedef struct dlrm_step {
    int slot; /* of its batch */
    int64_t B;
    uint64_t number;            /* from 1 */
    dlrm_rule dense, embedding; /* of its updates */
    double *loss;               /* where the loss op puts it */
} dlrm_step;

typedef enum dlrm_step_mode {
    DLRM_STEP_RUN,    /* the ops run as they are called */
    DLRM_STEP_RECORD, /* they are noted down, and run at step_end; so do collectives beside them */
    DLRM_STEP_REPLAY  /* nothing is to be called: what was noted down runs at step_end */
} dlrm_step_mode;

/* Every op is there in every backend. */
typedef struct dlrm_backend_ops {
    const char *name;
    dlrm_status (*alloc)(dlrm_backend *, int64_t count, size_t size, const char *what, void *out); /* zeroed */
    void (*release)(dlrm_backend *, void *p);
    /* The host's memory, which the device can reach; elsewhere the same as alloc. */
    dlrm_status (*alloc_host)(dlrm_backend *, int64_t count, size_t size, const char *what, void *out); /* zeroed */
    void (*release_host)(dlrm_backend *, void *p);
    void (*upload)(dlrm_backend *, void *to, const void *from_host, size_t bytes);   /* done when it returns */
    void (*download)(dlrm_backend *, void *to_host, const void *from, size_t bytes); /* done when it returns */
    /* Host memory that batches will be fed from; unpin before it is freed. */
    dlrm_status (*pin)(dlrm_backend *, void *p, size_t bytes);
    void (*unpin)(dlrm_backend *, void *p);
    void (*feed)(dlrm_backend *, const dlrm_feed_args *);
    void (*feed_wait)(dlrm_backend *); /* returns when no copy out of fed host memory runs any more */
    void (*slot_begin)(dlrm_backend *, int slot);
    void (*slot_end)(dlrm_backend *, int slot);
    /* A step's ops, from lookup to dense_update, may stand between these two, within slot_begin and slot_end; laps begin with
     * one of nothing. The mode says what to do; the results are the same. Releasing memory ends what is noted down. */
    dlrm_step_mode (*step_begin)(dlrm_backend *, const dlrm_step *);
    void (*step_end)(dlrm_backend *);
    void (*linear_forward)(dlrm_backend *, const dlrm_linear_forward_args *);
    void (*linear_backward)(dlrm_backend *, const dlrm_linear_backward_args *);
    void (*cross_forward)(dlrm_backend *, const dlrm_cross_forward_args *);
    void (*cross_backward)(dlrm_backend *, const dlrm_cross_backward_args *);
    void (*interact_forward)(dlrm_backend *, const dlrm_interact_args *);
    void (*interact_backward)(dlrm_backend *, const dlrm_interact_args *);
    void (*join_forward)(dlrm_backend *, const dlrm_join_args *);
    void (*join_backward)(dlrm_backend *, const dlrm_join_args *);
    void (*loss)(dlrm_backend *, const dlrm_loss_args *);
    dlrm_status (*shard_open)(dlrm_backend *, dlrm_shard *);
    void (*shard_close)(dlrm_backend *, dlrm_shard *);
    void (*lookup)(dlrm_backend *, const dlrm_lookup_args *);
    void (*sort)(dlrm_backend *, const dlrm_lookup_args *); /* `pooled` unused: orders the batch's rows for update */
    void (*update)(dlrm_backend *, const dlrm_update_args *);
    /* `rule` unused: a row that bags list = the sum of its gradients, as update would find it; other rows stay. */
    void (*row_sums)(dlrm_backend *, const dlrm_update_args *);
    /* `rule` and peer_squares unused: own_squares = of tables with peers, in all the peers' places. Places without a row stay. */
    void (*row_squares)(dlrm_backend *, const dlrm_update_args *);
    void (*rows_update)(dlrm_backend *, const dlrm_rows_update_args *);
    /* Tables that are `home` have all their rows' values there. Waits for what has been asked for. */
    void (*write_back)(dlrm_backend *, const dlrm_shard *);
    void (*cache_use)(dlrm_backend *, const dlrm_shard *, dlrm_cache_use *); /* so far; waits for the steps so far */
    /* Weights of all layers lie in one array of n; weights_changed after they were uploaded. */
    dlrm_status (*weights_open)(dlrm_backend *, int64_t n, float **weights);
    void (*weights_changed)(dlrm_backend *);
    void (*dense_update)(dlrm_backend *, const dlrm_dense_update_args *); /* of the whole array */
    void (*find_overflow)(dlrm_backend *, const dlrm_overflow_args *);
    void (*settle_scale)(dlrm_backend *, const dlrm_settle_args *);
    void (*scale_set)(dlrm_backend *, const dlrm_scale *);
    void (*scale_get)(dlrm_backend *, dlrm_scale *); /* waits for the steps so far */
    void (*table_init)(dlrm_backend *, const dlrm_table_init_args *);
    void (*rows_renew)(dlrm_backend *, const dlrm_rows_renew_args *);
    void (*fill)(dlrm_backend *, float *p, int64_t n, float value);
    /* The time since the last lap was spent on this phase; DLRM_PHASES: on nothing of interest. */
    void (*lap)(dlrm_backend *, dlrm_phase phase);
    void (*laps)(dlrm_backend *, double *seconds); /* [DLRM_PHASES] so far */
    void (*close)(dlrm_backend *);
} dlrm_backend_ops;

struct dlrm_backend {
    const dlrm_backend_ops *ops;
    void *impl;
    dlrm_dtype act; /* fp32, bf16 or fp16 */
    size_t act_bytes;
    bool apart;       /* its memory is not the host's */
    int64_t host_room; /* bytes of the host's memory that tables may lie in where it is apart; -1: not known */
    int row_multiple; /* rows are padded to a multiple of so many elements */
};

static inline int dlrm_pitch(const dlrm_backend *be, int width)
{
    return width == 1 ? 1 : (width + be->row_multiple - 1) / be->row_multiple * be->row_multiple;
}

/* Elements from one row of gradient sums to the next: marked rows have a place for the mark, and stay aligned. */
static inline int dlrm_sums_pitch(int dim, bool marked)
{
    return marked ? dim / 4 * 4 + 4 : dim;
}

typedef struct dlrm_backend_args {
    int threads;   /* of this rank, CPU */
    bool pinned;   /* see above */
    int max_width; /* largest layer input or output */
    int max_leaves;
    int max_slots, max_vector; /* of an interaction: slots, widest slot; and parts of vectors to be joined */
    dlrm_dtype precision;      /* fp32, tf32, bf16 or fp16 */
    int device;                /* CUDA: which GPU */
    int64_t host_room;         /* as in dlrm_backend */
    int64_t max_batch;         /* largest B */
    int dense_features;
    uint64_t seed;             /* of random roundings */
} dlrm_backend_args;

/* precision: fp32 alone. */
dlrm_status dlrm_cpu_backend_open(const dlrm_backend_args *args, dlrm_backend *out) DLRM_MUST_USE;
