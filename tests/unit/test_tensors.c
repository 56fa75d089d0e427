/* Weights files: what is read from good ones, how bad ones are refused, and exports. The files are made here byte by
 * byte, so that the reader is not checked against our own writer. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/mem.h"
#include "model/tensors.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

/* A safetensors file with this header and data. */
static void write_tensors(const char *name, const char *header, const void *data, size_t bytes)
{
    static char all[1 << 16];
    uint64_t n = strlen(header);
    assert_true(8 + n + bytes <= sizeof all);
    memcpy(all, &n, 8);
    memcpy(all + 8, header, n);
    if (bytes) memcpy(all + 8 + n, data, bytes);
    write_bytes(name, all, 8 + n + bytes);
}

static void assert_message(const char *part)
{
    if (!strstr(dlrm_error_message(), part)) fail_msg("message '%s' has no '%s'", dlrm_error_message(), part);
}

static void assert_refused(const char *path, const char *map, const char *part)
{
    dlrm_tensors *t = NULL;
    int64_t blocks = dlrm_mem_live_blocks();
    assert_int_equal(dlrm_tensors_open(path, map, &t), DLRM_E_INPUT);
    assert_null(t);
    assert_message(part);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

static dlrm_tensor_info info(const char *name, int n_dims, int64_t d0, int64_t d1)
{
    dlrm_tensor_info t = {.n_dims = n_dims, .dims = {d0, d1}};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

static void require(dlrm_tensors *t, const char *name, int n_dims, int64_t d0, int64_t d1)
{
    dlrm_tensor_info want = info(name, n_dims, d0, d1);
    if (dlrm_tensors_require(t, &want) != DLRM_OK) fail_msg("%s", dlrm_error_message());
}

static dlrm_tensors *open_ok(const char *path, const char *map)
{
    dlrm_tensors *t;
    if (dlrm_tensors_open(path, map, &t) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    return t;
}

/* --- reading --- */

static void test_dtypes(void **state)
{
    (void)state;
    struct {
        double f64[2];
        float f32[4];
        uint16_t bf16[2], f16[2];
        int64_t i64;
        uint8_t f4[1];
    } data = {{0.1, 1 + 0x1p-24 + 0x1p-40}, {1, -2, 3, 0.1f}, {0x3F80, 0xC2F7}, {0x3C00, 0x0001}, 7, {0x21}};
    write_tensors("d.safetensors",
                  "{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"b16\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[32,36]},"
                  "\"d\":{\"dtype\":\"F64\",\"shape\":[2,1],\"data_offsets\":[0,16]},"
                  "\"f\":{\"shape\":[2,2],\"dtype\":\"F32\",\"data_offsets\":[16,32]},"
                  "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[36,40]},"
                  "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[16,16]},"
                  "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[40,48]},"
                  "\"nibbles\":{\"dtype\":\"F4\",\"shape\":[1,1,1,1,1,2],\"data_offsets\":[48,49]}}    ",
                  &data, 49);
    dlrm_tensors *t = open_ok(in_folder("d.safetensors"), NULL);
    float v[4];
    char unused[200];
    dlrm_tensors_unused(t, unused, sizeof unused);
    assert_string_equal(unused, "b16, count, d, f, h, nibbles, none");
    require(t, "d", 2, 2, 1);
    require(t, "f", 2, 2, 2);
    require(t, "b16", 1, 2, 0);
    require(t, "h", 1, 2, 0);
    require(t, "none", 2, 0, 3);

    assert_int_equal(dlrm_tensors_read(t, "d", 0, 2, v), DLRM_OK);
    assert_true(v[0] == 0.1f && v[1] == 1 + 0x1p-23f); /* to nearest, not cut off */
    assert_int_equal(dlrm_tensors_read(t, "f", 1, 3, v), DLRM_OK);
    assert_memory_equal(v, data.f32 + 1, 3 * sizeof *v);
    assert_int_equal(dlrm_tensors_read(t, "f", 4, 0, v), DLRM_OK);
    assert_int_equal(dlrm_tensors_read(t, "b16", 0, 2, v), DLRM_OK);
    assert_true(v[0] == 1 && v[1] == -123.5f);
    assert_int_equal(dlrm_tensors_read(t, "h", 0, 2, v), DLRM_OK);
    assert_true(v[0] == 1 && v[1] == 0x1p-24f);
    assert_int_equal(dlrm_tensors_read(t, "none", 0, 0, v), DLRM_OK);

    dlrm_tensors_unused(t, unused, sizeof unused);
    assert_string_equal(unused, "count, nibbles");
    dlrm_tensors_unused(t, unused, 34); /* not enough for both */
    assert_string_equal(unused, "2 more");
    dlrm_tensors_unused(t, unused, 40);
    assert_string_equal(unused, "count and 1 more");

    dlrm_tensor_info want = info("bottom.0.weight", 2, 3, 4);
    assert_int_equal(dlrm_tensors_require(t, &want), DLRM_E_INPUT);
    assert_message("d.safetensors: no tensor 'bottom.0.weight' [3, 4]; not asked for yet: count, nibbles");
    want = info("f", 2, 4, 1);
    assert_int_equal(dlrm_tensors_require(t, &want), DLRM_E_INPUT);
    assert_message("d.safetensors: tensor 'f': has shape [2, 2], expected [4, 1]");
    want = info("count", 0, 0, 0);
    assert_int_equal(dlrm_tensors_require(t, &want), DLRM_E_INPUT);
    assert_message("tensor 'count': has dtype I64, expected F64, F32, BF16 or F16");
    dlrm_tensors_close(&t);
    assert_null(t);
}

/* Every binary16 pattern against its definition. */
static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        int exponent = h >> 10 & 31;
        double fraction = h & 1023, sign = h >> 15 ? -1 : 1;
        float got = dlrm_float_of_f16((uint16_t)h);
        assert_int_equal(signbit(got) != 0, h >> 15);
        if (exponent == 31)
            assert_true(fraction > 0 ? isnan(got) : isinf(got));
        else
            assert_true(got == sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24)));
    }
    assert_true(isnan(dlrm_float_of_bf16(0x7FC0)) && isinf(dlrm_float_of_bf16(0xFF80)));
    assert_true(dlrm_float_of_bf16(1) == ldexpf(1, -133) && dlrm_float_of_bf16(0x4049) == 3.140625f);
}

