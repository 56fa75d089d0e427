/* Split-binary files: of each batch, a rank reads its own rows of the labels and dense values, and all rows (or its
 * own) of the inputs it wants. Files are mapped, and values converted and checked where the page cache has them, on their way
 * to the batch, past the caches, for a batch is larger than they are. Where that does not do (no map, a file that has become
 * shorter, a value that is not valid, shuffled rows), bytes go through a buffer that stays in the second-level cache, and what
 * is wrong gets its message. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/convert.h"
#include "data/file.h"
#include "data/map.h"
#include "data/shelf.h"
#include "data/source.h"
#include "data/stream.h"

enum {
    BLOCK_BYTES = 64 << 10,
    ALIGNED = 4 /* so many rows, or a multiple, are read at a time */
};

typedef struct column {
    const char *path;
    int fd; /* -1: not read by this rank */
    int64_t row_bytes;
    dlrm_map map;     /* where rows are in order */
    dlrm_shelf shelf; /* where rows are shuffled */
} column;

typedef struct split_reader {
    const dlrm_model_spec *spec;
    const dlrm_feature_spec *files;
    dlrm_index_check check;
    column label, dense, *ids, *offsets; /* ids, offsets: [n_inputs] */
    int64_t *n_ids;                      /* [n_inputs] of the whole file, where hotness varies */
    char *block;                         /* [BLOCK_BYTES], or as many as ALIGNED rows take */
    bool shuffled;
    dlrm_shuffle order;
    int64_t *bags; /* [DLRM_SHUFFLE_BLOCK+1] offsets of a run of rows, where hotness varies and rows are shuffled */
    const dlrm_batch *b; /* being filled */
    int64_t *bytes;      /* of it */
} split_reader;

/* --- files --- */

static dlrm_status open_column(const split_reader *r, const char *path, int64_t row_bytes, column *c)
{
    c->path = path;
    c->row_bytes = row_bytes;
    TRY(dlrm_file_open(path, !r->shuffled, &c->fd));
    if (!r->shuffled) dlrm_map_open(c->fd, &c->map);
    return DLRM_OK;
}

static dlrm_status read_at(split_reader *r, const column *c, int64_t at, int64_t bytes, void *out)
{
    return dlrm_file_read(c->path, c->fd, at, bytes, out, r->bytes);
}

typedef struct run_of {
    split_reader *r;
    const column *c;
} run_of;

static dlrm_status read_run(void *ctx, int64_t row, int64_t n, void *out)
{
    const run_of *run = ctx;
    return read_at(run->r, run->c, row * run->c->row_bytes, n * run->c->row_bytes, out);
}

/* Rows of samples [i, i+n) of the batch. */
static dlrm_status read_rows(split_reader *r, column *c, int64_t i, int64_t n, void *out)
{
    run_of run = {r, c};
    if (r->shuffled) return dlrm_shelf_take(&c->shelf, &r->order, i, n, read_run, &run, out);
    return read_run(&run, r->b->first_row + i, n, out);
}

/* --- values on their way to the batch --- */

typedef struct passage {
    dlrm_stream_values *stream;
    dlrm_elem dtype;
    int64_t rows; /* of ids: the table's */
    const void *raw;
    int64_t n;
    void *out;
    bool good;
} passage;

static void pass(void *ctx)
{
    passage *p = ctx;
    p->good = p->stream(p->dtype, p->raw, p->n, p->rows, p->out);
}

/* n values from byte `at` of the file. False: they have to be read, and so will all that follow. */
static bool pass_mapped(split_reader *r, column *c, passage *p, int64_t at, int64_t n, void *out)
{
    const int64_t bytes = n * (int64_t)dlrm_elem_size(p->dtype);
    if (!c->map.base) return false;
    p->raw = c->map.base + at;
    p->n = n;
    p->out = out;
    if (dlrm_map_use(&c->map, c->fd, at, bytes, pass, p) && p->good) {
        *r->bytes += bytes;
        return true;
    }
    dlrm_map_close(&c->map);
    return false;
}

