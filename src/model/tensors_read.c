/* The tensors of a file or folder by our names. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "model/tensors_impl.h"

enum { BLOCK_BYTES = 4 << 20 };

struct dlrm_tensors {
    char *path;
    dlrm_yaml_doc map;
    int64_t n_files, n;
    dlrm_st_file *files;
    dlrm_st_entry *entries; /* sorted by name */
    void *block;            /* [BLOCK_BYTES]: values before their conversion */
};

/* A growing list of texts. */
typedef struct names {
    int64_t n, room;
    char **v;
} names;

static dlrm_status names_add(names *l, const char *text)
{
    TRY(dlrm_grow(l->n, sizeof *l->v, 16, "a list of files", &l->v, &l->room));
    TRY(dlrm_alloc((int64_t)strlen(text) + 1, 1, "a file name", &l->v[l->n]));
    strcpy(l->v[l->n++], text);
    return DLRM_OK;
}

static void names_clear(names *l)
{
    for (int64_t i = 0; i < l->n; i++) dlrm_free(&l->v[i]);
    dlrm_free(&l->v);
    l->n = l->room = 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static dlrm_status join(const char *folder, const char *name, char **out)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    TRY(dlrm_alloc((int64_t)bytes, 1, "a path", out));
    snprintf(*out, bytes, "%s%s%s", folder, ends_with(folder, "/") ? "" : "/", name);
    return DLRM_OK;
}

/* The folder's *.safetensors files in the order of their names, and its index file ("" if none). Hidden files are left
 * out: an unfinished export is one. */
static dlrm_status list_folder(const char *folder, names *files, char index[DLRM_NAME_BYTES])
{
    dlrm_status st = DLRM_OK;
    struct dirent *d;
    DIR *dir = opendir(folder);
    index[0] = 0;
    if (!dir) return FAIL(DLRM_E_INPUT, "%s: cannot list the folder: %s", folder, strerror(errno));
    while (st == DLRM_OK && (d = readdir(dir))) {
        if (d->d_name[0] == '.') continue;
        if (ends_with(d->d_name, ".safetensors"))
            st = names_add(files, d->d_name);
        else if (ends_with(d->d_name, ".safetensors.index.json") && index[0])
            st = FAIL(DLRM_E_INPUT, "%s: two index files, %s and %s; name one export's folder", folder, index,
                      d->d_name);
        else if (ends_with(d->d_name, ".safetensors.index.json"))
            snprintf(index, DLRM_NAME_BYTES, "%s", d->d_name);
    }
    closedir(dir);
    if (files->n) qsort(files->v, (size_t)files->n, sizeof *files->v, by_text);
    return st;
}

/* The index's files, in the order of their names. Only files of the folder itself are followed. */
static dlrm_status list_index(const char *index_path, const json_t *map, names *files)
{
    const char *key;
    json_t *value;
    if (!json_is_object(map)) return FAIL(DLRM_E_INPUT, "%s: no map 'weight_map'", index_path);
    json_object_foreach((json_t *)map, key, value)
    {
        const char *file = json_string_value(value);
        if (!file || strchr(file, '/') || !ends_with(file, ".safetensors"))
            return FAIL(DLRM_E_INPUT,
                        "%s: weight_map: tensor '%.100s': the name of a .safetensors file in the same folder is "
                        "expected, found '%.100s'",
                        index_path, key, file ? file : "no text");
        TRY(names_add(files, file));
    }
    if (files->n) qsort(files->v, (size_t)files->n, sizeof *files->v, by_text);
    int64_t kept = 0;
    for (int64_t i = 0; i < files->n; i++) {
        if (kept && strcmp(files->v[kept - 1], files->v[i]) == 0)
            dlrm_free(&files->v[i]);
        else
            files->v[kept++] = files->v[i];
    }
    files->n = kept;
    return DLRM_OK;
}

static dlrm_status open_files(dlrm_tensors *t, const names *paths)
{
    TRY(dlrm_alloc(paths->n, sizeof *t->files, "the list of weights files", &t->files));
    for (int64_t i = 0; i < paths->n; i++) {
        dlrm_st_entry *more, *all;
        int64_t n;
        t->n_files++; /* closed even if half open */
        TRY(dlrm_st_open(paths->v[i], &t->files[i], &more, &n));
        dlrm_status st = dlrm_alloc(t->n + n, sizeof *all, "the list of tensors", &all);
        if (st == DLRM_OK) {
            if (t->n) memcpy(all, t->entries, (size_t)t->n * sizeof *all);
            if (n) memcpy(all + t->n, more, (size_t)n * sizeof *all);
            dlrm_free(&t->entries);
            t->entries = all;
            t->n += n;
        }
        dlrm_free(&more);
        TRY(st);
    }
    return DLRM_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const dlrm_st_entry *)a)->key, ((const dlrm_st_entry *)b)->key);
}