/* More than one block of values, from a file that is mostly a hole. */
static void test_blocks(void **state)
{
    (void)state;
    enum { N = (5 << 20) + 3 };
    write_tensors("big.safetensors", "{\"w\":{\"dtype\":\"F16\",\"shape\":[5242883],\"data_offsets\":[0,10485766]}}", "", 0);
    const char *path = in_folder("big.safetensors");
    struct stat s;
    uint16_t one = 0x3C00;
    int fd = open(path, O_WRONLY);
    assert_int_equal(fstat(fd, &s), 0);
    assert_int_equal(ftruncate(fd, s.st_size + 2 * (off_t)N), 0);
    assert_int_equal(pwrite(fd, &one, 2, s.st_size + 2 * (off_t)(N - 1)), 2);
    assert_int_equal(pwrite(fd, &one, 2, s.st_size + 2 * (off_t)(2 << 20)), 2);
    close(fd);
    float *v = malloc(N * sizeof *v);
    dlrm_tensors *t = open_ok(path, NULL);
    require(t, "w", 1, N, 0);
    assert_int_equal(dlrm_tensors_read(t, "w", 0, N, v), DLRM_OK);
    for (int i = 0; i < N; i++)
        if (v[i] != (i == N - 1 || i == 2 << 20)) fail_msg("element %d is %g", i, v[i]);
    /* The file shrinks under the reader. */
    assert_int_equal(truncate(path, s.st_size + 1000), 0);
    assert_int_equal(dlrm_tensors_read(t, "w", 0, N, v), DLRM_E_INPUT);
    assert_message("big.safetensors: ends at byte");
    dlrm_tensors_close(&t);
    free(v);
    unlink(path);
}

