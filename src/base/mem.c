#include "base/mem.h"

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* A header of one alignment unit before each block holds its size, so that the counts need no table. Large blocks are
 * mapped, with huge pages, which random rows of a table need. */
enum { ALIGN = 64 };

static _Atomic int64_t live_bytes, peak_bytes, live_blocks;
static _Thread_local bool frozen;

static char *take(size_t total)
{
    if (total < DLRM_MEM_OWN_PAGES) {
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
    if (total < DLRM_MEM_OWN_PAGES)
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

dlrm_status dlrm_alloc_text(char **out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    TRY(dlrm_alloc(n + 1, 1, "a text", out));
    va_start(ap, fmt);
    vsnprintf(*out, (size_t)n + 1, fmt, ap);
    va_end(ap);
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

/* --- what is left --- */

/* The number behind `key`, which begins a line, in a small text file; -1 where there is none. */
static int64_t number_in(const char *path, const char *key)
{
    char text[16384] = "\n";
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    text[1 + fread(text + 1, 1, sizeof text - 2, f)] = 0;
    fclose(f);
    const char *at = text;
    const size_t n = strlen(key);
    while (at && strncmp(at + 1, key, n) != 0) at = strchr(at + 1, '\n');
    char *end;
    if (!at) return -1;
    long long v = strtoll(at + 1 + n, &end, 10);
    return end == at + 1 + n ? -1 : v;
}

/* Of the two versions of control groups: where they lie, and the files that say what a group may have, what it has, and which of that are
 * files' pages that make room. */
typedef struct group_files {
    const char *folder, *limit, *used, *cached;
} group_files;
static const group_files version_1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const group_files version_2 = {"", "memory.max", "memory.current", "inactive_file "};

static int64_t number_of(const char *root, const group_files *g, const char *path, int n, const char *file, const char *key)
{
    char name[PATH_MAX];
    return snprintf(name, sizeof name, "%s%s%.*s/%s", root, g->folder, n, path, file) < (int)sizeof name ? number_in(name, key) : -1;
}

/* What the group at `path` and those above it leave; INT64_MAX: all. In a container the path can be the host's, of which only the root
 * is there. */
static int64_t left_of(const char *root, const group_files *g, const char *path)
{
    int64_t least = INT64_MAX;
    for (int n = (int)strlen(path); n >= 0; n--) {
        if (n > 0 && path[n] != 0 && path[n] != '/') continue;
        const int64_t limit = number_of(root, g, path, n, g->limit, ""), used = number_of(root, g, path, n, g->used, "");
        if (limit < 0 || used < 0) continue;
        const int64_t cached = number_of(root, g, path, n, "memory.stat", g->cached), taken = used - (cached > 0 ? cached : 0);
        const int64_t left = limit > taken ? limit - taken : 0;
        least = left < least ? left : least;
    }
    return least;
}

int64_t dlrm_mem_groups_left(const char *groups, const char *root)
{
    int64_t least = INT64_MAX;
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen(groups, "r");
    while (f && getline(&line, &room, f) > 0) { /* number:controllers:path */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        const bool second = controllers[1] == 0, first = !strcmp(controllers, ":memory");
        const int64_t left = second || first ? left_of(root, second ? &version_2 : &version_1, path) : INT64_MAX;
        least = left < least ? left : least;
    }
    if (f) fclose(f);
    free(line);
    return least;
}

int64_t dlrm_mem_available(void)
{
    const int64_t kib = number_in("/proc/meminfo", "MemAvailable:"), left = dlrm_mem_groups_left("/proc/self/cgroup", "/sys/fs/cgroup");
    if (kib < 0) return left < INT64_MAX ? left : -1;
    return left < kib * 1024 ? left : kib * 1024;
}
