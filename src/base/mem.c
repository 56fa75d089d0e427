#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* A header of one alignment unit before each block holds its size, so that the counts need no table. Large blocks are
 * mapped: their pages come zeroed when first touched, and huge, which random rows of a table need. */
enum { ALIGN = 64, MAPPED = 4 << 20 };

static _Atomic int64_t live_bytes, peak_bytes, live_blocks;
static _Thread_local bool frozen;

static char *take(size_t total)
{
    if (total < MAPPED) {
        char *block = aligned_alloc(ALIGN, total);
        return block ? memset(block, 0, total) : NULL;
    }
    char *block = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return NULL;
    madvise(block, total, MADV_HUGEPAGE); /* a wish: without it the run is slower, not wrong */
    return block;
}

static void give(char *block, size_t total)
{
    if (total < MAPPED)
        free(block);
    else
        munmap(block, total);
}

void dlrm_mem_count(int64_t bytes)
{
    int64_t now = atomic_fetch_add(&live_bytes, bytes) + bytes, peak = peak_bytes;
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
    }
}

dlrm_status dlrm_alloc(int64_t count, size_t size, const char *what, void *out)
{
    DLRM_ASSERT(!frozen);
    *(void **)out = NULL;
    size_t bytes;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) || bytes > SIZE_MAX / 2)
        return FAIL(DLRM_E_RUNTIME, "cannot allocate %lld x %zu bytes for %s: the size overflows", (long long)count, size, what);
    size_t total = (bytes + 2 * ALIGN - 1) / ALIGN * ALIGN;
    char *block = take(total);
    if (!block)
        return FAIL(DLRM_E_RUNTIME, "cannot allocate %zu bytes (%.2f GiB) for %s; %.2f GiB are in use already", bytes,
                    (double)bytes / (1 << 30), what, (double)live_bytes / (1 << 30));
    *(int64_t *)block = (int64_t)total;
    live_blocks++;
    dlrm_mem_count((int64_t)total);
    *(void **)out = block + ALIGN;
    return DLRM_OK;
}

dlrm_status dlrm_grow(int64_t n, size_t size, int64_t first, const char *what, void *list, int64_t *room)
{
    if (n < *room) return DLRM_OK;
    void *more;
    const int64_t larger = *room ? 2 * *room : first;
    TRY(dlrm_alloc(larger, size, what, &more));
    if (n > 0) memcpy(more, *(void **)list, (size_t)n * size);
    dlrm_free(list);
    *(void **)list = more;
    *room = larger;
    return DLRM_OK;
}

void dlrm_free(void *p)
{
    char *block = *(char **)p;
    if (!block) return;
    block -= ALIGN;
    live_bytes -= *(int64_t *)block;
    live_blocks--;
    give(block, (size_t)*(int64_t *)block);
    *(void **)p = NULL;
}

int64_t dlrm_mem_live_bytes(void)
{
    return live_bytes;
}

int64_t dlrm_mem_peak_bytes(void)
{
    return peak_bytes;
}

int64_t dlrm_mem_live_blocks(void)
{
    return live_blocks;
}

void dlrm_mem_freeze(bool on)
{
    frozen = on;
}

int64_t dlrm_mem_peak_resident(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

/* The first number after `key` in a small text file; -1 where there is none. */
static int64_t number_in(const char *path, const char *key)
{
    char text[4096];
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at = strstr(text, key);
    char *end;
    if (!at) return -1;
    long long v = strtoll(at + strlen(key), &end, 10);
    return end == at + strlen(key) ? -1 : v;
}

int64_t dlrm_mem_available(void)
{
    int64_t kib = number_in("/proc/meminfo", "MemAvailable:"), bytes = kib < 0 ? -1 : kib * 1024;
    int64_t limit = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", "");
    if (limit < 0 || used < 0) return bytes;
    int64_t left = limit > used ? limit - used : 0;
    return bytes < 0 || left < bytes ? left : bytes;
}
