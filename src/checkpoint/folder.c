#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/manifest.h"

#define STEP "step_%09lld"
#define GONE ".gone"

void dlrm_checkpoint_name(int64_t step, bool part, char out[DLRM_CHECKPOINT_NAME_BYTES])
{
    snprintf(out, DLRM_CHECKPOINT_NAME_BYTES, part ? "." STEP ".part" : STEP, (long long)step);
}

static void gone_name(int64_t step, char out[DLRM_CHECKPOINT_NAME_BYTES])
{
    snprintf(out, DLRM_CHECKPOINT_NAME_BYTES, "." STEP GONE, (long long)step);
}

/* Is this one of our names, to the letter? *complete: of a checkpoint. */
static bool is_ours(const char *name, bool *complete)
{
    long long step;
    char again[DLRM_CHECKPOINT_NAME_BYTES];
    if (sscanf(name, name[0] == '.' ? ".step_%lld" : "step_%lld", &step) != 1 || step < 0) return false;
    dlrm_checkpoint_name(step, false, again);
    *complete = !strcmp(name, again);
    if (*complete) return true;
    dlrm_checkpoint_name(step, true, again);
    if (!strcmp(name, again)) return true;
    gone_name(step, again);
    return !strcmp(name, again);
}

static dlrm_status join(const char *path, const char *name, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s", path, name) < PATH_MAX) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "the path '%.60s…/%s' is longer than %d bytes", path, name, PATH_MAX - 1);
}

/* --- what is there --- */

static int newest_first(const void *a, const void *b)
{
    const dlrm_checkpoint_entry *x = a, *y = b;
    if (x->serial != y->serial) return x->serial < y->serial ? 1 : -1;
    return (x->step < y->step) - (x->step > y->step);
}

static dlrm_status add_entry(const char *path, const char *name, dlrm_checkpoint_entry **list, int64_t *room, int *n)
{
    char folder[PATH_MAX];
    dlrm_manifest m;
    TRY(join(path, name, folder));
    TRY(dlrm_manifest_load(folder, &m));
    dlrm_checkpoint_entry entry = {.serial = m.serial, .step = m.progress.step};
    snprintf(entry.name, sizeof entry.name, "%s", name);
    dlrm_manifest_clear(&m);
    TRY(dlrm_grow(*n, sizeof **list, 64, "the list of checkpoints", list, room));
    (*list)[(*n)++] = entry;
    return DLRM_OK;
}

dlrm_status dlrm_checkpoints_list(const char *path, char *damaged, size_t bytes, dlrm_checkpoint_entry **list, int *n)
{
    dlrm_status st = DLRM_OK;
    struct dirent *d;
    size_t used = 0;
    int64_t room = 0;
    if (damaged) damaged[0] = 0;
    *list = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir) return errno == ENOENT ? DLRM_OK : FAIL(DLRM_E_INPUT, "%s: cannot list the folder: %s", path, strerror(errno));
    while (st == DLRM_OK && (d = readdir(dir))) {
        bool complete = false;
        if (!is_ours(d->d_name, &complete) || !complete) continue;
        st = add_entry(path, d->d_name, list, &room, n);
        if (st != DLRM_E_INPUT || !damaged) continue;
        if (used < bytes) used += (size_t)snprintf(damaged + used, bytes - used, "%s%s", used ? ", " : "", d->d_name);
        st = DLRM_OK;
    }
    closedir(dir);
    if (st == DLRM_OK && *n) qsort(*list, (size_t)*n, sizeof **list, newest_first);
    if (st != DLRM_OK) dlrm_free(list);
    return st;
}

dlrm_status dlrm_checkpoints_lock(const char *path, double seconds, int *lock, bool *taken)
{
    char file[PATH_MAX];
    const double start = dlrm_now();
    *lock = -1;
    *taken = true;
    TRY(join(path, ".lock", file));
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return FAIL(DLRM_E_INPUT, "%s: cannot create: %s", file, strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) { /* no locks here */
            close(fd);
            return DLRM_OK;
        }
        if (dlrm_now() - start > seconds) {
            close(fd);
            *taken = false;
            return DLRM_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    *lock = fd;
    return DLRM_OK;
}

/* --- what goes --- */

/* Removes a folder of files, or what else has its name; of a symbolic link the link alone, for where it leads lies elsewhere. */
static dlrm_status remove_folder(const char *folder)
{
    struct dirent *d;
    struct stat s;
    if (lstat(folder, &s) == 0 && !S_ISDIR(s.st_mode)) {
        if (unlink(folder) == 0) return DLRM_OK;
        return FAIL(DLRM_E_RUNTIME, "%s: cannot remove: %s", folder, strerror(errno));
    }
    DIR *dir = opendir(folder);
    if (!dir) return FAIL(DLRM_E_RUNTIME, "%s: cannot list the folder: %s", folder, strerror(errno));
    char within[NAME_MAX + 2] = ""; /* what stays in it, and why */
    int failed = 0;
    while ((d = readdir(dir))) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") || unlinkat(dirfd(dir), d->d_name, 0) == 0 || failed) continue;
        failed = errno;
        snprintf(within, sizeof within, "/%s", d->d_name);
    }
    closedir(dir);
    if (rmdir(folder) == 0) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "%s%s: cannot remove: %s", folder, within, strerror(failed ? failed : errno));
}