#define T(dtype, shape, from, to) "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

static void test_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *part;
        size_t bytes;
    } cases[] = {
        {"{\"a\":" T("F32", "2", 0, 8) "}", NULL, 8}, /* good */
        {"", "JSON error at byte 8", 0},
        {"[]", "a JSON object is expected, found '['", 0},
        {"{\"a\":" T("F32", "2", 0, 8), "JSON error", 8},
        {"{\"a\":" T("F32", "2", 0, 8) "} x", "JSON error", 8},
        {"{\"a\":" T("F32", "1", 0, 4) ",\"a\":" T("F32", "1", 4, 8) "}", "duplicate", 8},
        {"{\"a\\u0000b\":" T("F32", "1", 0, 4) "}", "JSON error", 4},
        {"{\"\xff\":" T("F32", "1", 0, 4) "}", "JSON error", 4},
        {"{\"a\":3}", "tensor 'a': no text 'dtype'", 0},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "tensor 'a': no text 'dtype'", 4},
        {"{\"a\":" T("F33", "1", 0, 4) "}", "tensor 'a': unknown dtype 'F33'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "tensor 'a': no list 'shape'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":{\"0\":1},\"data_offsets\":[0,4]}}", "tensor 'a': no list 'shape'", 4},
        {"{\"a\":" T("F32", "1,-1", 0, 4) "}", "tensor 'a': dimension 1 of its shape", 4},
        {"{\"a\":" T("F32", "1.0", 0, 4) "}", "tensor 'a': dimension 0 of its shape", 4},
        {"{\"a\":" T("F32", "4294967296,4294967296", 0, 0) "}", "shape [4294967296, 4294967296] overflows", 0},
        {"{\"a\":" T("F64", "2305843009213693952", 0, 0) "}", "no whole number of bytes", 0},
        {"{\"a\":" T("F32", "9223372036854775808", 0, 0) "}", "too big", 0},
        {"{\"a\":" T("F4", "3", 0, 1) "}", "no whole number of bytes", 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "tensor 'a': 'data_offsets' is not", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "'data_offsets' is not", 4},
        {"{\"a\":" T("F32", "1", 0, 4.0) "}", "'data_offsets' is not", 4},
        {"{\"a\":" T("F32", "1", -4, 0) "}", "bytes [-4, 0) are outside the 4 bytes", 4},
        {"{\"a\":" T("F32", "1", 4, 0) "}", "bytes [4, 0) are outside", 4},
        {"{\"a\":" T("F32", "2", 0, 8) "}", "bytes [0, 8) are outside the 4 bytes", 4},
        {"{\"a\":" T("F32", "2", 0, 4) "}", "shape [2] of F32 takes 8 bytes, but data_offsets [0, 4] span 4", 4},
        {"{\"a\":" T("F32", "2", 0, 8) ",\"b\":" T("F32", "1", 4, 8) "}", "tensors 'a' and 'b' overlap", 8},
        {"{\"a\":" T("F32", "1", 0, 4) ",\"b\":" T("F32", "1", 8, 12) "}", "bytes [120, 124) before tensor 'b' belong to no tensor", 12},
        {"{\"a\":" T("F32", "1", 4, 8) "}", "belong to no tensor", 8},
        {"{\"a\":" T("F32", "1", 0, 4) "}", "the file has 70 bytes, its header describes 66", 8},
        {"{\"__metadata__\":[]}", "'__metadata__' is not a map", 0},
        {"{\"__metadata__\":{\"step\":3}}", "'__metadata__': 'step' is not a text", 0},
    };
    static const char data[16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_tensors("bad.safetensors", cases[i].header, data, cases[i].bytes);
        if (cases[i].part) {
            assert_refused(in_folder("bad.safetensors"), NULL, cases[i].part);
            assert_message("bad.safetensors");
        } else {
            dlrm_tensors *t = open_ok(in_folder("bad.safetensors"), NULL);
            dlrm_tensors_close(&t);
        }
    }

    char header[600] = "{\"", *end = header + 2 + 256;
    memset(header + 2, 'n', 256);
    strcpy(end, "\":" T("F32", "1", 0, 4) "}");
    write_tensors("bad.safetensors", header, data, 4);
    assert_refused(in_folder("bad.safetensors"), NULL, "a name of 256 bytes, more than 255");

    static char deep[10000];
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, "{\"a\":", 5);
    write_tensors("bad.safetensors", deep, data, 0);
    assert_refused(in_folder("bad.safetensors"), NULL, "maximum parsing depth");
    unlink(in_folder("bad.safetensors"));
}

