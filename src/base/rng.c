#include "base/rng.h"

#include <math.h>

uint64_t dlrm_rng_stream(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

double dlrm_rng_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    dlrm_u32x4 u = dlrm_philox(seed, stream, i >> 1);
    double r = sqrt(-2.0 * log1p(-dlrm_unit_double(u.v[0], u.v[1]))), a = 2.0 * M_PI * dlrm_unit_double(u.v[2], u.v[3]);
    return i & 1 ? r * sin(a) : r * cos(a);
}
