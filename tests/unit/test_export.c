/* Exports: layout, replacement of an older one, failures; read back with the reader. */
#include "base/mem.h"
#include "weights_files.h"

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
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
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
            if (s.st_size > most)
                fail_msg("%s has %lld bytes, more than %lld", name, (long long)s.st_size, (long long)most);
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
    assert_message("plain/x: cannot make the folder: Not a directory");
    dlrm_export_close(&e);
    assert_int_equal(dlrm_export_plan(in_folder("plain"), 1, &small, 1000, &e), DLRM_OK);
    assert_int_equal(dlrm_export_begin(e), DLRM_E_INPUT);
    assert_message("plain: not a folder");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_export),      cmocka_unit_test(test_export_limit), cmocka_unit_test(test_export_fails),
        cmocka_unit_test(test_export_full), cmocka_unit_test(test_export_large),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
