/* HugeCTR's Norm files as a source of rows. Records have no fixed size and the header says neither how many keys a slot has
 * nor how wide a key is, so all files are gone through once when they are opened, which also checks the sums. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/file.h"
#include "row_source.h"

enum { HEADER_BYTES = 64, MOST_KEYS = 1 << 16, MOST_SLOTS = 1 << 16 };

const char *const dlrm_key_widths[] = {"tried", "32", "64", NULL};

typedef struct norm_header {
    int64_t error_check, records, label_dim, dense_dim, slots;
} norm_header;

typedef struct norm_files {
    int n;
    char **paths;
} norm_files;

typedef struct norm_reader { /* of one split, in order */
    const norm_files *files;
    int next; /* file */
    FILE *in;
    const char *path;
    norm_header header;
    int64_t left, row; /* records of the open file; number of the next row of the split */
    int32_t unit_left; /* bytes of the unit being read, where there are sums */
    uint8_t sum;
} norm_reader;

typedef struct norm_source {
    dlrm_row_source base;
    norm_files files[DLRM_OUT_SPLITS];
    norm_reader reader[DLRM_OUT_SPLITS];
    int key_bytes;
    int64_t slots;         /* of the header; every file has the same */
    float *floats;         /* label and dense values of a record */
    int64_t *most, *least; /* [slots]: keys of a record, while scanning */
} norm_source;

/* --- bytes, units, headers --- */

static dlrm_status bad_file(const norm_reader *r, const char *what)
{
    return FAIL(DLRM_E_INPUT, "%s: row %lld of its split: %s", r->path, (long long)r->row, what);
}

static dlrm_status take(norm_reader *r, void *out, int64_t bytes)
{
    if (fread(out, 1, (size_t)bytes, r->in) != (size_t)bytes)
        return bad_file(r, ferror(r->in) ? strerror(errno) : "the file ends here; is it cut off, or are its keys of the other width?");
    return DLRM_OK;
}

static dlrm_status begin_unit(norm_reader *r)
{
    r->sum = 0;
    if (!r->header.error_check) return DLRM_OK;
    TRY(take(r, &r->unit_left, sizeof r->unit_left));
    return r->unit_left > 0 ? DLRM_OK : bad_file(r, "the length of a record is not positive");
}

static dlrm_status take_of_unit(norm_reader *r, void *out, int64_t bytes)
{
    if (r->header.error_check && bytes > r->unit_left)
        return bad_file(r, "a record is longer than its length says; are its keys of the other width?");
    TRY(take(r, out, bytes));
    r->unit_left -= (int32_t)bytes;
    for (int64_t i = 0; i < bytes; i++) r->sum = (uint8_t)(r->sum + ((const uint8_t *)out)[i]);
    return DLRM_OK;
}

static dlrm_status end_unit(norm_reader *r)
{
    uint8_t sum;
    if (!r->header.error_check) return DLRM_OK;
    if (r->unit_left != 0) return bad_file(r, "a record is shorter than its length says; are its keys of the other width?");
    TRY(take(r, &sum, 1));
    if (sum == r->sum) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld of its split: the checksum is %d, expected %d: the file is damaged", r->path, (long long)r->row,
                sum, r->sum);
}

/* A file with sums starts with the length of its header, 64; one without with error_check, 0. */
static dlrm_status read_header(norm_reader *r)
{
    int32_t first;
    int64_t words[8];
    r->header.error_check = 0;
    TRY(take(r, &first, sizeof first));
    rewind(r->in);
    r->header.error_check = first == HEADER_BYTES;
    TRY(begin_unit(r));
    TRY(take_of_unit(r, words, sizeof words));
    if (r->header.error_check != words[0])
        return FAIL(DLRM_E_INPUT, "%s: no header of HugeCTR's Norm format: error_check is %lld, expected 0, or 1 after a length of 64",
                    r->path, (long long)words[0]);
    TRY(end_unit(r));
    r->header = (norm_header){words[0], words[1], words[2], words[3], words[4]};
    if (words[1] < 0 || words[2] != 1 || words[3] < 0 || words[3] > 1 << 20 || words[4] < 1 || words[4] > MOST_SLOTS)
        return FAIL(DLRM_E_INPUT,
                    "%s: header with %lld records, label_dim %lld, dense_dim %lld, slot_num %lld; expected one label and 1 to %d slots",
                    r->path, (long long)words[1], (long long)words[2], (long long)words[3], (long long)words[4], MOST_SLOTS);
    r->left = words[1];
    return DLRM_OK;
}

