/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
 * A number is a pure function of (seed, stream, index), so it is the same on any rank, thread or device. Streams are
 * 64-bit names; dlrm_rng_stream hashes text into one. Usable from CUDA. */
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define DLRM_HD __host__ __device__
#else
#define DLRM_HD
#endif

typedef struct dlrm_u32x4 {
    uint32_t v[4];
} dlrm_u32x4;

static inline DLRM_HD dlrm_u32x4 dlrm_philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    dlrm_u32x4 out = {{c0, c1, c2, c3}};
    return out;
}

/* [0, 1), 24 bits: exact in float. */
static inline DLRM_HD float dlrm_unit_float(uint32_t u)
{
    return (float)(u >> 8) * 0x1p-24f;
}

/* [0, 1), 53 bits. */
static inline DLRM_HD double dlrm_unit_double(uint32_t hi, uint32_t lo)
{
    return (double)(((uint64_t)hi << 21) ^ (lo >> 11)) * 0x1p-53;
}

/* The i-th element of a stream of floats in [0, 1): four elements share one Philox call. */
static inline DLRM_HD float dlrm_rng_uniform(uint64_t seed, uint64_t stream, uint64_t i)
{
    return dlrm_unit_float(dlrm_philox(seed, stream, i >> 2).v[i & 3]);
}

/* A tensor's stream of one step, from 1; 0: of its initial values. */
static inline DLRM_HD uint64_t dlrm_rng_at_step(uint64_t stream, uint64_t step)
{
    return stream + step;
}

#ifdef __cplusplus
extern "C" {
#endif
/* FNV-1a of a name, so that a tensor's numbers depend on its public name alone. */
uint64_t dlrm_rng_stream(const char *name);
/* The i-th standard normal of a stream (Box-Muller over one Philox call per pair). */
double dlrm_rng_normal(uint64_t seed, uint64_t stream, uint64_t i);
#ifdef __cplusplus
}
#endif
