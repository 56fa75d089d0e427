/* Split-binary folders as a source of rows. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/yaml.h"
#include "data/file.h"
#include "elems.h"
#include "row_source.h"

typedef struct column {
    char *path;
    int fd;      /* -1: not there */
    int64_t ids; /* of a file whose bags vary: all of them */
} column;

typedef struct split_columns {
    column label, dense, *ids, *offsets; /* [n_features] */
} split_columns;

typedef struct split_source {
    dlrm_row_source base;
    dlrm_feature_spec spec;
    split_columns split[DLRM_OUT_SPLITS];
    bool counts;             /* the dense files' 4 bytes are int32 */
    int64_t validation_rows; /* as noted; 0: not */
    char *raw;   /* room for values as they stand in a file */
    int64_t raw_bytes;
    int64_t *starts; /* offsets of a stretch */
    int64_t starts_bytes;
} split_source;

/* --- files --- */

static dlrm_status open_column(const char *path, column *c)
{
    int64_t bytes = (int64_t)strlen(path) + 1;
    TRY(dlrm_alloc(bytes, 1, "a path", &c->path));
    memcpy(c->path, path, (size_t)bytes);
    return dlrm_file_open(path, true, &c->fd);
}

static void close_column(column *c)
{
    if (c->fd >= 0) close(c->fd);
    dlrm_free(&c->path);
}

static int64_t column_bytes(const column *c)
{
    struct stat st;
    return c->fd >= 0 && fstat(c->fd, &st) == 0 ? st.st_size : 0;
}

static dlrm_status open_split(split_source *s, int which, const dlrm_split_files *files)
{
    split_columns *c = &s->split[which];
    int n = s->base.shape.n_features;
    TRY(dlrm_alloc(n, sizeof *c->ids, "open files", &c->ids));
    for (int f = 0; f < n; f++) c->ids[f].fd = -1;
    TRY(dlrm_alloc(n, sizeof *c->offsets, "open files", &c->offsets));
    for (int f = 0; f < n; f++) c->offsets[f].fd = -1;
    TRY(open_column(files->label, &c->label));
    if (files->dense) TRY(open_column(files->dense, &c->dense));
    for (int f = 0; f < n; f++) {
        TRY(open_column(files->ids[f], &c->ids[f]));
        c->ids[f].ids = column_bytes(&c->ids[f]) / (int64_t)dlrm_elem_size(s->spec.categorical[f].dtype);
        if (files->offsets[f]) TRY(open_column(files->offsets[f], &c->offsets[f]));
        s->base.disk_bytes += column_bytes(&c->ids[f]) + column_bytes(&c->offsets[f]);
    }
    s->base.disk_bytes += column_bytes(&c->label) + column_bytes(&c->dense);
    s->base.rows[which] = files->rows;
    return DLRM_OK;
}

/* validation/ is not in the description; its files are called as train's. */
static dlrm_status validation_path(const char *folder, char **path)
{
    char moved[DLRM_PATH_MAX];
    size_t n = strlen(folder);
    if (strncmp(*path, folder, n) != 0 || strncmp(*path + n, "/train/", 7) != 0) {
        dlrm_free(path);
        return DLRM_OK;
    }
    TRY(dlrm_tool_path(moved, "%s/validation/%s", folder, *path + n + 7));
    dlrm_free(path);
    TRY(dlrm_alloc((int64_t)strlen(moved) + 1, 1, "a path", path));
    memcpy(*path, moved, strlen(moved));
    return DLRM_OK;
}

static dlrm_status open_validation(split_source *s, const char *folder)
{
    char label[DLRM_PATH_MAX];
    TRY(dlrm_tool_path(label, "%s/validation", folder));
    if (access(label, F_OK) != 0) return DLRM_OK;
    dlrm_feature_spec moved;
    TRY(dlrm_feature_spec_load(folder, &moved));
    dlrm_split_files *files = &moved.split[DLRM_TRAIN_SPLIT];
    dlrm_status st = validation_path(folder, &files->label);
    if (st == DLRM_OK && files->dense) st = validation_path(folder, &files->dense);
    bool complete = files->label;
    for (int f = 0; st == DLRM_OK && f < moved.n_categorical; f++) {
        st = validation_path(folder, &files->ids[f]);
        complete &= files->ids[f] != NULL;
        if (st == DLRM_OK && files->offsets[f]) st = validation_path(folder, &files->offsets[f]);
    }
    if (st == DLRM_OK && complete) {
        moved.split[DLRM_TEST_SPLIT].present = false;
        files->told_rows = s->validation_rows;
        st = dlrm_feature_spec_check(&moved);
        if (st == DLRM_OK) st = open_split(s, DLRM_VALIDATION, files);
    }
    dlrm_feature_spec_clear(&moved);
    return st;
}

