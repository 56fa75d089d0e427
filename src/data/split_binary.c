/* Split-binary files: of each batch, a rank reads its own rows of the labels and dense values, and all rows (or its
 * own) of the inputs it wants. */
#include <unistd.h>

#include "base/mem.h"
#include "data/file.h"
#include "data/split_ids.h"

/* --- labels and dense values --- */

/* Own samples' rows of `columns` values each. *bad: number of the first value that is not valid, or -1. */
static dlrm_status read_floats(dlrm_split_reader *r, dlrm_split_column *c, dlrm_elem dtype, int64_t columns, dlrm_stream_values *stream,
                               float *out, int64_t *bad)
{
    const int64_t step = dlrm_split_rows_at_a_time(c->row_bytes);
    dlrm_split_passage p = {.stream = stream, .dtype = dtype};
    *bad = -1;
    if (dlrm_split_pass_mapped(r, c, &p, (r->b->first_row + r->b->begin) * c->row_bytes, r->b->own * columns, out)) return DLRM_OK;
    for (int64_t i = 0, n; i < r->b->own; i += n) {
        n = r->b->own - i < step ? r->b->own - i : step;
        TRY(dlrm_split_column_read_rows(r, c, r->b->begin + i, n, r->block));
        if (dlrm_split_pass_read(r, &p, n * columns, &out[i * columns])) continue;
        *bad = i * columns;
        while (stream(DLRM_FLOAT32, &out[*bad], 1, 0, r->block)) ++*bad;
        return DLRM_OK;
    }
    return DLRM_OK;
}

static dlrm_status read_labels(dlrm_split_reader *r)
{
    int64_t bad;
    TRY(read_floats(r, &r->label, r->files->label_dtype, 1, dlrm_stream_labels, r->b->labels, &bad));
    if (bad < 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld: label %g is neither 0 nor 1", r->label.path,
                (long long)dlrm_split_row(r, r->b->begin + bad), (double)r->b->labels[bad]);
}

static dlrm_status read_dense(dlrm_split_reader *r)
{
    int64_t bad, columns = r->files->n_dense;
    TRY(read_floats(r, &r->dense, r->files->dense_dtype, columns, dlrm_stream_dense, r->b->dense, &bad));
    if (bad < 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: row %lld: value %g in column %lld is not finite", r->dense.path,
                (long long)dlrm_split_row(r, r->b->begin + bad / columns), (double)r->b->dense[bad],
                (long long)(bad % columns));
}

/* --- the source --- */

static dlrm_status fill_batch(void *state, dlrm_batch *b, int64_t *bytes)
{
    dlrm_split_reader *r = state;
    r->b = b;
    r->bytes = bytes;
    if (r->shuffled) dlrm_shuffle_plan(&r->order, b->epoch, b->first_row, b->size, 0, b->size);
    TRY(read_labels(r));
    if (r->files->n_dense) TRY(read_dense(r));
    for (int j = 0; j < r->spec->n_inputs; j++)
        if (r->ids[j].fd >= 0) TRY(dlrm_split_ids_read(r, j, b));
    return DLRM_OK;
}

static void close_reader(void **state)
{
    dlrm_split_reader *r = *state;
    if (!r) return;
    dlrm_split_column_close(&r->label);
    dlrm_split_column_close(&r->dense);
    for (int j = 0; r->ids && r->offsets && j < r->spec->n_inputs; j++) {
        dlrm_split_column_close(&r->ids[j]);
        dlrm_split_column_close(&r->offsets[j]);
    }
    dlrm_shuffle_close(&r->order);
    dlrm_free(&r->ids);
    dlrm_free(&r->offsets);
    dlrm_free(&r->n_ids);
    dlrm_free(&r->block);
    dlrm_free(&r->bags);
    dlrm_free(state);
}

static int64_t dense_row_bytes(const dlrm_feature_spec *files)
{
    return files->n_dense * (int64_t)dlrm_elem_size(files->dense_dtype);
}

static dlrm_status open_files(dlrm_split_reader *r, const dlrm_reader_args *args)
{
    const dlrm_split_files *split = &r->files->split[args->split];
    int n = r->spec->n_inputs;
    TRY(dlrm_alloc(n, sizeof *r->n_ids, "file sizes", &r->n_ids));
    TRY(dlrm_alloc(n, sizeof *r->ids, "open files", &r->ids));
    for (int j = 0; j < n; j++) r->ids[j].fd = -1;
    TRY(dlrm_alloc(n, sizeof *r->offsets, "open files", &r->offsets));
    for (int j = 0; j < n; j++) r->offsets[j].fd = -1;

    TRY(dlrm_split_column_open(r, split->label, (int64_t)dlrm_elem_size(r->files->label_dtype), &r->label));
    if (split->dense) TRY(dlrm_split_column_open(r, split->dense, dense_row_bytes(r->files), &r->dense));
    for (int j = 0; j < n; j++) {
        if (!args->wanted[j]) continue;
        TRY(dlrm_split_column_open(r, split->ids[j], dlrm_split_ids_bytes(r->files, j, r->shuffled), &r->ids[j]));
        if (!r->spec->inputs[j].variable) continue;
        TRY(dlrm_split_column_open(r, split->offsets[j], sizeof(int64_t), &r->offsets[j]));
        r->n_ids[j] = lseek(r->ids[j].fd, 0, SEEK_END) / (int64_t)dlrm_elem_size(r->files->categorical[j].dtype);
    }
    return DLRM_OK;
}

