#include "data/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/mem.h"

/* The usual soft limit of 1024 open files is less than a model of a thousand tables wants. */
static bool raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

dlrm_status dlrm_file_open(const char *path, bool in_order, int *fd)
{
    const int how = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* a pipe would be waited for */
    struct stat s;
    *fd = open(path, how);
    if (*fd < 0 && errno == EMFILE && raise_file_limit()) *fd = open(path, how);
    if (*fd < 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    if (fstat(*fd, &s) == 0 && !S_ISREG(s.st_mode)) {
        dlrm_file_close(fd);
        return FAIL(DLRM_E_INPUT, "%s: found a %s, expected a file", path, dlrm_file_kind(s.st_mode));
    }
    posix_fadvise(*fd, 0, 0, in_order ? POSIX_FADV_SEQUENTIAL : POSIX_FADV_RANDOM);
    return DLRM_OK;
}

void dlrm_file_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Where it ends now; -1: not known. */
static int64_t end_of(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 ? (int64_t)s.st_size : -1;
}

dlrm_status dlrm_file_read(const char *path, int fd, int64_t at, int64_t bytes, void *out, int64_t *count)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)out + done, (size_t)(bytes - done), at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return FAIL(DLRM_E_INPUT, "%s: reading at byte %lld: %s", path, (long long)(at + done), strerror(errno));
        if (n == 0)
            return FAIL(DLRM_E_INPUT,
                        "%s: the file ends at byte %lld, expected to read up to byte %lld: it has become "
                        "shorter since the start",
                        path, (long long)end_of(fd), (long long)(at + bytes));
        done += n;
        *count += n;
    }
    return DLRM_OK;
}

/* --- names --- */

static int natural(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static bool ends_in(const char *name, const char *suffix, size_t *stem)
{
    size_t n = strlen(name), s = strlen(suffix);
    if (n <= s || strcmp(name + n - s, suffix)) return false;
    *stem = n - s;
    return true;
}

/* Fills what there is room for; *n counts all. */
static dlrm_status scan(DIR *dir, const char *suffix, char **v, int room, int *n)
{
    size_t stem;
    *n = 0;
    rewinddir(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (!ends_in(e->d_name, suffix, &stem)) continue;
        if (*n < room) {
            TRY(dlrm_alloc((int64_t)stem + 1, 1, "a file's name", &v[*n]));
            memcpy(v[*n], e->d_name, stem);
        }
        ++*n;
    }
    return DLRM_OK;
}

dlrm_status dlrm_names_list(const char *folder, const char *suffix, dlrm_names *out)
{
    dlrm_status st;
    int found;
    *out = (dlrm_names){0};
    DIR *dir = opendir(folder);
    if (!dir) return FAIL(DLRM_E_INPUT, "%s: %s", folder, strerror(errno));
    TRY_TO(end, st, scan(dir, suffix, NULL, 0, &found));
    TRY_TO(end, st, dlrm_alloc(found, sizeof *out->v, "file names", &out->v));
    out->n = found;
    TRY_TO(end, st, scan(dir, suffix, out->v, out->n, &found));
    if (found < out->n) out->n = found; /* one has gone in between */
    qsort(out->v, (size_t)out->n, sizeof *out->v, natural);
end:
    closedir(dir);
    if (st != DLRM_OK) dlrm_names_free(out);
    return st;
}

void dlrm_names_free(dlrm_names *names)
{
    for (int i = 0; i < names->n; i++) dlrm_free(&names->v[i]);
    dlrm_free(&names->v);
    *names = (dlrm_names){0};
}
