#include "split_binary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* Files of a split: label, dense values, then one per categorical feature. */
enum { LABEL, DENSE, IDS };

typedef struct split_files {
    int64_t rows;
    int *fd;         /* [IDS + n_ids]; NULL: no such split */
    int *offsets_fd; /* [n_ids]; -1 where a column's hotness is fixed */
    int64_t *n_ids;  /* [n_ids]: written so far, of a column that varies */
} split_files;

struct dlrm_columns {
    char folder[DLRM_PATH_MAX];
    dlrm_columns_shape shape;
    int64_t *cardinality;
    int *hotness;   /* [n_ids] */
    bool *variable; /* [n_ids] */
    bool *keys;     /* [n_ids] */
    split_files split[DLRM_OUT_SPLITS];
};

static const char *const split_name[DLRM_OUT_SPLITS] = {"train", "test", "validation"};

int dlrm_columns_id_bytes(int64_t cardinality)
{
    if (cardinality < INT8_MAX) return 1;
    if (cardinality < INT16_MAX) return 2;
    return cardinality < INT32_MAX ? 4 : 0;
}

static int id_bytes(const dlrm_columns *c, int column)
{
    return c->keys[column] ? 4 : dlrm_columns_id_bytes(c->cardinality[column]);
}

static int64_t row_bytes(const dlrm_columns *c, int file)
{
    if (file == LABEL) return 1;
    if (file == DENSE) return (int64_t)c->shape.n_dense * c->shape.dense_bytes;
    return (int64_t)c->hotness[file - IDS] * id_bytes(c, file - IDS);
}

static dlrm_status file_path(const dlrm_columns *c, int split, int file, char *path)
{
    const char *name = split_name[split];
    if (file == LABEL) return dlrm_tool_path(path, "%s/%s/label.bin", c->folder, name);
    if (file == DENSE) return dlrm_tool_path(path, "%s/%s/numerical.bin", c->folder, name);
    return dlrm_tool_path(path, "%s/%s/cat_%d.bin", c->folder, name, file - IDS);
}

static dlrm_status offsets_path(const dlrm_columns *c, int split, int column, char *path)
{
    return dlrm_tool_path(path, "%s/%s/cat_%d.offsets.bin", c->folder, split_name[split], column);
}

static dlrm_status make_offsets(dlrm_columns *c, int split, int column)
{
    char path[DLRM_PATH_MAX];
    int64_t zero = 0;
    split_files *s = &c->split[split];
    TRY(offsets_path(c, split, column, path));
    TRY(dlrm_tool_create(path, &s->offsets_fd[column]));
    TRY(dlrm_tool_pwrite(s->offsets_fd[column], &zero, sizeof zero, 0, path));
    TRY(file_path(c, split, IDS + column, path));
    return dlrm_tool_create(path, &s->fd[IDS + column]);
}

