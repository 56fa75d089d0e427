/* Row formats: of each batch a rank reads the rows of its own samples, in blocks that stay in the second-level cache,
 * and converts, checks and packs them there for the ranks that want them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/convert.h"
#include "data/file.h"
#include "data/pack.h"
#include "data/shelf.h"
#include "data/source.h"

enum { BLOCK_BYTES = 256 << 10 };

typedef struct row_reader {
    const dlrm_dataset *d;
    const dlrm_model_spec *spec;
    const dlrm_row_files *files;
    const dlrm_row_split *split;
    dlrm_pack pack;
    int *fds; /* [n_files] */
    int64_t block_rows;
    char *raw;     /* [block_rows] of the widest strip */
    char *column;  /* [block_rows] ids of one feature, out of a row of all */
    uint32_t *ids; /* [block_rows][largest hotness] */
    int64_t *keys; /* the same, of a table whose rows are dynamic */
    bool shuffled;
    dlrm_shuffle order;
    dlrm_shelf *shelves; /* [n_strips] where rows are shuffled */
    dlrm_batch *b;       /* being filled */
    int64_t at, n;       /* own samples [at, at+n) are at hand */
    int64_t *bytes;
} row_reader;

/* --- bytes --- */

/* int32 to int64 where they stand: the narrow ones at the end of the room for the wide ones. */
static void widen(char *room, int64_t n)
{
    const char *from = room + n * 4;
    for (int64_t i = 0; i < n; i++) {
        int32_t narrow;
        memcpy(&narrow, from + i * 4, sizeof narrow);
        int64_t wide = narrow;
        memcpy(room + i * 8, &wide, sizeof wide);
    }
}

/* Rows [row, row+n) of the split, of one strip. */
static dlrm_status read_rows(row_reader *r, int strip, int64_t row, int64_t n, char *out)
{
    const dlrm_strip *s = &r->split->strips[strip];
    for (int64_t m; n > 0; n -= m, row += m, out += m * dlrm_strip_row_bytes(s)) {
        int64_t in_part;
        int p = dlrm_row_part(r->split, row, &in_part);
        const dlrm_strip_part *part = &s->parts[p];
        int64_t left = r->split->first_row[p + 1] - r->split->first_row[p] - in_part,
                size = s->columns * (int64_t)dlrm_elem_size(part->elem);
        m = n < left ? n : left;
        bool narrow = part->elem != s->elem;
        TRY(dlrm_file_read(r->split->files[part->file], r->fds[part->file], part->at + in_part * size, m * size,
                           narrow ? out + m * size : out, r->bytes));
        if (narrow) widen(out, m * s->columns);
    }
    return DLRM_OK;
}

typedef struct run_of {
    row_reader *r;
    int strip;
} run_of;

static dlrm_status read_run(void *ctx, int64_t row, int64_t n, void *out)
{
    const run_of *run = ctx;
    return read_rows(run->r, run->strip, row, n, out);
}

/* The rows at hand. */
static dlrm_status read_strip(row_reader *r, int strip, void *out)
{
    run_of run = {r, strip};
    if (r->shuffled)
        return dlrm_shelf_take(&r->shelves[strip], &r->order, r->b->begin + r->at, r->n, read_run, &run, out);
    return read_rows(r, strip, r->b->first_row + r->b->begin + r->at, r->n, out);
}

/* --- values --- */

/* Where the i-th sample at hand comes from: file and row, for messages. */
static const char *origin(const row_reader *r, int strip, int64_t i, int64_t *row)
{
    const int64_t sample = r->b->begin + r->at + i;
    int p = dlrm_row_part(r->split, r->shuffled ? dlrm_shuffle_row(&r->order, sample) : r->b->first_row + sample, row);
    return r->split->files[r->split->strips[strip].parts[p].file];
}

/* The ids at hand of one input go into the blocks of the ranks that want them. */
static void pack_input(row_reader *r, int j)
{
    const int64_t hotness = r->spec->inputs[j].hotness;
    for (int k = r->pack.input_at[j]; k < r->pack.input_at[j + 1]; k++) {
        const dlrm_pack_item *item = &r->pack.items[r->pack.of_input[k]];
        char *to = (char *)r->b->packed + r->b->own * item->at + r->at * hotness * item->width;
        if (dlrm_input_has_keys(r->spec, j))
            memcpy(to, r->keys, (size_t)(r->n * hotness) * sizeof *r->keys);
        else
            dlrm_pack_ids(r->ids, r->n * hotness, item->width, to);
    }
}

