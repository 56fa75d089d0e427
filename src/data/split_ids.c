#include "data/split_ids.h"

#include <string.h>

#include "data/convert.h"

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
static dlrm_status bad_ids(dlrm_split_reader *r, int j, dlrm_batch *b, int64_t samples, const void *raw, int64_t first,
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
                (long long)dlrm_split_row(r, b->inputs[j].first + sample_of(&b->inputs[j], input->hotness, samples, first + i)),
                (long long)id, (long long)table->rows, table->name, dlrm_convert_hint(id));
    }
    return DLRM_OK;
}

/* Rows [row, row+n) of an offsets file. */
static dlrm_status read_bags(dlrm_split_reader *r, int j, int64_t row, int64_t n, int64_t *offsets)
{
    const dlrm_split_column *c = &r->offsets[j];
    int64_t max = r->spec->inputs[j].hotness, size = sizeof *offsets;
    TRY(dlrm_split_column_read(r, c, row * size, (n + 1) * size, offsets));
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

static dlrm_split_passage ids_to_batch(const dlrm_split_reader *r, int j)
{
    return (dlrm_split_passage){.stream = dlrm_input_has_keys(r->spec, j) ? keys_to_batch : dlrm_stream_ids,
                     .dtype = r->files->categorical[j].dtype,
                     .rows = r->spec->tables[r->spec->inputs[j].table].rows};
}

static dlrm_status read_fixed(dlrm_split_reader *r, int j, dlrm_batch *b)
{
    const int64_t hotness = r->spec->inputs[j].hotness, step = dlrm_split_rows_at_a_time(r->ids[j].row_bytes);
    dlrm_ids *in = &b->inputs[j];
    dlrm_split_passage p = ids_to_batch(r, j);
    in->count = in->samples * hotness;
    if (dlrm_split_pass_mapped(r, &r->ids[j], &p, (b->first_row + in->first) * r->ids[j].row_bytes, in->count, place_of(in, 0)))
        return DLRM_OK;
    for (int64_t i = 0, n; i < in->samples; i += n) {
        n = in->samples - i < step ? in->samples - i : step;
        TRY(dlrm_split_column_read_rows(r, &r->ids[j], in->first + i, n, r->block));
        if (!dlrm_split_pass_read(r, &p, n * hotness, place_of(in, i * hotness)))
            TRY(bad_ids(r, j, b, in->samples, r->block, i * hotness, n * hotness));
    }
    return DLRM_OK;
}

/* Bags of rows that follow each other in the file lie side by side there. */
static dlrm_status read_variable(dlrm_split_reader *r, int j, dlrm_batch *b)
{
    const int64_t size = (int64_t)dlrm_elem_size(r->files->categorical[j].dtype), step = DLRM_SPLIT_BLOCK / size;
    dlrm_ids *in = &b->inputs[j];
    dlrm_split_passage p = ids_to_batch(r, j);
    TRY(read_bags(r, j, b->first_row + in->first, in->samples, in->offsets));
    const int64_t first = in->offsets[0];
    for (int64_t s = 0; s <= in->samples; s++) in->offsets[s] -= first;
    in->count = in->offsets[in->samples];
    if (in->count == 0 || dlrm_split_pass_mapped(r, &r->ids[j], &p, first * size, in->count, place_of(in, 0))) return DLRM_OK;
    for (int64_t i = 0, n; i < in->count; i += n) {
        n = in->count - i < step ? in->count - i : step;
        TRY(dlrm_split_column_read(r, &r->ids[j], (first + i) * size, n * size, r->block));
        if (!dlrm_split_pass_read(r, &p, n, place_of(in, i))) TRY(bad_ids(r, j, b, in->samples, r->block, i, n));
    }
    return DLRM_OK;
}

/* Shuffled bags are rows of their length and room for as many ids as there may be. */
enum { LENGTH_BYTES = sizeof(int64_t) };

typedef struct bags_of {
    dlrm_split_reader *r;
    int input;
} bags_of;

/* The ids of the run are read to the end of its room, and moved forward, bag by bag. */
static dlrm_status read_bag_run(void *ctx, int64_t row, int64_t n, void *out)
{
    const bags_of *x = ctx;
    dlrm_split_reader *r = x->r;
    const dlrm_split_column *c = &r->ids[x->input];
    const int64_t size = (int64_t)dlrm_elem_size(r->files->categorical[x->input].dtype);
    TRY(read_bags(r, x->input, row, n, r->bags));
    const int64_t bytes = (r->bags[n] - r->bags[0]) * size;
    char *rows = out, *from = rows + n * c->row_bytes - bytes;
    TRY(dlrm_split_column_read(r, c, r->bags[0] * size, bytes, from));
    for (int64_t s = 0; s < n; s++) {
        const int64_t length = r->bags[s + 1] - r->bags[s];
        memmove(rows + s * c->row_bytes + LENGTH_BYTES, from, (size_t)(length * size));
        memcpy(rows + s * c->row_bytes, &length, LENGTH_BYTES);
        from += length * size;
    }
    return DLRM_OK;
}

static dlrm_status read_shuffled_bags(dlrm_split_reader *r, int j, dlrm_batch *b)
{
    const dlrm_elem dtype = r->files->categorical[j].dtype;
    const int64_t step = dlrm_split_rows_at_a_time(r->ids[j].row_bytes), rows = r->spec->tables[r->spec->inputs[j].table].rows;
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

dlrm_status dlrm_split_ids_read(dlrm_split_reader *r, int j, dlrm_batch *b)
{
    if (!r->spec->inputs[j].variable) return read_fixed(r, j, b);
    return r->shuffled ? read_shuffled_bags(r, j, b) : read_variable(r, j, b);
}

int64_t dlrm_split_ids_bytes(const dlrm_feature_spec *files, int j, bool shuffled)
{
    const dlrm_categorical *c = &files->categorical[j];
    return c->hotness * (int64_t)dlrm_elem_size(c->dtype) + (c->variable && shuffled ? LENGTH_BYTES : 0);
}