static dlrm_status close_file(norm_reader *r)
{
    bool more = r->in && fgetc(r->in) != EOF;
    if (r->in) fclose(r->in);
    r->in = NULL;
    return more ? bad_file(r, "bytes after the last record; are its keys of the other width?") : DLRM_OK;
}

static dlrm_status open_stream(const char *path, FILE **out)
{
    int fd;
    TRY(dlrm_file_open(path, true, &fd));
    *out = fdopen(fd, "rb");
    DLRM_ASSERT(*out);
    return DLRM_OK;
}

static dlrm_status next_file(norm_reader *r)
{
    r->path = r->files->paths[r->next++];
    TRY(open_stream(r->path, &r->in));
    setvbuf(r->in, NULL, _IOFBF, 1 << 20);
    return read_header(r);
}

/* *more: a record follows, in this file or the next. */
static dlrm_status seek_record(norm_reader *r, bool *more)
{
    while (!r->in || r->left == 0) {
        if (r->in) TRY(close_file(r));
        *more = r->next < r->files->n;
        if (!*more) return DLRM_OK;
        TRY(next_file(r));
    }
    *more = true;
    return DLRM_OK;
}

/* --- records --- */

/* One record: floats into s->floats, keys into keys[slot] up to `room` of each, their number into n[slot]. */
typedef dlrm_status (*slot_visit)(norm_source *s, void *arg, const norm_reader *r, int slot, int32_t n, const int64_t *keys);

static dlrm_status read_record(norm_source *s, norm_reader *r, slot_visit visit, void *arg)
{
    static _Thread_local int64_t keys[MOST_KEYS];
    TRY(begin_unit(r));
    TRY(take_of_unit(r, s->floats, 4 * (1 + r->header.dense_dim)));
    for (int slot = 0; slot < s->slots; slot++) {
        int32_t n;
        TRY(take_of_unit(r, &n, sizeof n));
        if (n < 0 || n > MOST_KEYS)
            return FAIL(DLRM_E_INPUT, "%s: row %lld of its split: slot %d has %d keys, expected 0 to %d; are its keys of the other width?",
                        r->path, (long long)r->row, slot, n, MOST_KEYS);
        char *to = s->key_bytes == 8 ? (char *)keys : (char *)keys + 4 * (int64_t)n; /* widening never overtakes it */
        TRY(take_of_unit(r, to, (int64_t)n * s->key_bytes));
        for (int32_t i = 0; s->key_bytes == 4 && i < n; i++) {
            uint32_t key;
            memcpy(&key, to + 4 * (int64_t)i, sizeof key);
            keys[i] = key;
        }
        TRY(visit(s, arg, r, slot, n, keys));
    }
    TRY(end_unit(r));
    r->left--;
    r->row++;
    return DLRM_OK;
}

static dlrm_status scan_slot(norm_source *s, void *arg, const norm_reader *r, int slot, int32_t n, const int64_t *keys)
{
    (void)arg;
    dlrm_feature *f = &s->base.shape.features[slot];
    if (n > s->most[slot]) s->most[slot] = n;
    if (n < s->least[slot]) s->least[slot] = n;
    for (int32_t i = 0; i < n; i++) {
        if (keys[i] < 0 || keys[i] >= (int64_t)1 << 32)
            return FAIL(DLRM_E_INPUT,
                        "%s: row %lld of its split: slot %d: key %lld is outside [0, 4294967296); are its keys of the other width?",
                        r->path, (long long)r->row, slot, (long long)keys[i]);
        if (keys[i] >= f->cardinality) f->cardinality = keys[i] + 1;
    }
    return DLRM_OK;
}

static dlrm_status scan_split(norm_source *s, int split)
{
    norm_reader r = {.files = &s->files[split]};
    bool more;
    dlrm_status st;
    s->base.rows[split] = 0;
    for (;;) {
        TRY_TO(end, st, seek_record(&r, &more));
        if (!more) break;
        if (r.header.slots != s->slots || r.header.dense_dim != s->base.shape.n_dense)
            TRY_TO(end, st,
                   FAIL(DLRM_E_INPUT, "%s: %lld slots and %lld dense values, expected %lld and %d as in %s", r.path,
                        (long long)r.header.slots, (long long)r.header.dense_dim, (long long)s->slots, s->base.shape.n_dense,
                        s->files[DLRM_TRAIN].paths[0]));
        TRY_TO(end, st, read_record(s, &r, scan_slot, NULL));
        if (s->floats[0] != 0 && s->floats[0] != 1)
            TRY_TO(end, st,
                   FAIL(DLRM_E_INPUT, "%s: row %lld of its split: label %g is neither 0 nor 1; are its keys of the other width?", r.path,
                        (long long)r.row - 1, (double)s->floats[0]));
    }
    s->base.rows[split] = r.row;
end:
    if (r.in) fclose(r.in);
    return st;
}

