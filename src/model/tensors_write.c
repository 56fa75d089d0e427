/* Writing an export. The plan fixes every byte's place before anything is written, so ranks need not talk: any of them
 * writes any range of any tensor with pwrite. Files grow under hidden names (.NAME.part) and get their own at the
 * commit. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/mem.h"
#include "model/tensors_impl.h"

#define HEADER_START "{\"__metadata__\":{\"format\":\"pt\"}"
#define INDEX_NAME "model.safetensors.index.json"
enum { FILE_NAME_BYTES = 64 };

typedef struct part_file {
    char name[FILE_NAME_BYTES];
    int first, n;         /* its tensors */
    int64_t header_bytes; /* of the JSON text with its padding */
    int64_t data_bytes;
    int fd; /* -1: this rank has not opened it */
} part_file;

struct dlrm_export {
    char *folder;
    int n, n_files;
    dlrm_tensor_info *tensors;
    int64_t *at;  /* [n]: of each tensor's first byte, from the start of its file's data */
    int *file_of; /* [n] */
    part_file *files;
    int64_t total_bytes; /* of values */
    bool begun;          /* here, and not committed: unfinished files are this process's to remove */
};

static int64_t elements(const dlrm_tensor_info *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) DLRM_ASSERT(t->dims[i] >= 0 && !__builtin_mul_overflow(n, t->dims[i], &n));
    DLRM_ASSERT(n <= INT64_MAX / 8);
    return n;
}

static int64_t value_bytes(const dlrm_tensor_info *t)
{
    return elements(t) * (int64_t)dlrm_dtype_bytes(t->dtype);
}

static size_t header_entry(const dlrm_tensor_info *t, int64_t at, char *buf, size_t bytes)
{
    return dlrm_st_header_entry(t, dlrm_st_dtype_name(t->dtype), at, at + value_bytes(t), buf, bytes);
}

static int64_t padded(int64_t header)
{
    return (header + 1 + 7) / 8 * 8; /* with the closing brace */
}

/* Fills one file after the other; returns in e->files[i] what each holds. */
static dlrm_status lay_out(dlrm_export *e, int64_t max_file_bytes)
{
    char entry[DLRM_ST_ENTRY_BYTES];
    part_file *f = e->files;
    int64_t header = sizeof HEADER_START - 1;
    *f = (part_file){.fd = -1};
    for (int i = 0; i < e->n; i++) {
        int64_t bytes = value_bytes(&e->tensors[i]);
        int64_t entry_bytes = (int64_t)header_entry(&e->tensors[i], f->data_bytes, entry, sizeof entry);
        if (!entry_bytes) return FAIL(DLRM_E_INPUT, "export: the tensor name '%s' is not UTF-8", e->tensors[i].name);
        bool full = 8 + padded(header + entry_bytes) + f->data_bytes + bytes > max_file_bytes ||
                    header + entry_bytes > DLRM_ST_MAX_HEADER - 8;
        if (f->n && full) {
            *++f = (part_file){.first = i, .fd = -1};
            header = sizeof HEADER_START - 1;
            entry_bytes = (int64_t)header_entry(&e->tensors[i], 0, entry, sizeof entry);
        }
        e->at[i] = f->data_bytes;
        e->file_of[i] = (int)(f - e->files);
        f->n++;
        f->data_bytes += bytes;
        header += entry_bytes;
        f->header_bytes = padded(header);
        e->total_bytes += bytes;
    }
    e->n_files = (int)(f - e->files) + 1;
    for (int i = 0; i < e->n_files; i++) {
        if (e->n_files == 1)
            snprintf(e->files[i].name, FILE_NAME_BYTES, "model.safetensors");
        else
            snprintf(e->files[i].name, FILE_NAME_BYTES, "model-%05d-of-%05d.safetensors", i + 1, e->n_files);
    }
    return DLRM_OK;
}

static dlrm_status plan(dlrm_export *e, const char *folder, int n, const dlrm_tensor_info *tensors,
                        int64_t max_file_bytes)
{
    DLRM_ASSERT(n > 0);
    TRY(dlrm_alloc((int64_t)strlen(folder) + 1, 1, "the export's folder", &e->folder));
    strcpy(e->folder, folder);
    TRY(dlrm_alloc(n, sizeof *e->tensors, "the export's plan", &e->tensors));
    memcpy(e->tensors, tensors, (size_t)n * sizeof *tensors);
    e->n = n;
    TRY(dlrm_alloc(n, sizeof *e->at, "the export's plan", &e->at));
    TRY(dlrm_alloc(n, sizeof *e->file_of, "the export's plan", &e->file_of));
    TRY(dlrm_alloc(n, sizeof *e->files, "the export's plan", &e->files));
    return lay_out(e, max_file_bytes);
}

