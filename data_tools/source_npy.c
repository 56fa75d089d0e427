/* torchrec's arrays as a source of rows: a day is day_N_labels.npy, day_N_dense.npy and day_N_sparse.npy, or
 * day_N_sparse_multi_hot.npz with an array for each feature. Of several days the last is held back: its first half, rounded
 * up, is what MLPerf scores (test), the rest validation. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kinds.h"
#include "base/mem.h"
#include "data/file.h"
#include "data/npy.h"
#include "elems.h"
#include "row_source.h"

enum { MOST_FEATURES = 1 << 16, FILES = 3 };
enum { LABELS, DENSE, IDS };

typedef struct day {
    char path[FILES][DLRM_PATH_MAX];
    int fd[FILES];
    dlrm_npy labels, dense, *ids; /* ids: [1], or [n_features] of an archive */
    int64_t rows;
} day;

typedef struct npy_source {
    dlrm_row_source base;
    int n_days;
    day *days;
    bool multi_hot;
    char *raw;
    int64_t raw_bytes;
} npy_source;

/* --- values --- */

/* Rows [row, row+n) of an array of a day. */
static dlrm_status read_array(npy_source *s, const day *d, int file, const dlrm_npy *a, int64_t row, int64_t n)
{
    int64_t width = a->shape[1] * (int64_t)dlrm_elem_size(a->elem), count = 0;
    TRY(dlrm_tool_room(n * width, "a read buffer", &s->raw, &s->raw_bytes));
    return dlrm_file_read(d->path[file], d->fd[file], a->at + row * width, n * width, s->raw, &count);
}

/* The values of rows [row, row+n) of a day become rows [to, to+n) of the stretch. */
static dlrm_status read_labels(npy_source *s, const day *d, int64_t row, int64_t n, int64_t to, dlrm_stretch *out)
{
    TRY(read_array(s, d, LABELS, &d->labels, row, n));
    for (int64_t i = 0; i < n; i++) {
        double label = dlrm_elem_label(d->labels.elem, s->raw, i);
        out->labels[to + i] = label == 1;
        if (label != 0 && label != 1)
            TRY(dlrm_found(s->base.findings, &d->labels, "labels other than 0 and 1", "%s: row %lld: label %g is neither 0 nor 1",
                           d->path[LABELS], (long long)(row + i), label));
    }
    return DLRM_OK;
}

static dlrm_status read_dense(npy_source *s, const day *d, int64_t row, int64_t n, int64_t to, dlrm_stretch *out)
{
    int64_t columns = s->base.shape.n_dense;
    float *values = (float *)out->dense + to * columns;
    TRY(read_array(s, d, DENSE, &d->dense, row, n));
    dlrm_elem_floats(d->dense.elem, s->raw, n * columns, values);
    for (int64_t i = 0; i < n * columns; i++) {
        if (isfinite(values[i])) continue;
        TRY(dlrm_found(s->base.findings, &d->dense, "values that are not finite", "%s: row %lld: value %g in column %lld is not finite",
                       d->path[DENSE], (long long)(row + i / columns), (double)values[i], (long long)(i % columns)));
        values[i] = 0;
    }
    return DLRM_OK;
}

/* Feature f's ids: columns [first, first+hotness) of the raw rows of `width` ids. */
static dlrm_status take_ids(npy_source *s, const day *d, int f, dlrm_elem elem, int64_t width, int64_t first, int64_t row, int64_t n,
                            int64_t to, dlrm_stretch *out)
{
    const dlrm_feature *feature = &s->base.shape.features[f];
    int64_t cardinality = feature->cardinality ? feature->cardinality : (int64_t)1 << 32;
    uint32_t *ids = dlrm_stretch_ids(out, &s->base.shape, f) + to * feature->hotness;
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < feature->hotness; h++) {
            int64_t id = dlrm_elem_id(elem, s->raw, i * width + first + h);
            bool valid = id >= 0 && id < cardinality;
            *ids++ = valid ? (uint32_t)id : 0;
            if (!valid)
                TRY(dlrm_found(s->base.findings, feature, "ids outside the table", "%s: row %lld: feature %s: id %lld is outside [0, %lld)%s",
                               d->path[IDS], (long long)(row + i), feature->name, (long long)id, (long long)cardinality,
                               dlrm_elem_hint(id, "; keys of 64 bits, for a table with rows: dynamic, are not checked")));
        }
    for (int64_t i = 0; out->lengths && i < n; i++) out->lengths[out->capacity * f + to + i] = feature->hotness;
    return DLRM_OK;
}

