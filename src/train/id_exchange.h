/* The exchange of ids of row formats: each rank has read the ids of all inputs for its own samples (dlrm_batch.packed)
 * and gets, for the inputs that it wants, those of all samples of the batch (of some inputs only its own, which go
 * nowhere). It runs in the background from start to finish.
 * Ids travel in as few bytes as their tables need (data/pack.h), and come in the order of the samples, so the batch is
 * the same on any number of ranks. */
#pragma once
#include "comm/comm.h"
#include "data/dataset.h"

typedef struct dlrm_id_exchange dlrm_id_exchange;

/* args: of the reader; wanted_by stays valid until close. */
dlrm_status dlrm_id_exchange_open(dlrm_comm *comm, const dlrm_model_spec *spec, const dlrm_reader_args *args,
                                  dlrm_id_exchange **out) DLRM_MUST_USE;
void dlrm_id_exchange_close(dlrm_id_exchange **x); /* copes with NULL; finishes what is in flight: collective then */

/* Collective. The batch stays valid until the exchange is finished. */
void dlrm_id_exchange_start(dlrm_id_exchange *x, const dlrm_batch *batch);
/* Collective. The batch with its inputs: ids valid until the next finish, the rest as long as the batch given to start. */
const dlrm_batch *dlrm_id_exchange_finish(dlrm_id_exchange *x);

/* The memory that finished ids lie in. */
void *dlrm_id_exchange_block(dlrm_id_exchange *x, size_t *bytes);
/* Predictions for a rank: memory taken, and bytes sent for each of its samples. */
int64_t dlrm_id_exchange_memory(const dlrm_model_spec *spec, const dlrm_reader_args *args);
int64_t dlrm_id_exchange_sample_bytes(const dlrm_model_spec *spec, const dlrm_reader_args *args);
