/* As data/convert.h, but to memory that is not read soon: values go past the caches, on their way from the file to a batch,
 * which is larger than they are. Each function converts n values and returns whether all of them are valid; the batch has
 * them all in any case. `in` is not aligned and not changed; `out` is aligned to 16 bytes. No memory is taken, no lock. */
#pragma once
#include "config/feature_spec.h"

/* What ids are checked against; floats have no use for it. */
typedef bool dlrm_stream_values(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out);

dlrm_stream_values dlrm_stream_ids, dlrm_stream_dense, dlrm_stream_labels;
