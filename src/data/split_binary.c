/* Split-binary files: of each batch, a rank reads its own rows of the labels and dense values, and all rows (or its own)
 * of the inputs it wants. Bytes go through a buffer that stays in the second-level cache and are checked, converted and
 * sent on from there, past the caches, for a batch is larger than they are. (Reading int32 ids in place and checking them
 * there was slower: the kernel's copy leaves nothing of them in the cache.) */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/convert.h"
#include "data/file.h"
#include "data/source.h"

enum { BLOCK_BYTES = 64 << 10, TILE = 2048 /* values converted before they are sent on */ };

typedef struct column {
    const char *path;
    int fd; /* -1: not read by this rank */
} column;

typedef struct split_reader {
    const dlrm_model_spec *spec;
    const dlrm_feature_spec *files;
    dlrm_index_check check;
    column label, dense, *ids, *offsets; /* ids, offsets: [n_inputs] */
    int64_t *n_ids;                      /* [n_inputs] of the whole file, where hotness varies */
    char *block; /* [BLOCK_BYTES] */
    void *tile;  /* [TILE] values of 4 bytes */
    int64_t *bytes; /* of the batch being filled */
} split_reader;

/* --- files --- */

static dlrm_status open_column(const char *path, column *c)
{
    c->path = path;
    return dlrm_file_open(path, &c->fd);
}

static dlrm_status read_at(split_reader *r, const column *c, int64_t at, int64_t bytes, void *out)
{
    return dlrm_file_read(c->path, c->fd, at, bytes, out, r->bytes);
}

/* --- ids --- */

/* Row of the first sample whose ids of input j are read. */
static int64_t first_row(const dlrm_batch *b, int j)
{
    return b->first_row + b->inputs[j].first;
}

