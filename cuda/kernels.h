/* The device kernels of the CUDA backend: one C launcher per op, twins of src/backend/cpu. A launcher enqueues on the
 * given stream, never synchronizes, allocates nothing, and returns the launch's error. All pointers are to device
 * memory unless marked host. Every kernel gives the same bits on every run with the same arguments: sums have an order
 * that the data alone fixes, and no float is added atomically. Sizes that change the shape of a launch (B, b, n) are
 * arguments; what changes from step to step under a captured graph (rates, loss scale, skipping) is read from device
 * memory.
 *
 * Types: storage is DLRM_FP32, DLRM_BF16 or DLRM_FP16; sums are fp32 or better. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- embeddings: embedding.cu (plan, lookup), sort.cu, update.cu --- */

/* A table of the rank. The caller fills what stands above the line; plan fills the rest. */
typedef struct dlrm_cuda_table {
    void *weight;    /* [rows, dim], of the shard's dtype; with a cache: the pool's */
    float *state[2]; /* as in dlrm_table_shard; or the pool's */
    int64_t rows;
    int32_t dim;
    uint64_t stream; /* as in dlrm_table_shard */
    int64_t first_element, row_elements;
    int32_t n_peers;        /* as in dlrm_table_shard */
    const int64_t *peer_at; /* device */
    /* Of a table in the host's memory with a cache on the device: */
    int32_t pool;
    int32_t *slot;      /* [rows] in the pool of each row, -1: it is in home; NULL: no cache */
    int64_t *place;     /* the pool's [slots], for kernels that have a slot and need its row */
    void *home;         /* [rows, dim] */
    float *home_state[2];
    /* --- */
    int64_t first_key;             /* of its rows among the rows of all tables */
    int64_t first_pair;            /* pairs per sample of the tables before it */
    int32_t pairs;                 /* per sample: ids of all its inputs, at most */
    int32_t first_input, n_inputs; /* into shard.order */
    int64_t first_sum[2];          /* of its gradient sums among those of all tables: without and with marks */
    int32_t sums_pitch[2];         /* dlrm_sums_pitch of both */
} dlrm_cuda_table;

/* An input of the rank; as above. */
typedef struct dlrm_cuda_input {
    int32_t table, hotness, vectors, column; /* as in dlrm_shard_input */
    bool variable, mean;
    bool undivided, exact; /* as in dlrm_shard_input */
    /* --- */
    int32_t first_vector; /* vectors per sample of the inputs before it */
    int32_t first_pair; /* pairs per sample of the table's inputs before it, at most */
    int32_t first_block, blocks; /* of a lookup, among those that share some samples: more where bags are long */
} dlrm_cuda_input;

/* One of the vectors that a sample has. */
typedef struct dlrm_cuda_vector {
    int32_t input, table;
    int32_t column; /* in a row of the pooled matrix */
    bool mean;      /* of the input */
} dlrm_cuda_vector;

/* The ids of one input. */
typedef struct dlrm_cuda_bags {
    const uint32_t *ids;    /* each in [0, rows) */
    const int64_t *offsets; /* [B*vectors+1] from 0, or NULL, as in dlrm_bags */
    const int64_t *whole;   /* as in dlrm_bags */
} dlrm_cuda_bags;

/* The tables and inputs of a rank, ready for launches. Passed to kernels by value. */
typedef struct dlrm_cuda_shard {
    int32_t n_tables, n_inputs, n_vectors;
    int32_t max_dim;
    int32_t key_bits; /* of a sort */
    bool wide_keys;   /* 64-bit keys */
    bool plain;       /* no table has a cache, no sample several vectors of an input, and none travels as fp32 between others */
    dlrm_dtype dtype; /* of the tables' weights */
    int64_t width;    /* W: row width of the pooled matrix */
    int64_t pairs;    /* per sample, at most */
    int32_t blocks;   /* of a lookup, of all inputs, for the same samples */
    int64_t max_batch;
    const dlrm_cuda_table *tables;
    const dlrm_cuda_input *inputs;
    const int32_t *order; /* inputs by table */
    dlrm_cuda_vector *vectors; /* [n_vectors]: of a sample, by input */
    float *partial;       /* sums of pieces of long runs, [2 per 32 pairs][max_dim rounded up to 4] */
    size_t shard_bytes;   /* memory for bind */
    size_t batch_bytes;   /* memory for the result of one sort */
    size_t work_bytes;    /* memory for a sort while it runs */
    size_t sort_bytes;    /* CUB's part of it */
} dlrm_cuda_shard;

/* Partial sums to be added up: `count` of them, the first of the piece at pair `at`. */
typedef struct dlrm_cuda_run {
    int64_t at;
    int32_t count;
    bool first, last; /* of its run of equal keys */
} dlrm_cuda_run;