/* Every tensor of the index is in the file that it says. Needs the entries sorted by key. */
static dlrm_status check_index(const dlrm_tensors *t, const char *index_path, const json_t *map)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value)
    {
        dlrm_st_entry want = {.key = key};
        const dlrm_st_entry *e = t->n ? bsearch(&want, t->entries, (size_t)t->n, sizeof want, by_key) : NULL;
        const char *slash = e ? strrchr(e->file->path, '/') : NULL;
        if (!e || strcmp(slash ? slash + 1 : e->file->path, json_string_value(value)) != 0)
            return FAIL(DLRM_E_INPUT, "%s: weight_map: tensor '%.100s' is not in %.100s", index_path, key,
                        json_string_value(value));
    }
    return DLRM_OK;
}

/* The entries sorted by key; a key in two files is an error. */
static dlrm_status sort_keys(dlrm_tensors *t)
{
    if (t->n) qsort(t->entries, (size_t)t->n, sizeof *t->entries, by_key);
    for (int64_t i = 1; i < t->n; i++)
        if (strcmp(t->entries[i - 1].key, t->entries[i].key) == 0)
            return FAIL(DLRM_E_INPUT, "tensor '%s' is in both %s and %s", t->entries[i].key,
                        t->entries[i - 1].file->path, t->entries[i].file->path);
    return DLRM_OK;
}

static dlrm_status open_folder(dlrm_tensors *t, const char *folder)
{
    char index[DLRM_NAME_BYTES], *index_path = NULL;
    json_t *json = NULL;
    const json_t *map = NULL;
    names files = {0}, paths = {0};
    dlrm_status st;
    TRY_TO(done, st, list_folder(folder, &files, index));
    if (index[0]) {
        names_clear(&files);
        TRY_TO(done, st, join(folder, index, &index_path));
        TRY_TO(done, st, dlrm_st_load_json(index_path, &json));
        map = json_object_get(json, "weight_map");
        TRY_TO(done, st, list_index(index_path, map, &files));
    } else if (files.n == 0) {
        st = FAIL(DLRM_E_INPUT, "%s: no *.safetensors file in this folder", folder);
        goto done;
    }
    for (int64_t i = 0; i < files.n; i++) {
        char *path;
        TRY_TO(done, st, join(folder, files.v[i], &path));
        st = names_add(&paths, path);
        dlrm_free(&path);
        if (st != DLRM_OK) goto done;
    }
    TRY_TO(done, st, open_files(t, &paths));
    TRY_TO(done, st, sort_keys(t));
    if (map) TRY_TO(done, st, check_index(t, index_path, map));
done:
    names_clear(&files);
    names_clear(&paths);
    dlrm_free(&index_path);
    json_decref(json);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dlrm_st_entry *)a)->name, ((const dlrm_st_entry *)b)->name);
}

/* Gives every entry our name and sorts by it. */
static dlrm_status map_names(dlrm_tensors *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        char ours[DLRM_NAME_BYTES];
        dlrm_st_entry *e = &t->entries[i];
        TRY(dlrm_name_map_apply(&t->map, e->file->path, e->key, ours, &e->rule));
        if (!e->rule) continue;
        TRY(dlrm_alloc((int64_t)strlen(ours) + 1, 1, "a tensor's name", &e->mapped));
        e->name = strcpy(e->mapped, ours);
    }
    if (t->n) qsort(t->entries, (size_t)t->n, sizeof *t->entries, by_name);
    for (int64_t i = 1; i < t->n; i++) {
        const dlrm_st_entry *a = &t->entries[i - 1], *b = &t->entries[i];
        if (strcmp(a->name, b->name) == 0) /* keys differ, so a rule made one of the names */
            return dlrm_yaml_fail(b->rule ? b->rule : a->rule, "tensors '%s' of %s and '%s' of %s are both '%s'",
                                  a->key, a->file->path, b->key, b->file->path, a->name);
    }
    return DLRM_OK;
}

static dlrm_status open_all(dlrm_tensors *t, const char *path, const char *name_map)
{
    struct stat s;
    if (stat(path, &s) != 0) return FAIL(DLRM_E_INPUT, "%s: cannot open: %s", path, strerror(errno));
    TRY(dlrm_alloc((int64_t)strlen(path) + 1, 1, "a path", &t->path));
    strcpy(t->path, path);
    TRY(dlrm_alloc(BLOCK_BYTES, 1, "a block of weights", &t->block));
    if (name_map) TRY(dlrm_name_map_load(name_map, &t->map));
    if (S_ISDIR(s.st_mode))
        TRY(open_folder(t, path));
    else
        TRY(open_files(t, &(names){.n = 1, .v = &t->path}));
    return map_names(t);
}

dlrm_status dlrm_tensors_open(const char *path, const char *name_map, dlrm_tensors **out)
{
    TRY(dlrm_alloc(1, sizeof **out, "the weights reader", out));
    dlrm_status st = open_all(*out, path, name_map);
    if (st != DLRM_OK) dlrm_tensors_close(out);
    return st;
}

