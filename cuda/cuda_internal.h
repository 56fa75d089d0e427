/* Inside the CUDA engine: what its C files share. */
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "comm/comm.h"
#include "kernels.h"

/* Small tables that kernels read (slots of an interaction, inputs of a lookup, a cut): the same again and again. Each
 * queue keeps those used last, so that in a steady state nothing is uploaded. */
enum { CONSTANTS = 32 };
typedef struct cuda_constant {
    size_t bytes;
    bool kept; /* a recorded step reads it */
    uint64_t used;
    void *host, *device; /* [capacity] */
} cuda_constant;

typedef struct cuda_queue {
    cudaStream_t stream;
    cuda_constant constants[CONSTANTS];
    size_t capacity; /* bytes of one */
    uint64_t uses;
} cuda_queue;

enum { LAPS = 256 };

typedef struct cuda_matmuls cuda_matmuls;
typedef struct cuda_steps cuda_steps;

typedef struct cuda_impl {
    int device;
    bool pinned;
    dlrm_dtype precision;
    uint64_t seed; /* of random roundings */
    uint32_t operand_bytes; /* of an activation */
    cuda_queue compute, feed, beside;
    cudaEvent_t forked;             /* of the compute queue, when something was last put on the queue beside it */
    cudaEvent_t copied;             /* host memory of the batches fed has been read */
    cudaEvent_t fed;                /* of the slot begun last */
    cudaEvent_t done[DLRM_STAGES];  /* a slot's batch has been worked on */
    float *raw_dense;               /* a batch's dense features as they arrive */
    float *weights;
    void *weights_copy; /* in the activations' dtype; NULL: that is fp32 */
    int64_t n_weights;
    dlrm_cuda_step *step; /* device */
    bool recording;       /* what is put on the compute queue is noted down, not run */
    cuda_steps *steps;
    dlrm_cuda_slot *slots; /* [max_slots] host scratch */
    double *loss_work;
    int64_t loss_work_size;
    cuda_matmuls *matmuls;
    /* laps */
    cudaEvent_t lap[LAPS];
    dlrm_phase lap_phase[LAPS];
    int64_t laps;
    double seconds[DLRM_PHASES];
} cuda_impl;

static inline cuda_impl *cuda_of(dlrm_backend *be)
{
    return (cuda_impl *)be->impl;
}

/* Ends the process with a message that names the GPU and what failed. */
void cuda_must(const cuda_impl *c, cudaError_t code, const char *what);
__attribute__((noreturn)) void cuda_die(const cuda_impl *c, const char *what, const char *why);

/* memory.c */
dlrm_status cuda_alloc(dlrm_backend *be, int64_t count, size_t size, const char *what, void *out) DLRM_MUST_USE;
void cuda_release(dlrm_backend *be, void *p);
dlrm_status cuda_alloc_host(dlrm_backend *be, int64_t count, size_t size, const char *what, void *out) DLRM_MUST_USE;
void cuda_release_host(dlrm_backend *be, void *p);
void cuda_upload(dlrm_backend *be, void *to, const void *from_host, size_t bytes);
void cuda_download(dlrm_backend *be, void *to_host, const void *from, size_t bytes);
dlrm_status cuda_pin(dlrm_backend *be, void *p, size_t bytes) DLRM_MUST_USE;
void cuda_unpin(dlrm_backend *be, void *p);
/* Room for constants of at most so many bytes, on a queue whose stream is there; closing ends the stream, too. */
dlrm_status cuda_queue_open(dlrm_backend *be, cuda_queue *q, size_t capacity) DLRM_MUST_USE;
void cuda_queue_close(dlrm_backend *be, cuda_queue *q);
/* Device copy of `bytes` bytes, valid for what is enqueued on this queue next. */
const void *cuda_constant_of(const cuda_impl *c, cuda_queue *q, const void *host, size_t bytes);

/* What is put on the queue `beside` next runs when what is on the compute queue now has run. */
void cuda_fork(const cuda_impl *c);

/* From here on what is fed goes before the step: of chains of short kernels each would wait until all blocks of the step's kernel at hand
 * have found a place. Without a cache it gains nothing, and two GPUs lose a little by it. */
void cuda_feed_first(const dlrm_backend *be);

/* peers.c: memory that the GPUs of all ranks can write into. All but meet and stop are collective. */
typedef struct cuda_peers cuda_peers;
/* *out: NULL where the GPUs cannot reach each other, or are more than 16; to be closed also after an error. */
dlrm_status cuda_peers_open(dlrm_backend *be, dlrm_comm *comm, cuda_peers **out) DLRM_MUST_USE;
/* As dlrm_exchange_ops.share. */
dlrm_status cuda_peers_share(cuda_peers *p, int64_t bytes, const char *what, void **blocks) DLRM_MUST_USE;
/* What follows on the queue beside runs when all ranks are here, and sees what they wrote before. */
void cuda_peers_meet(const cuda_peers *p);
/* Nobody waits any more. */
void cuda_peers_stop(cuda_peers *p);
/* When nothing uses the memory any more. */
void cuda_peers_close(cuda_peers **p);

