#include "train/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"

enum { READER_MS = 10000 /* a pipe's reader may take as long, before it counts as gone */ };

/* All of it; 0, or an errno. */
static int put(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        const ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && poll(&room, 1, READER_MS) > 0) continue;
        if (n < 0) return errno == EAGAIN ? ETIMEDOUT : errno;
        text += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* The log of a run that was killed may be cut off within a line. */
static void end_line(const char *path, int fd)
{
    char last = '\n';
    const int in = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const off_t bytes = in < 0 ? 0 : lseek(in, 0, SEEK_END);
    if (bytes > 0 && pread(in, &last, 1, bytes - 1) == 1 && last != '\n') (void)put(fd, "\n", 1);
    if (in >= 0) close(in);
}

/* The number of the open descriptor that the path is a name of; -1: it is another path. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (int k = 0; k < 2; k++) {
        const size_t n = strlen(folders[k]);
        char *end;
        if (strncmp(path, folders[k], n) != 0 || path[n] < '0' || path[n] > '9') continue;
        const long fd = strtol(path + n, &end, 10);
        if (*end == 0 && fd <= INT_MAX) return (int)fd;
    }
    return -1;
}

/* A file that is open under this descriptor goes on where it is, behind what others wrote through it: opened by its name it would have
 * a place of its own, and begin anew. Pipes and devices have no place, so theirs is opened, whose writes can be given up. */
static dlrm_status share(const dlrm_config *cfg, int fd, dlrm_jsonl *out)
{
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return dlrm_config_fail(cfg, out->kind->key, "found \"%s\", which is open to be read; expected one to be written", out->path);
    out->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    out->shared = true;
    if (out->fd < 0) return dlrm_config_fail(cfg, out->kind->key, "cannot write to \"%s\": %s", out->path, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_jsonl_open(const dlrm_config *cfg, const dlrm_jsonl_kind *kind, const char *path, bool append, dlrm_jsonl *out)
{
    struct stat s;
    *out = (dlrm_jsonl){.fd = -1, .kind = kind, .path = path};
    if (!path) return DLRM_OK;
    const bool there = stat(path, &s) == 0, pipe = there && S_ISFIFO(s.st_mode);
    if (there && S_ISBLK(s.st_mode)) return dlrm_config_fail(cfg, out->kind->key, "found \"%s\", a disk; expected a file on one", path);
    if (there && S_ISREG(s.st_mode) && descriptor_of(path) >= 0) return share(cfg, descriptor_of(path), out);
    if (dlrm_file_begins_otherwise(path, kind->first, strlen(kind->first)))
        return dlrm_config_fail(cfg, kind->key, "found \"%s\", a file that is no log; expected a log of %s, an empty file, or a name for a new one",
                                path, kind->words);
    out->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (append ? O_APPEND : 0), 0666);
    if (out->fd < 0 && errno == ENXIO && pipe)
        return dlrm_config_fail(cfg, out->kind->key, "found \"%s\", a pipe that nobody reads; expected a file, or a reader first", path);
    if (out->fd < 0) return dlrm_config_fail(cfg, out->kind->key, "cannot create \"%s\": %s", path, strerror(errno));
    out->replaces = !append && there && S_ISREG(s.st_mode);
    if (append && there && S_ISREG(s.st_mode)) end_line(path, out->fd);
    return DLRM_OK;
}

dlrm_status dlrm_jsonl_check_apart(const dlrm_config *cfg, const dlrm_jsonl *first, const dlrm_jsonl *second)
{
    struct stat a, b;
    if (first->fd < 0 || second->fd < 0 || first->shared || second->shared || fstat(first->fd, &a) != 0 || fstat(second->fd, &b) != 0) return DLRM_OK;
    if (!S_ISREG(a.st_mode) || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return DLRM_OK;
    return dlrm_config_fail(cfg, second->kind->key, "found \"%s\", the file of %s, expected another one", second->path, first->kind->key);
}

void dlrm_jsonl_write(dlrm_jsonl *l, json_t *event)
{
    char *object = l->fd < 0 ? NULL : json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(9)), *line = NULL;
    json_decref(event);
    if (l->fd < 0) return;
    if (l->replaces && ftruncate(l->fd, 0) != 0) dlrm_warn("%s: cannot be emptied: %s", l->path, strerror(errno));
    l->replaces = false;
    const int n = object ? asprintf(&line, "%s%s\n", l->kind->before, object) : -1;
    const int failed = n < 0 ? ENOMEM : put(l->fd, line, (size_t)n); /* as a whole */
    free(object);
    if (n >= 0) free(line);
    if (!failed) return;
    dlrm_warn("%s: cannot write (%s); the log ends here", l->path, strerror(failed));
    dlrm_jsonl_close(l);
}

void dlrm_jsonl_close(dlrm_jsonl *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}
