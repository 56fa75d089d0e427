/* The op table with an NVTX range around each op, named after it, so that a profiler's timeline reads like model/step.c. A range is
 * of the host's time; profilers show with it what it enqueued. Without a profiler it costs a test of a pointer. */
#include <nvtx3/nvToolsExt.h>

#include "cuda_internal.h"

static const dlrm_backend_ops *plain;

#define RANGED(op, args_type)                                      \
    static void ranged_##op(dlrm_backend *be, const args_type *a)  \
    {                                                              \
        nvtxRangePushA(#op);                                       \
        plain->op(be, a);                                          \
        nvtxRangePop();                                            \
    }
RANGED(feed, dlrm_feed_args)
RANGED(linear_forward, dlrm_linear_forward_args)
RANGED(linear_backward, dlrm_linear_backward_args)
RANGED(cross_forward, dlrm_cross_forward_args)
RANGED(cross_backward, dlrm_cross_backward_args)
RANGED(interact_forward, dlrm_interact_args)
RANGED(interact_backward, dlrm_interact_args)
RANGED(loss, dlrm_loss_args)
RANGED(lookup, dlrm_lookup_args)
RANGED(sort, dlrm_lookup_args)
RANGED(row_squares, dlrm_update_args)
RANGED(update, dlrm_update_args)
RANGED(dense_update, dlrm_dense_update_args)

const dlrm_backend_ops *cuda_with_ranges(const dlrm_backend_ops *ops)
{
    static dlrm_backend_ops ranged;
    plain = ops;
    ranged = *ops;
    ranged.feed = ranged_feed;
    ranged.linear_forward = ranged_linear_forward;
    ranged.linear_backward = ranged_linear_backward;
    ranged.cross_forward = ranged_cross_forward;
    ranged.cross_backward = ranged_cross_backward;
    ranged.interact_forward = ranged_interact_forward;
    ranged.interact_backward = ranged_interact_backward;
    ranged.loss = ranged_loss;
    ranged.lookup = ranged_lookup;
    ranged.sort = ranged_sort;
    ranged.row_squares = ranged_row_squares;
    ranged.update = ranged_update;
    ranged.dense_update = ranged_dense_update;
    return &ranged;
}
