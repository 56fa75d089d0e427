#include "data/map.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE = 4096, KEPT = 2 << 20 /* bytes that stay mapped in, so that pages are given back many at a time */ };

typedef struct watch {
    const char *begin, *end;
    sigjmp_buf back;
} watch;

static _Thread_local watch *volatile watched; /* by this thread */
static struct sigaction before;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* A fault outside of what this thread watches is somebody else's. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    watch *w = watched;
    const char *at = info->si_addr;
    if (w && info->si_code > 0 && at >= w->begin && at < w->end) siglongjmp(w->back, 1);
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* Not blocked while it is handled (SA_NODEFER), so that leaving it by a jump leaves nothing to put right. A library may have
 * set its own handler since the last map was opened. */
static void start_watching(void)
{
    struct sigaction now, a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&a.sa_mask);
    pthread_mutex_lock(&starting);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_fault) {
        before = now;
        sigaction(SIGBUS, &a, NULL);
    }
    pthread_mutex_unlock(&starting);
}

void dlrm_map_open(int fd, dlrm_map *out)
{
    struct stat st;
    *out = (dlrm_map){0};
    if (fstat(fd, &st) != 0 || st.st_size == 0) return;
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return;
    madvise(base, (size_t)st.st_size, MADV_SEQUENTIAL);
    start_watching();
    *out = (dlrm_map){.base = base, .bytes = st.st_size};
}

void dlrm_map_close(dlrm_map *m)
{
    if (m->base) munmap((void *)m->base, (size_t)m->bytes);
    *m = (dlrm_map){0};
}

/* Pages of bytes that have been used stay in the page cache, but count as this process' memory until they are given back. */
static void give_back(dlrm_map *m, int64_t at, int64_t end)
{
    if (at < m->from || at > m->to) m->from = at;
    m->to = end;
    const int64_t from = m->from / PAGE * PAGE, to = end / PAGE * PAGE;
    if (to - from < KEPT) return;
    madvise((void *)(m->base + from), (size_t)(to - from), MADV_DONTNEED);
    m->from = to;
}

static bool watch_use(const dlrm_map *m, void (*use)(void *ctx), void *ctx)
{
    watch w = {.begin = m->base, .end = m->base + m->bytes};
    if (sigsetjmp(w.back, 0)) {
        watched = NULL;
        return false;
    }
    watched = &w;
    use(ctx);
    watched = NULL;
    return true;
}

/* The last page of a file that has become shorter reads as zeros after its end, without a fault: hence the look at its size. */
bool dlrm_map_use(dlrm_map *m, int fd, int64_t at, int64_t bytes, void (*use)(void *ctx), void *ctx)
{
    struct stat st;
    if (!m->base || at < 0 || bytes > m->bytes || at > m->bytes - bytes) return false;
    const bool whole = watch_use(m, use, ctx) && fstat(fd, &st) == 0 && st.st_size >= at + bytes;
    give_back(m, at, at + bytes);
    return whole;
}
