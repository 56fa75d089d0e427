#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void dlrm_files_hold_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(DLRM_E_RUNTIME);
}

const char *dlrm_file_kind(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "folder" : S_ISFIFO(mode) ? "pipe" : S_ISSOCK(mode) ? "socket" : "device";
}

bool dlrm_file_begins_otherwise(const char *path, const void *start, size_t bytes)
{
    char found[16];
    struct stat s;
    DLRM_ASSERT(bytes <= sizeof found);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return false; /* there is none, or it cannot be known */
    const ssize_t n = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) ? pread(fd, found, bytes, 0) : 0;
    close(fd);
    return n > 0 && memcmp(found, start, (size_t)n) != 0;
}

dlrm_status dlrm_file_open_regular(const char *path, int *fd, int64_t *bytes)
{
    struct stat s;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &s) != 0) return FAIL(DLRM_E_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    if (bytes) *bytes = s.st_size;
    if (S_ISREG(s.st_mode)) return DLRM_OK;
    close(*fd);
    *fd = -1;
    return FAIL(DLRM_E_INPUT, "%s: found a %s, expected a file", path, dlrm_file_kind(s.st_mode));
}

dlrm_status dlrm_file_write_at(int fd, const char *path, int64_t at, int64_t bytes, const void *data)
{
    enum { MOST = 1 << 30 };
    while (bytes > 0) {
        ssize_t put = pwrite(fd, data, (size_t)(bytes < MOST ? bytes : MOST), at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return FAIL(DLRM_E_RUNTIME, "%s: cannot write %lld bytes at byte %lld: %s", path, (long long)bytes, (long long)at,
                        strerror(put < 0 ? errno : ENOSPC));
        data = (const char *)data + put;
        at += put;
        bytes -= put;
    }
    return DLRM_OK;
}

dlrm_status dlrm_file_sync_and_close(int *fd, const char *path)
{
    int failed = fsync(*fd), error = errno;
    if (close(*fd) != 0 && !failed) {
        failed = 1;
        error = errno;
    }
    *fd = -1;
    return failed ? FAIL(DLRM_E_RUNTIME, "%s: cannot bring it to disk: %s", path, strerror(error)) : DLRM_OK;
}

dlrm_status dlrm_file_write_new(const char *path, const void *data, int64_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    if (fd < 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot create: %s", path, strerror(errno));
    dlrm_status st = dlrm_file_write_at(fd, path, 0, bytes, data);
    if (st == DLRM_OK) return dlrm_file_sync_and_close(&fd, path);
    close(fd);
    return st;
}

void dlrm_path_resolve(const char *path, char out[PATH_MAX])
{
    char head[PATH_MAX];
    size_t n = (size_t)snprintf(head, sizeof head, "%s", path);
    if (n >= sizeof head) n = sizeof head - 1;
    while (n > 0 && !realpath(head, out)) { /* without its last part */
        while (n > 0 && head[n - 1] == '/') n--;
        while (n > 0 && head[n - 1] != '/') n--;
        head[n] = 0;
    }
    if (n == 0 && !realpath(".", out)) out[0] = 0;
    const char *rest = path + n;
    while (*rest == '/') rest++;
    const size_t used = strlen(out);
    if (*rest) snprintf(out + used, PATH_MAX - used, "%s%s", used > 0 && out[used - 1] == '/' ? "" : "/", rest);
}

dlrm_status dlrm_folder_make(const char *folder)
{
    char path[PATH_MAX];
    struct stat s;
    size_t n = strlen(folder);
    if (n == 0 || n >= sizeof path) return FAIL(DLRM_E_INPUT, "a folder's name is expected, found %zu characters", n);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && folder[i] != '/') continue;
        memcpy(path, folder, i);
        path[i] = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return FAIL(DLRM_E_INPUT, "%s: cannot make the folder: %s", path, strerror(errno));
    }
    if (stat(folder, &s) != 0 || !S_ISDIR(s.st_mode)) return FAIL(DLRM_E_INPUT, "%s: not a folder", folder);
    if (access(folder, W_OK | X_OK) != 0) return FAIL(DLRM_E_INPUT, "%s: cannot write into the folder: %s", folder, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (fd < 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot open: %s", path, strerror(errno));
    int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0; /* some file systems cannot sync a folder */
    close(fd);
    return failed ? FAIL(DLRM_E_RUNTIME, "%s: cannot bring it to disk: %s", path, strerror(failed)) : DLRM_OK;
}

dlrm_status dlrm_folder_check_space(const char *path, double bytes)
{
    struct statvfs v;
    if (statvfs(path, &v) != 0) return FAIL(DLRM_E_RUNTIME, "%s: %s", path, strerror(errno));
    double have = (double)v.f_bavail * (double)v.f_frsize;
    if (have >= bytes) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "%s: needs %.0f bytes (%.3f GiB), but %.0f are free (%.3f GiB)", path, bytes, bytes / (1 << 30), have,
                have / (1 << 30));
}