/* --- values --- */

static dlrm_status read_raw(split_source *s, const column *c, int64_t at, int64_t bytes, void **out)
{
    TRY(dlrm_tool_room(bytes, "a read buffer", &s->raw, &s->raw_bytes));
    *out = s->raw;
    return dlrm_tool_pread(c->fd, s->raw, (size_t)bytes, at, c->path);
}

static dlrm_status read_labels(split_source *s, const column *c, dlrm_stretch *out)
{
    dlrm_elem e = s->spec.label_dtype;
    int64_t size = (int64_t)dlrm_elem_size(e);
    void *raw;
    TRY(read_raw(s, c, out->first * size, out->n * size, &raw));
    for (int64_t i = 0; i < out->n; i++) {
        double label = dlrm_elem_label(e, raw, i);
        out->labels[i] = label == 1;
        if (label != 0 && label != 1)
            TRY(dlrm_found(s->base.findings, c, "labels other than 0 and 1", "%s: row %lld: label %g is neither 0 nor 1", c->path,
                           (long long)(out->first + i), label));
    }
    return DLRM_OK;
}

static dlrm_status read_dense(split_source *s, const column *c, dlrm_stretch *out)
{
    int64_t size = (int64_t)dlrm_elem_size(s->spec.dense_dtype), columns = s->base.shape.n_dense, n = out->n * columns;
    void *raw;
    TRY(read_raw(s, c, out->first * columns * size, n * size, &raw));
    float *to = out->dense;
    dlrm_elem_floats(s->spec.dense_dtype, raw, n, to);
    if (s->counts) return DLRM_OK; /* our own, between two passes */
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(to[i])) continue;
        TRY(dlrm_found(s->base.findings, c, "values that are not finite", "%s: row %lld: value %g in column %lld is not finite", c->path,
                       (long long)(out->first + i / columns), (double)to[i], (long long)(i % columns)));
        to[i] = 0;
    }
    return DLRM_OK;
}

/* Id number i of a feature's raw ids, which stands in row `row`. */
static dlrm_status take_id(split_source *s, const column *c, int f, const void *raw, int64_t i, int64_t row, uint32_t *out)
{
    int64_t id = dlrm_elem_id(s->spec.categorical[f].dtype, raw, i), n = s->base.shape.features[f].cardinality;
    *out = (uint32_t)id;
    if (id >= 0 && id < n) return DLRM_OK;
    *out = 0;
    return dlrm_found(s->base.findings, c, "ids outside the table", "%s: row %lld: id %lld is outside [0, %lld)%s", c->path, (long long)row,
                      (long long)id, (long long)n,
                      id == n ? ": one too many; is the cardinality the largest id?"
                              : dlrm_elem_hint(id, "; keys of 64 bits, for a table with rows: dynamic, are told by keys: true in feature_spec.yaml"));
}

/* Ids that stand for one on disk. */
static int ids_of(const dlrm_feature *f)
{
    return f->keys ? 2 : 1;
}

/* Id or key number i of the raw ones, to the place of number j. */
static dlrm_status take(split_source *s, const column *c, int f, const void *raw, int64_t i, int64_t row, uint32_t *ids, int64_t j)
{
    if (!s->base.shape.features[f].keys) return take_id(s, c, f, raw, i, row, &ids[j]);
    const int64_t key = dlrm_elem_id(s->spec.categorical[f].dtype, raw, i);
    ids[2 * j] = (uint32_t)key;
    ids[2 * j + 1] = (uint32_t)((uint64_t)key >> 32);
    return DLRM_OK;
}