static dlrm_status scan(norm_source *s, int key_bytes)
{
    s->key_bytes = key_bytes;
    for (int f = 0; f < s->slots; f++) {
        s->base.shape.features[f].cardinality = 1;
        s->most[f] = 0;
        s->least[f] = INT64_MAX;
    }
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->files[i].n > 0) TRY(scan_split(s, i));
    for (int f = 0; f < s->slots; f++) {
        dlrm_feature *to = &s->base.shape.features[f];
        to->hotness = s->most[f] > 0 ? (int)s->most[f] : 1;
        to->variable = s->least[f] != to->hotness;
    }
    dlrm_shape_settle(&s->base.shape);
    return DLRM_OK;
}

/* --- the iterator --- */

typedef struct target {
    dlrm_stretch *out;
    int64_t row;
} target;

static dlrm_status put_slot(norm_source *s, void *arg, const norm_reader *r, int slot, int32_t n, const int64_t *keys)
{
    (void)r;
    target *t = arg;
    int hotness = s->base.shape.features[slot].hotness;
    uint32_t *to = dlrm_stretch_ids(t->out, &s->base.shape, slot) + t->row * hotness;
    for (int32_t i = 0; i < hotness; i++) to[i] = i < n ? (uint32_t)keys[i] : 0;
    if (t->out->lengths) t->out->lengths[t->out->capacity * slot + t->row] = n;
    return DLRM_OK;
}

static dlrm_status read_rows(dlrm_row_source *base, int split, int64_t row, int64_t n, dlrm_stretch *out)
{
    norm_source *s = (norm_source *)base;
    norm_reader *r = &s->reader[split];
    bool more = true;
    if (row == 0) {
        if (r->in) fclose(r->in);
        *r = (norm_reader){.files = &s->files[split]};
    }
    DLRM_ASSERT(row == r->row); /* in order */
    out->first = row;
    out->n = n;
    for (int64_t i = 0; i < n; i++) {
        target t = {out, i};
        TRY(seek_record(r, &more));
        if (!more) return bad_file(r, "the file has become shorter since the start");
        TRY(read_record(s, r, put_slot, &t));
        out->labels[i] = s->floats[0] == 1;
        memcpy((float *)out->dense + i * base->shape.n_dense, s->floats + 1, (size_t)base->shape.n_dense * sizeof(float));
        for (int j = 0; j < base->shape.n_dense; j++)
            if (!isfinite(s->floats[1 + j])) {
                TRY(dlrm_found(base->findings, r->path, "values that are not finite",
                               "%s: row %lld of its split: value %g in column %d is not finite", r->path, (long long)r->row - 1,
                               (double)s->floats[1 + j], j));
                ((float *)out->dense)[i * base->shape.n_dense + j] = 0;
            }
    }
    if (r->row == base->rows[split]) TRY(seek_record(r, &more)); /* looks at what stands behind the last record */
    return DLRM_OK;
}

static void close_source(dlrm_row_source *base)
{
    norm_source *s = (norm_source *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        if (s->reader[i].in) fclose(s->reader[i].in);
        for (int f = 0; s->files[i].paths && f < s->files[i].n; f++) dlrm_free(&s->files[i].paths[f]);
        dlrm_free(&s->files[i].paths);
    }
    dlrm_free(&s->floats);
    dlrm_free(&s->most);
    dlrm_free(&s->least);
}

/* --- finding the files --- */

static dlrm_status add_path(norm_files *files, int i, const char *path)
{
    int64_t n = (int64_t)strlen(path) + 1;
    TRY(dlrm_alloc(n, 1, "a path", &files->paths[i]));
    memcpy(files->paths[i], path, (size_t)n);
    files->n = i + 1;
    return DLRM_OK;
}

