/* What the program sees of the CUDA engine. */
#pragma once
#include "backend/backend.h"
#include "comm/exchange.h"
#include "config/config.h"

/* GPUs that this process can use; 0: why not, in words. */
int dlrm_cuda_devices(char *why, size_t bytes);
/* Can this GPU, with the code in this build, run what the config asks for? */
dlrm_status dlrm_cuda_check(const dlrm_config *cfg, int device) DLRM_MUST_USE;
/* Bytes of this GPU's memory: those that are free, and all. */
dlrm_status dlrm_cuda_memory(int device, int64_t *free, int64_t *total) DLRM_MUST_USE;
/* A failing CUDA call inside an op ends the process: nothing sensible can follow. */
dlrm_status dlrm_cuda_backend_open(const dlrm_backend_args *args, dlrm_backend *out) DLRM_MUST_USE;
/* Collective. Over NCCL, beside the backend's compute queue. */
dlrm_status dlrm_nccl_exchange_open(const dlrm_exchange_args *args, dlrm_exchange *out) DLRM_MUST_USE;

/* A GPU's counters over a run. */
typedef struct dlrm_cuda_meter dlrm_cuda_meter;
dlrm_status dlrm_cuda_meter_open(int device, dlrm_cuda_meter **out) DLRM_MUST_USE;
/* Looks at memory in use, and at how busy the GPU was in the last moment. */
void dlrm_cuda_meter_sample(dlrm_cuda_meter *m);
/* Most memory in use at a sample, by whomever; mean power since the opening; mean of the busy shares. NAN: unknown. */
void dlrm_cuda_meter_read(dlrm_cuda_meter *m, int64_t *peak_bytes, double *watts, double *busy);
void dlrm_cuda_meter_close(dlrm_cuda_meter **m);
