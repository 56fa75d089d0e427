/* Opening a sink, and the sinks split_binary and records. */
#include "row_sink.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "base/mem.h"
#include "dense.h"
#include "records_files.h"
#include "split_binary.h"

/* --- dense values --- */

static bool count_of(float value, int offset, int32_t *count)
{
    double x = round(exp((double)value)) - offset;
    if (!(x >= -2 && x <= INT32_MAX)) return false;
    *count = (int32_t)x;
    float again = (float)log(x + offset);
    return again == value || dlrm_float_of_f16(dlrm_half_of_float(again)) == value;
}

static dlrm_status to_counts(dlrm_dense_form from, const dlrm_shape *shape, const char *path, dlrm_stretch *rows)
{
    const float *in = rows->dense;
    int32_t *out = rows->dense;
    for (int64_t i = 0; i < rows->n * shape->n_dense; i++) {
        float value = in[i];
        int32_t count = DLRM_NO_COUNT;
        if (!(from == DLRM_FORM_LOG3 && value == 0) && !count_of(value, from == DLRM_FORM_LOG3 ? 3 : 1, &count))
            return FAIL(DLRM_E_INPUT, "%s: row %lld: value %.9g in column %lld is not ln(x+%d) of a count; see --from-dense", path,
                        (long long)(rows->first + i / shape->n_dense), (double)value, (long long)(i % shape->n_dense),
                        from == DLRM_FORM_LOG3 ? 3 : 1);
        memcpy(&out[i], &count, sizeof count);
    }
    return DLRM_OK;
}

static void from_counts(dlrm_dense_form to, const dlrm_shape *shape, dlrm_stretch *rows)
{
    const int32_t *in = rows->dense;
    float *out = rows->dense;
    for (int64_t i = 0; i < rows->n * shape->n_dense; i++) {
        int32_t count;
        memcpy(&count, &in[i], sizeof count);
        float value = count == DLRM_NO_COUNT ? 0.0f
                      : to == DLRM_FORM_LOG1 ? dlrm_record_log1p(count > 0 ? count : 0)
                      : count > -3           ? (float)log((double)count + 3.0)
                                             : 0.0f;
        memcpy(&out[i], &value, sizeof value);
    }
}

dlrm_status dlrm_dense_recode(dlrm_dense_form from, dlrm_dense_form to, const dlrm_shape *shape, const char *path, dlrm_stretch *rows)
{
    if (from == to || shape->n_dense == 0) return DLRM_OK;
    if (from != DLRM_FORM_COUNTS && to == DLRM_FORM_FLOATS) return DLRM_OK;
    DLRM_ASSERT(from != DLRM_FORM_FLOATS && to != DLRM_FORM_FLOATS);
    if (from != DLRM_FORM_COUNTS) TRY(to_counts(from, shape, path, rows));
    if (to != DLRM_FORM_COUNTS) from_counts(to, shape, rows);
    return DLRM_OK;
}

const uint16_t *dlrm_dense_halves(const dlrm_shape *shape, const dlrm_stretch *rows, uint16_t *out)
{
    for (int64_t i = 0; i < rows->n * shape->n_dense; i++) out[i] = dlrm_half_of_float(((const float *)rows->dense)[i]);
    return out;
}

/* --- split_binary --- */

typedef struct split_sink {
    dlrm_row_sink base;
    dlrm_columns *columns;
    int dense_bytes;
    uint16_t *halves;
    int64_t halves_bytes;
} split_sink;

static dlrm_status write_columns(dlrm_row_sink *base, int split, const dlrm_stretch *rows)
{
    split_sink *s = (split_sink *)base;
    const dlrm_shape *shape = &base->shape;
    int64_t n = rows->n, values = n * shape->n_dense;
    TRY(dlrm_columns_labels(s->columns, split, rows->first, n, rows->labels));
    const void *dense = rows->dense;
    if (s->dense_bytes == 2) {
        TRY(dlrm_tool_room(values * (int64_t)sizeof *s->halves, "dense values", &s->halves, &s->halves_bytes));
        dense = dlrm_dense_halves(shape, rows, s->halves);
    }
    if (shape->n_dense) TRY(dlrm_columns_dense(s->columns, split, rows->first, n, dense));
    for (int f = 0; f < shape->n_features; f++) {
        const uint32_t *ids = dlrm_stretch_ids(rows, shape, f);
        if (shape->features[f].variable)
            TRY(dlrm_columns_bags(s->columns, split, f, rows->first, n, rows->lengths + rows->capacity * f, ids, rows->scratch));
        else
            TRY(dlrm_columns_ids(s->columns, split, f, rows->first, n, ids, rows->scratch));
    }
    return DLRM_OK;
}

