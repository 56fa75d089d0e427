/* Two machines that placements are made for, as measured: docs/benchmarks.md has how well they foretell. */
#include "model/placement_cost.h"

/* Copies reach 4.28 TB/s, random rows 3.9. An id costs its share of the sort and of its way to the GPU. Rows anywhere in
 * gigabytes of the host's memory come at 31 (512 bytes) to 41 million/s (64), where 55 GB/s would be 107 million. */
static void h200(dlrm_placement_work *w)
{
    w->memory_rate = 3.9e12;
    w->network_rate = 270e9;
    w->link_rate = 55e9;
    w->link_row_s = 20e-9;
    w->grain = 32;
    w->id_s = 75e-12;
    w->vector_s = w->far_s = 0;
    w->near_bytes = 0;
    w->slice_s = 0.5e-6;
    /* Copies on two GPUs, fitted to MLPerf's model with 11, 17 and 20 tables copied and Small with 70. */
    w->replicated_s = 25e-6;
    w->copy_s = 8e-6;
    w->sums_rate = 160e9;
}

/* One core of a server: a row that is not in its caches, nor beside the last one, costs a wait that prefetching halves. */
static void cpu_core(dlrm_placement_work *w)
{
    w->memory_rate = 20e9;
    w->network_rate = 5e9;
    w->link_rate = 0;
    w->grain = 64;
    w->id_s = 8e-9;
    w->vector_s = 8e-9;
    w->far_s = 20e-9;
    w->near_bytes = 2 << 20;
    w->slice_s = 2e-6;
    w->replicated_s = 10e-6;
    w->copy_s = w->slice_s;
    w->sums_rate = w->network_rate;
}

void dlrm_placement_rates(bool gpu, dlrm_placement_work *w)
{
    (gpu ? h200 : cpu_core)(w);
    w->pick_s = 2.5e-9;
    w->translate_s = 30e-9;
}