/* Path of `name` in the folder, in the caller's buffer; hidden: while it is being written. */
static dlrm_status path_of(const dlrm_export *e, const char *name, bool hidden, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s%s%s", e->folder, hidden ? "." : "", name, hidden ? ".part" : "");
    if (n >= PATH_MAX)
        return FAIL(DLRM_E_INPUT, "export: the path '%.60s…' is longer than %d bytes", e->folder, PATH_MAX - 1);
    return DLRM_OK;
}

/* Removes an unfinished file. Where there is none, there is nothing to say. */
static void discard(const dlrm_export *e, const char *name)
{
    char path[PATH_MAX];
    if (path_of(e, name, true, path) == DLRM_OK) unlink(path);
}

void dlrm_export_close(dlrm_export **e)
{
    dlrm_export *p = *e;
    if (!p) return;
    for (int i = 0; i < p->n_files; i++) {
        if (p->files[i].fd >= 0) close(p->files[i].fd);
        if (p->begun) discard(p, p->files[i].name);
    }
    if (p->begun) discard(p, INDEX_NAME);
    dlrm_free(&p->files);
    dlrm_free(&p->file_of);
    dlrm_free(&p->at);
    dlrm_free(&p->tensors);
    dlrm_free(&p->folder);
    dlrm_free(e);
}

dlrm_status dlrm_export_plan(const char *folder, int n, const dlrm_tensor_info *tensors, int64_t max_file_bytes,
                             dlrm_export **out)
{
    TRY(dlrm_alloc(1, sizeof **out, "the export's plan", out));
    dlrm_status st = plan(*out, folder, n, tensors, max_file_bytes);
    if (st != DLRM_OK) dlrm_export_close(out);
    return st;
}

/* "model.safetensors", "model-00001-of-00002.safetensors" or the index: the names that an export may have. */
static bool is_export_name(const char *name)
{
    int i, n, end = 0;
    char text[FILE_NAME_BYTES];
    if (strcmp(name, "model.safetensors") == 0 || strcmp(name, INDEX_NAME) == 0) return true;
    if (sscanf(name, "model-%d-of-%d.safetensors%n", &i, &n, &end) != 2 || !end || name[end]) return false;
    snprintf(text, sizeof text, "model-%05d-of-%05d.safetensors", i, n);
    return strcmp(name, text) == 0; /* no signs, no spaces, zeros where we put them */
}

/* The same for the hidden name of an unfinished file. */
static bool is_part_name(const char *name)
{
    char inner[FILE_NAME_BYTES];
    size_t n = strlen(name), tail = sizeof ".part" - 1;
    if (name[0] != '.' || n <= tail + 1 || n - tail - 1 >= sizeof inner || strcmp(name + n - tail, ".part") != 0)
        return false;
    memcpy(inner, name + 1, n - tail - 1);
    inner[n - tail - 1] = 0;
    return is_export_name(inner);
}

/* Removes the folder's files whose names fit and are not `keep`. */
static dlrm_status remove_files(const dlrm_export *e, bool (*fits)(const char *name), const char *keep)
{
    dlrm_status st = DLRM_OK;
    struct dirent *d;
    DIR *dir = opendir(e->folder);
    if (!dir) return FAIL(DLRM_E_RUNTIME, "export: cannot list the folder %s: %s", e->folder, strerror(errno));
    while (st == DLRM_OK && (d = readdir(dir)))
        if (fits(d->d_name) && strcmp(d->d_name, keep) != 0 && unlinkat(dirfd(dir), d->d_name, 0) != 0)
            st = FAIL(DLRM_E_RUNTIME, "export: cannot remove %s/%s: %s", e->folder, d->d_name, strerror(errno));
    closedir(dir);
    return st;
}

dlrm_status dlrm_export_check(const dlrm_export *e)
{
    double need = 0;
    TRY(dlrm_folder_make(e->folder));
    for (int i = 0; i < e->n_files; i++) need += 8.0 + (double)e->files[i].header_bytes + (double)e->files[i].data_bytes;
    return dlrm_folder_check_space(e->folder, need);
}