static dlrm_status read_ids(npy_source *s, const day *d, int64_t row, int64_t n, int64_t to, dlrm_stretch *out)
{
    const dlrm_shape *shape = &s->base.shape;
    if (!s->multi_hot) TRY(read_array(s, d, IDS, d->ids, row, n));
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_npy *a = &d->ids[s->multi_hot ? f : 0];
        if (s->multi_hot && s->base.wanted && !s->base.wanted[f]) continue;
        if (s->multi_hot) TRY(read_array(s, d, IDS, a, row, n));
        TRY(take_ids(s, d, f, a->elem, a->shape[1], s->multi_hot ? 0 : f, row, n, to, out));
    }
    return DLRM_OK;
}

static dlrm_status read_rows(dlrm_row_source *base, int split, int64_t row, int64_t n, dlrm_stretch *out)
{
    npy_source *s = (npy_source *)base;
    int64_t at = row, done = 0;
    if (split >= DLRM_TEST) at += base->rows[DLRM_TRAIN];
    if (split == DLRM_VALIDATION) at += base->rows[DLRM_TEST];
    out->first = row;
    out->n = n;
    for (const day *d = s->days; done < n; d++) {
        if (at >= d->rows) {
            at -= d->rows;
            continue;
        }
        int64_t here = d->rows - at < n - done ? d->rows - at : n - done;
        TRY(read_labels(s, d, at, here, done, out));
        if (base->shape.n_dense) TRY(read_dense(s, d, at, here, done, out));
        TRY(read_ids(s, d, at, here, done, out));
        done += here;
        at = 0;
    }
    return DLRM_OK;
}

static void close_source(dlrm_row_source *base)
{
    npy_source *s = (npy_source *)base;
    for (int i = 0; s->days && i < s->n_days; i++) {
        for (int f = 0; f < FILES; f++) dlrm_file_close(&s->days[i].fd[f]);
        dlrm_free(&s->days[i].ids);
    }
    dlrm_free(&s->days);
    dlrm_free(&s->raw);
}

/* --- opening --- */

static dlrm_status unlike(const char *path, const dlrm_npy *a, const char *expected)
{
    return FAIL(DLRM_E_INPUT, "%s: found %lld x %lld of %s, expected %s", path, (long long)a->shape[0], (long long)a->shape[1],
                dlrm_elem_text(a->elem), expected);
}

static dlrm_status open_array(day *d, int file, dlrm_npy *a)
{
    TRY(dlrm_file_open(d->path[file], true, &d->fd[file]));
    return dlrm_npy_open(d->path[file], d->fd[file], a);
}

/* n_features: of an archive's members. */
static dlrm_status open_day(npy_source *s, const char *folder, const char *name, int n_features, day *d)
{
    static const char *const suffix[] = {"labels.npy", "dense.npy", "sparse.npy", "sparse_multi_hot.npz"};
    char expected[80];
    for (int f = 0; f < FILES; f++) TRY(dlrm_tool_path(d->path[f], "%s/%s_%s", folder, name, suffix[f == IDS && s->multi_hot ? 3 : f]));
    TRY(open_array(d, LABELS, &d->labels));
    d->rows = d->labels.shape[0];
    if (d->labels.shape[1] != 1 || d->rows == 0 || d->labels.elem == DLRM_INT16 || d->labels.elem == DLRM_INT64 ||
        d->labels.elem == DLRM_FLOAT16)
        return unlike(d->path[LABELS], &d->labels, "one label a row of bool, int8, int32 or float32");
    snprintf(expected, sizeof expected, "%lld rows of float16 or float32", (long long)d->rows);
    TRY(open_array(d, DENSE, &d->dense));
    if (d->dense.shape[0] != d->rows || (d->dense.elem != DLRM_FLOAT16 && d->dense.elem != DLRM_FLOAT32))
        return unlike(d->path[DENSE], &d->dense, expected);
    snprintf(expected, sizeof expected, "%lld rows of int32 or int64", (long long)d->rows);
    TRY(dlrm_alloc(n_features, sizeof *d->ids, "the features", &d->ids));
    if (!s->multi_hot) {
        TRY(open_array(d, IDS, d->ids));
    } else {
        TRY(dlrm_file_open(d->path[IDS], true, &d->fd[IDS]));
        TRY(dlrm_npz_open(d->path[IDS], d->fd[IDS], n_features, d->ids));
    }
    for (int f = 0; f < (s->multi_hot ? n_features : 1); f++)
        if (d->ids[f].shape[0] != d->rows || (d->ids[f].elem != DLRM_INT32 && d->ids[f].elem != DLRM_INT64))
            return unlike(d->path[IDS], &d->ids[f], expected);
    for (int f = 0; f < FILES; f++) s->base.disk_bytes += lseek(d->fd[f], 0, SEEK_END);
    return DLRM_OK;
}