static dlrm_status make_file(dlrm_columns *c, int split, int file)
{
    if (file >= IDS && c->variable[file - IDS]) return make_offsets(c, split, file - IDS);
    if (file == DENSE && c->shape.n_dense == 0) return DLRM_OK;
    char path[DLRM_PATH_MAX];
    int64_t bytes = c->split[split].rows * row_bytes(c, file);
    int *fd = &c->split[split].fd[file];
    TRY(file_path(c, split, file, path));
    TRY(dlrm_tool_create(path, fd));
    /* Takes the space now, where the file system can: a full disk is then known before the work is done. */
    if (bytes > 0 && fallocate(*fd, 0, 0, bytes) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return FAIL(DLRM_E_RUNTIME, "%s: cannot take %lld bytes: %s", path, (long long)bytes, strerror(errno));
    if (ftruncate(*fd, bytes) != 0)
        return FAIL(DLRM_E_RUNTIME, "%s: cannot make it %lld bytes long: %s", path, (long long)bytes, strerror(errno));
    return DLRM_OK;
}

dlrm_status dlrm_columns_open(const char *folder, const dlrm_columns_shape *shape, const int64_t rows[DLRM_OUT_SPLITS],
                              dlrm_columns **out)
{
    dlrm_status st;
    dlrm_columns *c;
    *out = NULL;
    TRY(dlrm_alloc(1, sizeof *c, "output columns", &c));
    c->shape = *shape;
    TRY_TO(fail, st, dlrm_alloc(shape->n_ids, sizeof *c->cardinality, "output columns", &c->cardinality));
    memcpy(c->cardinality, shape->cardinality, (size_t)shape->n_ids * sizeof *c->cardinality);
    TRY_TO(fail, st, dlrm_alloc(shape->n_ids, sizeof *c->hotness, "output columns", &c->hotness));
    TRY_TO(fail, st, dlrm_alloc(shape->n_ids, sizeof *c->variable, "output columns", &c->variable));
    TRY_TO(fail, st, dlrm_alloc(shape->n_ids, sizeof *c->keys, "output columns", &c->keys));
    for (int k = 0; k < shape->n_ids; k++) {
        c->hotness[k] = shape->hotness ? shape->hotness[k] : 1;
        c->variable[k] = shape->variable && shape->variable[k];
        c->keys[k] = shape->keys && shape->keys[k];
    }
    TRY_TO(fail, st, dlrm_tool_path(c->folder, "%s", folder));
    for (int s = 0; s < DLRM_OUT_SPLITS; s++) {
        char path[DLRM_PATH_MAX];
        c->split[s].rows = rows[s];
        if (rows[s] == 0) continue;
        TRY_TO(fail, st, dlrm_tool_path(path, "%s/%s", folder, split_name[s]));
        TRY_TO(fail, st, dlrm_tool_make_folder(path));
        TRY_TO(fail, st, dlrm_alloc(IDS + shape->n_ids, sizeof(int), "output columns", &c->split[s].fd));
        for (int f = 0; f < IDS + shape->n_ids; f++) c->split[s].fd[f] = -1;
        TRY_TO(fail, st, dlrm_alloc(shape->n_ids, sizeof(int), "output columns", &c->split[s].offsets_fd));
        for (int k = 0; k < shape->n_ids; k++) c->split[s].offsets_fd[k] = -1;
        TRY_TO(fail, st, dlrm_alloc(shape->n_ids, sizeof(int64_t), "output columns", &c->split[s].n_ids));
        for (int f = 0; f < IDS + shape->n_ids; f++) TRY_TO(fail, st, make_file(c, s, f));
    }
    *out = c;
    return DLRM_OK;
fail:
    dlrm_columns_close(&c);
    return st;
}

void dlrm_columns_close(dlrm_columns **columns)
{
    dlrm_columns *c = *columns;
    if (!c) return;
    for (int s = 0; s < DLRM_OUT_SPLITS; s++) {
        for (int f = 0; c->split[s].fd && f < IDS + c->shape.n_ids; f++)
            if (c->split[s].fd[f] >= 0) close(c->split[s].fd[f]);
        for (int k = 0; c->split[s].offsets_fd && k < c->shape.n_ids; k++)
            if (c->split[s].offsets_fd[k] >= 0) close(c->split[s].offsets_fd[k]);
        dlrm_free(&c->split[s].fd);
        dlrm_free(&c->split[s].offsets_fd);
        dlrm_free(&c->split[s].n_ids);
    }
    dlrm_free(&c->cardinality);
    dlrm_free(&c->hotness);
    dlrm_free(&c->variable);
    dlrm_free(&c->keys);
    dlrm_free(columns);
}

static void write_split_sources(const dlrm_columns *c, int split, FILE *out)
{
    const char *name = split_name[split];
    fprintf(out, "  %s:\n", name);
    fprintf(out, "  - features:\n    - label\n    files:\n    - %s/label.bin\n    type: split_binary\n", name);
    if (c->shape.n_dense > 0) {
        fprintf(out, "  - features:\n");
        for (int j = 0; j < c->shape.n_dense; j++) fprintf(out, "    - num_%d\n", j);
        fprintf(out, "    files:\n    - %s/numerical.bin\n    type: split_binary\n", name);
    }
    for (int k = 0; k < c->shape.n_ids; k++) {
        fprintf(out, "  - features:\n    - cat_%d.bin\n    files:\n    - %s/cat_%d.bin\n", k, name, k);
        if (c->variable[k]) fprintf(out, "    - %s/cat_%d.offsets.bin\n", name, k);
        fprintf(out, "    type: split_binary\n");
    }
}

static void write_spec(const dlrm_columns *c, FILE *out)
{
    fprintf(out, "channel_spec:\n  categorical:\n");
    for (int k = 0; k < c->shape.n_ids; k++) fprintf(out, "  - cat_%d.bin\n", k);
    fprintf(out, "  label:\n  - label\n  numerical:%s\n", c->shape.n_dense ? "" : " []");
    for (int j = 0; j < c->shape.n_dense; j++) fprintf(out, "  - num_%d\n", j);
    fprintf(out, "feature_spec:\n");
    for (int k = 0; k < c->shape.n_ids; k++) {
        const int hotness = c->hotness[k] / (c->keys[k] ? 2 : 1);
        if (c->keys[k])
            fprintf(out, "  cat_%d.bin:\n    keys: true\n    dtype: int64\n", k);
        else
            fprintf(out, "  cat_%d.bin:\n    cardinality: %lld\n    dtype: int%d\n", k, (long long)c->cardinality[k],
                    8 * dlrm_columns_id_bytes(c->cardinality[k]));
        if (c->variable[k] || hotness > 1) fprintf(out, "    %s: %d\n", c->variable[k] ? "max_hotness" : "hotness", hotness);
    }
    fprintf(out, "  label:\n    dtype: bool\n");
    for (int j = 0; j < c->shape.n_dense; j++)
        fprintf(out, "  num_%d:\n    dtype: float%d\n", j, 8 * c->shape.dense_bytes);
    fprintf(out, "metadata:\n");
    if (c->shape.dense && c->shape.n_dense > 0) fprintf(out, "  dense: %s\n", c->shape.dense);
    fprintf(out, "  rows:\n");
    for (int s = 0; s < DLRM_OUT_SPLITS; s++)
        if (c->split[s].rows > 0) fprintf(out, "    %s: %lld\n", split_name[s], (long long)c->split[s].rows);
    fprintf(out, "source_spec:\n");
    for (int s = 0; s < DLRM_VALIDATION; s++)
        if (c->split[s].rows > 0) write_split_sources(c, s, out);
}

dlrm_status dlrm_columns_finish(dlrm_columns *c)
{
    char path[DLRM_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    for (int s = 0; s < DLRM_OUT_SPLITS; s++) {
        for (int f = 0; c->split[s].fd && f < IDS + c->shape.n_ids; f++) {
            TRY(file_path(c, s, f, path));
            if (c->split[s].fd[f] >= 0) TRY(dlrm_tool_close(&c->split[s].fd[f], path));
        }
        for (int k = 0; c->split[s].fd && k < c->shape.n_ids; k++) {
            TRY(offsets_path(c, s, k, path));
            if (c->variable[k]) TRY(dlrm_tool_close(&c->split[s].offsets_fd[k], path));
        }
    }
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return FAIL(DLRM_E_RUNTIME, "cannot allocate memory for feature_spec.yaml");
    write_spec(c, out);
    fclose(out);
    dlrm_status st = dlrm_tool_path(path, "%s/feature_spec.yaml", c->folder);
    if (st == DLRM_OK) st = dlrm_tool_write_text(path, text);
    free(text);
    return st;
}

static dlrm_status write_rows(dlrm_columns *c, int split, int file, int64_t row, int64_t n, const void *data)
{
    char path[DLRM_PATH_MAX];
    int64_t width = row_bytes(c, file);
    TRY(file_path(c, split, file, path));
    return dlrm_tool_pwrite(c->split[split].fd[file], data, (size_t)(n * width), row * width, path);
}

dlrm_status dlrm_columns_labels(dlrm_columns *c, int split, int64_t row, int64_t n, const uint8_t *labels)
{
    return write_rows(c, split, LABEL, row, n, labels);
}

dlrm_status dlrm_columns_dense(dlrm_columns *c, int split, int64_t row, int64_t n, const void *values)
{
    return write_rows(c, split, DENSE, row, n, values);
}

/* `n` ids in a column's own type: in `packed`, or where they are. */
static const void *narrow(const dlrm_columns *c, int column, int64_t n, const uint32_t *ids, void *packed)
{
    int width = id_bytes(c, column);
    int8_t *bytes = packed;
    int16_t *halves = packed;
    if (width == 1)
        for (int64_t i = 0; i < n; i++) bytes[i] = (int8_t)ids[i];
    else if (width == 2)
        for (int64_t i = 0; i < n; i++) halves[i] = (int16_t)ids[i];
    return width == 4 ? ids : packed;
}

dlrm_status dlrm_columns_ids(dlrm_columns *c, int split, int column, int64_t row, int64_t n, const uint32_t *ids,
                             void *packed)
{
    return write_rows(c, split, IDS + column, row, n, narrow(c, column, n * c->hotness[column], ids, packed));
}

dlrm_status dlrm_columns_bags(dlrm_columns *c, int split, int column, int64_t row, int64_t n, const int32_t *lengths,
                              const uint32_t *ids, void *packed)
{
    char path[DLRM_PATH_MAX];
    int64_t *written = &c->split[split].n_ids[column], at = *written, count = 0, *ends;
    int width = id_bytes(c, column);
    uint32_t *close;
    DLRM_ASSERT(c->variable[column]);
    TRY(dlrm_alloc(n * (2 + c->hotness[column]), sizeof *close, "bags", &ends));
    close = (uint32_t *)(ends + n);
    for (int64_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < lengths[i]; j++) close[count++] = ids[i * c->hotness[column] + j];
        ends[i] = (at + count) / (c->keys[column] ? 2 : 1);
    }
    const void *data = narrow(c, column, count, close, packed);
    dlrm_status st = file_path(c, split, IDS + column, path);
    if (st == DLRM_OK) st = dlrm_tool_pwrite(c->split[split].fd[IDS + column], data, (size_t)(count * width), at * width, path);
    if (st == DLRM_OK) st = offsets_path(c, split, column, path);
    if (st == DLRM_OK)
        st = dlrm_tool_pwrite(c->split[split].offsets_fd[column], ends, (size_t)n * sizeof *ends, (row + 1) * (int64_t)sizeof *ends, path);
    *written = at + count;
    dlrm_free(&ends);
    return st;
}

dlrm_status dlrm_columns_ids_read(dlrm_columns *c, int split, int column, int64_t row, int64_t n, uint32_t *ids)
{
    char path[DLRM_PATH_MAX];
    int64_t width = id_bytes(c, column), at = row * row_bytes(c, IDS + column);
    TRY(file_path(c, split, IDS + column, path));
    n *= c->hotness[column];
    char *packed = (char *)ids + n * (4 - width); /* at the end of the room, so that widening never overtakes it */
    TRY(dlrm_tool_pread(c->split[split].fd[IDS + column], packed, (size_t)(n * width), at, path));
    if (width == 1)
        for (int64_t i = 0; i < n; i++) ids[i] = (uint8_t)packed[i];
    else if (width == 2)
        for (int64_t i = 0; i < n; i++) {
            uint16_t half;
            memcpy(&half, packed + 2 * i, sizeof half);
            ids[i] = half;
        }
    return DLRM_OK;
}