/* --- records --- */

static dlrm_status bad_record(row_reader *r)
{
    const dlrm_record_layout *l = &r->files->layout;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t row;
        const char *path = origin(r, 0, i, &row);
        TRY(dlrm_record_offender(l, r->raw + i * dlrm_record_bytes(l), 1, path, row));
    }
    return DLRM_OK;
}

/* Ids of mlperf_bin are signed. */
static int64_t record_id(const row_reader *r, int64_t i)
{
    return r->files->signed_ids ? (int64_t)(int32_t)r->ids[i] : (int64_t)r->ids[i];
}

static dlrm_status bad_record_ids(row_reader *r, int j)
{
    const dlrm_record_layout *l = &r->files->layout;
    const dlrm_input *in = &r->spec->inputs[j];
    const dlrm_table *table = &r->spec->tables[in->table];
    for (int64_t i = 0; i < r->n * in->hotness; i++) {
        int64_t id = record_id(r, i), s = i / in->hotness, row;
        if (id >= 0 && id < table->rows) continue;
        if (dlrm_convert_outside(r->d->check, id, table->rows, &r->ids[i], &r->b->clamped)) continue;
        const char *path = origin(r, 0, s, &row);
        TRY(dlrm_record_id_offender(l, r->raw + s * dlrm_record_bytes(l), 1, r->files->first_id[j], in->hotness,
                                    table->rows, table->name, path, row));
    }
    return DLRM_OK;
}

static dlrm_status take_records(row_reader *r)
{
    const dlrm_record_layout *l = &r->files->layout;
    TRY(read_strip(r, 0, r->raw));
    bool good = dlrm_record_labels(l, r->raw, r->n, r->b->labels + r->at);
    good &= dlrm_record_dense_values(l, r->raw, r->n, r->b->dense + r->at * l->n_dense);
    if (!good) TRY(bad_record(r));
    for (int j = 0; j < r->spec->n_inputs; j++) {
        const dlrm_input *in = &r->spec->inputs[j];
        const bool keys = dlrm_input_has_keys(r->spec, j);
        const int64_t rows = keys ? (int64_t)UINT32_MAX + 1 : r->spec->tables[in->table].rows; /* of keys any will do */
        if (!dlrm_record_ids(l, r->raw, r->n, r->files->first_id[j], in->hotness, rows, r->ids)) TRY(bad_record_ids(r, j));
        for (int64_t i = 0; keys && i < r->n * in->hotness; i++) r->keys[i] = record_id(r, i);
        pack_input(r, j);
    }
    return DLRM_OK;
}

/* --- arrays --- */

static dlrm_status take_labels(row_reader *r)
{
    float *labels = r->b->labels + r->at;
    int64_t row, i = 0;
    dlrm_elem elem = r->split->strips[DLRM_LABEL_STRIP].elem;
    TRY(read_strip(r, DLRM_LABEL_STRIP, r->raw));
    if (dlrm_convert_labels(elem, r->raw, r->n, labels)) return DLRM_OK;
    while (labels[i] == 0.0f || labels[i] == 1.0f) i++;
    const char *path = origin(r, DLRM_LABEL_STRIP, i, &row);
    return FAIL(DLRM_E_INPUT, "%s: row %lld: label %g is neither 0 nor 1", path, (long long)row, (double)labels[i]);
}

static dlrm_status take_dense(row_reader *r)
{
    const int64_t columns = r->spec->dense_features;
    float *dense = r->b->dense + r->at * columns;
    int64_t row, i = 0;
    dlrm_elem elem = r->split->strips[DLRM_DENSE_STRIP].elem;
    TRY(read_strip(r, DLRM_DENSE_STRIP, r->raw));
    if (dlrm_convert_dense(elem, r->raw, r->n * columns, dense)) return DLRM_OK;
    while (dlrm_convert_dense(DLRM_FLOAT32, &dense[i], 1, &dense[i])) i++;
    const char *path = origin(r, DLRM_DENSE_STRIP, i / columns, &row);
    return FAIL(DLRM_E_INPUT, "%s: row %lld: value %g in column %lld is not finite", path, (long long)row,
                (double)dense[i], (long long)(i % columns));
}

