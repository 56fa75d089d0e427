#include "checkpoint/stored.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/int64.h"
#include "base/mem.h"
#include "checkpoint/sum.h"
#include "model/tensors_impl.h"

enum { MAX_PIECES = 1 << 14 /* of a tensor */ };

typedef struct stored_piece {
    const dlrm_st_entry *entry;
    char tensor[DLRM_PIECE_NAME_BYTES];
    int64_t whole_rows, whole_columns;
    dlrm_part part;
    int file;
    int64_t first_sum;
    char *block; /* NULL, or one checked block of it */
    int64_t block_number;
} stored_piece;

typedef struct source {
    dlrm_st_file st;
    dlrm_st_entry *entries;
    int64_t n_entries;
    uint64_t *sums;
    int64_t n_sums;
} source;

struct dlrm_stored {
    int n_files, n;
    source *files;
    stored_piece *pieces; /* by tensor */
    const stored_piece *held; /* the tensor whose blocks are in memory; its first piece */
};

/* --- opening --- */

/* Size and header against the manifest, before anything in the file is used. */
static dlrm_status check_header(const dlrm_stored_file *file, int fd)
{
    struct stat s;
    uint64_t length;
    char *text;
    if (fd < 0 || fstat(fd, &s) != 0) return FAIL(DLRM_E_INPUT, "%s: cannot open: %s", file->path, strerror(errno));
    if (!S_ISREG(s.st_mode) || s.st_size != file->facts.bytes)
        return FAIL(DLRM_E_INPUT, "%s: has %lld bytes, expected %lld by the manifest: cut off?", file->path, (long long)s.st_size,
                    (long long)file->facts.bytes);
    if (s.st_size < 8) return FAIL(DLRM_E_INPUT, "%s: too short for a header", file->path);
    TRY(dlrm_st_pread(fd, file->path, 0, sizeof length, &length));
    if (length > (uint64_t)s.st_size - 8 || length > DLRM_ST_MAX_HEADER)
        return FAIL(DLRM_E_INPUT, "%s: the header's length is damaged: %llu bytes", file->path, (unsigned long long)length);
    TRY(dlrm_alloc((int64_t)length + 8, 1, "a checkpoint's header", &text));
    dlrm_status st = dlrm_st_pread(fd, file->path, 0, (int64_t)length + 8, text);
    if (st == DLRM_OK && dlrm_sum(text, (size_t)length + 8) != file->facts.header_sum)
        st = FAIL(DLRM_E_INPUT, "%s: the header's checksum is not the manifest's: the file is damaged, or of another checkpoint", file->path);
    dlrm_free(&text);
    return st;
}

/* How many pieces the file has, at most. */
static dlrm_status count_pieces(const dlrm_stored_file *file, int64_t *n)
{
    dlrm_st_file st_file;
    dlrm_st_entry *entries;
    int64_t here;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    dlrm_status st = check_header(file, fd);
    if (fd >= 0) close(fd);
    TRY(st);
    st = dlrm_st_open(file->path, &st_file, &entries, &here);
    *n += here;
    dlrm_free(&entries);
    dlrm_st_close(&st_file);
    return st;
}

static dlrm_status read_sums(source *f, const dlrm_stored_file *file)
{
    const dlrm_st_entry *e = NULL;
    for (int64_t i = 0; i < f->n_entries; i++)
        if (!strcmp(f->entries[i].key, "checksums")) e = &f->entries[i];
    if (!e || strcmp(e->dtype->name, "U64") != 0) return FAIL(DLRM_E_INPUT, "%s: no tensor 'checksums' of U64", file->path);
    f->n_sums = e->elements;
    TRY(dlrm_alloc(e->elements, sizeof *f->sums, "a checkpoint's checksums", &f->sums));
    TRY(dlrm_st_pread(f->st.fd, file->path, e->at, e->bytes, f->sums));
    if (dlrm_sum(f->sums, (size_t)e->bytes) != file->facts.sums_sum)
        return FAIL(DLRM_E_INPUT, "%s: tensor 'checksums': its checksum is not the manifest's: the file has been changed", file->path);
    return DLRM_OK;
}

static dlrm_status fail_piece(const char *path, const char *name, const char *what)
{
    return FAIL(DLRM_E_INPUT, "%s: tensor '%s': %s", path, name, what);
}

