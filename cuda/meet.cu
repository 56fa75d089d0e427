/* Ranks whose GPUs write into each other's memory tell each other that what they wrote is there. */
#include "cuda/reduce.cuh"

__device__ __forceinline__ void tell(uint64_t *flag, uint64_t number)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(number) : "memory");
}

__device__ __forceinline__ uint64_t told(const uint64_t *flag)
{
    uint64_t number;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(number) : "l"(flag) : "memory");
    return number;
}

/* A thread a rank. All that the kernels before this one wrote, wherever to, is seen by who sees its flag (the end of a kernel alone
 * promises that to its own GPU only). */
__global__ void __launch_bounds__(1024) meet_kernel(uint64_t *const *flags, int rank, int ranks, uint64_t *meetings, const volatile int *stop)
{
    const int p = threadIdx.x;
    const uint64_t number = *meetings + 1;
    __syncthreads();
    if (p == 0) *meetings = number;
    if (p == rank) return;
    __threadfence_system();
    tell(flags[p] + rank, number);
    while (told(flags[rank] + p) < number && !*stop) __nanosleep(20);
}

cudaError_t dlrm_cuda_meet(uint64_t *const *flags, int rank, int ranks, uint64_t *meetings, const int *stop, cudaStream_t stream)
{
    if (ranks > 1024) return cudaErrorInvalidValue;
    meet_kernel<<<1, (unsigned)ranks, 0, stream>>>(flags, rank, ranks, meetings, stop);
    return cudaGetLastError();
}
