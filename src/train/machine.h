/* A machine that a plan is made for: one rank's share of it. */
#pragma once
#include "comm/comm.h"
#include "config/config.h"
#include "model/placement.h"

typedef struct dlrm_machine {
    const char *name;       /* of the file that describes it; NULL: the machine is this one's kind */
    dlrm_device device;     /* auto: what this machine has */
    double memory_gib, host_memory_gib; /* what ranks' GPUs and shares of hosts have; 0: no bound */
    double memory_rate, network_rate, link_rate, flop_rate; /* bytes/s, FLOP/s; 0: as measured (dlrm_placement_rates, dlrm_machine_flops) */
} dlrm_machine;

/* YAML: device (cpu or cuda; needed), memory_gib, host_memory_gib, memory_gb_s, network_gb_s, link_gb_s, tflops: of each rank, rates each way.
 * DLRM_E_INPUT names the file's line, the key, what was found and what was expected. name: borrowed. */
dlrm_status dlrm_machine_load(const char *path, dlrm_machine *out) DLRM_MUST_USE;
/* The device (a GPU: 0) and the bytes that bound strategy auto, as dlrm_device_choose and dlrm_memory_budget would find them there. */
dlrm_status dlrm_machine_choose(const dlrm_machine *m, const dlrm_config *cfg, dlrm_comm *comm, int *device, int64_t *memory) DLRM_MUST_USE;
/* m: NULL for the machine that this runs on. */
void dlrm_machine_rates(const dlrm_machine *m, bool gpu, dlrm_placement_work *w);
/* FLOP/s of the MLPs as reached. */
double dlrm_machine_flops(const dlrm_machine *m, bool gpu, dlrm_dtype precision);
