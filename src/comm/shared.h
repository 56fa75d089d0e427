/* Host memory that all ranks can write into, where they are all on one host: each rank's block, mapped by every rank. It needs no room
 * in /dev/shm, and goes with the last process that has it, however that ends. */
#pragma once
#include "comm/comm.h"

typedef struct dlrm_shared {
    int rank, ranks;
    void **blocks;  /* [ranks] as seen from here; NULL: memory cannot be shared, on any rank */
    int64_t *bytes; /* [ranks] */
} dlrm_shared;

/* bytes: of this rank's block, which may differ by rank; zeroed, and counted as this rank's. Collective. */
dlrm_status dlrm_shared_open(dlrm_comm *c, int64_t bytes, dlrm_shared *out) DLRM_MUST_USE;
void dlrm_shared_close(dlrm_shared *s);
