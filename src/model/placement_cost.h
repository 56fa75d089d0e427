/* What a placement costs: the time that a rank's embeddings take, from the bytes that its memory and its network move. The
 * MLPs are the same on every rank and left out. Pure arithmetic.
 *
 * A rank reads the rows of all ids of its slices, and for the update reads their gradients and reads and writes rows and
 * state; it sends its vectors to the samples' ranks and gets others', twice. Nothing is taken off for ids that repeat. A
 * replicated table costs each rank its own samples' rows, and what the sums of its rows' gradients move. Besides there are
 * the times of dlrm_placement_work that no byte explains. */
#pragma once
#include "model/placement.h"

/* What is looked up in a table for a sample. */
typedef struct dlrm_table_load {
    double ids, vectors;
    double positions; /* ids at most */
    bool keys;        /* whose rows the host looks up */
} dlrm_table_load;

dlrm_status dlrm_placement_loads(const dlrm_model_spec *spec, dlrm_table_load **out) DLRM_MUST_USE; /* [n_tables] */
/* Each rank's time, of a step. */
void dlrm_placement_seconds(const dlrm_placement_args *args, const dlrm_table_load *loads, const dlrm_placement *p, double *seconds);
/* A slice's share of its owner's. */
double dlrm_slice_seconds(const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks, const dlrm_slice *s);
/* Of weights and optimizer state. */
int64_t dlrm_slice_bytes(const dlrm_placement_work *w, const dlrm_slice *s);
/* strategy: auto. The arguments, with thresholds where none are given and a way to deal slices out, whose slowest rank takes
 * least, among those whose ranks hold at most args->memory, and at most a tenth more than under memory_balanced and
 * memory_optimized. DLRM_E_RUNTIME: none holds so little; the message names the largest tables and how many ranks would do. */
dlrm_status dlrm_placement_choose(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                  dlrm_placement_args *out) DLRM_MUST_USE;
/* The placement that these arguments give; strategy auto: slices by falling cost, each to the rank that has least to do. */
dlrm_status dlrm_placement_deal(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                dlrm_placement *out) DLRM_MUST_USE;
