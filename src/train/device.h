/* What a rank computes on: the CPU, or one of its host's GPUs. */
#pragma once
#include "backend/backend.h"
#include "comm/exchange.h"
#include "config/config.h"

/* Collective. From `device` of the config: *device = -1 for CPU, else the GPU of this rank. auto: GPUs if this build has
 * CUDA and every host has a GPU for each of its ranks. Refuses what the device cannot do. */
dlrm_status dlrm_device_choose(const dlrm_config *cfg, dlrm_comm *comm, int *device) DLRM_MUST_USE;
/* Refuses what only a GPU can do. */
dlrm_status dlrm_device_check_cpu(const dlrm_config *cfg) DLRM_MUST_USE;
/* Bytes of the GPU's memory: those that are free, and all. */
dlrm_status dlrm_device_memory(int device, int64_t *free, int64_t *total) DLRM_MUST_USE;
/* The backend, and the transport that goes with it. */
dlrm_status dlrm_device_open(const dlrm_backend_args *args, dlrm_backend *out) DLRM_MUST_USE;
dlrm_status dlrm_device_open_exchange(const dlrm_exchange_args *args, dlrm_exchange *out) DLRM_MUST_USE;

/* A GPU's counters over a run. CPU: NULL, which is fine everywhere. */
typedef struct dlrm_cuda_meter dlrm_device_meter;
typedef struct dlrm_device_use {
    int64_t peak_bytes; /* most of the GPU's memory in use at a sample, by whomever */
    double watts, busy; /* mean power since the opening; mean share of time with work, over the samples. NAN: not known */
} dlrm_device_use;
dlrm_status dlrm_device_meter_open(int device, dlrm_device_meter **out) DLRM_MUST_USE;
void dlrm_device_meter_sample(dlrm_device_meter *m);
void dlrm_device_meter_read(dlrm_device_meter *m, dlrm_device_use *out);
void dlrm_device_meter_close(dlrm_device_meter **m);