/* A file list: the number of files, then a path a line, from the working directory or else from the list's own folder. */
static dlrm_status read_list(const char *path, FILE *in, norm_files *files)
{
    char line[DLRM_PATH_MAX], moved[DLRM_PATH_MAX];
    const char *slash = strrchr(path, '/');
    long n = 0;
    if (!fgets(line, sizeof line, in) || (n = strtol(line, NULL, 10)) < 1 || n > 1 << 20)
        return FAIL(DLRM_E_INPUT, "%s: line 1: expected the number of files", path);
    TRY(dlrm_alloc(n, sizeof *files->paths, "a file list", &files->paths));
    for (int i = 0; i < n; i++) {
        if (!fgets(line, sizeof line, in))
            return FAIL(DLRM_E_INPUT, "%s: line %d: expected one of %ld files, found the end", path, i + 2, n);
        line[strcspn(line, "\r\n")] = 0;
        const char *name = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
        TRY(dlrm_tool_path(moved, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name));
        TRY(add_path(files, i, access(line, F_OK) == 0 || access(moved, F_OK) != 0 ? line : moved));
    }
    return DLRM_OK;
}

/* A file list or a data file. */
static dlrm_status read_file_names(const char *path, norm_files *files)
{
    FILE *in;
    TRY(open_stream(path, &in));
    int first = fgetc(in);
    rewind(in);
    dlrm_status st;
    if (first >= '1' && first <= '9') { /* a data file starts with a byte of 0, 1 or 64 */
        st = read_list(path, in, files);
    } else {
        st = dlrm_alloc(1, sizeof *files->paths, "a file list", &files->paths);
        if (st == DLRM_OK) st = add_path(files, 0, path);
    }
    fclose(in);
    return st;
}

static dlrm_status find_files(norm_source *s, const char *path)
{
    static const char *const lists[][3] = {{"file_list.txt", "_file_list.txt", NULL}, {"file_list_test.txt", "_file_list_test.txt", NULL}};
    struct stat st;
    if (stat(path, &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return read_file_names(path, &s->files[DLRM_TRAIN]);
    for (int i = 0; i < 2; i++)
        for (int j = 0; lists[i][j]; j++) {
            char list[DLRM_PATH_MAX];
            TRY(dlrm_tool_path(list, "%s/%s", path, lists[i][j]));
            if (access(list, F_OK) == 0 && s->files[i].n == 0) TRY(read_file_names(list, &s->files[i]));
        }
    if (s->files[DLRM_TRAIN].n > 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: no file_list.txt in this folder", path);
}

static dlrm_status open_all(norm_source *s, const char *path, const dlrm_source_hints *h)
{
    TRY(find_files(s, path));
    norm_reader first = {.files = &s->files[DLRM_TRAIN]};
    dlrm_status st = next_file(&first);
    if (first.in) fclose(first.in);
    TRY(st);
    s->slots = first.header.slots;
    TRY(dlrm_shape_open((int)first.header.dense_dim, (int)s->slots, &s->base.shape));
    s->base.shape.form = h->form >= 0 ? (dlrm_dense_form)h->form : DLRM_FORM_FLOATS;
    if (s->base.shape.form == DLRM_FORM_COUNTS) return FAIL(DLRM_E_USAGE, "--dense: hugectr_norm has float32 values, not counts");
    TRY(dlrm_alloc(1 + first.header.dense_dim, sizeof *s->floats, "a record", &s->floats));
    TRY(dlrm_alloc(s->slots, sizeof *s->most, "a record", &s->most));
    TRY(dlrm_alloc(s->slots, sizeof *s->least, "a record", &s->least));
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        for (int f = 0; f < s->files[i].n; f++) {
            struct stat file;
            if (stat(s->files[i].paths[f], &file) == 0) s->base.disk_bytes += file.st_size;
        }
    if (h->key_width) return scan(s, 4 * h->key_width);
    /* Nothing says how wide keys are; the other width all but never gives whole records with labels 0 and 1. */
    if (scan(s, 4) == DLRM_OK) return DLRM_OK;
    char message[1024];
    snprintf(message, sizeof message, "%s", dlrm_error_message());
    if (scan(s, 8) == DLRM_OK) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s (read with keys of 32 bits; 64 do not fit either)", message);
}

dlrm_status dlrm_norm_source_open(const char *path, const dlrm_source_hints *h, dlrm_row_source **out)
{
    norm_source *s;
    TRY(dlrm_alloc(1, sizeof *s, "a source of rows", &s));
    s->base.format = DLRM_FORMAT_HUGECTR_NORM;
    s->base.dense_bytes = 4;
    s->base.read = read_rows;
    s->base.close = close_source;
    *out = &s->base;
    return open_all(s, path, h);
}