/* Where the piece belongs, from the file's metadata; its name must say the same. */
static dlrm_status read_place(const char *path, const json_t *metadata, stored_piece *p)
{
    const char *name = p->entry->key, *text = json_string_value(json_object_get(metadata, name)), *at = strchr(name, '@');
    long long rows, columns, row, step, column;
    char again[200];
    int64_t end, elements;
    if (!text || sscanf(text, "whole=%lldx%lld row=%lld step=%lld column=%lld", &rows, &columns, &row, &step, &column) != 5)
        return fail_piece(path, name, "its place in the whole tensor is not in the metadata");
    snprintf(again, sizeof again, "whole=%lldx%lld row=%lld step=%lld column=%lld", rows, columns, row, step, column);
    if (strcmp(again, text) != 0) return fail_piece(path, name, "its place in the metadata is not written as expected");
    snprintf(p->tensor, sizeof p->tensor, "%.*s", (int)(at ? at - name : (long)strlen(name)), name);
    const json_t *shape = p->entry->shape;
    const size_t n_dims = json_array_size(shape);
    const int64_t first = json_integer_value(json_array_get(shape, 0));
    p->whole_rows = rows;
    p->whole_columns = columns;
    p->part = (dlrm_part){.first_row = row, .row_step = step, .first_column = column};
    p->part.rows = n_dims == 2 ? first : rows == 1 ? 1 : first;
    p->part.columns = n_dims == 2 ? json_integer_value(json_array_get(shape, 1)) : rows == 1 ? first : 1;
    const dlrm_part *a = &p->part;
    if (n_dims < 1 || n_dims > 2 || rows < 1 || columns < 1 || row < 0 || step < 1 || column < 0 || a->rows < 1 || a->columns < 1 ||
        a->columns > columns - column || __builtin_mul_overflow(rows, columns, &elements) || elements > INT64_MAX / 8 ||
        __builtin_mul_overflow(a->rows - 1, step, &end) || row >= rows || end >= rows - row)
        return fail_piece(path, name, "its place lies outside of the whole tensor");
    return DLRM_OK;
}

static dlrm_status open_source(dlrm_stored *s, int number, const dlrm_stored_file *file)
{
    source *f = &s->files[number];
    s->n_files++;
    TRY(dlrm_st_open(file->path, &f->st, &f->entries, &f->n_entries));
    TRY(read_sums(f, file));
    const json_t *metadata = json_object_get(f->st.header, "__metadata__");
    const char *version = json_string_value(json_object_get(metadata, "checkpoint"));
    const char *block = json_string_value(json_object_get(metadata, "sum_block"));
    if (!version || strcmp(version, "1") != 0 || !block || atoll(block) != DLRM_SUM_BLOCK)
        return FAIL(DLRM_E_INPUT, "%s: not a checkpoint's file of version 1 with checksums of %d bytes each", file->path, DLRM_SUM_BLOCK);
    int64_t sum = 0;
    for (int64_t i = 0; i < f->n_entries; i++) {
        const dlrm_st_entry *e = &f->entries[i];
        if (!strcmp(e->key, "checksums")) continue;
        stored_piece *p = &s->pieces[s->n++];
        *p = (stored_piece){.entry = e, .file = number, .first_sum = sum, .block_number = -1};
        const bool integers = !strcmp(e->dtype->name, "I64") || !strcmp(e->dtype->name, "U32");
        if (!integers && (!e->dtype->to_float || e->dtype->bits > 32)) return fail_piece(file->path, e->key, "expected F32, BF16, F16, I64 or U32");
        TRY(read_place(file->path, metadata, p));
        sum += dlrm_sum_blocks(e->bytes);
    }
    if (sum != f->n_sums)
        return FAIL(DLRM_E_INPUT, "%s: tensor 'checksums': has %lld, the pieces need %lld", file->path, (long long)f->n_sums, (long long)sum);
    return DLRM_OK;
}

static const char *path_of(const dlrm_stored *s, const stored_piece *p)
{
    return s->files[p->file].st.path;
}

static int by_tensor(const void *a, const void *b)
{
    const stored_piece *x = a, *y = b;
    int order = strcmp(x->tensor, y->tensor);
    if (order) return order;
    if (x->part.first_row != y->part.first_row) return x->part.first_row < y->part.first_row ? -1 : 1;
    return (x->part.first_column > y->part.first_column) - (x->part.first_column < y->part.first_column);
}

/* Do two pieces of alike steps have a row in common? */
static bool rows_meet(const dlrm_part *a, const dlrm_part *b)
{
    if (a->first_row % a->row_step != b->first_row % b->row_step) return false;
    return a->first_row <= b->first_row + (b->rows - 1) * b->row_step && b->first_row <= a->first_row + (a->rows - 1) * a->row_step;
}