/* The result of a sort: all (row, bag) pairs of a batch ordered by (row, sample, input, position). */
typedef struct dlrm_cuda_sorted {
    void *keys; /* [pairs] u32 or u64: table's first_key + row; a pad at the end of a table's part has the row `rows` */
    uint32_t *bags;               /* [pairs] sample * n_vectors + number of the vector */
    uint8_t *flags;               /* [pairs] where a run of equal keys, and each 32 of it, begins and ends */
    dlrm_cuda_run *groups, *tops; /* long runs: what to add up a second and a third time */
    int32_t *counts;              /* [2] of groups and tops */
} dlrm_cuda_sorted;

/* Fills the lower parts of tables[] and inputs[] (host arrays), order[n_inputs] (host), and *out except its pointers.
 * cudaErrorInvalidValue: a batch has more bags or pairs than 32 bits count. */
cudaError_t dlrm_cuda_shard_plan(int n_tables, dlrm_cuda_table *tables, int n_inputs, dlrm_cuda_input *inputs,
                                 int32_t *order, dlrm_dtype dtype, int64_t width, int64_t max_batch,
                                 dlrm_cuda_shard *out);
/* Copies the host arrays to `memory` (shard_bytes, aligned to 256) and sets the pointers. Synchronous. */
cudaError_t dlrm_cuda_shard_bind(dlrm_cuda_shard *shard, const dlrm_cuda_table *tables, const dlrm_cuda_input *inputs,
                                 const int32_t *order, void *memory);
/* Lays a sort's result out in `memory` (batch_bytes, aligned to 256). No call of CUDA. */
void dlrm_cuda_sorted_bind(const dlrm_cuda_shard *shard, void *memory, dlrm_cuda_sorted *out);

/* out [B, W] of dtype `type` = sum or mean of each bag's rows, in the bag's order; an empty bag gives zeros. bags:
 * device array [n_inputs]. Columns that are no input's are left alone. most: of the multiprocessors
 * that it may use, each of which it then fills, leaving the others to kernels beside it; 0: all, as it comes. */
cudaError_t dlrm_cuda_lookup(const dlrm_cuda_shard *shard, const dlrm_cuda_bags *bags, int64_t B, void *out,
                             dlrm_dtype type, int most, cudaStream_t stream);
/* work: work_bytes, aligned to 256; not shared by sorts that may run at the same time. */
cudaError_t dlrm_cuda_sort(const dlrm_cuda_shard *shard, const dlrm_cuda_bags *bags, int64_t B,
                           const dlrm_cuda_sorted *sorted, void *work, cudaStream_t stream);

/* What an update reads from device memory. */
typedef struct dlrm_cuda_step {
    dlrm_rule dense, embedding;
    uint64_t seed, step; /* keys of random bits */
    float loss_scale;    /* d_logits are multiplied by it; 1 without loss scaling */
    float unscale;       /* gradients are multiplied by it before an update: 1/loss_scale */
    int32_t skip;        /* not 0: updates change nothing */
    int32_t found;       /* not 0: an element that is not finite */
    int32_t good;        /* as in dlrm_scale */
    int64_t skipped;
} dlrm_cuda_step;

/* Squares of rows' gradients, as in dlrm_update_args. */
typedef struct dlrm_cuda_squares {
    dlrm_squares *own;
    const dlrm_squares *peers;
} dlrm_cuda_squares;

/* One read and one write per touched row. d_pooled [B, W] of dtype `type`. name, momentum: as in step->embedding, to
 * choose the kernel by. `sorted` came out of a sort of the same bags and B. squares: with rowwise_adagrad they are added as
 * base/squares.h does, and with those of the tables' peers; NULL: in doubles, and no table has peers. */
cudaError_t dlrm_cuda_update(const dlrm_cuda_shard *shard, const dlrm_cuda_bags *bags, int64_t B,
                             const dlrm_cuda_sorted *sorted, const void *d_pooled, dlrm_dtype type,
                             dlrm_optimizer_name name, bool momentum, const dlrm_cuda_squares *squares,
                             const dlrm_cuda_step *step, cudaStream_t stream);
/* squares->own = of the gradients of tables with peers. */
cudaError_t dlrm_cuda_row_squares(const dlrm_cuda_shard *shard, const dlrm_cuda_bags *bags, int64_t B,
                                  const dlrm_cuda_sorted *sorted, const void *d_pooled, dlrm_dtype type,
                                  const dlrm_cuda_squares *squares, const dlrm_cuda_step *step, cudaStream_t stream);

/* The same with the rule w = g, for tables of fp32: a row that bags list = its gradient. */
cudaError_t dlrm_cuda_row_sums(const dlrm_cuda_shard *shard, const dlrm_cuda_bags *bags, int64_t B,
                               const dlrm_cuda_sorted *sorted, const void *d_pooled, dlrm_dtype type,
                               const dlrm_cuda_step *step, cudaStream_t stream);
