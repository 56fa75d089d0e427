/* What a placement costs: the time that a rank's embeddings take, from the bytes that its memory and its network move. The
 * MLPs are the same on every rank and left out. Pure arithmetic.
 *
 * A rank reads the rows of all ids of its slices and writes vectors, and for the update reads a gradient for each id and reads and
 * writes rows and state of the different rows that the ids list, of which there are as many as draws of a power law give; it sends
 * its vectors to the samples' ranks and gets others', twice. Memory moves whole grains, so a row of 4 elements costs as much as one
 * of a grain. Rows that lie in the host's memory beside a device cross the link between the two, those that a cache does
 * not have (placement_home.c). A replicated table costs each rank its own samples' rows, and what the sums of its rows' gradients
 * move. Besides there are the times of dlrm_placement_work that no byte explains. */
#pragma once
#include "model/placement.h"

/* What is looked up in a table for a sample; and the different rows of a batch, expected. */
typedef struct dlrm_table_load {
    double ids, vectors;
    double positions; /* ids at most */
    double touched;
    bool keys;        /* whose rows the host looks up */
} dlrm_table_load;

/* An H200's as reached, or those of a rank that has one core (docs/benchmarks.md). Not batch, sizes and optimizer. */
void dlrm_placement_rates(bool gpu, dlrm_placement_work *w);

dlrm_status dlrm_placement_loads(const dlrm_model_spec *spec, const dlrm_placement_work *w, dlrm_table_load **out) DLRM_MUST_USE; /* [n_tables] */
/* Each rank's time, of a step, and the bytes of its tables in the host's memory beside a device (NULL: not asked for). A budget of
 * the device that is too small for a rank counts as DLRM_TOO_SMALL_S. */
dlrm_status dlrm_placement_seconds(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads,
                                   const dlrm_placement *p, double *seconds, int64_t *home) DLRM_MUST_USE;
#define DLRM_TOO_SMALL_S 1e6
/* Of a rank alone: what the rows of its tables that lie in the host's memory take, and their bytes with optimizer state. */
dlrm_status dlrm_placement_home(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads,
                                const dlrm_placement *p, int rank, double *seconds, int64_t *bytes) DLRM_MUST_USE;
/* Expected different ids among so many draws of a power law over n ids (0: uniform), and the share of draws of the x most frequent. */
double dlrm_power_law_different(double n, double alpha, double draws);
double dlrm_power_law_share(double n, double alpha, double x);
/* A slice's share of its owner's, all its rows on the device. */
double dlrm_slice_seconds(const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks, const dlrm_slice *s);
/* Of weights and optimizer state; and of the vocabulary that each owner of a table's slice has, where the memory that bounds tables holds
 * it. `more`: the rank has a slice of the table's other columns, so that what there is for each row is there already. */
int64_t dlrm_slice_bytes(const dlrm_model_spec *spec, const dlrm_placement_work *w, const dlrm_slice *s, bool more);
/* strategy: auto. The arguments, with thresholds where none are given and a way to deal slices out, whose slowest rank takes
 * least, among those whose ranks hold at most args->memory, and at most a tenth more than under memory_balanced and
 * memory_optimized. DLRM_E_RUNTIME: none holds so little; the message names the largest tables and how many ranks would do. */
dlrm_status dlrm_placement_choose(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                  dlrm_placement_args *out) DLRM_MUST_USE;
/* The placement that these arguments give; strategy auto: slices by falling cost, each to the rank that has least to do. */
dlrm_status dlrm_placement_deal(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                dlrm_placement *out) DLRM_MUST_USE;