/* The pieces of one tensor cover it once: none overlap, and their sizes add up. */
static dlrm_status check_tensor(const dlrm_stored *s, const stored_piece *p, int n)
{
    int64_t elements = 0;
    if (n > MAX_PIECES) return FAIL(DLRM_E_INPUT, "%s: tensor '%s': is in %d pieces, more than %d", path_of(s, p), p->tensor, n, MAX_PIECES);
    for (int i = 0; i < n; i++) {
        if (p[i].whole_rows != p->whole_rows || p[i].whole_columns != p->whole_columns || p[i].part.row_step != p->part.row_step ||
            p[i].entry->dtype != p->entry->dtype)
            return fail_piece(path_of(s, &p[i]), p[i].entry->key, "shape, step or dtype differ from those of another piece");
        for (int j = 0; j < i; j++)
            if (rows_meet(&p[i].part, &p[j].part) && p[i].part.first_column < p[j].part.first_column + p[j].part.columns &&
                p[j].part.first_column < p[i].part.first_column + p[i].part.columns)
                return FAIL(DLRM_E_INPUT, "%s: tensor '%s' overlaps '%s' of %s", path_of(s, &p[i]), p[i].entry->key, p[j].entry->key,
                            path_of(s, &p[j]));
        elements += p[i].part.rows * p[i].part.columns;
    }
    if (elements != p->whole_rows * p->whole_columns)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s': its pieces have %lld of %lld elements", path_of(s, p), p->tensor, (long long)elements,
                    (long long)(p->whole_rows * p->whole_columns));
    return DLRM_OK;
}

static int pieces_of(const dlrm_stored *s, int first)
{
    int n = 1;
    while (first + n < s->n && !strcmp(s->pieces[first + n].tensor, s->pieces[first].tensor)) n++;
    return n;
}

static dlrm_status open_all(dlrm_stored *s, int n, const dlrm_stored_file *files)
{
    int64_t most = 0;
    TRY(dlrm_alloc(n, sizeof *s->files, "a checkpoint's files", &s->files));
    for (int i = 0; i < n; i++) TRY(count_pieces(&files[i], &most));
    TRY(dlrm_alloc(most, sizeof *s->pieces, "a checkpoint's pieces", &s->pieces));
    for (int i = 0; i < n; i++) TRY(open_source(s, i, &files[i]));
    qsort(s->pieces, (size_t)s->n, sizeof *s->pieces, by_tensor);
    for (int i = 0; i < s->n; i += pieces_of(s, i)) TRY(check_tensor(s, &s->pieces[i], pieces_of(s, i)));
    return DLRM_OK;
}

dlrm_status dlrm_stored_open(int n, const dlrm_stored_file *files, dlrm_stored **out)
{
    TRY(dlrm_alloc(1, sizeof **out, "a checkpoint", out));
    dlrm_status st = open_all(*out, n, files);
    if (st != DLRM_OK) dlrm_stored_close(out);
    return st;
}

void dlrm_stored_close(dlrm_stored **sp)
{
    dlrm_stored *s = *sp;
    if (!s) return;
    for (int i = 0; i < s->n; i++) dlrm_free(&s->pieces[i].block);
    for (int i = 0; i < s->n_files; i++) {
        dlrm_free(&s->files[i].entries);
        dlrm_free(&s->files[i].sums);
        dlrm_st_close(&s->files[i].st);
    }
    dlrm_free(&s->files);
    dlrm_free(&s->pieces);
    dlrm_free(sp);
}

/* --- reading --- */

/* The first piece of the tensor and how many; NULL: none. */
static stored_piece *find(const dlrm_stored *s, const char *tensor, int *n)
{
    int low = 0, high = s->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(s->pieces[middle].tensor, tensor) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->n || strcmp(s->pieces[low].tensor, tensor) != 0) return NULL;
    *n = pieces_of(s, low);
    return &s->pieces[low];
}

dlrm_status dlrm_stored_require(const dlrm_stored *s, const char *from, const dlrm_piece *want)
{
    int n;
    const stored_piece *p = find(s, want->whole.name, &n);
    if (!p) return FAIL(DLRM_E_INPUT, "%s: has no tensor '%s'", from, want->whole.name);
    if (p->whole_rows != want->whole_rows || p->whole_columns != want->whole_columns)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s' has shape [%lld, %lld], expected [%lld, %lld]", from, want->whole.name,
                    (long long)p->whole_rows, (long long)p->whole_columns, (long long)want->whole_rows, (long long)want->whole_columns);
    if (strcmp(p->entry->dtype->name, dlrm_st_dtype_name(want->whole.dtype)) != 0)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s' has dtype %s, expected %s", from, want->whole.name, p->entry->dtype->name,
                    dlrm_st_dtype_name(want->whole.dtype));
    return DLRM_OK;
}

