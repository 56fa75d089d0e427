/* Checks in tests that run on several ranks. A rank that stopped at its first failed check would leave the others
 * waiting in a collective: so failures are counted, and the verdict is the sum over all ranks. */
#pragma once
#include <stdio.h>

#include "comm/comm.h"

static int64_t failures;

#define CHECK(comm, holds, ...)                                                                               \
    do {                                                                                                      \
        if (!(holds) && failures++ < 10) {                                                                    \
            char why_[300];                                                                                   \
            snprintf(why_, sizeof why_, __VA_ARGS__);                                                         \
            fprintf(stderr, "%s:%d: rank %d of %d: %s does not hold: %s\n", __FILE__, __LINE__, (comm)->rank, \
                    (comm)->ranks, #holds, why_);                                                             \
        }                                                                                                     \
    } while (0)

/* Collective; the exit code of the test. */
static inline int verdict(dlrm_comm *comm)
{
    int64_t all = failures;
    dlrm_comm_sum_i64(comm, &all, 1);
    if (comm->rank == 0) printf("%s on %d ranks\n", all ? "FAILED" : "passed", comm->ranks);
    return all != 0;
}
