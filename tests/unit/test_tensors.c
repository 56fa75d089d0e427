/* Weights files: what is read from good ones, and how bad ones are refused. The files are made here byte by byte, so
 * that the reader is not checked against our own writer. */
#include <fcntl.h>
#include <math.h>

#include "base/half.h"
#include "base/mem.h"
#include "weights_files.h"

/* A safetensors file with this header and data. */
static void write_tensors(const char *name, const char *header, const void *data, size_t bytes)
{
    static char all[1 << 16];
    uint64_t n = strlen(header);
    assert_true(8 + n + bytes <= sizeof all);
    memcpy(all, &n, 8);
    memcpy(all + 8, header, n);
    if (bytes) memcpy(all + 8 + n, data, bytes);
    write_file(name, all, 8 + n + bytes);
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
    write_tensors("big.safetensors", "{\"w\":{\"dtype\":\"F16\",\"shape\":[5242883],\"data_offsets\":[0,10485766]}}",
                  "", 0);
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
        {"{\"a\":" T("F32", "1", 0, 4) ",\"b\":" T("F32", "1", 8, 12) "}",
         "bytes [120, 124) before tensor 'b' belong to no tensor", 12},
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

    char header[600] = "{\"", *end = header + 2 + 320;
    memset(header + 2, 'n', 320);
    strcpy(end, "\":" T("F32", "1", 0, 4) "}");
    write_tensors("bad.safetensors", header, data, 4);
    assert_refused(in_folder("bad.safetensors"), NULL, "a name of 320 bytes, more than 319");

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
    write_file("bad.bin", "1234567", 7);
    assert_refused(in_folder("bad.bin"), NULL, "bad.bin: 7 bytes; a safetensors file starts with 8 bytes");
    write_file("bad.bin", "", 0);
    assert_refused(in_folder("bad.bin"), NULL, "bad.bin: 0 bytes;");
    write_file("bad.bin", "PK\3\4aaaaaaaaaaaa", 16); /* a PyTorch file is a zip */
    assert_refused(in_folder("bad.bin"), NULL,
                   "bad.bin: not a safetensors file: its first 8 bytes would be a header length");
    write_file("bad.bin", "\x20\0\0\0\0\0\0\0{}", 10);
    assert_refused(in_folder("bad.bin"), NULL,
                   "bad.bin: a header of 32 bytes does not fit a file of 10 bytes: cut off?");
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
    write_text(
        index,
        "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"one\":\"c.safetensors\",\"two\":\"b.safetensors\"}}");
    t = open_ok(in_folder("f/"), NULL);
    require(t, "one", 1, 1, 0);
    assert_int_equal(dlrm_tensors_read(t, "one", 0, 1, &v), DLRM_OK);
    assert_true(v == 3);
    dlrm_tensors_close(&t);

    static const struct {
        const char *text, *part;
    } bad[] = {
        {"{\"weight_map\":{\"one\":\"b.safetensors\"}}",
         "index.json: weight_map: tensor 'one' is not in b.safetensors"},
        {"{\"weight_map\":{\"one\":\"a.safetensors\",\"two\":\"a.safetensors\"}}",
         "tensor 'two' is not in a.safetensors"},
        {"{\"weight_map\":{\"one\":\"../f/a.safetensors\"}}",
         "in the same folder is expected, found '../f/a.safetensors'"},
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
    write_tensors(
        "m.safetensors",
        "{\"emb_l.0.weight\":" T("F32", "1", 0, 4) ",\"emb_l.12.weight\":" T("F32", "1", 4, 8) ",\"bot_l.2.bias\":" T(
            "F32", "1", 8, 12) ",\"top.0.bias\":" T("F32", "1", 12, 16) "}",
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
        {"emb_l.*.weight: table\n",
         "map.yaml:1:1: 'emb_l.*.weight: table': at most one * is possible, and then on both sides"},
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

    char longer[500] = "'emb_l.*.weight': '*";
    memset(longer + strlen(longer), 'n', 318);
    strcat(longer, "'\n");
    write_text("map.yaml", longer);
    assert_refused(in_folder("m.safetensors"), in_folder("map.yaml"), "would get a name of 320 bytes, more than 319");
}

/* The maps that come with the program, on the names that the other programs give. */
static void test_shipped_maps(void **state)
{
    (void)state;
    static const struct {
        const char *map, *key, *ours;
    } names[] = {
        {"facebook_dlrm", "emb_l.25.weight", "table.cat_25.weight"},
        {"facebook_dlrm", "bot_l.0.weight", "bottom.0.weight"},
        {"facebook_dlrm", "bot_l.4.bias", "bottom.2.bias"},
        {"facebook_dlrm", "top_l.8.weight", "top.4.weight"},
        {"torchrec", "sparse_arch.embedding_bag_collection.embedding_bags.t_cat_3.weight", "table.cat_3.weight"},
        {"torchrec", "model.sparse_arch.embedding_bag_collection.embedding_bags.t_cat_25.weight",
         "table.cat_25.weight"},
        {"torchrec", "dense_arch.model._mlp.2._linear.bias", "bottom.2.bias"},
        {"torchrec", "model.inter_arch.crossnet.V_kernels.1", "cross.1.v"},
        {"torchrec", "over_arch.model.0._mlp.3._linear.weight", "top.3.weight"},
        {"torchrec", "model.over_arch.model.1.bias", "top.4.bias"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/configs/name_maps/%s.yaml", SOURCE_ROOT, names[i].map);
        write_one("one.safetensors", names[i].key, 5);
        dlrm_tensors *t = open_ok(in_folder("one.safetensors"), path);
        require(t, names[i].ours, 1, 1, 0);
        dlrm_tensors_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),      cmocka_unit_test(test_half),         cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_bad_files),    cmocka_unit_test(test_folder),
        cmocka_unit_test(test_name_map),    cmocka_unit_test(test_shipped_maps),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