/* The sample, counted from the first whose ids these are, that id number i belongs to. */
static int64_t sample_of(const dlrm_ids *in, int hotness, int64_t i)
{
    if (!in->offsets) return i / hotness;
    int64_t low = 0, high = in->samples; /* offsets[low] <= i < offsets[high] */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (in->offsets[mid] <= i)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* A block of n ids with some outside their table: `raw` as they stand in the file, the batch's from number `first`. */
static dlrm_status bad_ids(split_reader *r, int j, dlrm_batch *b, const void *raw, int64_t first, int64_t n)
{
    const dlrm_input *input = &r->spec->inputs[j];
    const dlrm_table *table = &r->spec->tables[input->table];
    for (int64_t i = 0; i < n; i++) {
        int64_t id = dlrm_convert_id(r->files->categorical[j].dtype, raw, i);
        if (id >= 0 && id < table->rows) continue;
        if (!dlrm_convert_outside(r->check, id, table->rows, &b->inputs[j].ids[first + i], &b->clamped))
            return FAIL(DLRM_E_INPUT, "%s: row %lld: id %lld is outside [0, %lld) of table %s", r->ids[j].path,
                        (long long)(first_row(b, j) + sample_of(&b->inputs[j], input->hotness, first + i)),
                        (long long)id, (long long)table->rows, table->name);
    }
    return DLRM_OK;
}

/* The batch's part of an offsets file, from 0; *first: number of its first id in the ids file. */
static dlrm_status read_bags(split_reader *r, int j, dlrm_batch *b, int64_t *first)
{
    const column *c = &r->offsets[j];
    int64_t *offsets = b->inputs[j].offsets, max = r->spec->inputs[j].hotness, size = sizeof *offsets;
    const int64_t begin = first_row(b, j), samples = b->inputs[j].samples;
    TRY(read_at(r, c, begin * size, (samples + 1) * size, offsets));
    if (offsets[0] < 0 || offsets[0] > r->n_ids[j])
        return FAIL(DLRM_E_INPUT, "%s: row %lld: offset %lld is outside [0, %lld], the ids of %s", c->path,
                    (long long)begin, (long long)offsets[0], (long long)r->n_ids[j], r->ids[j].path);
    /* Lengths in [0, max] from a start in range cannot overflow, so garbage shows in a length or at the end. */
    uint64_t bad = 0, before = (uint64_t)offsets[0];
    for (int64_t s = 1; s <= samples; s++) {
        uint64_t length = (uint64_t)offsets[s] - before;
        bad |= length | ((uint64_t)max - length);
        before = (uint64_t)offsets[s];
    }
    for (int64_t s = 0; bad >> 63 && s < samples; s++) {
        long long row = begin + s, from = offsets[s], to = offsets[s + 1];
        if (to < from)
            return FAIL(DLRM_E_INPUT, "%s: row %lld: offset %lld is followed by %lld, expected ascending offsets",
                        c->path, row, from, to);
        if (to - from > max)
            return FAIL(DLRM_E_INPUT, "%s: row %lld: a bag of %lld ids (offsets %lld to %lld), expected at most %lld",
                        c->path, row, to - from, from, to, (long long)max);
    }
    if (offsets[samples] > r->n_ids[j])
        return FAIL(DLRM_E_INPUT, "%s: row %lld: offset %lld is beyond the %lld ids of %s", c->path,
                    (long long)(begin + samples), (long long)offsets[samples], (long long)r->n_ids[j],
                    r->ids[j].path);
    *first = offsets[0];
    for (int64_t s = 0; s <= samples; s++) offsets[s] -= *first;
    return DLRM_OK;
}

static dlrm_status read_ids(split_reader *r, int j, dlrm_batch *b)
{
    const dlrm_input *input = &r->spec->inputs[j];
    dlrm_elem dtype = r->files->categorical[j].dtype;
    int64_t rows = r->spec->tables[input->table].rows, size = (int64_t)dlrm_elem_size(dtype);
    dlrm_ids *in = &b->inputs[j];
    int64_t first = first_row(b, j) * input->hotness;
    if (input->variable) TRY(read_bags(r, j, b, &first));
    in->count = input->variable ? in->offsets[in->samples] : in->samples * input->hotness;
    for (int64_t i = 0, n; i < in->count; i += n) {
        n = in->count - i < BLOCK_BYTES / size ? in->count - i : BLOCK_BYTES / size;
        TRY(read_at(r, &r->ids[j], (first + i) * size, n * size, r->block));
        bool good = true;
        for (int64_t k = 0, m; k < n; k += m) {
            m = n - k < TILE ? n - k : TILE;
            void *raw = r->block + k * size, *ready = size == sizeof *in->ids ? raw : r->tile;
            good &= dlrm_convert_ids(dtype, raw, m, rows, ready);
            dlrm_stream(&in->ids[i + k], ready, m);
        }
        if (!good) TRY(bad_ids(r, j, b, r->block, i, n));
    }
    return DLRM_OK;
}

/* --- labels and dense values --- */

typedef bool convert_floats(dlrm_elem from, const void *in, int64_t n, float *out);

/* Rows [first, first+n) of `columns` values each. *bad: number of the first value that is not valid, or -1. */
static dlrm_status read_floats(split_reader *r, const column *c, dlrm_elem dtype, int64_t columns, int64_t first,
                               int64_t rows, convert_floats *convert, float *out, int64_t *bad)
{
    int64_t size = (int64_t)dlrm_elem_size(dtype), count = rows * columns;
    *bad = -1;
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < BLOCK_BYTES / size ? count - i : BLOCK_BYTES / size;
        TRY(read_at(r, c, (first * columns + i) * size, n * size, r->block));
        bool good = true;
        for (int64_t k = 0, m; k < n; k += m) {
            m = n - k < TILE ? n - k : TILE;
            void *raw = r->block + k * size, *ready = size == sizeof *out ? raw : r->tile;
            good &= convert(dtype, raw, m, ready);
            dlrm_stream(&out[i + k], ready, m);
        }
        if (good) continue;
        *bad = i;
        while (convert(DLRM_FLOAT32, &out[*bad], 1, r->tile)) ++*bad;
        return DLRM_OK;
    }
    return DLRM_OK;
}

static dlrm_status read_labels(split_reader *r, dlrm_batch *b)
{
    int64_t bad, first = b->first_row + b->begin;
    TRY(read_floats(r, &r->label, r->files->label_dtype, 1, first, b->own, dlrm_convert_labels, b->labels, &bad));
    if (bad < 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld: label %g is neither 0 nor 1", r->label.path, (long long)(first + bad),
                (double)b->labels[bad]);
}

static dlrm_status read_dense(split_reader *r, dlrm_batch *b)
{
    int64_t bad, first = b->first_row + b->begin, columns = r->files->n_dense;
    TRY(read_floats(r, &r->dense, r->files->dense_dtype, columns, first, b->own, dlrm_convert_dense, b->dense, &bad));
    if (bad < 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld: value %g in column %lld is not finite", r->dense.path,
                (long long)(first + bad / columns), (double)b->dense[bad], (long long)(bad % columns));
}

/* --- the source --- */