/* linear.c */
dlrm_status cuda_matmuls_open(dlrm_backend *be, const dlrm_backend_args *args) DLRM_MUST_USE;
/* There will be n weights. */
dlrm_status cuda_matmuls_weights(dlrm_backend *be, int64_t n) DLRM_MUST_USE;
void cuda_matmuls_close(dlrm_backend *be);
/* Memory may have come to hold something else. */
void cuda_forget_sums(const cuda_impl *c);
void cuda_linear_forward(dlrm_backend *be, const dlrm_linear_forward_args *a);
void cuda_linear_backward(dlrm_backend *be, const dlrm_linear_backward_args *a);
void cuda_cross_forward(dlrm_backend *be, const dlrm_cross_forward_args *a);
void cuda_cross_backward(dlrm_backend *be, const dlrm_cross_backward_args *a);

/* graph.c: training steps */
dlrm_status cuda_steps_open(dlrm_backend *be) DLRM_MUST_USE;
void cuda_steps_close(dlrm_backend *be);
/* Memory that recorded steps use may go: they will not be run again. */
void cuda_steps_forget(cuda_impl *c);
dlrm_step_mode cuda_step_begin(dlrm_backend *be, const dlrm_step *step);
void cuda_step_end(dlrm_backend *be);
/* The kernels that are enqueued next see these; within a step they are the step's own, and there already. */
void cuda_use_dense(const cuda_impl *c, const dlrm_rule *rule);
void cuda_use_embedding(const cuda_impl *c, const dlrm_rule *rule, uint64_t number);
/* Where the loss op is to put the loss that it should put to `loss`: [nodes]. */
double *cuda_loss_place(const cuda_impl *c, double *loss, int nodes);
/* In a step being recorded: a lap of it. */
void cuda_recorded_lap(const cuda_impl *c, dlrm_phase phase);
/* Adds the time of recorded steps. */
void cuda_recorded_laps(const cuda_impl *c, double *seconds);
/* The upload of a constant while a step is being recorded, of which it is no part. */
void cuda_upload_aside(const cuda_impl *c, void *to, const void *from_host, size_t bytes);

/* cache_pools.c: rows on the device of tables in the host's memory. NULL: no cache. */
typedef struct cuda_cache cuda_cache;
/* Tables that are `home` get what kernels need of the cache. *out: to be closed also after an error. */
dlrm_status cuda_cache_open(dlrm_backend *be, const dlrm_shard *s, dlrm_cuda_table *tables, cuda_cache **out) DLRM_MUST_USE;
void cuda_cache_close(dlrm_backend *be, cuda_cache **c);
/* On the feed queue, after a sort. */
void cuda_cache_fetch(dlrm_backend *be, cuda_cache *c, const dlrm_cuda_shard *shard, int64_t B, const dlrm_cuda_sorted *sorted);
void cuda_cache_write_back(dlrm_backend *be, const cuda_cache *c, const dlrm_cuda_shard *shard);
void cuda_cache_count(dlrm_backend *be, const cuda_cache *c, dlrm_cache_use *use);

/* vectors.c: tables and interaction */
dlrm_status cuda_shard_open(dlrm_backend *be, dlrm_shard *s);
void cuda_shard_close(dlrm_backend *be, dlrm_shard *s);
void cuda_feed(dlrm_backend *be, const dlrm_feed_args *a);
void cuda_lookup(dlrm_backend *be, const dlrm_lookup_args *a);
void cuda_sort(dlrm_backend *be, const dlrm_lookup_args *a);
void cuda_update(dlrm_backend *be, const dlrm_update_args *a);
void cuda_row_sums(dlrm_backend *be, const dlrm_update_args *a);
void cuda_row_squares(dlrm_backend *be, const dlrm_update_args *a);
void cuda_rows_update(dlrm_backend *be, const dlrm_rows_update_args *a);
void cuda_write_back(dlrm_backend *be, const dlrm_shard *s);
void cuda_cache_use(dlrm_backend *be, const dlrm_shard *s, dlrm_cache_use *use);
void cuda_rows_renew(dlrm_backend *be, const dlrm_rows_renew_args *a);
void cuda_join_forward(dlrm_backend *be, const dlrm_join_args *a);
void cuda_join_backward(dlrm_backend *be, const dlrm_join_args *a);
void cuda_interact_forward(dlrm_backend *be, const dlrm_interact_args *a);
void cuda_interact_backward(dlrm_backend *be, const dlrm_interact_args *a);

/* ranges.c: the same ops, each in an NVTX range of its name. */
const dlrm_backend_ops *cuda_with_ranges(const dlrm_backend_ops *ops);
