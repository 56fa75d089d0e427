/* Split-binary files: every type comes back as written, and every bad value is refused by file, row and value. */
#include "data_fixture.h"

#include <math.h>

#include "base/half.h"
#include "base/rng.h"
#include "config/feature_spec.h"
#include "data/convert.h"
#include "data/stream.h"

/* --- conversions --- */

static void test_halves(void **state)
{
    (void)state;
    static uint16_t in[1 << 16];
    static float out[1 << 16];
    for (int i = 0; i < 1 << 16; i++) in[i] = (uint16_t)i;
    assert_false(dlrm_convert_dense(DLRM_FLOAT16, in, 1 << 16, out));
    for (int i = 0; i < 1 << 16; i++) {
        float want = dlrm_float_of_f16((uint16_t)i);
        if (isnan(want) ? !isnan(out[i]) : memcmp(&out[i], &want, sizeof want))
            fail_msg("half %04x: found %g, expected %g", i, (double)out[i], (double)want);
        assert_int_equal(dlrm_convert_dense(DLRM_FLOAT16, &in[i], 1, &want), (i & 0x7C00) != 0x7C00);
    }
    /* On their way past the caches the same, from any address. */
    static _Alignas(16) float sent[1 << 16];
    for (int at = 0; at < 3; at++) {
        const int n = (1 << 16) - 5 * at;
        assert_false(dlrm_stream_dense(DLRM_FLOAT16, in + at, n, 0, sent));
        for (int i = 0; i < n; i++) assert_true(isnan(out[at + i]) ? isnan(sent[i]) : memcmp(&sent[i], &out[at + i], sizeof *sent) == 0);
    }
    assert_true(dlrm_stream_dense(DLRM_FLOAT16, in, 0x7C00, 0, sent));
    for (int i = 0; i < 67; i++) { /* one bad value at each place */
        in[100 + i] = 0xFC00;
        assert_false(dlrm_stream_dense(DLRM_FLOAT16, in + 100, 67, 0, sent));
        in[100 + i] = (uint16_t)(100 + i);
        assert_true(dlrm_stream_dense(DLRM_FLOAT16, in + 100, 67, 0, sent));
    }
    assert_true(out[0x3C00] == 1.0f && out[0x0001] == 0x1p-24f && out[0xC248] == -3.140625f); /* not by half.h alone */
}

/* n ids as a file has them. */
static void put_id(void *file, dlrm_elem type, int i, int64_t id)
{
    memcpy((char *)file + (size_t)i * dlrm_elem_size(type), &id, dlrm_elem_size(type)); /* little-endian */
}

/* One bad value at each place of a run that covers whole vectors and the rest. */
static void test_one_bad_id(void **state)
{
    (void)state;
    enum { N = 67 };
    static const struct {
        dlrm_elem type;
        int64_t rows, good, bad[10]; /* 0 ends `bad` */
    } cases[] = {
        {DLRM_INT8, 40, 39, {-1, 40, 127, -128}},
        {DLRM_INT8, DLRM_MAX_ROWS, 127, {-1, -128}},
        {DLRM_INT16, 40, 39, {-1, 40, 127, -128, 32767, -32768}},
        {DLRM_INT16, 1 << 20, 32767, {-1, -32768}},
        {DLRM_INT32, 40, 39, {-1, 40, 127, -128, 32767, -32768, INT32_MAX, INT32_MIN}},
        {DLRM_INT32, INT32_MAX, INT32_MAX - 1, {-1, INT32_MIN, INT32_MAX}},
        {DLRM_INT32, DLRM_MAX_ROWS, INT32_MAX, {-1, -2, INT32_MIN}}, /* -2 in 32 bits would be an id */
        {DLRM_INT64, 40, 39, {-1, 40, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, (int64_t)1 << 32, ((int64_t)1 << 32) + 3}},
        {DLRM_INT64, (int64_t)INT32_MAX + 2, (int64_t)INT32_MAX + 1, {-1, (int64_t)INT32_MAX + 2, UINT32_MAX}},
        {DLRM_INT64, DLRM_MAX_ROWS, DLRM_MAX_ROWS - 1, {-1, DLRM_MAX_ROWS, (int64_t)1 << 32, INT64_MAX, INT64_MIN}},
    };
    _Alignas(8) char in[8 * N], moved[8 * N + 1];
    _Alignas(16) uint32_t out[N], sent[N];
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++)
        for (int v = -1; v < 0 || cases[t].bad[v]; v++) /* -1: none is bad */
            for (int at = 0; at < N; at++) {
                const int64_t odd = v < 0 ? cases[t].good : cases[t].bad[v];
                for (int i = 0; i < N; i++) put_id(in, cases[t].type, i, i == at ? odd : i % 40);
                if (dlrm_convert_ids(cases[t].type, in, N, cases[t].rows, out) != (v < 0))
                    fail_msg("%s, id %lld of %lld rows at place %d", dlrm_elem_text(cases[t].type), (long long)odd,
                             (long long)cases[t].rows, at);
                assert_true(dlrm_convert_id(cases[t].type, in, at) == odd);
                const size_t size = dlrm_elem_size(cases[t].type); /* as a mapped file has them: at any multiple of their size */
                memcpy(moved + size, in, (N - 1) * size);
                assert_int_equal(dlrm_stream_ids(cases[t].type, moved + size, N - 1, cases[t].rows, sent), v < 0 || at == N - 1);
                for (int i = 0; i < N; i++)
                    if (i != at || v < 0) assert_true(out[i] == (i == at ? odd : i % 40) && (i == N - 1 || sent[i] == out[i]));
            }
}