/* n values that have been read. False: some are not valid. */
static bool pass_read(const split_reader *r, const passage *p, int64_t n, void *out)
{
    return p->stream(p->dtype, r->block, n, p->rows, out);
}

static int64_t rows_at_a_time(int64_t row_bytes)
{
    int64_t rows = BLOCK_BYTES / row_bytes / ALIGNED * ALIGNED;
    return rows > 0 ? rows : ALIGNED;
}

/* The row that sample i of the batch is. */
static int64_t row_of(const split_reader *r, int64_t i)
{
    return r->shuffled ? dlrm_shuffle_row(&r->order, i) : r->b->first_row + i;
}

/* --- ids --- */

/* The sample, counted from the first whose ids these are, that id number i belongs to; the offsets of so many `samples`
 * are there. */
static int64_t sample_of(const dlrm_ids *in, int hotness, int64_t samples, int64_t i)
{
    if (!in->offsets) return i / hotness;
    int64_t low = 0, high = samples; /* offsets[low] <= i < offsets[high] */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (in->offsets[mid] <= i)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* A block of n ids with some outside their table: `raw` as they stand in the file, the input's from number `first`, of
 * its first `samples`. */
static dlrm_status bad_ids(split_reader *r, int j, dlrm_batch *b, int64_t samples, const void *raw, int64_t first,
                           int64_t n)
{
    const dlrm_input *input = &r->spec->inputs[j];
    const dlrm_table *table = &r->spec->tables[input->table];
    for (int64_t i = 0; i < n; i++) {
        int64_t id = dlrm_convert_id(r->files->categorical[j].dtype, raw, i);
        if (id >= 0 && id < table->rows) continue;
        if (!dlrm_convert_outside(r->check, id, table->rows, &b->inputs[j].ids[first + i], &b->clamped))
            return FAIL(
                DLRM_E_INPUT, "%s: row %lld: id %lld is outside [0, %lld) of table %s%s", r->ids[j].path,
                (long long)row_of(r, b->inputs[j].first + sample_of(&b->inputs[j], input->hotness, samples, first + i)),
                (long long)id, (long long)table->rows, table->name, dlrm_convert_hint(id));
    }
    return DLRM_OK;
}

/* Rows [row, row+n) of an offsets file. */
static dlrm_status read_bags(split_reader *r, int j, int64_t row, int64_t n, int64_t *offsets)
{
    const column *c = &r->offsets[j];
    int64_t max = r->spec->inputs[j].hotness, size = sizeof *offsets;
    TRY(read_at(r, c, row * size, (n + 1) * size, offsets));
    if (offsets[0] < 0 || offsets[0] > r->n_ids[j])
        return FAIL(DLRM_E_INPUT, "%s: row %lld: offset %lld is outside [0, %lld], the ids of %s", c->path,
                    (long long)row, (long long)offsets[0], (long long)r->n_ids[j], r->ids[j].path);
    /* Lengths in [0, max] from a start in range cannot overflow, so garbage shows in a length or at the end. */
    uint64_t bad = 0, before = (uint64_t)offsets[0];
    for (int64_t s = 1; s <= n; s++) {
        uint64_t length = (uint64_t)offsets[s] - before;
        bad |= length | ((uint64_t)max - length);
        before = (uint64_t)offsets[s];
    }
    for (int64_t s = 0; bad >> 63 && s < n; s++) {
        long long from = offsets[s], to = offsets[s + 1];
        if (to < from)
            return FAIL(DLRM_E_INPUT, "%s: row %lld: offset %lld is followed by %lld, expected ascending offsets",
                        c->path, (long long)(row + s), from, to);
        if (to - from > max)
            return FAIL(DLRM_E_INPUT, "%s: row %lld: a bag of %lld ids (offsets %lld to %lld), expected at most %lld",
                        c->path, (long long)(row + s), to - from, from, to, (long long)max);
    }
    if (offsets[n] > r->n_ids[j])
        return FAIL(DLRM_E_INPUT, "%s: row %lld: offset %lld is beyond the %lld ids of %s", c->path,
                    (long long)(row + n), (long long)offsets[n], (long long)r->n_ids[j], r->ids[j].path);
    return DLRM_OK;
}

/* All values are keys. */
static bool keys_to_batch(dlrm_elem from, const void *in, int64_t n, int64_t rows, void *out)
{
    (void)rows;
    dlrm_convert_keys(from, in, n, out);
    return true;
}

/* Where ids, or keys, from number i on go. */
static void *place_of(const dlrm_ids *in, int64_t i)
{
    return in->keys ? (void *)(in->keys + i) : (void *)(in->ids + i);
}

static passage ids_to_batch(const split_reader *r, int j)
{
    return (passage){.stream = dlrm_input_has_keys(r->spec, j) ? keys_to_batch : dlrm_stream_ids,
                     .dtype = r->files->categorical[j].dtype,
                     .rows = r->spec->tables[r->spec->inputs[j].table].rows};
}

static dlrm_status read_fixed(split_reader *r, int j, dlrm_batch *b)
{
    const int64_t hotness = r->spec->inputs[j].hotness, step = rows_at_a_time(r->ids[j].row_bytes);
    dlrm_ids *in = &b->inputs[j];
    passage p = ids_to_batch(r, j);
    in->count = in->samples * hotness;
    if (pass_mapped(r, &r->ids[j], &p, (b->first_row + in->first) * r->ids[j].row_bytes, in->count, place_of(in, 0))) return DLRM_OK;
    for (int64_t i = 0, n; i < in->samples; i += n) {
        n = in->samples - i < step ? in->samples - i : step;
        TRY(read_rows(r, &r->ids[j], in->first + i, n, r->block));
        if (!pass_read(r, &p, n * hotness, place_of(in, i * hotness)))
            TRY(bad_ids(r, j, b, in->samples, r->block, i * hotness, n * hotness));
    }
    return DLRM_OK;
}

/* Bags of rows that follow each other in the file lie side by side there. */
static dlrm_status read_variable(split_reader *r, int j, dlrm_batch *b)
{
    const int64_t size = (int64_t)dlrm_elem_size(r->files->categorical[j].dtype), step = BLOCK_BYTES / size;
    dlrm_ids *in = &b->inputs[j];
    passage p = ids_to_batch(r, j);
    TRY(read_bags(r, j, b->first_row + in->first, in->samples, in->offsets));
    const int64_t first = in->offsets[0];
    for (int64_t s = 0; s <= in->samples; s++) in->offsets[s] -= first;
    in->count = in->offsets[in->samples];
    if (in->count == 0 || pass_mapped(r, &r->ids[j], &p, first * size, in->count, place_of(in, 0))) return DLRM_OK;
    for (int64_t i = 0, n; i < in->count; i += n) {
        n = in->count - i < step ? in->count - i : step;
        TRY(read_at(r, &r->ids[j], (first + i) * size, n * size, r->block));
        if (!pass_read(r, &p, n, place_of(in, i))) TRY(bad_ids(r, j, b, in->samples, r->block, i, n));
    }
    return DLRM_OK;
}

/* Shuffled bags are rows of their length and room for as many ids as there may be. */
enum { LENGTH_BYTES = sizeof(int64_t) };

typedef struct bags_of {
    split_reader *r;
    int input;
} bags_of;

/* The ids of the run are read to the end of its room, and moved forward, bag by bag. */
static dlrm_status read_bag_run(void *ctx, int64_t row, int64_t n, void *out)
{
    const bags_of *x = ctx;
    split_reader *r = x->r;
    const column *c = &r->ids[x->input];
    const int64_t size = (int64_t)dlrm_elem_size(r->files->categorical[x->input].dtype);
    TRY(read_bags(r, x->input, row, n, r->bags));
    const int64_t bytes = (r->bags[n] - r->bags[0]) * size;
    char *rows = out, *from = rows + n * c->row_bytes - bytes;
    TRY(read_at(r, c, r->bags[0] * size, bytes, from));
    for (int64_t s = 0; s < n; s++) {
        const int64_t length = r->bags[s + 1] - r->bags[s];
        memmove(rows + s * c->row_bytes + LENGTH_BYTES, from, (size_t)(length * size));
        memcpy(rows + s * c->row_bytes, &length, LENGTH_BYTES);
        from += length * size;
    }
    return DLRM_OK;
}

static dlrm_status read_shuffled_bags(split_reader *r, int j, dlrm_batch *b)
{
    const dlrm_elem dtype = r->files->categorical[j].dtype;
    const int64_t step = rows_at_a_time(r->ids[j].row_bytes), rows = r->spec->tables[r->spec->inputs[j].table].rows;
    dlrm_ids *in = &b->inputs[j];
    bags_of x = {r, j};
    in->offsets[0] = 0;
    for (int64_t i = 0, n; i < in->samples; i += n) {
        n = in->samples - i < step ? in->samples - i : step;
        TRY(dlrm_shelf_take(&r->ids[j].shelf, &r->order, in->first + i, n, read_bag_run, &x, r->block));
        for (int64_t s = 0; s < n; s++) {
            const char *bag = r->block + s * r->ids[j].row_bytes;
            const int64_t at = in->offsets[i + s];
            int64_t length;
            memcpy(&length, bag, LENGTH_BYTES);
            in->offsets[i + s + 1] = at + length;
            if (in->keys)
                dlrm_convert_keys(dtype, bag + LENGTH_BYTES, length, in->keys + at);
            else if (!dlrm_convert_ids(dtype, bag + LENGTH_BYTES, length, rows, in->ids + at))
                TRY(bad_ids(r, j, b, i + s + 1, bag + LENGTH_BYTES, at, length));
        }
    }
    in->count = in->offsets[in->samples];
    return DLRM_OK;
}

/* --- labels and dense values --- */

/* Own samples' rows of `columns` values each. *bad: number of the first value that is not valid, or -1. */
static dlrm_status read_floats(split_reader *r, column *c, dlrm_elem dtype, int64_t columns, dlrm_stream_values *stream,
                               float *out, int64_t *bad)
{
    const int64_t step = rows_at_a_time(c->row_bytes);
    passage p = {.stream = stream, .dtype = dtype};
    *bad = -1;
    if (pass_mapped(r, c, &p, (r->b->first_row + r->b->begin) * c->row_bytes, r->b->own * columns, out)) return DLRM_OK;
    for (int64_t i = 0, n; i < r->b->own; i += n) {
        n = r->b->own - i < step ? r->b->own - i : step;
        TRY(read_rows(r, c, r->b->begin + i, n, r->block));
        if (pass_read(r, &p, n * columns, &out[i * columns])) continue;
        *bad = i * columns;
        while (stream(DLRM_FLOAT32, &out[*bad], 1, 0, r->block)) ++*bad;
        return DLRM_OK;
    }
    return DLRM_OK;
}

static dlrm_status read_labels(split_reader *r)
{
    int64_t bad;
    TRY(read_floats(r, &r->label, r->files->label_dtype, 1, dlrm_stream_labels, r->b->labels, &bad));
    if (bad < 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld: label %g is neither 0 nor 1", r->label.path,
                (long long)row_of(r, r->b->begin + bad), (double)r->b->labels[bad]);
}

static dlrm_status read_dense(split_reader *r)
{
    int64_t bad, columns = r->files->n_dense;
    TRY(read_floats(r, &r->dense, r->files->dense_dtype, columns, dlrm_stream_dense, r->b->dense, &bad));
    if (bad < 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld: value %g in column %lld is not finite", r->dense.path,
                (long long)row_of(r, r->b->begin + bad / columns), (double)r->b->dense[bad],
                (long long)(bad % columns));
}

/* --- the source --- */

static dlrm_status fill_batch(void *state, dlrm_batch *b, int64_t *bytes)
{
    split_reader *r = state;
    r->b = b;
    r->bytes = bytes;
    if (r->shuffled) dlrm_shuffle_plan(&r->order, b->epoch, b->first_row, b->size, 0, b->size);
    TRY(read_labels(r));
    if (r->files->n_dense) TRY(read_dense(r));
    for (int j = 0; j < r->spec->n_inputs; j++) {
        if (r->ids[j].fd < 0) continue;
        if (!r->spec->inputs[j].variable)
            TRY(read_fixed(r, j, b));
        else
            TRY(r->shuffled ? read_shuffled_bags(r, j, b) : read_variable(r, j, b));
    }
    return DLRM_OK;
}

static void close_column(column *c)
{
    dlrm_map_close(&c->map);
    dlrm_file_close(&c->fd);
    dlrm_shelf_close(&c->shelf);
}

static void close_reader(void **state)
{
    split_reader *r = *state;
    if (!r) return;
    close_column(&r->label);
    close_column(&r->dense);
    for (int j = 0; r->ids && r->offsets && j < r->spec->n_inputs; j++) {
        close_column(&r->ids[j]);
        close_column(&r->offsets[j]);
    }
    dlrm_shuffle_close(&r->order);
    dlrm_free(&r->ids);
    dlrm_free(&r->offsets);
    dlrm_free(&r->n_ids);
    dlrm_free(&r->block);
    dlrm_free(&r->bags);
    dlrm_free(state);
}

/* Of a row of ids, in the file or, where shuffled bags vary, in memory. */
static int64_t id_row_bytes(const dlrm_feature_spec *files, int j, bool shuffled)
{
    const dlrm_categorical *c = &files->categorical[j];
    return c->hotness * (int64_t)dlrm_elem_size(c->dtype) + (c->variable && shuffled ? LENGTH_BYTES : 0);
}

static int64_t dense_row_bytes(const dlrm_feature_spec *files)
{
    return files->n_dense * (int64_t)dlrm_elem_size(files->dense_dtype);
}

static dlrm_status open_files(split_reader *r, const dlrm_reader_args *args)
{
    const dlrm_split_files *split = &r->files->split[args->split];
    int n = r->spec->n_inputs;
    TRY(dlrm_alloc(n, sizeof *r->n_ids, "file sizes", &r->n_ids));
    TRY(dlrm_alloc(n, sizeof *r->ids, "open files", &r->ids));
    for (int j = 0; j < n; j++) r->ids[j].fd = -1;
    TRY(dlrm_alloc(n, sizeof *r->offsets, "open files", &r->offsets));
    for (int j = 0; j < n; j++) r->offsets[j].fd = -1;

    TRY(open_column(r, split->label, (int64_t)dlrm_elem_size(r->files->label_dtype), &r->label));
    if (split->dense) TRY(open_column(r, split->dense, dense_row_bytes(r->files), &r->dense));
    for (int j = 0; j < n; j++) {
        if (!args->wanted[j]) continue;
        TRY(open_column(r, split->ids[j], id_row_bytes(r->files, j, r->shuffled), &r->ids[j]));
        if (!r->spec->inputs[j].variable) continue;
        TRY(open_column(r, split->offsets[j], sizeof(int64_t), &r->offsets[j]));
        r->n_ids[j] = lseek(r->ids[j].fd, 0, SEEK_END) / (int64_t)dlrm_elem_size(r->files->categorical[j].dtype);
    }
    return DLRM_OK;
}

static dlrm_status open_buffers(split_reader *r)
{
    int64_t widest = BLOCK_BYTES / ALIGNED;
    if (r->dense.row_bytes > widest) widest = r->dense.row_bytes;
    for (int j = 0; j < r->spec->n_inputs; j++)
        if (r->ids[j].row_bytes > widest) widest = r->ids[j].row_bytes;
    TRY(dlrm_alloc(ALIGNED * widest, 1, "a read buffer", &r->block));
    return r->shuffled ? dlrm_alloc(DLRM_SHUFFLE_BLOCK + 1, sizeof *r->bags, "a read buffer", &r->bags) : DLRM_OK;
}

static bool of_own(const dlrm_reader_args *args, int j)
{
    return args->own_only && args->own_only[j];
}

/* Of own samples' lanes, or of all. */
static dlrm_status open_shelves(split_reader *r, const dlrm_dataset *d, const dlrm_reader_args *args)
{
    int first, end;
    dlrm_epoch_lanes(d, args, &first, &end);
    TRY(dlrm_shuffle_open(dlrm_epoch_of(d, args).rows, args->batch_size, d->seed, args->batch_size, &r->order));
    TRY(dlrm_shelf_open(&r->order, first, end, r->label.row_bytes, &r->label.shelf));
    if (r->dense.fd >= 0) TRY(dlrm_shelf_open(&r->order, first, end, r->dense.row_bytes, &r->dense.shelf));
    for (int j = 0; j < r->spec->n_inputs; j++)
        if (r->ids[j].fd >= 0)
            TRY(dlrm_shelf_open(&r->order, of_own(args, j) ? first : 0, of_own(args, j) ? end : DLRM_LANES,
                                r->ids[j].row_bytes, &r->ids[j].shelf));
    return DLRM_OK;
}

static int64_t shuffle_memory(const dlrm_dataset *d, const dlrm_reader_args *args)
{
    const int64_t rows = dlrm_epoch_of(d, args).rows, B = args->batch_size;
    int64_t own = (int64_t)dlrm_elem_size(d->files.label_dtype) + dense_row_bytes(&d->files), ids = 0;
    int first, end;
    for (int j = 0; j < d->files.n_categorical; j++)
        if (args->wanted[j]) *(of_own(args, j) ? &own : &ids) += id_row_bytes(&d->files, j, true);
    dlrm_epoch_lanes(d, args, &first, &end);
    return dlrm_shuffle_memory(rows, B, B) + dlrm_shelf_memory(rows, B, first, end, own) +
           dlrm_shelf_memory(rows, B, 0, DLRM_LANES, ids);
}

static dlrm_status open_reader(const dlrm_dataset *d, const dlrm_reader_args *args, void **state)
{
    split_reader *r;
    TRY(dlrm_alloc(1, sizeof *r, "a reader of files", &r));
    *r = (split_reader){.spec = d->spec,
                        .files = &d->files,
                        .check = d->check,
                        .label.fd = -1,
                        .dense.fd = -1,
                        .shuffled = args->shuffle};
    *state = r;
    TRY(open_files(r, args));
    TRY(open_buffers(r));
    return args->shuffle ? open_shelves(r, d, args) : DLRM_OK;
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
    const int64_t own = args->shuffle ? dlrm_epoch_lane_rows(d, args) : dlrm_epoch_own(d, args);
    const int64_t runs = args->shuffle ? epoch.rows / DLRM_SHUFFLE_BLOCK + DLRM_LANES : epoch.batches;
    int64_t bytes = own * sample;
    for (int j = 0; j < files->n_categorical; j++) {
        const dlrm_categorical *c = &files->categorical[j];
        if (!args->wanted[j]) continue;
        const int64_t rows = of_own(args, j) ? own : epoch.rows;
        int64_t n = rows * c->hotness;
        if (c->variable) {
            n = ids_of_rows(files->split[args->split].offsets[j], epoch.rows);
            if (n < 0) return -1;
            n = (int64_t)((double)n / (double)epoch.rows * (double)rows); /* of some rows: as many as of others */
            bytes += (rows + runs) * (int64_t)sizeof(int64_t);
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
    .shuffle_memory = shuffle_memory,
    .keeps = false,
};
