#include "mt19937.h"

#include <string.h>

enum { N = DLRM_MT_WORDS, M = 397 };

void dlrm_mt_seed(dlrm_mt19937 *g, uint32_t seed)
{
    g->state[0] = seed;
    for (uint32_t i = 1; i < N; i++) g->state[i] = 1812433253u * (g->state[i - 1] ^ g->state[i - 1] >> 30) + i;
    g->next = N;
}

static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t y = (high & 0x80000000u) | (low & 0x7FFFFFFFu);
    return y >> 1 ^ (-(low & 1) & 0x9908B0DFu);
}

static void refill(dlrm_mt19937 *g)
{
    uint32_t *s = g->state;
    for (int i = 0; i < N - M; i++) s[i] = s[i + M] ^ twist(s[i], s[i + 1]);
    for (int i = N - M; i < N - 1; i++) s[i] = s[i + M - N] ^ twist(s[i], s[i + 1]);
    s[N - 1] = s[M - 1] ^ twist(s[N - 1], s[0]);
    g->next = 0;
}

static uint32_t draw(dlrm_mt19937 *g)
{
    if (g->next == N) refill(g);
    uint32_t y = g->state[g->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

/* Masked rejection: of each number as many low bits as n-1 has, until they are below n. */
void dlrm_mt_randint(dlrm_mt19937 *g, uint32_t n, int64_t count, uint32_t *out)
{
    if (n == 1) {
        memset(out, 0, (size_t)count * sizeof *out);
        return;
    }
    uint32_t last = n - 1, mask = UINT32_MAX >> __builtin_clz(last);
    for (int64_t i = 0; i < count; i++) {
        uint32_t v;
        do v = draw(g) & mask;
        while (v > last);
        out[i] = v;
    }
}