static void test_one_bad_float(void **state)
{
    (void)state;
    enum { N = 67 };
    _Alignas(16) float floats[N], sent[N];
    static const float bad_floats[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int v = -1; v < 4; v++)
        for (int at = 0; at < N; at++) {
            for (int i = 0; i < N; i++)
                floats[i] = v >= 0 && i == at ? bad_floats[v] : i == at ? 3.4028235e38f : 1e-45f;
            assert_int_equal(dlrm_convert_dense(DLRM_FLOAT32, floats, N, floats), v < 0);
            assert_int_equal(dlrm_stream_dense(DLRM_FLOAT32, floats, N, 0, sent), v < 0);
            assert_memory_equal(sent, floats, sizeof floats);
        }
    static const float bad_labels[] = {2.0f, -1.0f, 0.5f, NAN};
    for (int v = -1; v < 4; v++)
        for (int at = 0; at < N; at++) {
            for (int i = 0; i < N; i++) floats[i] = v >= 0 && i == at ? bad_labels[v] : (float)(i % 2);
            assert_int_equal(dlrm_convert_labels(DLRM_FLOAT32, floats, N, floats), v < 0);
            assert_int_equal(dlrm_stream_labels(DLRM_FLOAT32, floats, N, 0, sent), v < 0);
            assert_memory_equal(sent, floats, sizeof floats);
        }
}

/* --- a data set: each feature's values are a function of (feature, row, place in the bag) --- */

typedef struct column {
    const char *name;
    dlrm_elem dtype;
    int64_t rows;
    int hotness;
    bool variable;
} column;

static const column columns[] = {
    {"b", DLRM_INT8, 100, 1, false},         {"s", DLRM_INT16, 30000, 1, false},
    {"i", DLRM_INT32, 2000000000, 1, false}, {"l", DLRM_INT64, DLRM_MAX_ROWS, 1, false},
    {"s3", DLRM_INT16, 1000, 3, false},      {"l2", DLRM_INT64, 9, 2, false},
    {"vb", DLRM_INT8, 7, 4, true},           {"vl", DLRM_INT64, 3123456789, 2, true},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int64_t id_at(int j, int64_t row, int k)
{
    uint64_t h = dlrm_philox(7, (uint64_t)j, (uint64_t)row * 16 + (uint64_t)k).v[0];
    return (int64_t)((h << 20 | h) % (uint64_t)columns[j].rows);
}

static int bag_at(int j, int64_t row)
{
    const column *c = &columns[j];
    return c->variable ? (int)(dlrm_philox(9, (uint64_t)j, (uint64_t)row).v[0] % (uint32_t)(c->hotness + 1))
                       : c->hotness;
}

static uint16_t half_at(int64_t i) /* finite, of every kind */
{
    uint32_t bits = dlrm_philox(5, 0, (uint64_t)i).v[0] & 0xFFFF;
    return (uint16_t)((bits & 0x7C00) == 0x7C00 ? bits & 0x83FF : bits);
}

static void put(FILE *f, dlrm_elem dtype, int64_t v)
{
    assert_int_equal(fwrite(&v, dlrm_elem_size(dtype), 1, f), 1); /* little-endian: the low bytes come first */
}

static void write_column(const char *split, int j, int64_t rows)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%s.bin", split, columns[j].name);
    FILE *ids = fopen(in_folder(name), "wb"), *offsets = NULL;
    snprintf(name, sizeof name, "%s/%s.offsets.bin", split, columns[j].name);
    if (columns[j].variable) offsets = fopen(in_folder(name), "wb");
    int64_t at = 0;
    if (offsets) put(offsets, DLRM_INT64, at);
    for (int64_t row = 0; row < rows; row++) {
        int bag = bag_at(j, row);
        for (int k = 0; k < bag; k++) put(ids, columns[j].dtype, id_at(j, row, k));
        at += bag;
        if (offsets) put(offsets, DLRM_INT64, at);
    }
    fclose(ids);
    if (offsets) fclose(offsets);
}

