/* What a rank computes on: the CPU, or one of its host's GPUs. */
#pragma once
#include "backend/backend.h"
#include "comm/exchange.h"
#include "config/config.h"

/* Collective. From `device` of the config: *device = -1 for CPU, else the GPU of this rank. auto: GPUs if this build has
 * CUDA and every host has a GPU for each of its ranks. Refuses what the device cannot do. */
dlrm_status dlrm_device_choose(const dlrm_config *cfg, dlrm_comm *comm, int *device) DLRM_MUST_USE;
/* The backend, and the transport that goes with it. */
dlrm_status dlrm_device_open(const dlrm_backend_args *args, dlrm_backend *out) DLRM_MUST_USE;
dlrm_status dlrm_device_open_exchange(const dlrm_exchange_args *args, dlrm_exchange *out) DLRM_MUST_USE;