static dlrm_status take_shape(npy_source *s, const dlrm_source_hints *h, const int64_t *cardinalities, int n_members)
{
    const day *d = &s->days[0];
    int n = s->multi_hot ? n_members : (int)d->ids[0].shape[1];
    if (h->cardinalities && n != n_members)
        return FAIL(DLRM_E_USAGE, "--cardinalities has %d values, expected one for each of the %d features of %s", n_members, n,
                    d->path[IDS]);
    TRY(dlrm_shape_open((int)d->dense.shape[1], n, &s->base.shape));
    for (int f = 0; f < n; f++) {
        s->base.shape.features[f].hotness = s->multi_hot ? (int)d->ids[f].shape[1] : 1;
        s->base.shape.features[f].cardinality = h->cardinalities ? cardinalities[f] : 0;
    }
    dlrm_shape_settle(&s->base.shape);
    s->base.shape.form = h->form >= 0 ? (dlrm_dense_form)h->form : DLRM_FORM_FLOATS;
    if (s->base.shape.form == DLRM_FORM_COUNTS) return FAIL(DLRM_E_USAGE, "--from-dense: npy has floats, not counts");
    s->base.dense_bytes = (int)dlrm_elem_size(d->dense.elem);
    for (int i = 1; i < s->n_days; i++) {
        const day *other = &s->days[i];
        bool same = other->dense.shape[1] == d->dense.shape[1];
        for (int f = 0; f < (s->multi_hot ? n : 1); f++) same &= other->ids[f].shape[1] == d->ids[f].shape[1];
        if (!same) return FAIL(DLRM_E_INPUT, "%s: its arrays have other columns than those of %s", other->path[LABELS], d->path[LABELS]);
    }
    return DLRM_OK;
}

static dlrm_status open_days(npy_source *s, const char *folder, const dlrm_names *names, const dlrm_source_hints *h, int64_t *cardinalities)
{
    char path[DLRM_PATH_MAX];
    int n_members = 26, days = 0, first = -1;
    if (h->cardinalities)
        TRY(dlrm_parse_list("cardinalities", h->cardinalities, DLRM_MAX_ROWS, MOST_FEATURES, cardinalities, &n_members));
    for (int i = 0; i < names->n; i++) days += strncmp(names->v[i], "day_", 4) == 0;
    TRY(dlrm_alloc(names->n, sizeof *s->days, "the days", &s->days));
    for (int i = 0; i < names->n; i++) {
        if (days > 0 ? strncmp(names->v[i], "day_", 4) != 0 : strcmp(names->v[i], "train") != 0) continue;
        if (first < 0) first = i;
        day *d = &s->days[s->n_days++];
        for (int f = 0; f < FILES; f++) d->fd[f] = -1;
        TRY(dlrm_tool_path(path, "%s/%s_sparse.npy", folder, names->v[first]));
        s->multi_hot = access(path, F_OK) != 0;
        TRY(open_day(s, folder, names->v[i], n_members, d));
    }
    if (s->n_days == 0) return FAIL(DLRM_E_INPUT, "%s: neither day_N_labels.npy nor train_labels.npy in this folder", folder);
    TRY(take_shape(s, h, cardinalities, n_members));
    for (int i = 0; i < s->n_days; i++)
        if (i == 0 || i < s->n_days - 1) s->base.rows[DLRM_TRAIN] += s->days[i].rows;
    if (s->n_days > 1) {
        int64_t rows = s->days[s->n_days - 1].rows;
        s->base.rows[DLRM_TEST] = rows - rows / 2;
        s->base.rows[DLRM_VALIDATION] = rows / 2;
        s->base.note = "test is the first half of the last day, validation the second";
    }
    return DLRM_OK;
}

dlrm_status dlrm_npy_source_open(const char *path, const dlrm_source_hints *h, dlrm_row_source **out)
{
    npy_source *s;
    dlrm_names names = {0};
    int64_t *cardinalities = NULL;
    TRY(dlrm_alloc(1, sizeof *s, "a source of rows", &s));
    s->base.format = DLRM_FORMAT_NPY;
    s->base.read = read_rows;
    s->base.close = close_source;
    *out = &s->base;
    dlrm_status st = dlrm_names_list(path, "_labels.npy", &names);
    if (st == DLRM_OK) st = dlrm_alloc(MOST_FEATURES, sizeof *cardinalities, "the features", &cardinalities);
    if (st == DLRM_OK) st = open_days(s, path, &names, h, cardinalities);
    dlrm_free(&cardinalities);
    dlrm_names_free(&names);
    return st;
}
