#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

int dlrm_tool_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t dlrm_tool_free_memory(void)
{
    int64_t available = dlrm_mem_available();
    return (available < 0 ? (int64_t)1 << 30 : available) / 2;
}

double dlrm_tool_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct crew {
    dlrm_tool_job job;
    void *shared;
    atomic_bool stop;
    pthread_mutex_t lock;
    dlrm_status status;
    char message[4096];
} crew;

typedef struct member {
    crew *crew;
    int number;
    pthread_t thread;
} member;

static void *member_main(void *arg)
{
    member *m = arg;
    crew *c = m->crew;
    dlrm_status st = c->job(c->shared, m->number, &c->stop);
    if (st != DLRM_OK) {
        pthread_mutex_lock(&c->lock);
        if (c->status == DLRM_OK) {
            c->status = st;
            snprintf(c->message, sizeof c->message, "%s", dlrm_error_message());
        }
        pthread_mutex_unlock(&c->lock);
        c->stop = true;
    }
    return NULL;
}

dlrm_status dlrm_tool_run(int threads, dlrm_tool_job job, void *shared)
{
    crew c = {.job = job, .shared = shared, .lock = PTHREAD_MUTEX_INITIALIZER};
    member *members;
    TRY(dlrm_alloc(threads, sizeof *members, "threads", &members));
    int started = 0;
    for (; started < threads; started++) {
        members[started] = (member){.crew = &c, .number = started};
        int err = pthread_create(&members[started].thread, NULL, member_main, &members[started]);
        if (err) {
            c.stop = true;
            c.status = FAIL(DLRM_E_RUNTIME, "cannot start thread %d of %d: %s", started + 1, threads, strerror(err));
            snprintf(c.message, sizeof c.message, "%s", dlrm_error_message());
            break;
        }
    }
    for (int i = 0; i < started; i++) pthread_join(members[i].thread, NULL);
    dlrm_free(&members);
    return c.status == DLRM_OK ? DLRM_OK : FAIL(c.status, "%s", c.message);
}

dlrm_status dlrm_tool_room(int64_t bytes, const char *what, void *block, int64_t *room)
{
    if (bytes <= *room) return DLRM_OK;
    dlrm_free(block);
    *room = 0;
    TRY(dlrm_alloc(bytes, 1, what, block));
    *room = bytes;
    return DLRM_OK;
}

dlrm_status dlrm_tool_path(char *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, DLRM_PATH_MAX, fmt, ap);
    va_end(ap);
    if (n >= DLRM_PATH_MAX) return FAIL(DLRM_E_INPUT, "%.60s…: a path of %d characters is too long", out, n);
    return DLRM_OK;
}

dlrm_status dlrm_tool_make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot make this folder: %s", path, strerror(errno));
    return DLRM_OK;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

dlrm_status dlrm_tool_remove_tree(const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return FAIL(DLRM_E_RUNTIME, "%s: cannot remove this folder: %s", path, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_tool_create(const char *path, int *fd)
{
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (*fd < 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot create this file: %s", path, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_tool_pwrite(int fd, const void *data, size_t bytes, int64_t offset, const char *path)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = pwrite(fd, at, bytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return FAIL(DLRM_E_RUNTIME, "%s: cannot write at byte %lld: %s", path, (long long)offset, strerror(errno));
        at += n;
        offset += n;
        bytes -= (size_t)n;
    }
    return DLRM_OK;
}

dlrm_status dlrm_tool_pread(int fd, void *data, size_t bytes, int64_t offset, const char *path)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return FAIL(DLRM_E_RUNTIME, "%s: cannot read at byte %lld: %s", path, (long long)offset,
                        n < 0 ? strerror(errno) : "the file ends there");
        at += n;
        offset += n;
        bytes -= (size_t)n;
    }
    return DLRM_OK;
}

dlrm_status dlrm_tool_close(int *fd, const char *path)
{
    int f = *fd;
    *fd = -1;
    int failed = fsync(f) != 0 ? errno : 0;
    if (close(f) != 0 && !failed) failed = errno;
    if (failed) return FAIL(DLRM_E_RUNTIME, "%s: cannot finish writing: %s", path, strerror(failed));
    return DLRM_OK;
}

dlrm_status dlrm_tool_write_text(const char *path, const char *text)
{
    int fd;
    TRY(dlrm_tool_create(path, &fd));
    dlrm_status st = dlrm_tool_pwrite(fd, text, strlen(text), 0, path);
    if (st != DLRM_OK) {
        close(fd);
        return st;
    }
    return dlrm_tool_close(&fd, path);
}

static pthread_mutex_t progress_lock = PTHREAD_MUTEX_INITIALIZER;
static double progress_start, progress_last;

void dlrm_tool_progress_begin(void)
{
    progress_start = progress_last = dlrm_now();
}

void dlrm_tool_progress(const char *what, int64_t done, int64_t total)
{
    if (pthread_mutex_trylock(&progress_lock) != 0) return;
    double now = dlrm_now();
    bool terminal = dlrm_log_is_terminal();
    if (now - progress_last >= (terminal ? 0.3 : 10.0)) {
        progress_last = now;
        (terminal ? dlrm_progress : dlrm_info)(
            "%s: %.1f %% (%.2f of %.2f GB, %.0f MB/s)", what, total > 0 ? 100.0 * (double)done / (double)total : 100.0,
            (double)done * 1e-9, (double)total * 1e-9, (double)done * 1e-6 / (now - progress_start));
    }
    pthread_mutex_unlock(&progress_lock);
}