void dlrm_tensors_close(dlrm_tensors **t)
{
    dlrm_tensors *p = *t;
    if (!p) return;
    for (int64_t i = 0; i < p->n; i++) dlrm_free(&p->entries[i].mapped);
    dlrm_free(&p->entries);
    for (int64_t i = 0; i < p->n_files; i++) dlrm_st_close(&p->files[i]);
    dlrm_free(&p->files);
    dlrm_yaml_clear(&p->map);
    dlrm_free(&p->block);
    dlrm_free(&p->path);
    dlrm_free(t);
}

static dlrm_st_entry *find(const dlrm_tensors *t, const char *name)
{
    dlrm_st_entry want = {.name = name};
    return t->n ? bsearch(&want, t->entries, (size_t)t->n, sizeof want, by_name) : NULL;
}

static bool same_shape(const dlrm_tensor_info *want, const json_t *shape)
{
    if ((size_t)want->n_dims != json_array_size(shape)) return false;
    for (int i = 0; i < want->n_dims; i++)
        if (want->dims[i] != json_integer_value(json_array_get(shape, (size_t)i))) return false;
    return true;
}

dlrm_status dlrm_tensors_require(dlrm_tensors *t, const dlrm_tensor_info *want)
{
    char wanted[200], found[200];
    int used = 0;
    for (int i = 0; i < want->n_dims; i++)
        used +=
            snprintf(wanted + used, sizeof wanted - (size_t)used, "%s%lld", i ? ", " : "", (long long)want->dims[i]);
    wanted[used] = 0;

    dlrm_st_entry *e = find(t, want->name);
    if (!e) {
        char others[400];
        dlrm_tensors_unused(t, others, sizeof others);
        return FAIL(DLRM_E_INPUT, "%s: no tensor '%s' [%s]; not asked for yet: %s", t->path, want->name, wanted,
                    others[0] ? others : "none");
    }
    const char *path = e->file->path, *from = e->mapped ? ", by the name map " : "", *name = e->mapped ? e->name : "";
    if (!same_shape(want, e->shape))
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s'%s%s: has shape %s, expected [%s]", path, e->key, from, name,
                    dlrm_st_shape_text(e->shape, found, sizeof found), wanted);
    const bool integers = dlrm_dtype_is_integer(want->dtype);
    const char *dtype = integers ? dlrm_st_dtype_name(want->dtype) : "F64, F32, BF16 or F16";
    if (integers ? strcmp(e->dtype->name, dtype) != 0 : !e->dtype->to_float)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s'%s%s: has dtype %s, expected %s", path, e->key, from, name, e->dtype->name, dtype);
    e->required = true;
    return DLRM_OK;
}

/* A tensor that has been required, and has elements [first, first+n). */
static const dlrm_st_entry *required(const dlrm_tensors *t, const char *name, int64_t first, int64_t n)
{
    const dlrm_st_entry *e = find(t, name);
    DLRM_ASSERT(e && e->required && first >= 0 && n >= 0 && first <= e->elements && n <= e->elements - first);
    return e;
}

dlrm_status dlrm_tensors_read_integers(dlrm_tensors *t, const char *name, int64_t first, int64_t n, void *out)
{
    const dlrm_st_entry *e = required(t, name, first, n);
    const int64_t size = e->dtype->bits / 8;
    return dlrm_st_pread(e->file->fd, e->file->path, e->at + first * size, n * size, out);
}

dlrm_status dlrm_tensors_read(dlrm_tensors *t, const char *name, int64_t first, int64_t n, float *out)
{
    const dlrm_st_entry *e = required(t, name, first, n);
    int64_t size = e->dtype->bits / 8, at = e->at + first * size;
    for (int64_t part; n > 0; n -= part, out += part, at += part * size) {
        part = n < BLOCK_BYTES / size ? n : BLOCK_BYTES / size;
        TRY(dlrm_st_pread(e->file->fd, e->file->path, at, part * size, t->block));
        e->dtype->to_float(t->block, part, out);
    }
    return DLRM_OK;
}

void dlrm_tensors_unused(const dlrm_tensors *t, char *buf, size_t bytes)
{
    enum { TAIL = 32 }; /* room for " and N more" */
    size_t used = 0;
    int64_t left = 0;
    buf[0] = 0;
    for (int64_t i = 0; i < t->n; i++) left += !t->entries[i].required;
    for (int64_t i = 0; i < t->n && left > 0; i++) {
        const char *key = t->entries[i].key;
        if (t->entries[i].required) continue;
        if (used + strlen(key) + 2 + TAIL > bytes) {
            snprintf(buf + used, bytes - used, "%s%lld more", used ? " and " : "", (long long)left);
            return;
        }
        used += (size_t)snprintf(buf + used, bytes - used, "%s%s", used ? ", " : "", key);
        left--;
    }
}