static dlrm_status finish_columns(dlrm_row_sink *base)
{
    return dlrm_columns_finish(((split_sink *)base)->columns);
}

static void close_columns(dlrm_row_sink *base)
{
    split_sink *s = (split_sink *)base;
    dlrm_columns_close(&s->columns);
    dlrm_free(&s->halves);
}

static dlrm_status open_split_sink(const dlrm_sink_args *args, dlrm_row_sink **out)
{
    split_sink *s;
    const dlrm_shape *shape = args->shape;
    int64_t *cardinality, n = shape->n_features;
    TRY(dlrm_alloc(1, sizeof *s, "a sink of rows", &s));
    s->base.write = write_columns;
    s->base.finish = finish_columns;
    s->base.close = close_columns;
    s->dense_bytes = args->dense_bytes;
    *out = &s->base;
    TRY(dlrm_shape_copy(shape, &s->base.shape));
    for (int f = 0; f < n; f++)
        if (!shape->features[f].keys && dlrm_columns_id_bytes(shape->features[f].cardinality) == 0)
            return FAIL(DLRM_E_INPUT, "feature %s: a cardinality of %lld, expected at most 2147483646 for split_binary",
                        shape->features[f].name, (long long)shape->features[f].cardinality);
    TRY(dlrm_alloc(n, sizeof(int64_t) + sizeof(int) + 2 * sizeof(bool), "the features", &cardinality));
    int *hotness = (int *)(cardinality + n);
    bool *variable = (bool *)(hotness + n), *keys = variable + n;
    for (int f = 0; f < n; f++) {
        cardinality[f] = shape->features[f].cardinality;
        hotness[f] = shape->features[f].hotness;
        variable[f] = shape->features[f].variable;
        keys[f] = shape->features[f].keys;
    }
    dlrm_columns_shape columns = {shape->n_dense,
                                  args->dense_bytes,
                                  (int)n,
                                  cardinality,
                                  hotness,
                                  variable,
                                  keys,
                                  shape->form == DLRM_FORM_FLOATS ? NULL : dlrm_form_names[shape->form]};
    dlrm_status st = dlrm_columns_open(args->folder, &columns, args->rows, &s->columns);
    dlrm_free(&cardinality);
    return st;
}

/* --- records --- */

typedef struct record_sink {
    dlrm_row_sink base;
    dlrm_format format;
    dlrm_record_layout layout;
    char folder[DLRM_PATH_MAX], path[DLRM_OUT_SPLITS][DLRM_PATH_MAX];
    int64_t rows[DLRM_OUT_SPLITS];
    int fd[DLRM_OUT_SPLITS];
    char *raw;
    int64_t raw_bytes;
} record_sink;

static dlrm_status write_records(dlrm_row_sink *base, int split, const dlrm_stretch *rows)
{
    record_sink *s = (record_sink *)base;
    const dlrm_shape *shape = &base->shape;
    int64_t size = dlrm_record_bytes(&s->layout), dense_bytes = 4 * shape->n_dense;
    TRY(dlrm_tool_room(rows->n * size, "records", &s->raw, &s->raw_bytes));
    for (int64_t i = 0; i < rows->n; i++) {
        char *record = s->raw + i * size;
        int32_t label = rows->labels[i];
        memcpy(record, &label, sizeof label);
        memcpy(record + 4, (const char *)rows->dense + i * dense_bytes, (size_t)dense_bytes);
        for (int j = 0; s->layout.dense == DLRM_RECORD_COUNTS && j < shape->n_dense; j++) {
            int32_t count;
            memcpy(&count, record + 4 + 4 * j, sizeof count);
            if (count < 0) memset(record + 4 + 4 * j, 0, 4); /* facebook's rule; a missing one is 0, too */
        }
    }
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_feature *feature = &shape->features[f];
        const uint32_t *ids = dlrm_stretch_ids(rows, shape, f);
        char *to = s->raw + 4 + dense_bytes + 4 * feature->first;
        if (feature->hotness == 1)
            for (int64_t i = 0; i < rows->n; i++) memcpy(to + i * size, &ids[i], 4);
        else
            for (int64_t i = 0; i < rows->n; i++) memcpy(to + i * size, ids + i * feature->hotness, 4 * (size_t)feature->hotness);
    }
    return dlrm_tool_pwrite(s->fd[split], s->raw, (size_t)(rows->n * size), rows->first * size, s->path[split]);
}

