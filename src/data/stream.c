#include "data/stream.h"

#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "data/convert.h"

enum {
    TILE = 2048,  /* values that are converted before they are sent on: they stay in the first-level cache */
    AHEAD = 2048, /* bytes that are fetched before their turn: the processor's own prefetching stops at the end of a page */
    LINE = 16     /* values of 4 bytes */
};

typedef dlrm_stream_values convert_values;

#ifdef __x86_64__

/* Whole cache lines, or memory is read first. */
static void send(float *to, const void *from, int64_t n)
{
    char *out = (char *)to;
    const char *in = from, *end = in + n * 4;
    for (; in + 64 <= end; in += 64, out += 64) {
        const __m128i a = _mm_loadu_si128((const __m128i *)in), b = _mm_loadu_si128((const __m128i *)(in + 16)),
                      c = _mm_loadu_si128((const __m128i *)(in + 32)), d = _mm_loadu_si128((const __m128i *)(in + 48));
        _mm_stream_si128((__m128i *)out, a);
        _mm_stream_si128((__m128i *)(out + 16), b);
        _mm_stream_si128((__m128i *)(out + 32), c);
        _mm_stream_si128((__m128i *)(out + 48), d);
    }
    memcpy(out, in, (size_t)(end - in));
}

/* Before whoever hands the batch on says so. */
static void sent(void)
{
    _mm_sfence();
}

/* The check is that of convert.c: the sign bit of id | (last - id) is set just where id < 0 or id > last. */
static bool send_ids(const uint32_t *in, int64_t n, uint32_t last, uint32_t *out)
{
    const __m128i most = _mm_set1_epi32((int)last);
    __m128i bad = _mm_setzero_si128();
    int64_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        _mm_prefetch((const char *)(in + i) + AHEAD, _MM_HINT_T0);
        for (int k = 0; k < LINE; k += 4) {
            const __m128i id = _mm_loadu_si128((const __m128i *)(in + i + k));
            bad = _mm_or_si128(bad, _mm_or_si128(id, _mm_sub_epi32(most, id)));
            _mm_stream_si128((__m128i *)(out + i + k), id);
        }
    }
    const bool good = _mm_movemask_ps(_mm_castsi128_ps(bad)) == 0;
    return dlrm_convert_ids(DLRM_INT32, in + i, n - i, (int64_t)last + 1, out + i) && good;
}

/* Infinities and NaNs have an exponent of all ones. */
__attribute__((target("avx2,f16c"))) static bool send_halves(const uint16_t *in, int64_t n, float *out)
{
    const __m256i exponent = _mm256_set1_epi16(0x7C00);
    __m256i bad = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        _mm_prefetch((const char *)(in + i) + AHEAD, _MM_HINT_T0);
        const __m256i v = _mm256_loadu_si256((const __m256i *)(in + i));
        const __m256 a = _mm256_cvtph_ps(_mm256_castsi256_si128(v)), b = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi16(_mm256_and_si256(v, exponent), exponent));
        _mm_stream_ps(out + i, _mm256_castps256_ps128(a));
        _mm_stream_ps(out + i + 4, _mm256_extractf128_ps(a, 1));
        _mm_stream_ps(out + i + 8, _mm256_castps256_ps128(b));
        _mm_stream_ps(out + i + 12, _mm256_extractf128_ps(b, 1));
    }
    const bool good = _mm256_movemask_epi8(bad) == 0;
    return dlrm_convert_dense(DLRM_FLOAT16, in + i, n - i, out + i) && good;
}

/* Not every compiler's __builtin_cpu_supports knows the name. Asking takes a virtual machine long, so once. */
static bool has_f16c(void)
{
    static _Atomic int known = -1;
    if (known < 0) {
        unsigned a, b, c = 0, d;
        known = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    }
    return known;
}

#else

static void send(float *to, const void *from, int64_t n)
{
    memcpy(to, from, (size_t)n * 4);
}

static void sent(void)
{
}

static bool send_ids(const uint32_t *in, int64_t n, uint32_t last, uint32_t *out)
{
    return dlrm_convert_ids(DLRM_INT32, in, n, (int64_t)last + 1, out);
}

static bool send_halves(const uint16_t *in, int64_t n, float *out)
{
    return dlrm_convert_dense(DLRM_FLOAT16, in, n, out);
}

static bool has_f16c(void)
{
    return false;
}

#endif

static bool convert_ids(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    return dlrm_convert_ids(from, in, n, rows, out);
}

static bool convert_dense(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    (void)rows;
    return dlrm_convert_dense(from, in, n, out);
}

static bool convert_labels(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    (void)rows;
    return dlrm_convert_labels(from, in, n, out);
}

static bool by_tiles(convert_values *convert, dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    _Alignas(64) float tile[TILE];
    const int64_t size = (int64_t)dlrm_elem_size(from);
    bool good = true;
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < TILE ? n - i : TILE;
        good &= convert(from, (const char *)in + i * size, m, rows, tile);
        send((float *)out + i, tile, m);
    }
    return good;
}

bool dlrm_stream_ids(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    const uint32_t last = (uint32_t)(rows <= INT32_MAX ? rows - 1 : INT32_MAX); /* int32 holds no more */
    const bool good = from == DLRM_INT32 ? send_ids(in, n, last, out) : by_tiles(convert_ids, from, in, n, rows, out);
    sent();
    return good;
}

bool dlrm_stream_dense(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    const bool good = from == DLRM_FLOAT16 && has_f16c() ? send_halves(in, n, out) : by_tiles(convert_dense, from, in, n, rows, out);
    sent();
    return good;
}

bool dlrm_stream_labels(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    const bool good = by_tiles(convert_labels, from, in, n, rows, out);
    sent();
    return good;
}
