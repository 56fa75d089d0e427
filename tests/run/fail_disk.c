/* A library to preload: a disk that fails. Of the calls that make checkpoints below the folder $FAIL_UNDER (its name as in the
 * paths used), in the rank $FAIL_RANK (default: all), the k-th save has its k-th call fail, so that one run meets every one of
 * them; or, with FAIL_ALWAYS set, every save every call; with FAIL_ONLY set, calls of that name alone count. $FAIL_HOW: ENOSPC, EIO, EROFS, or short: a write of half of the bytes,
 * which is no error. Each failure is told on stderr. KILL: the process is killed as it makes its call number $FAIL_CALL of all saves,
 * removals of files among them. FAIL_REMOVE_S: every removal of a file there takes so many seconds, FAIL_WRITE_S:
 * every write ($FAIL_RANK's). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_part[64]; /* the folder of the save at hand, .step_N.part */
static long save, call, all_calls;

/* The rest of a path below the folder, "" for the folder itself; NULL: elsewhere. */
static const char *below(const char *path)
{
    const char *under = getenv("FAIL_UNDER"), *at = under ? strstr(path, under) : NULL;
    if (!at) return NULL;
    at += strlen(under);
    return *at == '/' ? at + 1 : *at ? NULL : at;
}

/* Counts the call; true: it is to fail, with errno set. */
static bool fails(const char *what, const char *path)
{
    const char *rest = below(path), *rank = getenv("OMPI_COMM_WORLD_RANK"), *only = getenv("FAIL_RANK"), *how = getenv("FAIL_HOW");
    if (!rest || !how || !*how || (only && strcmp(only, rank ? rank : "0") != 0)) return false;
    if (*rest && strncmp(rest, ".step_", 6) != 0 && strncmp(rest, "step_", 5) != 0) return false;
    pthread_mutex_lock(&lock);
    size_t n = strcspn(rest, "/");
    if (n > 5 && n < sizeof last_part && !strncmp(rest + n - 5, ".part", 5) && (strncmp(last_part, rest, n) != 0 || last_part[n])) {
        memcpy(last_part, rest, n);
        last_part[n] = 0;
        save++;
        call = 0;
    }
    const char *kind = getenv("FAIL_ONLY");
    if (kind && strcmp(kind, what) != 0) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    call++;
    all_calls += save > 0;
    const bool kills = !strcmp(how, "KILL");
    const char *number = getenv("FAIL_CALL");
    bool now = save > 0 && (kills ? number && all_calls == atol(number) : getenv("FAIL_ALWAYS") || call == save);
    if (now && (strcmp(how, "short") != 0 || !strcmp(what, "pwrite"))) fprintf(stderr, "fail_disk: %s %s: %s\n", how, what, rest);
    if (now && kills) raise(SIGKILL);
    pthread_mutex_unlock(&lock);
    errno = !strcmp(how, "ENOSPC") ? ENOSPC : !strcmp(how, "EROFS") ? EROFS : EIO;
    return now;
}

static bool name_of(int fd, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0) return false;
    path[n] = 0;
    return true;
}

static bool is_below(int fd)
{
    char path[PATH_MAX];
    return name_of(fd, path) && below(path);
}

static bool fails_fd(const char *what, int fd)
{
    char path[PATH_MAX];
    return name_of(fd, path) && fails(what, path);
}

static bool is_short(void)
{
    return !strcmp(getenv("FAIL_HOW"), "short");
}

#define NEXT(f) __typeof__(f) *next = (__typeof__(f) *)dlsym(RTLD_NEXT, #f)

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    return fails("mkdir", path) && !is_short() ? -1 : next(path, mode);
}

int open64(const char *path, int flags, ...)
{
    NEXT(open64);
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
        if (fails("open", path) && !is_short()) return -1;
    }
    return next(path, flags, mode);
}

int fallocate64(int fd, int mode, off64_t at, off64_t bytes)
{
    NEXT(fallocate64);
    return fails_fd("fallocate", fd) && !is_short() ? -1 : next(fd, mode, at, bytes);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    NEXT(pwrite64);
    const char *seconds = getenv("FAIL_WRITE_S"), *rank = getenv("OMPI_COMM_WORLD_RANK"), *only = getenv("FAIL_RANK");
    if (seconds && is_below(fd) && (!only || !rank || strcmp(only, rank) == 0)) sleep((unsigned)atoi(seconds));
    if (!fails_fd("pwrite", fd)) return next(fd, data, bytes, at);
    return is_short() ? next(fd, data, (bytes + 1) / 2, at) : -1;
}

int fsync(int fd)
{
    NEXT(fsync);
    return fails_fd("fsync", fd) && !is_short() ? -1 : next(fd);
}

int sync_file_range(int fd, off64_t at, off64_t bytes, unsigned flags)
{
    NEXT(sync_file_range);
    return fails_fd("sync_file_range", fd) && !is_short() ? -1 : next(fd, at, bytes, flags);
}

int unlinkat(int folder, const char *path, int flags)
{
    NEXT(unlinkat);
    const char *seconds = getenv("FAIL_REMOVE_S"), *how = getenv("FAIL_HOW");
    if (seconds) sleep((unsigned)atoi(seconds));
    if (how && !strcmp(how, "KILL")) fails_fd("unlinkat", folder);
    return next(folder, path, flags);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    return fails("rename", from) && !is_short() ? -1 : next(from, to);
}