/* Writes the training split and its description. */
static void write_data(int64_t rows, int n_dense, dlrm_elem dense, dlrm_elem label)
{
    FILE *y = fopen(in_folder("feature_spec.yaml"), "wb");
    fprintf(y, "channel_spec: {categorical: [");
    for (int j = 0; j < COLUMNS; j++) fprintf(y, "%s%s", j ? ", " : "", columns[j].name);
    fprintf(y, "], label: [y], numerical: &n [");
    for (int k = 0; k < n_dense; k++) fprintf(y, "%sx%d", k ? ", " : "", k);
    fprintf(y, "]}\nfeature_spec:\n  y: {dtype: %s}\n", dlrm_elem_text(label));
    for (int k = 0; k < n_dense; k++) fprintf(y, "  x%d: {dtype: %s}\n", k, dlrm_elem_text(dense));
    for (int j = 0; j < COLUMNS; j++)
        fprintf(y, "  %s: {dtype: %s, cardinality: %lld, %s: %d}\n", columns[j].name, dlrm_elem_text(columns[j].dtype),
                (long long)columns[j].rows, columns[j].variable ? "max_hotness" : "hotness", columns[j].hotness);
    fprintf(y, "source_spec:\n  train:\n  - {type: split_binary, features: [y], files: [train/y.bin]}\n");
    if (n_dense) fprintf(y, "  - {type: split_binary, features: *n, files: [train/x.bin]}\n");
    for (int j = 0; j < COLUMNS; j++) {
        const char *name = columns[j].name;
        fprintf(y, "  - {type: split_binary, features: [%s], files: [train/%s.bin%s%s%s]}\n", name, name,
                columns[j].variable ? ", train/" : "", columns[j].variable ? name : "",
                columns[j].variable ? ".offsets.bin" : "");
        write_column("train", j, rows);
    }
    fclose(y);
    FILE *f = fopen(in_folder("train/y.bin"), "wb");
    for (int64_t row = 0; row < rows; row++) {
        float one = (float)(row % 3 == 0);
        if (label == DLRM_FLOAT32)
            fwrite(&one, sizeof one, 1, f);
        else
            put(f, label, row % 3 == 0);
    }
    fclose(f);
    if (!n_dense) return;
    f = fopen(in_folder("train/x.bin"), "wb");
    for (int64_t i = 0; i < rows * n_dense; i++) {
        float x = dlrm_float_of_f16(half_at(i)) * 1.000001f;
        if (dense == DLRM_FLOAT32)
            fwrite(&x, sizeof x, 1, f);
        else
            put(f, dense, half_at(i));
    }
    fclose(f);
}

typedef struct opened {
    data_model m;
    dlrm_feature_spec files;
    dlrm_dataset *d;
} opened;

static dlrm_status open_data(opened *o, bool clamp)
{
    memset(o, 0, sizeof *o);
    o->m.cfg.data.index_check = clamp ? DLRM_INDEX_CLAMP : DLRM_INDEX_ERROR;
    for (int j = 0; j < COLUMNS; j++)
        add_input(&o->m, columns[j].name, columns[j].rows, columns[j].hotness, columns[j].variable);
    assert_ok(dlrm_feature_spec_load(folder, &o->files));
    o->m.spec.dense_features = o->files.n_dense;
    return dlrm_dataset_open(&o->m.cfg, &o->m.spec, &o->files, &o->d);
}