static void test_bad_files(void **state)
{
    (void)state;
    assert_refused(in_folder("absent"), NULL, "absent: cannot open: No such file");
    write_bytes("bad.bin", "1234567", 7);
    assert_refused(in_folder("bad.bin"), NULL, "bad.bin: 7 bytes; a safetensors file starts with 8 bytes");
    write_bytes("bad.bin", "", 0);
    assert_refused(in_folder("bad.bin"), NULL, "bad.bin: 0 bytes;");
    write_bytes("bad.bin", "PK\3\4aaaaaaaaaaaa", 16); /* a PyTorch file is a zip */
    assert_refused(in_folder("bad.bin"), NULL, "bad.bin: not a safetensors file: its first 8 bytes would be a header length");
    write_bytes("bad.bin", "\x20\0\0\0\0\0\0\0{}", 10);
    assert_refused(in_folder("bad.bin"), NULL, "bad.bin: a header of 32 bytes does not fit a file of 10 bytes: cut off?");
    assert_int_equal(mkfifo(in_folder("fifo.safetensors"), 0600), 0);
    assert_refused(in_folder("fifo.safetensors"), NULL, "fifo.safetensors: not a regular file");
    assert_refused(folder, NULL, "fifo.safetensors: not a regular file");
    unlink(in_folder("fifo.safetensors"));
    unlink(in_folder("bad.bin"));
}

static void write_one(const char *file, const char *tensor, float value)
{
    char header[300];
    snprintf(header, sizeof header, "{\"%s\":" T("F32", "1", 0, 4) "}", tensor);
    write_tensors(file, header, &value, sizeof value);
}