/* One block of a piece into `to`, checked. */
static dlrm_status read_block(const dlrm_stored *s, const stored_piece *p, int64_t number, char *to, int64_t *bytes)
{
    const source *f = &s->files[p->file];
    const int64_t at = number * DLRM_SUM_BLOCK, left = p->entry->bytes - at;
    *bytes = left < DLRM_SUM_BLOCK ? left : DLRM_SUM_BLOCK;
    TRY(dlrm_st_pread(f->st.fd, f->st.path, p->entry->at + at, *bytes, to));
    if (dlrm_sum(to, (size_t)*bytes) == f->sums[p->first_sum + number]) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: tensor '%s': bytes %lld to %lld of the file do not have their checksum: the file is damaged", f->st.path,
                p->entry->key, (long long)(p->entry->at + at), (long long)(p->entry->at + at + *bytes - 1));
}

/* Bytes [at, at+bytes) of a piece. */
static dlrm_status read_bytes(dlrm_stored *s, stored_piece *p, int64_t at, int64_t bytes, char *out)
{
    while (bytes > 0) {
        const int64_t number = at / DLRM_SUM_BLOCK, skip = at % DLRM_SUM_BLOCK;
        int64_t there, n;
        if (skip == 0 && bytes >= DLRM_SUM_BLOCK) { /* straight to where it is wanted */
            TRY(read_block(s, p, number, out, &n));
        } else {
            if (!p->block) TRY(dlrm_alloc(DLRM_SUM_BLOCK, 1, "a block of a checkpoint", &p->block));
            if (p->block_number != number) {
                p->block_number = -1;
                TRY(read_block(s, p, number, p->block, &there));
                p->block_number = number;
            }
            n = DLRM_SUM_BLOCK - skip < bytes ? DLRM_SUM_BLOCK - skip : bytes;
            memcpy(out, p->block + skip, (size_t)n);
        }
        out += n;
        at += n;
        bytes -= n;
    }
    return DLRM_OK;
}

/* The first of n rows r, r+step, … that a stored piece can have, and how many rows further the next one is. */
static int64_t first_common(const dlrm_part *from, int64_t r, int64_t step, int64_t n, int64_t *stride)
{
    *stride = step == 1 ? from->row_step : 1;
    if (step == from->row_step && (r - from->first_row) % step != 0) return n;
    int64_t i = r < from->first_row ? (from->first_row - r + step - 1) / step : 0;
    if (step == 1) i += (from->row_step - (r + i - from->first_row) % from->row_step) % from->row_step;
    return i;
}

/* What the stored piece has of rows [row, row+n) of the wanted one. Both are progressions of rows. */
static dlrm_status read_common(dlrm_stored *s, stored_piece *p, const dlrm_piece *want, int64_t row, int64_t n, char *out)
{
    const dlrm_part *from = &p->part, *to = &want->part;
    const int64_t size = (int64_t)dlrm_dtype_bytes(want->whole.dtype), first_row = to->first_row + row * to->row_step;
    const int64_t first_column = dlrm_max64(from->first_column, to->first_column);
    const int64_t columns = dlrm_min64(from->first_column + from->columns, to->first_column + to->columns) - first_column;
    if (columns <= 0) return DLRM_OK;
    const bool alike = from->row_step == to->row_step && columns == from->columns && columns == to->columns;
    int64_t stride, run;
    for (int64_t i = first_common(from, first_row, to->row_step, n, &stride); i < n; i += run > 1 ? run : stride) {
        const int64_t beyond = first_row + i * to->row_step - from->first_row, k = beyond / from->row_step;
        if (k >= from->rows) break;
        run = alike ? dlrm_min64(n - i, from->rows - k) : 1;
        if (beyond % from->row_step == 0)
            TRY(read_bytes(s, p, (k * from->columns + first_column - from->first_column) * size, run * columns * size,
                           out + (i * to->columns + first_column - to->first_column) * size));
    }
    return DLRM_OK;
}

dlrm_status dlrm_stored_read(dlrm_stored *s, const dlrm_piece *want, int64_t row, int64_t n, void *out)
{
    int n_pieces = 0;
    stored_piece *p = find(s, want->whole.name, &n_pieces);
    DLRM_ASSERT(p && p->whole_rows == want->whole_rows && p->whole_columns == want->whole_columns);
    if (s->held != p)
        for (int i = 0; i < s->n; i++) dlrm_free(&s->pieces[i].block), s->pieces[i].block_number = -1;
    s->held = p;
    for (int i = 0; i < n_pieces; i++) TRY(read_common(s, &p[i], want, row, n, out));
    return DLRM_OK;
}