static dlrm_status finish_records(dlrm_row_sink *base)
{
    record_sink *s = (record_sink *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->fd[i] >= 0) TRY(dlrm_tool_close(&s->fd[i], s->path[i]));
    return dlrm_records_describe(s->folder, s->format, &base->shape, s->rows);
}

static void close_records(dlrm_row_sink *base)
{
    record_sink *s = (record_sink *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->fd[i] >= 0) close(s->fd[i]);
    dlrm_free(&s->raw);
}

static dlrm_status open_record_sink(const dlrm_sink_args *args, dlrm_row_sink **out)
{
    record_sink *s;
    const dlrm_shape *shape = args->shape;
    const char *name = dlrm_format_names[args->format];
    TRY(dlrm_alloc(1, sizeof *s, "a sink of rows", &s));
    s->base.write = write_records;
    s->base.finish = finish_records;
    s->base.close = close_records;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) s->fd[i] = -1;
    *out = &s->base;
    TRY(dlrm_shape_copy(shape, &s->base.shape));
    s->format = args->format;
    s->layout =
        (dlrm_record_layout){shape->n_dense, shape->form == DLRM_FORM_COUNTS ? DLRM_RECORD_COUNTS : DLRM_RECORD_FLOATS, (int)shape->n_ids};
    memcpy(s->rows, args->rows, sizeof s->rows);
    TRY(dlrm_tool_path(s->folder, "%s", args->folder));
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_feature *feature = &shape->features[f];
        if (feature->variable) return FAIL(DLRM_E_INPUT, "feature %s: a varying number of ids, which %s cannot hold", feature->name, name);
        if (args->format == DLRM_FORMAT_MLPERF_BIN && feature->hotness > 1)
            return FAIL(DLRM_E_INPUT, "feature %s: %d ids a row, but mlperf_bin has one; use hugectr_raw", feature->name, feature->hotness);
        if (args->format == DLRM_FORMAT_MLPERF_BIN && feature->cardinality > INT32_MAX)
            return FAIL(DLRM_E_INPUT, "feature %s: a cardinality of %lld, expected at most 2147483647 for mlperf_bin", feature->name,
                        (long long)feature->cardinality);
    }
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        if (args->rows[i] == 0) continue;
        TRY(dlrm_tool_path(s->path[i], "%s/%s", args->folder, dlrm_record_file_name(i)));
        TRY(dlrm_tool_create(s->path[i], &s->fd[i]));
    }
    return DLRM_OK;
}

/* --- all --- */

dlrm_status dlrm_sink_open(const dlrm_sink_args *args, dlrm_row_sink **out)
{
    *out = NULL;
    if (args->format != DLRM_FORMAT_SPLIT_BINARY) {
        char what[80];
        snprintf(what, sizeof what, "%s cannot hold", dlrm_format_names[args->format]);
        TRY(dlrm_shape_refuse_keys(args->shape, what));
    }
    dlrm_status st = args->format == DLRM_FORMAT_SPLIT_BINARY ? open_split_sink(args, out)
                     : args->format == DLRM_FORMAT_TEXT       ? dlrm_text_sink_open(args, out)
                                                              : open_record_sink(args, out);
    if (st != DLRM_OK) dlrm_sink_close(out);
    return st;
}

void dlrm_sink_close(dlrm_row_sink **s)
{
    if (!*s) return;
    (*s)->close(*s);
    dlrm_shape_clear(&(*s)->shape);
    dlrm_free(s);
}