/* rows_update.cu; sums, marked: as in dlrm_rows_update_args. most_rows: of a table. */
cudaError_t dlrm_cuda_rows_update(const dlrm_cuda_shard *shard, const float *sums, bool marked, int64_t most_rows,
                                  dlrm_optimizer_name name, bool momentum, const dlrm_cuda_step *step,
                                  cudaStream_t stream);

/* --- cache.cu: rows of tables in the host's memory --- */

enum { DLRM_CUDA_BUCKET_BITS = 14, DLRM_CUDA_BUCKETS = 1 << DLRM_CUDA_BUCKET_BITS };

/* Counts of a pool. */
typedef struct dlrm_cuda_pool_counts {
    int32_t missing;              /* rows of the batch that are not in the pool */
    int32_t used, fresh;          /* slots that have ever held a row; slots behind them that missing rows get */
    int32_t wanted, taken;        /* slots that the other missing rows need; claimed for them */
    int32_t level;                /* rows that go were listed so often at most */
    int32_t hand, next, swept;    /* chunks of rows: where the sweep begins, and how many it has begun with, and looked at, from there */
    int64_t listed, found;        /* as in dlrm_cache_use */
} dlrm_cuda_pool_counts;

/* Room for rows of one width. A slot is free, or holds a row, whose values are then here and not in the table's home. */
typedef struct dlrm_cuda_pool {
    int32_t dim;
    int32_t slots;
    void *weight;        /* [slots, dim] */
    float *state[2];     /* [slots, state_width[k]], of which 0: none */
    int32_t state_width[2];
    int64_t *place;      /* [slots] table << 40 | row; -1: free */
    int32_t *batch;      /* [slots] number of the batch that listed it last */
    int64_t rows;        /* of all its tables, in order, as cache_number counts them */
    int32_t *slot;       /* [rows] where each is, -1: in home; each table has its own part of it */
    uint8_t *often;      /* [rows] batches that listed it, halved now and then */
    int64_t *missing[2]; /* [most rows that a batch lists] places of those that are not in the pool: as found, and in order */
    int32_t *victims;    /* [as many] slots that rows give up, in the order of their homes but for what runs side by side */
    int64_t *held;       /* [as many] places of what they hold */
    int32_t *buckets;    /* [DLRM_CUDA_BUCKETS] missing rows in each part of the host's memory */
    dlrm_cuda_pool_counts *counts;
} dlrm_cuda_pool;

/* Between a sort and what uses it, on the sort's stream: all rows that it lists, of tables with a cache, are in their pools. Rows
 * of this batch and of the one before, which may be worked on meanwhile, keep their slots. batch: its number among those
 * sorted, from 2. pools: device array of n_pools; host_pools: the same. */
cudaError_t dlrm_cuda_cache_fetch(const dlrm_cuda_shard *shard, int64_t B, const dlrm_cuda_sorted *sorted, int n_pools,
                                  const dlrm_cuda_pool *pools, const dlrm_cuda_pool *host_pools, int32_t batch,
                                  cudaStream_t stream);
/* Copies the rows of a pool home; they stay in it. */
cudaError_t dlrm_cuda_cache_write_back(const dlrm_cuda_shard *shard, const dlrm_cuda_pool *pool, cudaStream_t stream);

/* --- interaction: interact.cu (dot), concat.cu (cat, pool) --- */

/* A dlrm_vector_slot on the device. */
typedef struct dlrm_cuda_slot {
    const void *data;
    void *grad;                  /* NULL: not wanted */
    int64_t stride, grad_stride; /* elements */
    int32_t width;
    int32_t column; /* cat: of its vector in the output; pool: in the row of slots 1…, slot 0: in the output */
} dlrm_cuda_slot;

/* Slot 0, out and d_out have dtype `type`, data and gradients of the other slots `wire`; products are of `type`, to which
 * wider vectors may be rounded. exact: fp32 products (else TF32 where type is fp32). Columns of out from out_width to
 * out_stride are set to 0. */
typedef struct dlrm_cuda_interact {
    dlrm_interaction kind;
    dlrm_dtype type, wire;
    bool exact;
    int32_t pool_stride;
    int32_t n_slots, max_width;       /* max_width: of a slot */
    const dlrm_cuda_slot *slots;      /* device */
    const dlrm_cuda_slot *host_slots; /* host: the same, to choose the kernel by (alignment, widths) */
    int64_t b;
    int32_t out_width;
    int64_t out_stride; /* elements between rows of out and d_out */
    void *out;
    const void *d_out;
    bool slot0_is_relu;
} dlrm_cuda_interact;

