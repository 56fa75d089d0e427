/* Which of a rank's tables lie in the host's memory where parallel.device_embedding_elements does not let all of them lie on the
 * device, and what a cache of their rows on the device has room for: pure arithmetic.
 *
 * The largest go first, until those that stay take half of the budget at most; those whose every row a batch may list, which a
 * cache would have to hold as a whole, stay, and those that the host has no room for. The cache has the rest of the budget. It has to hold all rows that two
 * batches may list: the one that is worked on, and the one that is brought in meanwhile. Replicated tables stay. */
#pragma once
#include "backend/backend.h"
#include "model/placement.h"

typedef struct dlrm_host_tables_args {
    int64_t budget; /* elements of weights on the device; -1: no limit */
    bool cached;    /* else rows in the host's memory are used where they lie, and the device has no more than the other tables */
    int64_t max_batch;
    int64_t host_room; /* elements that the host's memory has room for; -1: not known */
} dlrm_host_tables_args;

typedef struct dlrm_host_tables {
    bool *home;             /* [tables of the rank] in the order of the placement's `owned`; NULL: none is */
    int n_pools;
    dlrm_cache_pool *pools; /* by width, falling */
    int64_t device_elements, cache_elements, home_elements; /* of weights; device: without the cache */
} dlrm_host_tables;

/* Elements that stay on the device at most, beside a cache. */
static inline int64_t dlrm_host_tables_stay(const dlrm_host_tables_args *args)
{
    return args->cached ? args->budget / 2 : args->budget;
}

/* host_bytes: room for tables in the host's memory, or -1. */
dlrm_host_tables_args dlrm_host_tables_args_of(const dlrm_config *cfg, int64_t max_batch, int64_t host_bytes);
/* DLRM_E_INPUT, without the key's name: a budget too small, with the least that would do, which *out has, too. */
dlrm_status dlrm_host_tables_plan(const dlrm_model_spec *spec, const dlrm_placement *place, int rank, const dlrm_host_tables_args *args,
                                  dlrm_host_tables *out) DLRM_MUST_USE;
/* What the plan before was refused with, now with the key's name and place. */
dlrm_status dlrm_host_tables_fail(const dlrm_config *cfg) DLRM_MUST_USE;
void dlrm_host_tables_clear(dlrm_host_tables *h);
