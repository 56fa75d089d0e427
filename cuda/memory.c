/* The CUDA backend's memory, on the GPU and page-locked on the host, and the small tables that each queue keeps for its
 * kernels. */
#include <string.h>

#include "base/mem.h"
#include "cuda_internal.h"

dlrm_status cuda_alloc(dlrm_backend *be, int64_t count, size_t size, const char *what, void *out)
{
    const cuda_impl *c = cuda_of(be);
    size_t bytes, available = 0, total = 0;
    void *p = NULL;
    *(void **)out = NULL;
    cuda_forget_sums(c);
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes))
        return FAIL(DLRM_E_RUNTIME, "GPU %d: cannot allocate %lld x %zu bytes for %s", c->device, (long long)count,
                    size, what);
    cudaError_t code = cudaMalloc(&p, bytes ? bytes : 1);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        cudaMemGetInfo(&available, &total);
        return FAIL(DLRM_E_RUNTIME, "GPU %d: cannot allocate %.3f GiB for %s (%s); %.3f of %.3f GiB are free",
                    c->device, (double)bytes / (1 << 30), what, cudaGetErrorString(code), (double)available / (1 << 30),
                    (double)total / (1 << 30));
    }
    code = cudaMemsetAsync(p, 0, bytes, c->compute.stream);
    if (code == cudaSuccess) code = cudaStreamSynchronize(c->compute.stream); /* seen by the other queues, too */
    if (code != cudaSuccess) return FAIL(DLRM_E_RUNTIME, "GPU %d: %s: %s", c->device, what, cudaGetErrorString(code));
    *(void **)out = p;
    return DLRM_OK;
}

void cuda_release(dlrm_backend *be, void *p)
{
    void **at = p;
    if (*at) {
        cuda_steps_forget(cuda_of(be));
        cuda_must(cuda_of(be), cudaFree(*at), "freeing memory");
    }
    *at = NULL;
}

/* All threads make the pages, which locking would do one by one: 0.05 s/GiB instead of 0.5 to 0.7. */
static void touch_pages(char *p, int64_t bytes)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < bytes; i += 4096) ((volatile char *)p)[i] = 0;
}

dlrm_status cuda_alloc_host(dlrm_backend *be, int64_t count, size_t size, const char *what, void *out)
{
    int64_t bytes;
    *(void **)out = NULL;
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)size, &bytes))
        return FAIL(DLRM_E_RUNTIME, "cannot allocate %lld x %zu bytes of host memory for %s", (long long)count, size,
                    what);
    if (bytes < DLRM_MEM_OWN_PAGES) bytes = DLRM_MEM_OWN_PAGES; /* a page is locked once */
    TRY(dlrm_alloc(bytes, 1, what, out));
    touch_pages(*(char **)out, bytes);
    const cudaError_t code =
        cudaHostRegister(*(void **)out, (size_t)bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (code == cudaSuccess) return DLRM_OK;
    (void)cudaGetLastError();
    dlrm_free(out);
    return FAIL(DLRM_E_RUNTIME, "GPU %d: cannot page-lock %.3f GiB of host memory for %s (%s); %.3f GiB are available",
                cuda_of(be)->device, (double)bytes / (1 << 30), what, cudaGetErrorString(code),
                (double)dlrm_mem_available() / (1 << 30));
}

void cuda_release_host(dlrm_backend *be, void *p)
{
    if (!*(void **)p) return;
    cuda_steps_forget(cuda_of(be));
    cuda_must(cuda_of(be), cudaHostUnregister(*(void **)p), "freeing host memory");
    dlrm_free(p);
}

/* Either side may be the host's. */
void cuda_upload(dlrm_backend *be, void *to, const void *from_host, size_t bytes)
{
    const cuda_impl *c = cuda_of(be);
    cuda_must(c, cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyDefault, c->compute.stream), "upload");
    cuda_must(c, cudaStreamSynchronize(c->compute.stream), "upload");
}

void cuda_download(dlrm_backend *be, void *to_host, const void *from, size_t bytes)
{
    const cuda_impl *c = cuda_of(be);
    cuda_must(c, cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDefault, c->compute.stream), "download");
    cuda_must(c, cudaStreamSynchronize(c->compute.stream), "what ran before a download");
}

dlrm_status cuda_pin(dlrm_backend *be, void *p, size_t bytes)
{
    if (bytes == 0) return DLRM_OK;
    const cudaError_t code = cudaHostRegister(p, bytes, cudaHostRegisterDefault);
    if (code == cudaSuccess) return DLRM_OK;
    (void)cudaGetLastError(); /* told here, not by the next kernel */
    return FAIL(DLRM_E_RUNTIME, "GPU %d: cannot pin %zu bytes of host memory: %s", cuda_of(be)->device, bytes, cudaGetErrorString(code));
}

/* What could not be pinned, or was not, is no error here: this closes, after an error also half-opened, things. */
void cuda_unpin(dlrm_backend *be, void *p)
{
    (void)be;
    if (cudaHostUnregister(p) != cudaSuccess) (void)cudaGetLastError();
}

/* --- small tables that kernels read --- */

const void *cuda_constant_of(const cuda_impl *c, cuda_queue *q, const void *host, size_t bytes)
{
    const bool recording = c->recording && q != &c->feed;
    cuda_constant *oldest = NULL;
    DLRM_ASSERT(bytes <= q->capacity);
    q->uses++;
    for (int i = 0; i < CONSTANTS; i++) {
        cuda_constant *k = &q->constants[i];
        if (k->bytes == bytes && memcmp(k->host, host, bytes) == 0) {
            k->used = q->uses;
            k->kept |= recording;
            return k->device;
        }
        if (!k->kept && (!oldest || k->used < oldest->used)) oldest = k;
    }
    DLRM_ASSERT(oldest);
    memcpy(oldest->host, host, bytes);
    oldest->bytes = bytes;
    oldest->used = q->uses;
    oldest->kept = recording;
    if (recording)
        cuda_upload_aside(c, oldest->device, oldest->host, bytes);
    else
        cuda_must(c, cudaMemcpyAsync(oldest->device, host, bytes, cudaMemcpyHostToDevice, q->stream), "upload");
    return oldest->device;
}

dlrm_status cuda_queue_open(dlrm_backend *be, cuda_queue *q, size_t capacity)
{
    q->capacity = capacity;
    for (int i = 0; i < CONSTANTS; i++) {
        TRY(dlrm_alloc(1, capacity, "kernel tables", &q->constants[i].host));
        TRY(cuda_alloc(be, 1, capacity, "kernel tables", &q->constants[i].device));
    }
    return DLRM_OK;
}

void cuda_queue_close(dlrm_backend *be, cuda_queue *q)
{
    for (int i = 0; i < CONSTANTS; i++) {
        dlrm_free(&q->constants[i].host);
        cuda_release(be, &q->constants[i].device);
    }
    if (q->stream) cudaStreamDestroy(q->stream);
}