static dlrm_status read_bags(split_source *s, const split_columns *c, int f, dlrm_stretch *out)
{
    const column *offsets = &c->offsets[f], *ids = &c->ids[f];
    const int each = ids_of(&s->base.shape.features[f]), hotness = s->base.shape.features[f].hotness / each;
    int64_t size = (int64_t)dlrm_elem_size(s->spec.categorical[f].dtype), at = 0;
    uint32_t *to = dlrm_stretch_ids(out, &s->base.shape, f);
    int32_t *lengths = out->lengths + out->capacity * f;
    void *raw;
    const int64_t starts_bytes = (out->n + 1) * (int64_t)sizeof *s->starts;
    TRY(dlrm_tool_room(starts_bytes, "offsets", &s->starts, &s->starts_bytes));
    TRY(dlrm_tool_pread(offsets->fd, s->starts, (size_t)starts_bytes, out->first * 8, offsets->path));
    int64_t begin = s->starts[0], end = s->starts[out->n];
    bool usable = begin >= 0 && begin <= end && end <= ids->ids && end - begin <= out->n * hotness;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t length = s->starts[i + 1] - s->starts[i];
        lengths[i] = (int32_t)(each * length);
        if (length >= 0 && length <= hotness && s->starts[i + 1] <= ids->ids && s->starts[i] >= 0) continue;
        usable = false;
        TRY(dlrm_found(s->base.findings, offsets, "bags that are no bags",
                       "%s: row %lld: offsets %lld and %lld, expected a bag of at most %d of the %lld ids of %s", offsets->path,
                       (long long)(out->first + i), (long long)s->starts[i], (long long)s->starts[i + 1], hotness, (long long)ids->ids,
                       ids->path));
    }
    memset(to, 0, (size_t)(out->n * hotness * each) * sizeof *to);
    if (!usable) { /* somebody collects findings: without offsets the ids mean nothing */
        memset(lengths, 0, (size_t)out->n * sizeof *lengths);
        return DLRM_OK;
    }
    TRY(read_raw(s, ids, begin * size, (end - begin) * size, &raw));
    for (int64_t i = 0; i < out->n; i++)
        for (int32_t j = 0; j < lengths[i] / each; j++, at++) TRY(take(s, ids, f, raw, at, out->first + i, to, i * hotness + j));
    return DLRM_OK;
}

static dlrm_status read_ids(split_source *s, const split_columns *c, int f, dlrm_stretch *out)
{
    const dlrm_feature *feature = &s->base.shape.features[f];
    if (feature->variable) return read_bags(s, c, f, out);
    int64_t size = (int64_t)dlrm_elem_size(s->spec.categorical[f].dtype), hotness = feature->hotness / ids_of(feature), n = out->n * hotness;
    uint32_t *to = dlrm_stretch_ids(out, &s->base.shape, f);
    void *raw;
    TRY(read_raw(s, &c->ids[f], out->first * hotness * size, n * size, &raw));
    for (int64_t i = 0; i < n; i++) TRY(take(s, &c->ids[f], f, raw, i, out->first + i / hotness, to, i));
    for (int64_t i = 0; out->lengths && i < out->n; i++) out->lengths[out->capacity * f + i] = feature->hotness;
    return DLRM_OK;
}

static dlrm_status read_rows(dlrm_row_source *base, int split, int64_t row, int64_t n, dlrm_stretch *out)
{
    split_source *s = (split_source *)base;
    const split_columns *c = &s->split[split];
    out->first = row;
    out->n = n;
    TRY(read_labels(s, &c->label, out));
    if (base->shape.n_dense) TRY(read_dense(s, &c->dense, out));
    for (int f = 0; f < base->shape.n_features; f++)
        if (!base->wanted || base->wanted[f]) TRY(read_ids(s, c, f, out));
    return DLRM_OK;
}

static void close_source(dlrm_row_source *base)
{
    split_source *s = (split_source *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        split_columns *c = &s->split[i];
        close_column(&c->label);
        close_column(&c->dense);
        for (int f = 0; c->ids && f < base->shape.n_features; f++) close_column(&c->ids[f]);
        for (int f = 0; c->offsets && f < base->shape.n_features; f++) close_column(&c->offsets[f]);
        dlrm_free(&c->ids);
        dlrm_free(&c->offsets);
    }
    dlrm_feature_spec_clear(&s->spec);
    dlrm_free(&s->raw);
    dlrm_free(&s->starts);
}

/* --- the description --- */

static const dlrm_yaml *get(const dlrm_yaml *map, const char *key, dlrm_yaml_kind kind)
{
    const dlrm_yaml *found = map && map->kind == DLRM_YAML_MAP ? dlrm_yaml_get(map, key) : NULL;
    return found && found->kind == kind ? found : NULL;
}