static void close_data(opened *o)
{
    dlrm_dataset_close(&o->d);
    dlrm_feature_spec_clear(&o->files);
}

static void check_batch(const dlrm_batch *b, int n_dense, dlrm_elem dense)
{
    if (b->status != DLRM_OK) fail_msg("%s", b->message);
    for (int64_t s = 0; s < b->own; s++) {
        int64_t row = b->first_row + b->begin + s;
        assert_true(b->labels[s] == (float)(row % 3 == 0));
        for (int k = 0; k < n_dense; k++) {
            float x = dlrm_float_of_f16(half_at(row * n_dense + k));
            assert_true(b->dense[s * n_dense + k] == (dense == DLRM_FLOAT32 ? x * 1.000001f : x));
        }
    }
    for (int j = 0; j < COLUMNS; j++) {
        const dlrm_ids *in = &b->inputs[j];
        int64_t at = 0;
        for (int64_t s = 0; s < b->size; s++) {
            int bag = bag_at(j, b->first_row + s);
            if (columns[j].variable) assert_int_equal(in->offsets[s], at);
            for (int k = 0; k < bag; k++)
                if (in->ids[at + k] != id_at(j, b->first_row + s, k))
                    fail_msg("feature %s, row %lld: id %lld", columns[j].name, (long long)(b->first_row + s),
                             (long long)in->ids[at + k]);
            at += bag;
        }
        assert_int_equal(in->count, at);
        if (columns[j].variable) assert_int_equal(in->offsets[b->size], at);
        if (!columns[j].variable) assert_null(in->offsets);
    }
}

static void read_and_check(int64_t rows, int64_t batch_size, int n_dense, dlrm_elem dense, dlrm_elem label)
{
    opened o;
    dlrm_reader *r;
    bool end = false;
    write_data(rows, n_dense, dense, label);
    assert_ok(open_data(&o, false));
    assert_int_equal(dlrm_dataset_rows(o.d, DLRM_TRAIN_SPLIT), rows);
    assert_int_equal(dlrm_dataset_rows(o.d, DLRM_TEST_SPLIT), 0);
    dlrm_reader_args args = whole(&o.m, batch_size);
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    int64_t seen = 0;
    for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end)); seen += b->size) {
        assert_int_equal(b->first_row, seen);
        check_batch(b, n_dense, dense);
        assert_int_equal(end, seen + b->size == rows);
    }
    assert_int_equal(seen, rows);
    assert_int_equal(dlrm_reader_bytes(r), epoch_bytes(o.d, &args));
    dlrm_reader_close(&r);
    close_data(&o);
}

static void test_types(void **state)
{
    (void)state;
    read_and_check(140001, 139000, 2, DLRM_FLOAT16, DLRM_BOOL); /* several read blocks a batch, of every type */
    read_and_check(1000, 64, 3, DLRM_FLOAT32, DLRM_INT8);
    read_and_check(1000, 1000, 1, DLRM_FLOAT16, DLRM_INT32);
    read_and_check(7, 1, 0, DLRM_FLOAT16, DLRM_FLOAT32);
    read_and_check(1, 65536, 13, DLRM_FLOAT32, DLRM_BOOL);
}

/* --- bad values --- */

enum { ROWS = 50000, BATCH = 20000 };

static void patch(const char *file, int64_t at, const void *bytes, size_t n)
{
    FILE *f = fopen(in_folder(file), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Reads all; the batch of the offence must say so, be all zeros, and leave the others alone. */
static void refuse(int64_t row, const char *message)
{
    opened o;
    dlrm_reader *r;
    bool end;
    assert_ok(open_data(&o, false));
    dlrm_reader_args args = whole(&o.m, BATCH);
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end));) {
        if (row < b->first_row || row >= b->first_row + b->size) {
            check_batch(b, 3, DLRM_FLOAT32);
            continue;
        }
        assert_int_equal(b->status, DLRM_E_INPUT);
        assert_has(b->message, message);
        assert_has(b->message, folder);
        for (int64_t s = 0; s < b->own; s++) assert_true(b->labels[s] == 0.0f && b->dense[3 * s + 2] == 0.0f);
        for (int j = 0; j < COLUMNS; j++) {
            assert_int_equal(b->inputs[j].count, columns[j].variable ? 0 : b->size * columns[j].hotness);
            for (int64_t i = 0; i < b->inputs[j].count; i++) assert_int_equal(b->inputs[j].ids[i], 0);
            for (int64_t s = 0; columns[j].variable && s <= b->size; s++) assert_int_equal(b->inputs[j].offsets[s], 0);
        }
    }
    dlrm_reader_close(&r);
    close_data(&o);
}