dlrm_status dlrm_checkpoints_clean(const char *path, char *removed, size_t bytes)
{
    dlrm_status st = DLRM_OK;
    struct dirent *d;
    size_t used = 0;
    removed[0] = 0;
    DIR *dir = opendir(path);
    if (!dir) return FAIL(DLRM_E_INPUT, "%s: cannot list the folder: %s", path, strerror(errno));
    while (st == DLRM_OK && (d = readdir(dir))) {
        char folder[PATH_MAX];
        bool complete;
        if (!is_ours(d->d_name, &complete) || complete) continue;
        st = join(path, d->d_name, folder);
        if (st == DLRM_OK && remove_folder(folder) != DLRM_OK) { /* in use on another host, or with folders that are not ours */
            dlrm_warn("what a killed run left stays: %s", dlrm_error_message());
            continue;
        }
        if (used < bytes) used += (size_t)snprintf(removed + used, bytes - used, "%s%s", used ? ", " : "", d->d_name);
    }
    closedir(dir);
    return st;
}

static dlrm_status retire(const char *path, const dlrm_checkpoint_entry *e)
{
    char from[PATH_MAX], to[PATH_MAX], name[DLRM_CHECKPOINT_NAME_BYTES];
    gone_name(e->step, name);
    TRY(join(path, e->name, from));
    TRY(join(path, name, to));
    if (rename(from, to) != 0) {
        const bool leftover = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR; /* of a removal that failed half-way */
        if (!leftover || remove_folder(to) != DLRM_OK || rename(from, to) != 0)
            return FAIL(DLRM_E_RUNTIME, "%s: cannot rename it to %s: %s", from, name, strerror(errno));
    }
    return DLRM_OK;
}

dlrm_status dlrm_checkpoints_retire(const char *path, int64_t keep)
{
    dlrm_checkpoint_entry *list;
    char damaged[1]; /* stay */
    int n;
    TRY(dlrm_checkpoints_list(path, damaged, sizeof damaged, &list, &n));
    dlrm_status st = DLRM_OK;
    for (int i = n - 1; i >= keep && st == DLRM_OK; i--) st = retire(path, &list[i]); /* the oldest first */
    dlrm_free(&list);
    return st;
}

dlrm_status dlrm_checkpoints_sweep(const char *path)
{
    dlrm_status st = DLRM_OK;
    struct dirent *d;
    char folder[PATH_MAX];
    DIR *dir = opendir(path);
    if (!dir) return FAIL(DLRM_E_RUNTIME, "%s: cannot list the folder: %s", path, strerror(errno));
    while ((d = readdir(dir))) { /* one that stays does not keep the others */
        const size_t n = strlen(d->d_name), suffix = sizeof GONE - 1;
        bool complete;
        if (!is_ours(d->d_name, &complete) || n < suffix || strcmp(d->d_name + n - suffix, GONE) != 0) continue;
        dlrm_status removed = join(path, d->d_name, folder);
        if (removed == DLRM_OK) removed = remove_folder(folder);
        if (st == DLRM_OK) st = removed;
    }
    closedir(dir);
    return st;
}

/* --- what comes --- */

dlrm_status dlrm_checkpoint_begin(const char *path, int64_t step)
{
    char name[DLRM_CHECKPOINT_NAME_BYTES], folder[PATH_MAX];
    dlrm_checkpoint_name(step, true, name);
    TRY(join(path, name, folder));
    if (mkdir(folder, 0777) == 0) return DLRM_OK;
    if (errno == EEXIST && remove_folder(folder) == DLRM_OK && mkdir(folder, 0777) == 0) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "%s: cannot make the folder: %s", folder, strerror(errno));
}

void dlrm_checkpoint_abandon(const char *path, int64_t step)
{
    char name[DLRM_CHECKPOINT_NAME_BYTES], folder[PATH_MAX];
    dlrm_checkpoint_name(step, true, name);
    if (join(path, name, folder) == DLRM_OK) (void)!remove_folder(folder);
}

/* An older checkpoint of the same step changes places with the new one, where the file system can exchange names. */
static dlrm_status put_in_place(const char *path, int64_t step, const char *part, const char *whole)
{
    char name[DLRM_CHECKPOINT_NAME_BYTES], gone[PATH_MAX];
    struct stat s;
    if (stat(whole, &s) == 0) {
        gone_name(step, name);
        TRY(join(path, name, gone));
        if (renameat2(AT_FDCWD, part, AT_FDCWD, whole, RENAME_EXCHANGE) == 0) {
            (void)!remove_folder(part); /* the older one */
            return DLRM_OK;
        }
        if (rename(whole, gone) != 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot rename it to %s: %s", whole, name, strerror(errno));
        if (rename(part, whole) == 0) {
            (void)!remove_folder(gone); /* a later start does, if not */
            return DLRM_OK;
        }
        int error = errno;
        (void)!rename(gone, whole);
        return FAIL(DLRM_E_RUNTIME, "%s: cannot rename it to %s: %s", part, whole, strerror(error));
    }
    if (rename(part, whole) != 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot rename it to %s: %s", part, whole, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_checkpoint_commit(const char *path, int64_t step, const char *manifest)
{
    char name[DLRM_CHECKPOINT_NAME_BYTES], part[PATH_MAX], whole[PATH_MAX], file[PATH_MAX];
    dlrm_checkpoint_name(step, true, name);
    TRY(join(path, name, part));
    TRY(join(part, DLRM_MANIFEST_NAME, file));
    dlrm_checkpoint_name(step, false, name);
    TRY(join(path, name, whole));
    TRY(dlrm_file_write_new(file, manifest, (int64_t)strlen(manifest)));
    TRY(dlrm_folder_sync(part));
    TRY(put_in_place(path, step, part, whole));
    return dlrm_folder_sync(path);
}
