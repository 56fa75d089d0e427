#include "train/device.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#ifdef DLRM_CUDA
#include "cuda/engine.h"
#endif

dlrm_status dlrm_device_check_cpu(const dlrm_config *cfg)
{
    if (cfg->train.precision != DLRM_FP32)
        return dlrm_config_fail(cfg, "train.precision", "is %s, which needs a GPU; on CPU expected fp32", dlrm_dtype_text(cfg->train.precision));
    return DLRM_OK;
}

#ifdef DLRM_CUDA
/* This rank's GPU is the one of its number on the host; *device -1: this host has none. */
static dlrm_status choose_gpu(const dlrm_config *cfg, dlrm_comm *comm, int *device)
{
    char why[300];
    const int gpus = dlrm_cuda_devices(why, sizeof why), ranks = dlrm_comm_local_ranks(comm);
    if (gpus == 0 && cfg->device == DLRM_DEVICE_CUDA) return dlrm_config_fail(cfg, "device", "is cuda, but this machine has no usable GPU: %s", why);
    if (gpus == 0) {
        dlrm_info("note: this build has CUDA, but there is no usable GPU here (%s); computing on CPU", why);
        return DLRM_OK;
    }
    if (ranks > gpus)
        return FAIL(DLRM_E_USAGE, "%d ranks on a host with %d GPU%s: start at most one rank for each GPU, or set device=cpu", ranks, gpus,
                    gpus > 1 ? "s" : "");
    *device = dlrm_comm_local_rank(comm);
    return dlrm_cuda_check(cfg, *device);
}

dlrm_status dlrm_device_choose(const dlrm_config *cfg, dlrm_comm *comm, int *device)
{
    *device = -1;
    if (cfg->device == DLRM_DEVICE_CPU) return dlrm_device_check_cpu(cfg);
    TRY(dlrm_comm_agree(comm, choose_gpu(cfg, comm, device)));
    int64_t without = *device < 0;
    dlrm_comm_sum_i64(comm, &without, 1);
    if (without > 0 && without < comm->ranks)
        return FAIL(DLRM_E_USAGE, "%lld of %d ranks are on hosts without a usable GPU; use other hosts, or set device=cpu", (long long)without,
                    comm->ranks);
    return without > 0 ? dlrm_device_check_cpu(cfg) : DLRM_OK;
}

dlrm_status dlrm_device_memory(int device, int64_t *free, int64_t *total)
{
    return dlrm_cuda_memory(device, free, total);
}

dlrm_status dlrm_device_open(const dlrm_backend_args *args, dlrm_backend *out)
{
    return args->device >= 0 ? dlrm_cuda_backend_open(args, out) : dlrm_cpu_backend_open(args, out);
}

dlrm_status dlrm_device_open_exchange(const dlrm_exchange_args *args, dlrm_exchange *out)
{
    return strcmp(args->be->ops->name, "cuda") == 0 ? dlrm_nccl_exchange_open(args, out) : dlrm_mpi_exchange_open(args, out);
}

dlrm_status dlrm_device_meter_open(int device, dlrm_device_meter **out)
{
    *out = NULL;
    return device >= 0 ? dlrm_cuda_meter_open(device, out) : DLRM_OK;
}

void dlrm_device_meter_sample(dlrm_device_meter *m)
{
    if (m) dlrm_cuda_meter_sample(m);
}

void dlrm_device_meter_read(dlrm_device_meter *m, dlrm_device_use *out)
{
    *out = (dlrm_device_use){.watts = NAN, .busy = NAN};
    if (m) dlrm_cuda_meter_read(m, &out->peak_bytes, &out->watts, &out->busy);
}

void dlrm_device_meter_close(dlrm_device_meter **m)
{
    dlrm_cuda_meter_close(m);
}

#else

dlrm_status dlrm_device_choose(const dlrm_config *cfg, dlrm_comm *comm, int *device)
{
    (void)comm;
    *device = -1;
    return dlrm_device_check_cpu(cfg);
}

dlrm_status dlrm_device_memory(int device, int64_t *free, int64_t *total)
{
    *free = *total = 0;
    return FAIL(DLRM_E_RUNTIME, "GPU %d: this build has no CUDA", device);
}

dlrm_status dlrm_device_open(const dlrm_backend_args *args, dlrm_backend *out)
{
    return dlrm_cpu_backend_open(args, out);
}

dlrm_status dlrm_device_open_exchange(const dlrm_exchange_args *args, dlrm_exchange *out)
{
    return dlrm_mpi_exchange_open(args, out);
}

dlrm_status dlrm_device_meter_open(int device, dlrm_device_meter **out)
{
    (void)device;
    *out = NULL;
    return DLRM_OK;
}

void dlrm_device_meter_sample(dlrm_device_meter *m)
{
    (void)m;
}

void dlrm_device_meter_read(dlrm_device_meter *m, dlrm_device_use *out)
{
    (void)m;
    *out = (dlrm_device_use){.watts = NAN, .busy = NAN};
}

void dlrm_device_meter_close(dlrm_device_meter **m)
{
    *m = NULL;
}

#endif