/* Writes the file's header and gives it its full length. */
static dlrm_status start_file(const dlrm_export *e, part_file *f, const char *path)
{
    char *text = NULL;
    int64_t used = sizeof HEADER_START - 1, bytes = 8 + f->header_bytes;
    dlrm_status st;
    TRY(dlrm_alloc(bytes + DLRM_ST_ENTRY_BYTES, 1, "an export's header", &text));
    memcpy(text, &f->header_bytes, 8);
    memcpy(text + 8, HEADER_START, sizeof HEADER_START);
    for (int i = f->first; i < f->first + f->n; i++)
        used += (int64_t)header_entry(&e->tensors[i], e->at[i], text + 8 + used, DLRM_ST_ENTRY_BYTES);
    DLRM_ASSERT(padded(used) == f->header_bytes);
    memset(text + 8 + used, ' ', (size_t)(f->header_bytes - used));
    text[8 + used] = '}';
    st = dlrm_file_write_at(f->fd, path, 0, bytes, text);
    dlrm_free(&text);
    if (st == DLRM_OK && ftruncate(f->fd, bytes + f->data_bytes) != 0)
        st = FAIL(DLRM_E_RUNTIME, "export: %s: cannot make it %lld bytes long: %s", path,
                  (long long)(bytes + f->data_bytes), strerror(errno));
    return st;
}

static dlrm_status open_part(const dlrm_export *e, part_file *f, int flags, char path[PATH_MAX])
{
    TRY(path_of(e, f->name, true, path));
    if (f->fd < 0) f->fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
    if (f->fd < 0) return FAIL(DLRM_E_RUNTIME, "export: cannot open %s: %s", path, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_export_begin(dlrm_export *e)
{
    char path[PATH_MAX];
    TRY(dlrm_folder_make(e->folder));
    TRY(remove_files(e, is_part_name, "")); /* of an export that was cut off */
    TRY(dlrm_export_check(e));
    e->begun = true;
    for (int i = 0; i < e->n_files; i++) {
        TRY(open_part(e, &e->files[i], O_CREAT | O_EXCL, path));
        TRY(start_file(e, &e->files[i], path));
    }
    return DLRM_OK;
}

dlrm_status dlrm_export_write(dlrm_export *e, int tensor, int64_t first, int64_t n, const void *values)
{
    char path[PATH_MAX];
    DLRM_ASSERT(tensor >= 0 && tensor < e->n && first >= 0 && n >= 0 && n <= elements(&e->tensors[tensor]) - first);
    part_file *f = &e->files[e->file_of[tensor]];
    TRY(open_part(e, f, 0, path));
    const int64_t size = (int64_t)dlrm_dtype_bytes(e->tensors[tensor].dtype);
    return dlrm_file_write_at(f->fd, path, 8 + f->header_bytes + e->at[tensor] + first * size, n * size, values);
}

dlrm_status dlrm_export_flush(dlrm_export *e)
{
    char path[PATH_MAX];
    for (int i = 0; i < e->n_files; i++) {
        TRY(path_of(e, e->files[i].name, true, path));
        if (e->files[i].fd >= 0) TRY(dlrm_file_sync_and_close(&e->files[i].fd, path));
    }
    return DLRM_OK;
}

/* Which tensor is in which file, under the index's hidden name. */
static dlrm_status write_index(const dlrm_export *e)
{
    char path[PATH_MAX];
    TRY(path_of(e, INDEX_NAME, true, path));
    json_t *map = json_object();
    for (int i = 0; i < e->n; i++)
        json_object_set_new(map, e->tensors[i].name, json_string(e->files[e->file_of[i]].name));
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)e->total_bytes, "weight_map", map);
    char *text = index ? json_dumps(index, JSON_INDENT(2)) : NULL;
    json_decref(index);
    if (!text) return FAIL(DLRM_E_RUNTIME, "export: %s: no memory for the index", path);

    dlrm_status st = dlrm_file_write_new(path, text, (int64_t)strlen(text));
    free(text);
    return st;
}

static dlrm_status put_in_place(const dlrm_export *e, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    TRY(path_of(e, name, true, from));
    TRY(path_of(e, name, false, to));
    if (rename(from, to) != 0)
        return FAIL(DLRM_E_RUNTIME, "export: cannot rename %s to %s: %s", from, to, strerror(errno));
    return DLRM_OK;
}

/* The older export goes before the new files get their names: files of both must never stand together as if they were
 * one. (A single file over a single file is one rename, and needs no removal.) The index comes last. */
dlrm_status dlrm_export_commit(dlrm_export *e)
{
    bool indexed = e->n_files > 1;
    if (indexed) TRY(write_index(e));
    TRY(remove_files(e, is_export_name, indexed ? "" : e->files[0].name));
    for (int i = 0; i < e->n_files; i++) TRY(put_in_place(e, e->files[i].name));
    if (indexed) TRY(put_in_place(e, INDEX_NAME));
    e->begun = false;
    return dlrm_folder_sync(e->folder);
}
