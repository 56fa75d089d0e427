/* What the driver knows of a GPU beside the work: memory, and through NVML energy and how busy it is. libnvidia-ml comes with
 * the driver; it is loaded when a run starts, so that neither building nor starting needs it, and without it what only it
 * knows is unknown. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cuda_internal.h"
#include "engine.h"

/* NVML's own types, as its interface fixes them. */
typedef struct nvml_device *nvml_device;
typedef struct nvml_busy {
    unsigned int gpu, memory; /* percent of the last sampling period in which a kernel ran, memory was moved */
} nvml_busy;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus_id, nvml_device *out);
    int (*energy)(nvml_device, unsigned long long *millijoules); /* since the driver was loaded */
    int (*busy)(nvml_device, nvml_busy *out);
} nvml;

struct dlrm_cuda_meter {
    int device;
    nvml nvml; /* library NULL: not to be had */
    nvml_device handle;
    double start_s, start_j, busy_sum;
    int64_t peak_bytes, busy_samples;
};

dlrm_status dlrm_cuda_memory(int device, int64_t *free, int64_t *total)
{
    size_t f = 0, t = 0;
    cudaError_t code = cudaSetDevice(device);
    if (code == cudaSuccess) code = cudaMemGetInfo(&f, &t);
    *free = (int64_t)f;
    *total = (int64_t)t;
    return code == cudaSuccess ? DLRM_OK : FAIL(DLRM_E_RUNTIME, "GPU %d: %s", device, cudaGetErrorString(code));
}

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static bool load(nvml *n, const char *bus_id, nvml_device *handle)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) return false;
    if (find(n->library, "nvmlInit_v2", &n->init) && find(n->library, "nvmlShutdown", &n->shutdown) &&
        find(n->library, "nvmlDeviceGetHandleByPciBusId_v2", &n->find) && find(n->library, "nvmlDeviceGetTotalEnergyConsumption", &n->energy) &&
        find(n->library, "nvmlDeviceGetUtilizationRates", &n->busy) && n->init() == 0) {
        if (n->find(bus_id, handle) == 0) return true;
        n->shutdown();
    }
    dlclose(n->library);
    n->library = NULL;
    return false;
}

static double joules(dlrm_cuda_meter *m)
{
    unsigned long long mj;
    return m->nvml.library && m->nvml.energy(m->handle, &mj) == 0 ? 1e-3 * (double)mj : NAN;
}

dlrm_status dlrm_cuda_meter_open(int device, dlrm_cuda_meter **out)
{
    char bus_id[32];
    dlrm_cuda_meter *m;
    TRY(dlrm_alloc(1, sizeof *m, "the GPU's counters", out));
    m = *out;
    m->device = device;
    if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) == cudaSuccess) load(&m->nvml, bus_id, &m->handle);
    m->start_j = joules(m);
    m->start_s = dlrm_now();
    return DLRM_OK;
}

void dlrm_cuda_meter_sample(dlrm_cuda_meter *m)
{
    int64_t free, total;
    nvml_busy busy;
    if (dlrm_cuda_memory(m->device, &free, &total) == DLRM_OK && total - free > m->peak_bytes) m->peak_bytes = total - free;
    if (!m->nvml.library || m->nvml.busy(m->handle, &busy) != 0) return;
    m->busy_sum += busy.gpu;
    m->busy_samples++;
}

void dlrm_cuda_meter_read(dlrm_cuda_meter *m, int64_t *peak_bytes, double *watts, double *busy)
{
    dlrm_cuda_meter_sample(m);
    *peak_bytes = m->peak_bytes;
    *watts = (joules(m) - m->start_j) / (dlrm_now() - m->start_s);
    *busy = m->busy_samples ? m->busy_sum / (100.0 * (double)m->busy_samples) : NAN;
}

void dlrm_cuda_meter_close(dlrm_cuda_meter **meter)
{
    dlrm_cuda_meter *m = *meter;
    if (!m) return;
    if (m->nvml.library) {
        m->nvml.shutdown();
        dlclose(m->nvml.library);
    }
    dlrm_free(meter);
}