/* metadata.dense and metadata.rows.validation: what dlrm_data itself notes and the trainer does not ask for. */
static dlrm_status read_notes(split_source *s)
{
    dlrm_yaml_doc doc;
    dlrm_status st = DLRM_OK;
    s->base.shape.form = DLRM_FORM_FLOATS;
    size_t n = strlen(s->spec.path);
    if (n < 5 || strcmp(s->spec.path + n - 5, ".yaml") != 0) return DLRM_OK;
    TRY(dlrm_yaml_load(s->spec.path, 64 << 20, &doc));
    const dlrm_yaml *metadata = get(doc.root, "metadata", DLRM_YAML_MAP), *dense = get(metadata, "dense", DLRM_YAML_SCALAR),
                    *rows = get(get(metadata, "rows", DLRM_YAML_MAP), "validation", DLRM_YAML_SCALAR);
    for (int i = 0; dense && i < DLRM_FORMS; i++)
        if (i != DLRM_FORM_COUNTS && strcmp(dense->text, dlrm_form_names[i]) == 0) s->base.shape.form = (dlrm_dense_form)i;
    if (rows && (!dlrm_yaml_int(rows, &s->validation_rows) || s->validation_rows < 1))
        st = dlrm_yaml_fail(rows, "metadata.rows.validation: found \"%.60s\", expected an integer from 1", rows->text);
    dlrm_yaml_clear(&doc);
    return st;
}

static dlrm_status take_features(split_source *s)
{
    dlrm_shape *shape = &s->base.shape;
    TRY(dlrm_shape_open(s->spec.n_dense, s->spec.n_categorical, shape));
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_categorical *c = &s->spec.categorical[f];
        dlrm_feature *to = &shape->features[f];
        int bytes = (int)strlen(c->name); /* NVIDIA's names end in .bin */
        if (bytes > 4 && strcmp(c->name + bytes - 4, ".bin") == 0) bytes -= 4;
        snprintf(to->name, sizeof to->name, "%.*s", bytes, c->name);
        if (c->cardinality > DLRM_MAX_ROWS)
            return FAIL(DLRM_E_INPUT, "%s: cardinality %lld, expected at most %lld", c->where, (long long)c->cardinality, (long long)DLRM_MAX_ROWS);
        to->cardinality = c->keys ? (int64_t)1 << 32 : c->cardinality;
        to->hotness = c->hotness * (c->keys ? 2 : 1);
        to->keys = c->keys;
        to->variable = c->variable;
        if (s->spec.split[DLRM_TRAIN_SPLIT].offsets[f] && !c->variable)
            return FAIL(DLRM_E_INPUT, "%s: an offsets file, but no max_hotness", c->where);
    }
    dlrm_shape_settle(shape);
    return DLRM_OK;
}

static dlrm_status open_all(split_source *s, const char *path, const dlrm_source_hints *h)
{
    TRY(dlrm_feature_spec_load(path, &s->spec));
    TRY(take_features(s));
    s->base.dense_bytes = (int)dlrm_elem_size(s->spec.dense_dtype);
    TRY(read_notes(s));
    if (h->form >= 0) s->base.shape.form = (dlrm_dense_form)h->form;
    s->counts = s->base.shape.form == DLRM_FORM_COUNTS;
    if (s->counts && s->spec.dense_dtype != DLRM_FLOAT32) return FAIL(DLRM_E_INPUT, "%s: float16 values cannot be counts", s->spec.path);
    TRY(dlrm_feature_spec_check(&s->spec));
    for (int i = 0; i < DLRM_SPLITS; i++)
        if (s->spec.split[i].present) TRY(open_split(s, i == DLRM_TRAIN_SPLIT ? DLRM_TRAIN : DLRM_TEST, &s->spec.split[i]));
    return open_validation(s, path);
}

dlrm_status dlrm_split_source_open(const char *path, const dlrm_source_hints *h, dlrm_row_source **out)
{
    split_source *s;
    TRY(dlrm_alloc(1, sizeof *s, "a source of rows", &s));
    s->base.format = DLRM_FORMAT_SPLIT_BINARY;
    s->base.read = read_rows;
    s->base.close = close_source;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) s->split[i].label.fd = s->split[i].dense.fd = -1;
    *out = &s->base;
    return open_all(s, path, h);
}