static dlrm_status fill_batch(void *state, dlrm_batch *b, int64_t *bytes)
{
    split_reader *r = state;
    r->bytes = bytes;
    TRY(read_labels(r, b));
    if (r->files->n_dense) TRY(read_dense(r, b));
    for (int j = 0; j < r->spec->n_inputs; j++)
        if (r->ids[j].fd >= 0) TRY(read_ids(r, j, b));
    return DLRM_OK;
}

static void close_reader(void **state)
{
    split_reader *r = *state;
    if (!r) return;
    dlrm_file_close(&r->label.fd);
    dlrm_file_close(&r->dense.fd);
    for (int j = 0; r->ids && r->offsets && j < r->spec->n_inputs; j++) {
        dlrm_file_close(&r->ids[j].fd);
        dlrm_file_close(&r->offsets[j].fd);
    }
    dlrm_free(&r->ids);
    dlrm_free(&r->offsets);
    dlrm_free(&r->n_ids);
    dlrm_free(&r->block);
    dlrm_free(&r->tile);
    dlrm_free(state);
}

static dlrm_status open_files(split_reader *r, const dlrm_reader_args *args)
{
    const dlrm_split_files *split = &r->files->split[args->split];
    int n = r->spec->n_inputs;
    TRY(dlrm_alloc(BLOCK_BYTES, 1, "a read buffer", &r->block));
    TRY(dlrm_alloc(TILE, sizeof(uint32_t), "a read buffer", &r->tile));
    TRY(dlrm_alloc(n, sizeof *r->n_ids, "file sizes", &r->n_ids));
    TRY(dlrm_alloc(n, sizeof *r->ids, "open files", &r->ids));
    for (int j = 0; j < n; j++) r->ids[j].fd = -1;
    TRY(dlrm_alloc(n, sizeof *r->offsets, "open files", &r->offsets));
    for (int j = 0; j < n; j++) r->offsets[j].fd = -1;

    TRY(open_column(split->label, &r->label));
    if (split->dense) TRY(open_column(split->dense, &r->dense));
    for (int j = 0; j < n; j++) {
        if (!args->wanted[j]) continue;
        TRY(open_column(split->ids[j], &r->ids[j]));
        if (!r->spec->inputs[j].variable) continue;
        TRY(open_column(split->offsets[j], &r->offsets[j]));
        r->n_ids[j] = lseek(r->ids[j].fd, 0, SEEK_END) / (int64_t)dlrm_elem_size(r->files->categorical[j].dtype);
    }
    return DLRM_OK;
}

static dlrm_status open_reader(const dlrm_dataset *d, const dlrm_reader_args *args, void **state)
{
    split_reader *r;
    TRY(dlrm_alloc(1, sizeof *r, "a reader of files", &r));
    *r = (split_reader){.spec = d->spec, .files = &d->files, .check = d->check, .label.fd = -1, .dense.fd = -1};
    *state = r;
    return open_files(r, args);
}

/* The number of ids in the first `rows` rows. -1: the offsets cannot be read. */
static int64_t ids_of_rows(const char *offsets, int64_t rows)
{
    int64_t n = -1;
    int fd = open(offsets, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (pread(fd, &n, sizeof n, rows * (int64_t)sizeof n) != sizeof n) n = -1;
    close(fd);
    return n;
}

static int64_t epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args)
{
    const dlrm_feature_spec *files = &d->files;
    dlrm_epoch epoch = dlrm_epoch_of(d, args);
    int64_t sample =
        (int64_t)(dlrm_elem_size(files->label_dtype) + files->n_dense * dlrm_elem_size(files->dense_dtype));
    int64_t bytes = dlrm_epoch_own(d, args) * sample;
    for (int j = 0; j < files->n_categorical; j++) {
        const dlrm_categorical *c = &files->categorical[j];
        if (!args->wanted[j]) continue;
        const int64_t rows = args->own_only && args->own_only[j] ? dlrm_epoch_own(d, args) : epoch.rows;
        int64_t n = rows * c->hotness;
        if (c->variable) {
            n = ids_of_rows(files->split[args->split].offsets[j], epoch.rows);
            if (n < 0) return -1;
            n = (int64_t)((double)n / (double)epoch.rows * (double)rows); /* of some rows: as many as of others */
            bytes += (rows + epoch.batches) * (int64_t)sizeof(int64_t);
        }
        bytes += n * (int64_t)dlrm_elem_size(c->dtype);
    }
    return bytes;
}

const dlrm_source_ops dlrm_split_binary_source = {
    .open = open_reader,
    .fill = fill_batch,
    .close = close_reader,
    .epoch_bytes = epoch_bytes,
    .keeps = false,
};