/* A change that is undone afterwards. */
static void refuse_patched(const char *file, int64_t at, const void *bytes, size_t n, int64_t row, const char *message)
{
    char old[16];
    FILE *f = fopen(in_folder(file), "rb");
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fread(old, 1, n, f), n);
    fclose(f);
    patch(file, at, bytes, n);
    refuse(row, message);
    patch(file, at, old, n);
}

#define REFUSE(file, type, index, value, row, message) \
    refuse_patched(file, (index) * (int64_t)sizeof(type), &(type){value}, sizeof(type), row, message)

/* The first row from `row` on whose bag of feature j has `bag` ids. */
static int64_t find_bag(int j, int64_t row, int bag)
{
    while (bag_at(j, row) != bag) row++;
    return row;
}

static int64_t offset_of(int j, int64_t row)
{
    int64_t at = 0;
    for (int64_t i = 0; i < row; i++) at += bag_at(j, i);
    return at;
}

static void test_refused(void **state)
{
    (void)state;
    char message[256];
    write_data(ROWS, 3, DLRM_FLOAT32, DLRM_BOOL);
    REFUSE("train/b.bin", int8_t, 0, -1, 0, "train/b.bin: row 0: id -1 is outside [0, 100) of table b");
    REFUSE("train/b.bin", int8_t, 39999, 100, 39999, "train/b.bin: row 39999: id 100 is outside [0, 100) of table b");
    REFUSE("train/s.bin", int16_t, 49999, 30000, 49999, "train/s.bin: row 49999: id 30000 is outside [0, 30000)");
    REFUSE("train/i.bin", int32_t, 20000, -2147483647, 20000, "row 20000: id -2147483647 is outside [0, 2000000000)");
    REFUSE("train/l.bin", int64_t, 19999, (int64_t)1 << 40, 19999,
           "train/l.bin: row 19999: id 1099511627776 is outside [0, 4294967295) of table l; keys of 64 bits are for");
    REFUSE("train/l.bin", int64_t, 19998, DLRM_MAX_ROWS, 19998, "row 19998: id 4294967295 is outside [0, 4294967295)");
    REFUSE("train/l.bin", int64_t, 30000, INT64_MIN, 30000, "row 30000: id -9223372036854775808 is outside");
    REFUSE("train/s3.bin", int16_t, 3 * 25000 + 2, 1000, 25000,
           "train/s3.bin: row 25000: id 1000 is outside [0, 1000)");
    REFUSE("train/y.bin", int8_t, 40001, 2, 40001, "train/y.bin: row 40001: label 2 is neither 0 nor 1");
    REFUSE("train/y.bin", int8_t, 40001, -1, 40001, "train/y.bin: row 40001: label -1 is neither 0 nor 1");
    REFUSE("train/x.bin", float, 3 * 45000 + 1, NAN, 45000,
           "train/x.bin: row 45000: value nan in column 1 is not finite");
    REFUSE("train/x.bin", float, 3 * 19999 + 2, -INFINITY, 19999, "row 19999: value -inf in column 2 is not finite");

    int64_t row = find_bag(6, 23456, 3), at = offset_of(6, row);
    snprintf(message, sizeof message, "train/vb.bin: row %lld: id 7 is outside [0, 7) of table vb", (long long)row);
    for (int k = 0; k < 3; k++) REFUSE("train/vb.bin", int8_t, at + k, 7, row, message);
    row = find_bag(7, 0, 1);
    snprintf(message, sizeof message, "train/vl.bin: row %lld: id -5 is outside [0, 3123456789)", (long long)row);
    REFUSE("train/vl.bin", int64_t, offset_of(7, row), -5, row, message);
}