static void test_folder(void **state)
{
    (void)state;
    float v;
    assert_int_equal(mkdir(in_folder("f"), 0777), 0);
    assert_refused(in_folder("f"), NULL, "/f: no *.safetensors file in this folder");
    write_one("f/b.safetensors", "two", 2);
    write_one("f/a.safetensors", "one", 1);
    write_text("f/.a.safetensors", "an editor's remains");
    write_text("f/readme.txt", "not weights");
    dlrm_tensors *t = open_ok(in_folder("f"), NULL);
    require(t, "one", 1, 1, 0);
    require(t, "two", 1, 1, 0);
    assert_int_equal(dlrm_tensors_read(t, "two", 0, 1, &v), DLRM_OK);
    assert_true(v == 2);
    dlrm_tensors_close(&t);

    write_one("f/c.safetensors", "one", 3);
    assert_refused(in_folder("f"), NULL, "tensor 'one' is in both");
    assert_message("f/a.safetensors and");

    /* The index says which files count. */
    const char *index = "f/model.safetensors.index.json";
    write_text(index, "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"one\":\"c.safetensors\",\"two\":\"b.safetensors\"}}");
    t = open_ok(in_folder("f/"), NULL);
    require(t, "one", 1, 1, 0);
    assert_int_equal(dlrm_tensors_read(t, "one", 0, 1, &v), DLRM_OK);
    assert_true(v == 3);
    dlrm_tensors_close(&t);

    static const struct {
        const char *text, *part;
    } bad[] = {
        {"{\"weight_map\":{\"one\":\"b.safetensors\"}}", "index.json: weight_map: tensor 'one' is not in b.safetensors"},
        {"{\"weight_map\":{\"one\":\"a.safetensors\",\"two\":\"a.safetensors\"}}", "tensor 'two' is not in a.safetensors"},
        {"{\"weight_map\":{\"one\":\"../f/a.safetensors\"}}", "in the same folder is expected, found '../f/a.safetensors'"},
        {"{\"weight_map\":{\"one\":\"/etc/passwd\"}}", "found '/etc/passwd'"},
        {"{\"weight_map\":{\"one\":\"..\"}}", "found '..'"},
        {"{\"weight_map\":{\"one\":7}}", "tensor 'one': the name of a .safetensors file"},
        {"{\"weight_map\":{\"one\":\"gone.safetensors\"}}", "f/gone.safetensors: cannot open"},
        {"{\"weight_map\":[]}", "index.json: no map 'weight_map'"},
        {"{\"weight_map\":{\"one\":\"a.safetensors\",\"one\":\"b.safetensors\"}}", "duplicate"},
        {"[7]", "index.json: byte 0: a JSON object is expected"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(index, bad[i].text);
        assert_refused(in_folder("f"), NULL, bad[i].part);
    }
    write_text("f/other.safetensors.index.json", "{}");
    assert_refused(in_folder("f"), NULL, "two index files");
    assert_int_equal(unlink(in_folder("f/other.safetensors.index.json")), 0);
    assert_int_equal(unlink(in_folder(index)), 0);
}

/* --- names --- */

static void test_name_map(void **state)
{
    (void)state;
    float data[4] = {1, 2, 3, 4}, v;
    write_tensors("m.safetensors",
                  "{\"emb_l.0.weight\":" T("F32", "1", 0, 4) ",\"emb_l.12.weight\":" T("F32", "1", 4, 8)
                  ",\"bot_l.2.bias\":" T("F32", "1", 8, 12) ",\"top.0.bias\":" T("F32", "1", 12, 16) "}",
                  data, sizeof data);
    write_text("map.yaml", "# facebook\nemb_l.*.weight: table.t*.weight\nemb_l.12.weight: table.last.weight\n"
                           "bot_l.2.bias: bottom.1.bias\nbot_l.4.bias: bottom.2.bias\n\"*.nothing\": \"*.else\"\n");
    dlrm_tensors *t = open_ok(in_folder("m.safetensors"), in_folder("map.yaml"));
    require(t, "table.t0.weight", 1, 1, 0);
    require(t, "table.last.weight", 1, 1, 0);
    require(t, "bottom.1.bias", 1, 1, 0);
    assert_int_equal(dlrm_tensors_read(t, "table.last.weight", 0, 1, &v), DLRM_OK);
    assert_true(v == 2);
    char unused[100];
    dlrm_tensors_unused(t, unused, sizeof unused);
    assert_string_equal(unused, "top.0.bias");
    dlrm_tensor_info want = info("bottom.1.bias", 1, 5, 0);
    assert_int_equal(dlrm_tensors_require(t, &want), DLRM_E_INPUT);
    assert_message("tensor 'bot_l.2.bias', by the name map bottom.1.bias: has shape [1], expected [5]");
    dlrm_tensors_close(&t);

    static const struct {
        const char *map, *part;
    } bad[] = {
        {"emb_l.*.weight: table.*.weight\n'emb_*.0.weight': 'x*'\n",
         "map.yaml:2:1: 'emb_*.0.weight' fits tensor 'emb_l.0.weight' of"},
        {"emb_l.*.weight: table.*.weight\n'emb_*.0.weight': 'x*'\n", "but so does 'emb_l.*.weight' of line 1"},
        {"bot_l.2.bias: top.0.bias\n", "map.yaml:1:15: tensors '"},
        {"bot_l.2.bias: top.0.bias\n", "are both 'top.0.bias'"},
        {"emb_l.0.weight: w\nemb_l.12.weight: w\n", "are both 'w'"},
        {"emb_l.*.weight: table\n", "map.yaml:1:1: 'emb_l.*.weight: table': at most one * is possible, and then on both sides"},
        {"emb_l.0: table.*\n", "at most one *"},
        {"'*.*': '*.*'\n", "at most one *"},
        {"a: [b]\n", "map.yaml:1:4: a: our name is expected, found list"},
        {"\na:\n", "a: our name is expected, found null"},
        {"- a\n", "map.yaml:1:1: a map `name in the file: our name` is expected, found list"},
        {"a: b\na: c\n", "map.yaml:2:1: "},
        {"a: b\n c: [\n", "map.yaml:2:"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("map.yaml", bad[i].map);
        assert_refused(in_folder("m.safetensors"), in_folder("map.yaml"), bad[i].part);
    }
    assert_refused(in_folder("m.safetensors"), in_folder("no-map.yaml"), "no-map.yaml");

    char longer[400] = "'emb_l.*.weight': '*";
    memset(longer + strlen(longer), 'n', 254);
    strcat(longer, "'\n");
    write_text("map.yaml", longer);
    assert_refused(in_folder("m.safetensors"), in_folder("map.yaml"), "would get a name of 256 bytes, more than 255");
}

/* --- export --- */

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static void export_all(const char *name, int n, const dlrm_tensor_info *tensors, int64_t most)
{
    dlrm_export *e, *other; /* two ranks with the same plan */
    assert_int_equal(dlrm_export_plan(in_folder(name), n, tensors, most, &e), DLRM_OK);
    assert_int_equal(dlrm_export_plan(in_folder(name), n, tensors, most, &other), DLRM_OK);
    if (dlrm_export_begin(e) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    float v[64];
    for (int i = 0; i < n; i++) {
        int64_t all = tensors[i].dims[0] * (tensors[i].n_dims > 1 ? tensors[i].dims[1] : 1), half = all / 2;
        for (int k = 0; k < all; k++) v[k] = (float)(100 * i + k);
        assert_int_equal(dlrm_export_write(i % 2 ? other : e, i, half, all - half, v + half), DLRM_OK);
        assert_int_equal(dlrm_export_write(e, i, 0, half, v), DLRM_OK);
    }
    assert_int_equal(dlrm_export_flush(e), DLRM_OK);
    assert_int_equal(dlrm_export_flush(other), DLRM_OK);
    if (dlrm_export_commit(e) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    dlrm_export_close(&other);
    dlrm_export_close(&e);

    dlrm_tensors *t = open_ok(in_folder(name), NULL);
    for (int i = 0; i < n; i++) {
        int64_t all = tensors[i].dims[0] * (tensors[i].n_dims > 1 ? tensors[i].dims[1] : 1);
        assert_int_equal(dlrm_tensors_require(t, &tensors[i]), DLRM_OK);
        assert_int_equal(dlrm_tensors_read(t, tensors[i].name, 0, all, v), DLRM_OK);
        for (int k = 0; k < all; k++) assert_true(v[k] == (float)(100 * i + k));
    }
    dlrm_tensors_close(&t);
}

static void read_file(const char *name, char *buf, size_t room)
{
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    size_t n = fread(buf, 1, room - 1, f);
    buf[n] = 0;
    fclose(f);
}

static void test_export(void **state)
{
    (void)state;
    int64_t blocks = dlrm_mem_live_blocks();
    dlrm_tensor_info tensors[] = {info("bottom.0.weight", 2, 2, 3), info("bottom.0.bias", 1, 2, 0),
                                  info("table.\"x\".weight", 2, 5, 4)};
    export_all("out/of/here", 3, tensors, 1 << 20);
    char text[4000];
    read_file("out/of/here/model.safetensors", text, sizeof text);
    uint64_t header;
    memcpy(&header, text, 8);
    assert_int_equal(header % 8, 0);
    static const char expected[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                   "\"bottom.0.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                   "\"bottom.0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},"
                                   "\"table.\\\"x\\\".weight\":{\"dtype\":\"F32\",\"shape\":[5,4],\"data_offsets\":[32,112]}}";
    assert_memory_equal(text + 8, expected, sizeof expected - 1);
    for (size_t i = 8 + sizeof expected - 1; i < 8 + header; i++) assert_int_equal(text[i], ' ');

    /* Several files replace one, fewer replace several; what is not an export's stays. */
    static const char *const others[] = {"out/of/here/model.safetensors.txt", "out/of/here/model-1-of-2.safetensors",
                                         "out/of/here/notes.md", "out/of/here/model-00001-of-00002.safetensors.bak"};
    for (int i = 0; i < 4; i++) write_text(others[i], "mine");
    assert_int_equal(unlink(in_folder(others[1])), 0);
    export_all("out/of/here", 3, tensors, 260);
    assert_false(exists("out/of/here/model.safetensors"));
    assert_true(exists("out/of/here/model-00001-of-00002.safetensors"));
    assert_true(exists("out/of/here/model-00002-of-00002.safetensors"));
    read_file("out/of/here/model.safetensors.index.json", text, sizeof text);
    assert_non_null(strstr(text, "\"total_size\": 112"));
    assert_non_null(strstr(text, "\"bottom.0.bias\": \"model-00001-of-00002.safetensors\""));
    assert_non_null(strstr(text, "\"table.\\\"x\\\".weight\": \"model-00002-of-00002.safetensors\""));

    export_all("out/of/here", 3, tensors, 1);
    assert_true(exists("out/of/here/model-00003-of-00003.safetensors"));
    assert_false(exists("out/of/here/model-00002-of-00002.safetensors"));
    export_all("out/of/here", 3, tensors, 1 << 20);
    assert_true(exists("out/of/here/model.safetensors"));
    assert_false(exists("out/of/here/model-00003-of-00003.safetensors"));
    assert_false(exists("out/of/here/model.safetensors.index.json"));
    for (int i = 0; i < 4; i++) assert_int_equal(exists(others[i]), i != 1);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

/* The limit counts whole files, header included. */
static void test_export_limit(void **state)
{
    (void)state;
    dlrm_tensor_info tensors[40];
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "top.%d.bias", i);
        tensors[i] = info(name, 1, 1 + i % 7, 0);
    }
    for (int64_t most = 140; most < 3000; most += 113) {
        export_all("limit", 40, tensors, most);
        for (int i = 1; exists("limit/model.safetensors.index.json"); i++) {
            char text[4000], *last, name[80];
            struct stat s;
            read_file("limit/model.safetensors.index.json", text, sizeof text);
            last = strstr(text, "-of-");
            assert_non_null(last);
            if (i > atoi(last + 4)) break;
            snprintf(name, sizeof name, "limit/model-%05d-of-%.5s.safetensors", i, last + 4);
            assert_int_equal(stat(in_folder(name), &s), 0);
            if (s.st_size > most) fail_msg("%s has %lld bytes, more than %lld", name, (long long)s.st_size, (long long)most);
        }
    }
}

static void test_export_fails(void **state)
{
    (void)state;
    dlrm_export *e;
    dlrm_tensor_info small = info("top.0.bias", 1, 2, 0), huge = info("table.C1.weight", 2, INT64_C(1) << 50, 8);
    float v[2] = {1, 2};
    write_text("plain", "a file");
    assert_int_equal(dlrm_export_plan(in_folder("plain/x"), 1, &small, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_check(e), DLRM_E_INPUT);
    assert_message("export: cannot make the folder");
    assert_message("plain/x: Not a directory");
    dlrm_export_close(&e);
    assert_int_equal(dlrm_export_plan(in_folder("plain"), 1, &small, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_begin(e), DLRM_E_INPUT);
    assert_message("plain is not a folder");
    dlrm_export_close(&e);

    export_all("kept", 1, &small, 1000);
    assert_int_equal(dlrm_export_plan(in_folder("kept"), 1, &huge, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_begin(e), DLRM_E_RUNTIME);
    assert_message("kept: needs 36028797018");
    assert_message("are free (");
    dlrm_export_close(&e);

    small.name[0] = '\xff';
    assert_int_equal(dlrm_export_plan(in_folder("kept"), 1, &small, 1000, &e), DLRM_E_INPUT);
    assert_message("is not UTF-8");
    assert_null(e);
    small.name[0] = 't';

    /* Cut off before the commit: the older export stands, and nothing is left behind; a killed one is cleaned up. */
    write_text("kept/.model-00001-of-00009.safetensors.part", "of a killed run");
    assert_int_equal(dlrm_export_plan(in_folder("kept"), 1, &small, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_begin(e), DLRM_OK);
    assert_false(exists("kept/.model-00001-of-00009.safetensors.part"));
    assert_true(exists("kept/.model.safetensors.part"));
    assert_int_equal(dlrm_export_write(e, 0, 0, 2, v), DLRM_OK);
    dlrm_export_close(&e);
    assert_false(exists("kept/.model.safetensors.part"));
    assert_true(exists("kept/model.safetensors"));

    /* A rank whose folder is not the one that rank 0 began in. */
    assert_int_equal(dlrm_export_plan(in_folder("kept"), 1, &small, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_write(e, 0, 0, 2, v), DLRM_E_RUNTIME);
    assert_message("cannot open");
    assert_message("kept/.model.safetensors.part: No such file");
    dlrm_export_close(&e);
}

/* /dev/full stands for a full disk: the error names file, place and reason. */
static void test_export_full(void **state)
{
    (void)state;
    dlrm_export *e;
    dlrm_tensor_info small = info("top.0.bias", 1, 2, 0);
    float v[2] = {1, 2};
    assert_int_equal(mkdir(in_folder("full"), 0777), 0);
    assert_int_equal(symlink("/dev/full", in_folder("full/.model.safetensors.part")), 0);
    assert_int_equal(dlrm_export_plan(in_folder("full"), 1, &small, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_write(e, 0, 0, 2, v), DLRM_E_RUNTIME);
    assert_message("full/.model.safetensors.part: cannot write 8 bytes at byte");
    assert_message("No space left on device");
    dlrm_export_close(&e);
    unlink(in_folder("full/.model.safetensors.part"));
}

/* Offsets beyond 4 GiB: a sparse file, only its ends written. */
static void test_export_large(void **state)
{
    (void)state;
    int64_t rows = (INT64_C(5) << 30) / 64;
    dlrm_tensor_info tensors[] = {info("table.t0.weight", 2, rows, 16), info("top.0.bias", 1, 2, 0)};
    float v[2] = {7, 8}, got[2] = {0};
    dlrm_export *e;
    assert_int_equal(dlrm_export_plan(in_folder("large"), 2, tensors, INT64_MAX, &e), DLRM_OK);
    if (dlrm_export_begin(e) != DLRM_OK) {
        print_message("skipped: %s\n", dlrm_error_message());
        dlrm_export_close(&e);
        skip();
    }
    assert_int_equal(dlrm_export_write(e, 0, rows * 16 - 2, 2, v), DLRM_OK);
    assert_int_equal(dlrm_export_write(e, 1, 0, 2, v), DLRM_OK);
    assert_int_equal(dlrm_export_commit(e), DLRM_OK);
    dlrm_export_close(&e);
    dlrm_tensors *t = open_ok(in_folder("large"), NULL);
    require(t, "table.t0.weight", 2, rows, 16);
    require(t, "top.0.bias", 1, 2, 0);
    assert_int_equal(dlrm_tensors_read(t, "table.t0.weight", rows * 16 - 2, 2, got), DLRM_OK);
    assert_memory_equal(got, v, sizeof v);
    assert_int_equal(dlrm_tensors_read(t, "table.t0.weight", INT64_C(1) << 30, 2, got), DLRM_OK);
    assert_true(got[0] == 0 && got[1] == 0);
    assert_int_equal(dlrm_tensors_read(t, "top.0.bias", 0, 2, got), DLRM_OK);
    assert_memory_equal(got, v, sizeof v);
    dlrm_tensors_close(&t);
    unlink(in_folder("large/model.safetensors"));
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_tensors.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),       cmocka_unit_test(test_half),         cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_bad_headers),  cmocka_unit_test(test_bad_files),    cmocka_unit_test(test_folder),
        cmocka_unit_test(test_name_map),     cmocka_unit_test(test_export),       cmocka_unit_test(test_export_limit),
        cmocka_unit_test(test_export_fails), cmocka_unit_test(test_export_full),  cmocka_unit_test(test_export_large),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