static dlrm_status bad_array_ids(row_reader *r, int j, int strip, const void *raw)
{
    const dlrm_input *in = &r->spec->inputs[j];
    const dlrm_table *table = &r->spec->tables[in->table];
    for (int64_t i = 0; i < r->n * in->hotness; i++) {
        int64_t id = dlrm_convert_id(r->split->strips[strip].elem, raw, i), row;
        if (id >= 0 && id < table->rows) continue;
        if (dlrm_convert_outside(r->d->check, id, table->rows, &r->ids[i], &r->b->clamped)) continue;
        char member[40] = "";
        const char *path = origin(r, strip, i / in->hotness, &row);
        if (r->files->multi_hot) snprintf(member, sizeof member, "member %d.npy: ", j);
        return FAIL(DLRM_E_INPUT, "%s: %srow %lld: id %lld is outside [0, %lld) of table %s%s", path, member,
                    (long long)row, (long long)id, (long long)table->rows, table->name, dlrm_convert_hint(id));
    }
    return DLRM_OK;
}

/* raw: the ids at hand of one input, as they stand in the file. */
static dlrm_status take_ids(row_reader *r, int j, int strip, const void *raw)
{
    const dlrm_input *in = &r->spec->inputs[j];
    const dlrm_elem elem = r->split->strips[strip].elem;
    if (dlrm_input_has_keys(r->spec, j))
        dlrm_convert_keys(elem, raw, r->n * in->hotness, r->keys);
    else if (!dlrm_convert_ids(elem, raw, r->n * in->hotness, r->spec->tables[in->table].rows, r->ids))
        TRY(bad_array_ids(r, j, strip, raw));
    pack_input(r, j);
    return DLRM_OK;
}

#define GATHER(type)                                                                                        \
    static void gather_##type(const type *restrict rows, int64_t n, int columns, int j, type *restrict out) \
    {                                                                                                       \
        for (int64_t i = 0; i < n; i++) out[i] = rows[i * columns + j];                                     \
    }
GATHER(int32_t)
GATHER(int64_t)

static dlrm_status take_arrays(row_reader *r)
{
    const int J = r->spec->n_inputs;
    TRY(take_labels(r));
    if (r->spec->dense_features > 0) TRY(take_dense(r));
    for (int j = 0; r->files->multi_hot && j < J; j++) {
        TRY(read_strip(r, DLRM_IDS_STRIP + j, r->raw));
        TRY(take_ids(r, j, DLRM_IDS_STRIP + j, r->raw));
    }
    if (r->files->multi_hot) return DLRM_OK;
    TRY(read_strip(r, DLRM_IDS_STRIP, r->raw));
    for (int j = 0; j < J; j++) {
        if (r->split->strips[DLRM_IDS_STRIP].elem == DLRM_INT32)
            gather_int32_t((void *)r->raw, r->n, J, j, (void *)r->column);
        else
            gather_int64_t((void *)r->raw, r->n, J, j, (void *)r->column);
        TRY(take_ids(r, j, DLRM_IDS_STRIP, r->column));
    }
    return DLRM_OK;
}

/* --- the source --- */

static dlrm_status fill_batch(void *state, dlrm_batch *b, int64_t *bytes)
{
    row_reader *r = state;
    r->b = b;
    r->bytes = bytes;
    if (r->shuffled) dlrm_shuffle_plan(&r->order, b->epoch, b->first_row, b->size, b->begin, b->own);
    for (r->at = 0; r->at < b->own; r->at += r->n) {
        r->n = b->own - r->at < r->block_rows ? b->own - r->at : r->block_rows;
        TRY(r->files->records ? take_records(r) : take_arrays(r));
    }
    return DLRM_OK;
}

static void close_reader(void **state)
{
    row_reader *r = *state;
    if (!r) return;
    for (int k = 0; r->fds && k < r->split->n_files; k++) dlrm_file_close(&r->fds[k]);
    for (int k = 0; r->shelves && k < r->split->n_strips; k++) dlrm_shelf_close(&r->shelves[k]);
    dlrm_shuffle_close(&r->order);
    dlrm_pack_close(&r->pack);
    dlrm_free(&r->shelves);
    dlrm_free(&r->fds);
    dlrm_free(&r->raw);
    dlrm_free(&r->column);
    dlrm_free(&r->ids);
    dlrm_free(&r->keys);
    dlrm_free(state);
}

