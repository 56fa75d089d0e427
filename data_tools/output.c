/* Output folders: made under another name, locked while in use, renamed when complete. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the work folder; says that this program made it. A living process holds its lock. */
static const char marker[] = ".dlrm_data";

static dlrm_status remove_leftover(const char *work)
{
    char mark[DLRM_PATH_MAX];
    TRY(dlrm_tool_path(mark, "%s/%s", work, marker));
    int fd = open(mark, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return FAIL(DLRM_E_INPUT,
                    "%s: this name is needed while the output is incomplete, but is taken by something that dlrm_data "
                    "did not make",
                    work);
    bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0;
    dlrm_status st = busy ? FAIL(DLRM_E_INPUT, "%s: another dlrm_data is writing here now", work) : dlrm_tool_remove_tree(work);
    close(fd);
    return st;
}

dlrm_status dlrm_output_begin(const char *path, dlrm_output *out)
{
    char mark[DLRM_PATH_MAX];
    size_t n = strlen(path);
    out->lock = -1;
    while (n > 1 && path[n - 1] == '/') n--;
    TRY(dlrm_tool_path(out->path, "%.*s", (int)n, path));
    TRY(dlrm_tool_path(out->work, "%s.partial", out->path));
    TRY(dlrm_tool_path(mark, "%s/%s", out->work, marker));
    struct stat st;
    if (lstat(out->path, &st) == 0)
        return FAIL(DLRM_E_INPUT, "%s: exists already; name a new output, or remove it first", out->path);
    if (lstat(out->work, &st) == 0) TRY(remove_leftover(out->work));
    if (dlrm_tool_make_folder(out->work) != DLRM_OK) /* the place was named by the user, unless the disk itself fails */
        return FAIL(errno == ENOSPC || errno == EIO || errno == EDQUOT ? DLRM_E_RUNTIME : DLRM_E_INPUT, "%s", dlrm_error_message());
    TRY(dlrm_tool_create(mark, &out->lock));
    if (flock(out->lock, LOCK_EX | LOCK_NB) != 0) {
        close(out->lock);
        out->lock = -1;
        return FAIL(DLRM_E_INPUT, "%s: another dlrm_data is writing here now", out->work);
    }
    return DLRM_OK;
}

static dlrm_status sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(DLRM_E_RUNTIME, "%s: %s", path, strerror(errno));
    int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0; /* some file systems cannot sync a folder */
    close(fd);
    return failed ? FAIL(DLRM_E_RUNTIME, "%s: cannot finish writing: %s", path, strerror(failed)) : DLRM_OK;
}

dlrm_status dlrm_output_commit(dlrm_output *out)
{
    char mark[DLRM_PATH_MAX], parent[DLRM_PATH_MAX];
    TRY(dlrm_tool_path(mark, "%s/%s", out->work, marker));
    unlink(mark);
    TRY(sync_folder(out->work));
    if (rename(out->work, out->path) != 0)
        return FAIL(DLRM_E_RUNTIME, "%s: cannot rename it to %s: %s", out->work, out->path, strerror(errno));
    close(out->lock);
    out->lock = -1;
    const char *slash = strrchr(out->path, '/');
    TRY(dlrm_tool_path(parent, "%.*s", slash ? (int)(slash - out->path) + 1 : 1, slash ? out->path : "."));
    return sync_folder(parent);
}

void dlrm_output_abandon(dlrm_output *out)
{
    if (out->lock < 0) return;
    char message[4096]; /* the failure that brought us here keeps its message */
    snprintf(message, sizeof message, "%s", dlrm_error_message());
    if (dlrm_tool_remove_tree(out->work) != DLRM_OK) fprintf(stderr, "dlrm_data: %s\n", dlrm_error_message());
    (void)dlrm_fail(DLRM_E_RUNTIME, "%s", message);
    close(out->lock);
    out->lock = -1;
}
