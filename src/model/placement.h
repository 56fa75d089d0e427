/* Which rank holds which table: pure arithmetic, no calls, so any number of ranks can be planned in one process. */
#pragma once
#include "config/spec.h"

typedef struct dlrm_placement {
    int ranks;
    int *owner;             /* [n_tables] */
    int *column;            /* [n_inputs]: of the input's vector in a row of its owner's pooled matrix */
    int64_t *width;         /* [ranks]: row width of a rank's pooled matrix */
    int64_t *elements;      /* [ranks]: table elements held */
    int *tables, *inputs;   /* [ranks]: how many */
} dlrm_placement;

/* basic: table t on rank t mod ranks. memory_balanced (auto): tables by falling size, dealt out to and fro
 * (0 … … 0). memory_optimized: by falling size, each to the rank that holds least. */
dlrm_status dlrm_placement_make(const dlrm_model_spec *spec, dlrm_strategy strategy, int ranks, dlrm_placement *out) DLRM_MUST_USE;
void dlrm_placement_clear(dlrm_placement *p);