static void refuse_batch(int64_t number, const char *message)
{
    opened o;
    dlrm_reader *r;
    bool end;
    assert_ok(open_data(&o, false));
    dlrm_reader_args args = whole(&o.m, BATCH);
    args.first_batch = number;
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    const dlrm_batch *b = dlrm_reader_next(r, &end);
    assert_int_equal(b->status, DLRM_E_INPUT);
    assert_has(b->message, message);
    dlrm_reader_close(&r);
    close_data(&o);
}

static void test_refused_bags(void **state)
{
    (void)state;
    char message[256];
    write_data(ROWS, 3, DLRM_FLOAT32, DLRM_BOOL);
    /* The offset after row 30000 moves; bags of vb have 4 ids at most. */
    int64_t from = offset_of(6, 30000), all = offset_of(6, ROWS), offset_of_20000 = offset_of(6, 20000);
    snprintf(message, sizeof message,
             "train/vb.offsets.bin: row 30000: a bag of 5 ids (offsets %lld to %lld), expected at most 4",
             (long long)from, (long long)from + 5);
    REFUSE("train/vb.offsets.bin", int64_t, 30001, from + 5, 30000, message);
    snprintf(message, sizeof message, "row 30000: offset %lld is followed by %lld, expected ascending", (long long)from,
             (long long)from - 1);
    REFUSE("train/vb.offsets.bin", int64_t, 30001, from - 1, 30000, message);
    REFUSE("train/vb.offsets.bin", int64_t, 30001, INT64_MIN, 30000, "is followed by -9223372036854775808");
    REFUSE("train/vb.offsets.bin", int64_t, 30001, INT64_MAX, 30000, "to 9223372036854775807), expected at most 4");

    /* Between two batches: the second one's first. */
    static const int64_t wrong[] = {-1, INT64_MAX, INT64_MIN};
    for (int v = 0; v < 3; v++) {
        patch("train/vb.offsets.bin", 40000 * 8, &wrong[v], 8);
        snprintf(message, sizeof message,
                 "train/vb.offsets.bin: row 40000: offset %lld is outside [0, %lld], the ids of ", (long long)wrong[v],
                 (long long)all);
        refuse_batch(2, message);
    }
    /* Full bags one after the other until they pass the end of the ids. */
    static int64_t rising[20000];
    for (int i = 0; i < 20000; i++) rising[i] = offset_of_20000 + 4 * (i + 1);
    patch("train/vb.offsets.bin", 20001 * 8, rising, sizeof rising);
    snprintf(message, sizeof message, "train/vb.offsets.bin: row 40000: offset %lld is beyond the %lld ids of ",
             (long long)rising[19999], (long long)all);
    refuse_batch(1, message);
}

static void test_clamp(void **state)
{
    (void)state;
    opened o;
    dlrm_reader *r;
    bool end;
    write_data(ROWS, 3, DLRM_FLOAT32, DLRM_BOOL);
    int64_t row = find_bag(6, 30000, 4), at = offset_of(6, row);
    patch("train/b.bin", 100, &(int8_t){-7}, 1);
    patch("train/l2.bin", 2 * 25000 * 8, (int64_t[]){((int64_t)1 << 32) + 1, INT64_MAX}, 16);
    patch("train/vb.bin", at + 3, &(int8_t){120}, 1);
    patch("train/i.bin", 7 * 4, &(int32_t){-3}, 4);
    assert_ok(open_data(&o, true));
    dlrm_reader_args args = whole(&o.m, BATCH);
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    const dlrm_batch *b = dlrm_reader_next(r, &end);
    assert_int_equal(b->status, DLRM_OK);
    assert_int_equal(b->clamped, 2);
    assert_int_equal(b->inputs[0].ids[100], 0);
    assert_int_equal(b->inputs[2].ids[7], 0);
    b = dlrm_reader_next(r, &end);
    assert_int_equal(b->status, DLRM_OK);
    assert_int_equal(b->clamped, 3);
    assert_int_equal(b->inputs[5].ids[2 * 5000], 0);
    assert_int_equal(b->inputs[5].ids[2 * 5000 + 1], 0);
    assert_int_equal(b->inputs[6].ids[b->inputs[6].offsets[row - BATCH] + 3], 0);
    b = dlrm_reader_next(r, &end);
    assert_int_equal(b->clamped, 0);
    check_batch(b, 3, DLRM_FLOAT32);
    dlrm_reader_close(&r);
    patch("train/y.bin", 7, &(int8_t){3}, 1); /* clamping is for ids alone */
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    assert_has(dlrm_reader_next(r, &end)->message, "train/y.bin: row 7: label 3 is neither 0 nor 1");
    dlrm_reader_close(&r);
    close_data(&o);
}