static dlrm_status open_buffers(dlrm_split_reader *r)
{
    int64_t widest = DLRM_SPLIT_BLOCK / DLRM_SPLIT_ALIGNED;
    if (r->dense.row_bytes > widest) widest = r->dense.row_bytes;
    for (int j = 0; j < r->spec->n_inputs; j++)
        if (r->ids[j].row_bytes > widest) widest = r->ids[j].row_bytes;
    TRY(dlrm_alloc(DLRM_SPLIT_ALIGNED * widest, 1, "a read buffer", &r->block));
    return r->shuffled ? dlrm_alloc(DLRM_SHUFFLE_BLOCK + 1, sizeof *r->bags, "a read buffer", &r->bags) : DLRM_OK;
}

static bool of_own(const dlrm_reader_args *args, int j)
{
    return args->own_only && args->own_only[j];
}

/* Of own samples' lanes, or of all. */
static dlrm_status open_shelves(dlrm_split_reader *r, const dlrm_dataset *d, const dlrm_reader_args *args)
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
        if (args->wanted[j]) *(of_own(args, j) ? &own : &ids) += dlrm_split_ids_bytes(&d->files, j, true);
    dlrm_epoch_lanes(d, args, &first, &end);
    return dlrm_shuffle_memory(rows, B, B) + dlrm_shelf_memory(rows, B, first, end, own) +
           dlrm_shelf_memory(rows, B, 0, DLRM_LANES, ids);
}

static dlrm_status open_reader(const dlrm_dataset *d, const dlrm_reader_args *args, void **state)
{
    dlrm_split_reader *r;
    TRY(dlrm_alloc(1, sizeof *r, "a reader of files", &r));
    *r = (dlrm_split_reader){.spec = d->spec, .files = &d->files, .check = d->check, .label.fd = -1, .dense.fd = -1,
                             .shuffled = args->shuffle};
    *state = r;
    TRY(open_files(r, args));
    TRY(open_buffers(r));
    return args->shuffle ? open_shelves(r, d, args) : DLRM_OK;
}

/* The number of ids in the first `rows` rows. */
static dlrm_status ids_of_rows(const char *offsets, int64_t rows, int64_t *n)
{
    int64_t read = 0;
    int fd;
    TRY(dlrm_file_open(offsets, false, &fd));
    const dlrm_status st = dlrm_file_read(offsets, fd, rows * (int64_t)sizeof *n, sizeof *n, n, &read);
    dlrm_file_close(&fd);
    TRY(st);
    if (*n < 0) return FAIL(DLRM_E_INPUT, "%s: found %lld at %lld, expected the number of ids before it", offsets, (long long)*n, (long long)rows);
    return DLRM_OK;
}

static dlrm_status epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args, int64_t *bytes)
{
    const dlrm_feature_spec *files = &d->files;
    dlrm_epoch epoch = dlrm_epoch_of(d, args);
    int64_t sample =
        (int64_t)(dlrm_elem_size(files->label_dtype) + files->n_dense * dlrm_elem_size(files->dense_dtype));
    const int64_t own = args->shuffle ? dlrm_epoch_lane_rows(d, args) : dlrm_epoch_own(d, args);
    const int64_t runs = args->shuffle ? epoch.rows / DLRM_SHUFFLE_BLOCK + DLRM_LANES : epoch.batches;
    *bytes = own * sample;
    for (int j = 0; j < files->n_categorical; j++) {
        const dlrm_categorical *c = &files->categorical[j];
        if (!args->wanted[j]) continue;
        const int64_t rows = of_own(args, j) ? own : epoch.rows;
        int64_t n = rows * c->hotness;
        if (c->variable) {
            TRY(ids_of_rows(files->split[args->split].offsets[j], epoch.rows, &n));
            n = (int64_t)((double)n / (double)epoch.rows * (double)rows); /* of some rows: as many as of others */
            *bytes += (rows + runs) * (int64_t)sizeof(int64_t);
        }
        *bytes += n * (int64_t)dlrm_elem_size(c->dtype);
    }
    return DLRM_OK;
}

const dlrm_source_ops dlrm_split_binary_source = {
    .open = open_reader,
    .fill = fill_batch,
    .close = close_reader,
    .epoch_bytes = epoch_bytes,
    .shuffle_memory = shuffle_memory,
    .keeps = false,
};