cudaError_t dlrm_cuda_interact_forward(const dlrm_cuda_interact *a, cudaStream_t stream);
cudaError_t dlrm_cuda_interact_backward(const dlrm_cuda_interact *a, cudaStream_t stream);

/* --- join.cu: parts, vectors: device copies of those in dlrm_join_args --- */
cudaError_t dlrm_cuda_join_forward(const dlrm_join_args *a, const dlrm_join_part *parts,
                                   const dlrm_join_vector *vectors, dlrm_dtype type, cudaStream_t stream);
cudaError_t dlrm_cuda_join_backward(const dlrm_join_args *a, const dlrm_join_part *parts, dlrm_dtype type,
                                    cudaStream_t stream);

/* --- loss.cu --- */

/* Doubles of work space for a cut of b samples. */
int64_t dlrm_cuda_loss_work(const dlrm_cut *host_cut);
/* loss[node] = sum over the node's samples, joined in the tree; d_logits (or NULL) = (sigmoid(z) - y) * scale *
 * step->loss_scale (step NULL: 1). cut: device copy of host_cut. */
cudaError_t dlrm_cuda_loss(const float *logits, const float *labels, float *d_logits, float scale,
                           const dlrm_cuda_step *step, const dlrm_cut *cut, const dlrm_cut *host_cut, double *work,
                           double *loss, cudaStream_t stream);

/* --- optim.cu: flat arrays --- */

/* copy (or NULL): [n] of dtype copy_type, the new weights rounded. state as the rule needs. rowwise_adagrad treats the
 * array as one row and is no rule for dense parameters: refused (cudaErrorInvalidValue). */
cudaError_t dlrm_cuda_dense_update(int64_t n, float *w, const float *g, float *state0, float *state1,
                                   dlrm_optimizer_name name, bool momentum, const dlrm_cuda_step *step, void *copy,
                                   dlrm_dtype copy_type, cudaStream_t stream);
/* Elements [first, first+n) of the tensor: uniform in ±scale, rounded to nearest. */
cudaError_t dlrm_cuda_table_init(void *weight, dlrm_dtype type, int64_t first, int64_t n, uint64_t seed,
                                 uint64_t tensor, double scale, cudaStream_t stream);
/* The same of a slice of a table. */
cudaError_t dlrm_cuda_slice_init(const dlrm_table_init_args *a, cudaStream_t stream);
/* The rows' numbers are on the host, and travel with the launches. */
cudaError_t dlrm_cuda_rows_renew(const dlrm_cuda_shard *s, const dlrm_rows_renew_args *r, cudaStream_t stream);
cudaError_t dlrm_cuda_fill(float *p, int64_t n, float value, cudaStream_t stream);
/* Copies from the host, at most DLRM_CUDA_STORE bytes, a multiple of 4: they travel with the launch, so the host may
 * change them at once and nothing waits. */
enum { DLRM_CUDA_STORE = 256 };
cudaError_t dlrm_cuda_store(void *to, const void *from_host, size_t bytes, cudaStream_t stream);
/* Row r of `to` (pitch to_stride) = row r of `from` (pitch from_stride), rounded to nearest; columns beyond `width` of
 * `to`, up to to_stride, are set to 0. */
cudaError_t dlrm_cuda_convert_rows(const void *from, dlrm_dtype from_type, int64_t from_stride, void *to,
                                   dlrm_dtype to_type, int64_t to_stride, int64_t rows, int64_t width,
                                   cudaStream_t stream);
/* Sums n_parts partial sums [n_parts][stride] of n elements as dlrm_tree_fold does, given their levels (host array, or
 * NULL: all 0); the total ends in part 0, the others are used up. */
cudaError_t dlrm_cuda_tree_sum(float *parts, int64_t stride, int64_t n, int n_parts, const int *levels,
                               cudaStream_t stream);
/* Returns (in the stream's order) when all ranks are here, and what their kernels before this one wrote into any GPU's memory is there.
 * flags: device array [ranks] of the ranks' arrays [ranks], 0 at first; meetings: device, so far; *stop: host memory, not 0: give up. */
cudaError_t dlrm_cuda_meet(uint64_t *const *flags, int rank, int ranks, uint64_t *meetings, const int *stop, cudaStream_t stream);
/* *found = 1 if any of n elements is infinite or NaN, else unchanged. */
cudaError_t dlrm_cuda_find_nonfinite(const void *p, dlrm_dtype type, int64_t n, int32_t *found, cudaStream_t stream);

/* One thread each; see dlrm_overflow_args and dlrm_settle_args, after step->found was set by the above, which they reset.
 * The first also makes updates count again, with the scale that the loss had. */
cudaError_t dlrm_cuda_raise_flag(dlrm_cuda_step *step, float *flag, cudaStream_t stream);
cudaError_t dlrm_cuda_settle_scale(dlrm_cuda_step *step, const dlrm_settle_args *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
