/* Which rank has what of which table: pure arithmetic, no calls, so any number of ranks can be planned in one process.
 *
 * A table is cut into slices; a slice has one owner, or lies on every rank (replicated). A table is whole, cut by
 * columns, or cut by rows, never both. Row slices are cyclic: with R ranks, row r of table t lies on rank (r + t) mod R,
 * so that ids of any order of frequency spread over the ranks (frequent ones mostly stand together at the low end).
 *
 * What an input gets of a slice is a part of its vector. Each owner has a pooled matrix [samples, width], in which every
 * part has its columns: the layout that travels. */
#pragma once
#include "config/spec.h"

enum { DLRM_EVERY_RANK = -1 /* an owner */, DLRM_WHOLE_BAG = -1 /* a position */ };

typedef struct dlrm_slice {
    int table;
    int owner;                         /* a rank, or DLRM_EVERY_RANK */
    int64_t first_row, row_step, rows; /* row i of the slice is the table's row first_row + i*row_step */
    int first_column, columns;
} dlrm_slice;

typedef struct dlrm_vector_part {
    int input, slice;
    int position; /* of the ids in their bag that it is made of; DLRM_WHOLE_BAG: all, pooled */
    int column;   /* of its first element in a row of its owner's pooled matrix */
} dlrm_vector_part;

typedef struct dlrm_placement {
    int ranks;
    int n_slices, n_parts;
    dlrm_slice *slices;     /* by table, then by first row or column */
    dlrm_vector_part *parts;       /* by input, then position, then slice */
    int *first_slice;       /* [n_tables+1] */
    int *first_part;        /* [n_inputs+1] */
    int64_t *width;         /* [ranks]: row width of the pooled matrix of a rank's own slices */
    int64_t *elements;      /* [ranks]: table elements that it owns */
    int *tables, *inputs;   /* [ranks]: slices and parts that it owns */
    int replicated_tables, replicated_inputs;
    int64_t replicated_width, replicated_elements; /* the same of what lies on every rank */
} dlrm_placement;

/* Strategies place what is neither replicated nor cut by rows. basic: slice k on rank k mod ranks. memory_balanced
 * (auto): by falling size, dealt out to and fro (0 … … 0). memory_optimized: by falling size, each to the rank
 * that holds least. */
typedef struct dlrm_placement_args {
    dlrm_strategy strategy;
    int64_t data_parallel; /* elements, -1: none. With several ranks, a table with at most so many is replicated */
} dlrm_placement_args;

dlrm_status dlrm_placement_make(const dlrm_model_spec *spec, const dlrm_placement_args *args, int ranks,
                                dlrm_placement *out) DLRM_MUST_USE;
void dlrm_placement_clear(dlrm_placement *p);

/* Does the rank need this input's ids of all samples? And those of its own samples? */
bool dlrm_placement_wants(const dlrm_placement *p, int input, int rank);
bool dlrm_placement_replicates(const dlrm_placement *p, int input);
/* Elements that a sample's rank receives for it, from all ranks together. */
int64_t dlrm_placement_received(const dlrm_placement *p);
/* "rank 3", "every rank", "8 row slices", "4 column slices": where a table lies. Returns buf. */
const char *dlrm_placement_text(const dlrm_placement *p, int table, char *buf, size_t bytes);