static dlrm_status open_files(row_reader *r)
{
    const dlrm_row_split *s = r->split;
    TRY(dlrm_alloc(s->n_files, sizeof *r->fds, "open files", &r->fds));
    for (int k = 0; k < s->n_files; k++) r->fds[k] = -1;
    for (int t = 0; t < s->n_strips; t++)
        for (int p = 0; p < s->n_parts; p++) {
            int file = s->strips[t].parts[p].file;
            if (s->strips[t].columns > 0 && r->fds[file] < 0)
                TRY(dlrm_file_open(s->files[file], !r->shuffled, &r->fds[file]));
        }
    return DLRM_OK;
}

static dlrm_status open_shelves(row_reader *r, const dlrm_dataset *d, const dlrm_reader_args *args)
{
    int first, end;
    r->shuffled = true;
    dlrm_epoch_lanes(d, args, &first, &end);
    TRY(dlrm_shuffle_open(dlrm_epoch_of(d, args).rows, args->batch_size, d->seed, dlrm_epoch_most_own(d, args),
                          &r->order));
    TRY(dlrm_alloc(r->split->n_strips, sizeof *r->shelves, "shuffled rows", &r->shelves));
    for (int t = 0; t < r->split->n_strips; t++)
        TRY(dlrm_shelf_open(&r->order, first, end, dlrm_strip_row_bytes(&r->split->strips[t]), &r->shelves[t]));
    return DLRM_OK;
}

static int64_t shuffle_memory(const dlrm_dataset *d, const dlrm_reader_args *args)
{
    const dlrm_row_split *s = &d->row_files.split[args->split];
    int64_t rows = dlrm_epoch_of(d, args).rows,
            bytes = dlrm_shuffle_memory(rows, args->batch_size, dlrm_epoch_most_own(d, args));
    int first, end;
    dlrm_epoch_lanes(d, args, &first, &end);
    for (int t = 0; t < s->n_strips; t++)
        bytes += dlrm_shelf_memory(rows, args->batch_size, first, end, dlrm_strip_row_bytes(&s->strips[t]));
    return bytes;
}

static dlrm_status open_reader(const dlrm_dataset *d, const dlrm_reader_args *args, void **state)
{
    row_reader *r;
    int64_t widest = 0, hottest = 0;
    TRY(dlrm_alloc(1, sizeof *r, "a reader of rows", &r));
    *r = (row_reader){.d = d, .spec = d->spec, .files = &d->row_files, .split = &d->row_files.split[args->split]};
    *state = r;
    for (int t = 0; t < r->split->n_strips; t++) {
        int64_t bytes = dlrm_strip_row_bytes(&r->split->strips[t]);
        widest = bytes > widest ? bytes : widest;
    }
    for (int j = 0; j < d->spec->n_inputs; j++)
        hottest = d->spec->inputs[j].hotness > hottest ? d->spec->inputs[j].hotness : hottest;
    r->block_rows = widest < BLOCK_BYTES ? BLOCK_BYTES / widest : 1;
    const dlrm_pack_args packs = dlrm_pack_args_of(d->spec, args);
    TRY(dlrm_pack_open(&packs, &r->pack));
    TRY(dlrm_alloc(r->block_rows, (size_t)widest, "a read buffer", &r->raw));
    TRY(dlrm_alloc(r->block_rows, sizeof(int64_t), "a read buffer", &r->column));
    TRY(dlrm_alloc(r->block_rows * hottest, sizeof *r->ids, "a read buffer", &r->ids));
    if (d->spec->n_vocabularies > 0) TRY(dlrm_alloc(r->block_rows * hottest, sizeof *r->keys, "a read buffer", &r->keys));
    if (args->shuffle) TRY(open_shelves(r, d, args));
    return open_files(r);
}

static dlrm_status epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args, int64_t *bytes)
{
    const dlrm_row_split *s = &d->row_files.split[args->split];
    int64_t all = s->first_row[s->n_parts];
    __int128 of_all = 0; /* parts, which need not be alike */
    for (int t = 0; t < s->n_strips; t++)
        for (int p = 0; p < s->n_parts; p++)
            of_all += (__int128)(s->first_row[p + 1] - s->first_row[p]) * s->strips[t].columns *
                     (int64_t)dlrm_elem_size(s->strips[t].parts[p].elem);
    *bytes = (int64_t)(of_all * (args->shuffle ? dlrm_epoch_lane_rows(d, args) : dlrm_epoch_own(d, args)) / all);
    return DLRM_OK;
}

const dlrm_source_ops dlrm_row_source = {
    .open = open_reader,
    .fill = fill_batch,
    .close = close_reader,
    .epoch_bytes = epoch_bytes,
    .shuffle_memory = shuffle_memory,
    .packs = true,
    .keeps = false,
};