/* A file that changes after it was checked. */
static void test_shortened(void **state)
{
    (void)state;
    opened o;
    dlrm_reader *r;
    bool end;
    write_data(ROWS, 3, DLRM_FLOAT32, DLRM_BOOL);
    assert_ok(open_data(&o, false));
    dlrm_reader_args args = whole(&o.m, BATCH);
    assert_int_equal(truncate(in_folder("train/i.bin"), 100002), 0);
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    check_batch(dlrm_reader_next(r, &end), 3, DLRM_FLOAT32);
    const dlrm_batch *b = dlrm_reader_next(r, &end);
    assert_int_equal(b->status, DLRM_E_INPUT);
    assert_has(b->message, "train/i.bin: the file ends at byte 100002, expected to read up to byte ");
    dlrm_reader_close(&r);

    /* While it is read: by pages, and within the last one, which then has zeros at its end. */
    static const struct {
        int64_t bytes;
        int batch; /* the first that misses something */
    } cuts[] = {{100002, 5}, {ROWS * 4 - 4, 9}};
    for (int k = 0; k < 2; k++) {
        write_data(ROWS, 3, DLRM_FLOAT32, DLRM_BOOL);
        args = whole(&o.m, ROWS / 10);
        assert_ok(dlrm_reader_open(o.d, &args, &r));
        check_batch(dlrm_reader_next(r, &end), 3, DLRM_FLOAT32);
        assert_int_equal(truncate(in_folder("train/i.bin"), cuts[k].bytes), 0);
        for (int i = 1; i < cuts[k].batch; i++) check_batch(dlrm_reader_next(r, &end), 3, DLRM_FLOAT32);
        b = dlrm_reader_next(r, &end);
        assert_int_equal(b->status, DLRM_E_INPUT);
        char message[100];
        snprintf(message, sizeof message, "train/i.bin: the file ends at byte %lld, expected to read up to byte ", (long long)cuts[k].bytes);
        assert_has(b->message, message);
        dlrm_reader_close(&r);
    }
    assert_int_equal(unlink(in_folder("train/i.bin")), 0);
    assert_refused(dlrm_reader_open(o.d, &args, &r), "train/i.bin: No such file or directory");
    assert_null(r);
    assert_int_equal(truncate(in_folder("train/vb.offsets.bin"), 8), 0);
    int64_t bytes;
    assert_refused(dlrm_dataset_epoch_bytes(o.d, &args, &bytes), "train/vb.offsets.bin: the file ends at byte 8, expected to read up to byte ");
    static const int64_t offsets[ROWS + 1] = {[ROWS] = -5};
    write_file("train/vb.offsets.bin", offsets, sizeof offsets);
    assert_refused(dlrm_dataset_epoch_bytes(o.d, &args, &bytes), "train/vb.offsets.bin: found -5 at ");
    close_data(&o);
}

/* Rows beyond 31 and 32 bits, in files of 25 GB that are holes but for their last rows. */
static void test_many_rows(void **state)
{
    (void)state;
    enum { B = 1000, LAST = 500 };
    const int64_t rows = ((int64_t)5 << 30) + LAST;
    static const char spec[] = "channel_spec: {categorical: [c], label: [y], numerical: []}\n"
                               "feature_spec: {c: {dtype: int32, cardinality: 1000}, y: {dtype: bool}}\n"
                               "source_spec: {train: [{type: split_binary, features: [y], files: [train/y]}, "
                               "{type: split_binary, features: [c], files: [train/c]}]}\n";
    int32_t ids[LAST];
    char labels[LAST];
    for (int i = 0; i < LAST; i++) {
        ids[i] = 999 - i;
        labels[i] = (char)(i % 3 == 0);
    }
    write_file("feature_spec.yaml", spec, strlen(spec));
    write_file("train/y", "", 0);
    write_file("train/c", "", 0);
    FILE *y = fopen(in_folder("train/y"), "r+b"), *c = fopen(in_folder("train/c"), "r+b");
    fseek(y, rows - LAST, SEEK_SET);
    fwrite(labels, 1, LAST, y);
    fseek(c, (rows - LAST) * 4, SEEK_SET);
    fwrite(ids, 4, LAST, c);
    assert_int_equal(fclose(y) | fclose(c), 0);

    dlrm_feature_spec files;
    dlrm_dataset *d;
    dlrm_reader *r;
    data_model m = {0};
    bool end;
    add_input(&m, "c", 1000, 1, false);
    assert_ok(dlrm_feature_spec_load(folder, &files));
    assert_ok(dlrm_dataset_open(&m.cfg, &m.spec, &files, &d));
    assert_true(dlrm_dataset_rows(d, DLRM_TRAIN_SPLIT) == rows);
    dlrm_reader_args args = whole(&m, B);
    args.first_batch = rows / B;
    assert_ok(dlrm_reader_open(d, &args, &r));
    const dlrm_batch *b = dlrm_reader_next(r, &end);
    assert_int_equal(b->status, DLRM_OK);
    assert_true(end && b->size == rows % B && b->first_row == rows / B * B);
    for (int64_t s = 0; s < b->size; s++) {
        const int64_t i = s - (b->size - LAST);
        assert_true(b->labels[s] == (i >= 0 ? (float)labels[i] : 0.0f) && b->inputs[0].ids[s] == (i >= 0 ? (uint32_t)ids[i] : 0));
    }
    assert_null(dlrm_reader_next(r, &end));
    dlrm_reader_close(&r);
    dlrm_dataset_close(&d);
    dlrm_feature_spec_clear(&files);
}

/* Hotness by config where the description is silent, and where both disagree on whether it varies. */
static void test_hotness(void **state)
{
    (void)state;
    opened o;
    dlrm_reader *r;
    bool end;
    write_data(100, 0, DLRM_FLOAT32, DLRM_BOOL);
    FILE *f = fopen(in_folder("feature_spec.yaml"), "rb");
    static char text[1 << 14];
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    for (char *p; (p = strstr(text, ", hotness:")) || (p = strstr(text, ", max_hotness:"));)
        memset(p, ' ', strcspn(p, "}"));
    write_file("feature_spec.yaml", text, n);
    assert_ok(open_data(&o, false));
    dlrm_reader_args args = whole(&o.m, 60);
    assert_ok(dlrm_reader_open(o.d, &args, &r));
    for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end));) check_batch(b, 0, DLRM_FLOAT32);
    dlrm_reader_close(&r);

    dlrm_dataset_close(&o.d);
    o.m.inputs[6].variable = false;
    assert_refused(dlrm_dataset_open(&o.m.cfg, &o.m.spec, &o.files, &o.d),
                   "feature vb: source_spec.train names an offsets file, but its hotness is 4");
    o.m.inputs[6].variable = o.m.inputs[4].variable = true;
    assert_refused(dlrm_dataset_open(&o.m.cfg, &o.m.spec, &o.files, &o.d),
                   "feature s3: source_spec.train names no offsets file, but its hotness is variable, at most 3");
    assert_has(dlrm_error_message(), "feature_spec.yaml:");
    o.m.inputs[4].variable = false;
    o.m.inputs[4].hotness = 4;
    assert_refused(dlrm_dataset_open(&o.m.cfg, &o.m.spec, &o.files, &o.d),
                   "train/s3.bin: found 600 bytes, which are 75 "
                   "rows of 8 bytes; expected 100 rows as in ");
    close_data(&o);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves), cmocka_unit_test(test_one_bad_id), cmocka_unit_test(test_one_bad_float), IN_FOLDER(test_types),
        IN_FOLDER(test_refused),       IN_FOLDER(test_refused_bags),   IN_FOLDER(test_clamp),
        IN_FOLDER(test_shortened),     IN_FOLDER(test_hotness),        IN_FOLDER(test_many_rows),
    };
    return cmocka_run_group_tests_name("split_binary", tests, NULL, NULL);
}
