/* Files of a checkpoint: a tensor cut in one way is read as cut in any other; pieces that do not make a whole are refused; so
 * is every single bit that is not as it was written. */
#include <fcntl.h>
#include <math.h>

#include "base/mem.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/stored.h"
#include "weights_files.h"

enum { MOST_PARTS = 5 };

/* A way to cut a tensor: into `n` parts by rows one after the other, by rows in turn, or by columns. */
typedef struct cutting {
    enum { IN_ROWS, IN_TURN, IN_COLUMNS } kind;
    int n;
} cutting;

static dlrm_piece part_of(const char *name, int64_t rows, int64_t columns, dlrm_dtype dtype, cutting c, int i)
{
    dlrm_piece p = {.whole = info(name, columns > 1 ? 2 : 1, rows, columns > 1 ? columns : 0), .whole_rows = rows, .whole_columns = columns,
                    .part = {.row_step = 1, .rows = rows, .columns = columns}, .saved_here = true};
    p.whole.dtype = dtype;
    if (c.kind == IN_COLUMNS) {
        p.part.first_column = columns * i / c.n;
        p.part.columns = columns * (i + 1) / c.n - p.part.first_column;
    } else if (c.kind == IN_TURN) {
        p.part.first_row = i;
        p.part.row_step = c.n;
        p.part.rows = (rows - i + c.n - 1) / c.n;
    } else {
        p.part.first_row = rows * i / c.n;
        p.part.rows = rows * (i + 1) / c.n - p.part.first_row;
    }
    return p;
}

/* The value of an element, exact in the dtype, finite in 16 bits. */
static uint32_t value(const dlrm_piece *p, int64_t row, int64_t column)
{
    int64_t number = (p->part.first_row + row * p->part.row_step) * p->whole_columns + p->part.first_column + column;
    float f = (float)number;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return p->whole.dtype == DLRM_FP32 ? bits : (uint32_t)(number * 31 & 0x3fff);
}

static void fill(const dlrm_piece *p, int64_t row, int64_t n, void *out)
{
    for (int64_t i = 0; i < n * p->part.columns; i++) {
        uint32_t v = value(p, row + i / p->part.columns, i % p->part.columns);
        if (p->whole.dtype == DLRM_FP32)
            ((uint32_t *)out)[i] = v;
        else
            ((uint16_t *)out)[i] = (uint16_t)v;
    }
}

/* Writes a file of pieces; returns what the manifest says of it. */
static dlrm_piece_file_facts write_pieces(const char *name, int n, const dlrm_piece *pieces, int64_t room)
{
    dlrm_piece_file *f;
    dlrm_piece_file_facts facts;
    const dlrm_piece *p;
    int64_t row, rows;
    static char block[1 << 22];
    assert_int_equal(dlrm_piece_file_plan(n, pieces, &f), DLRM_OK);
    if (dlrm_piece_file_create(f, in_folder(name)) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    while ((rows = dlrm_piece_file_next(f, room, &p, &row)) > 0) {
        bool finite;
        char why[200];
        fill(p, row, rows, block);
        assert_int_equal(dlrm_piece_file_write(f, rows, block, &finite, why, sizeof why), DLRM_OK);
        assert_true(finite);
    }
    assert_int_equal(dlrm_piece_file_finish(f, &facts), DLRM_OK);
    assert_int_equal(facts.bytes, dlrm_piece_file_bytes(f));
    dlrm_piece_file_close(&f);
    return facts;
}

/* One file for each part. */
static void write_parts(int64_t rows, int64_t columns, dlrm_dtype dtype, cutting c, dlrm_stored_file *files)
{
    static char paths[MOST_PARTS][300];
    for (int i = 0; i < c.n; i++) {
        char name[20];
        dlrm_piece pieces[2] = {part_of("t", rows, columns, dtype, c, i), part_of("one", 3, 1, DLRM_FP32, (cutting){IN_ROWS, 1}, 0)};
        pieces[1].saved_here = i == c.n - 1;
        snprintf(name, sizeof name, "part%d", i);
        unlink(in_folder(name));
        snprintf(paths[i], sizeof paths[i], "%s", in_folder(name));
        files[i] = (dlrm_stored_file){paths[i], write_pieces(name, 2, pieces, 100003)};
    }
}

static void read_parts(const dlrm_stored_file *files, int n_files, int64_t rows, int64_t columns, dlrm_dtype dtype, cutting c, int64_t at_a_time)
{
    dlrm_stored *s;
    static char got[1 << 22], wanted[1 << 22];
    if (dlrm_stored_open(n_files, files, &s) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    for (int i = 0; i < c.n; i++) {
        const dlrm_piece p = part_of("t", rows, columns, dtype, c, i);
        assert_int_equal(dlrm_stored_require(s, "here", &p), DLRM_OK);
        for (int64_t row = 0, n; row < p.part.rows; row += n) {
            n = p.part.rows - row < at_a_time ? p.part.rows - row : at_a_time;
            const size_t bytes = (size_t)(n * dlrm_piece_row_bytes(&p));
            assert_true(bytes < sizeof got);
            memset(got, 0xee, bytes + 1);
            if (dlrm_stored_read(s, &p, row, n, got) != DLRM_OK) fail_msg("%s", dlrm_error_message());
            fill(&p, row, n, wanted);
            assert_memory_equal(got, wanted, bytes);
            assert_int_equal((unsigned char)got[bytes], 0xee);
        }
    }
    const dlrm_piece one = part_of("one", 3, 1, DLRM_FP32, (cutting){IN_ROWS, 1}, 0);
    float three[3];
    assert_int_equal(dlrm_stored_require(s, "here", &one), DLRM_OK);
    assert_int_equal(dlrm_stored_read(s, &one, 0, 3, three), DLRM_OK);
    assert_true(three[0] == 0 && three[1] == 1 && three[2] == 2);
    dlrm_stored_close(&s);
}

static void test_any_cut(void **state)
{
    (void)state;
    /* small; and beyond a block of checksums, which ends within a row */
    static const struct {
        int64_t rows, columns, at_a_time;
        dlrm_dtype dtype;
    } shapes[] = {{13, 5, 4, DLRM_FP32}, {70001, 6, 33333, DLRM_FP32}, {90001, 7, 50000, DLRM_BF16}, {11, 5, 100, DLRM_FP16}};
    static const cutting cuts[] = {{IN_ROWS, 1}, {IN_ROWS, 3}, {IN_TURN, 2}, {IN_TURN, 5}, {IN_COLUMNS, 2}, {IN_COLUMNS, 5}};
    enum { N_CUTS = sizeof cuts / sizeof *cuts };
    const int64_t blocks = dlrm_mem_live_blocks();
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int i = 0; i < N_CUTS; i++) {
            dlrm_stored_file files[MOST_PARTS];
            write_parts(shapes[k].rows, shapes[k].columns, shapes[k].dtype, cuts[i], files);
            for (int j = 0; j < N_CUTS; j++)
                read_parts(files, cuts[i].n, shapes[k].rows, shapes[k].columns, shapes[k].dtype, cuts[j], shapes[k].at_a_time);
        }
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

static void refused(int n, const dlrm_stored_file *files, const char *message)
{
    dlrm_stored *s;
    assert_int_equal(dlrm_stored_open(n, files, &s), DLRM_E_INPUT);
    assert_null(s);
    assert_message(message);
}

static void test_no_whole(void **state)
{
    (void)state;
    dlrm_stored_file files[MOST_PARTS], one[2];
    const int64_t blocks = dlrm_mem_live_blocks();
    write_parts(12, 4, DLRM_FP32, (cutting){IN_TURN, 3}, files);
    refused(2, files, "part0: tensor 't': its pieces have 32 of 48 elements");
    one[0] = one[1] = files[2];
    refused(2, one, "part2: tensor 'one' overlaps 'one' of ");
    const struct {
        dlrm_piece a, b;
        const char *message;
    } pairs[] = {
        {part_of("t", 12, 4, DLRM_FP32, (cutting){IN_ROWS, 2}, 0), part_of("t", 12, 4, DLRM_FP32, (cutting){IN_TURN, 2}, 1), "differ from those of another piece"},
        {part_of("t", 12, 4, DLRM_FP32, (cutting){IN_ROWS, 2}, 0), part_of("t", 13, 4, DLRM_FP32, (cutting){IN_ROWS, 2}, 1), "differ from those of another piece"},
        {part_of("t", 12, 4, DLRM_FP32, (cutting){IN_ROWS, 2}, 0), part_of("t", 12, 4, DLRM_BF16, (cutting){IN_ROWS, 2}, 1), "differ from those of another piece"},
        {part_of("t", 12, 4, DLRM_FP32, (cutting){IN_COLUMNS, 2}, 0), part_of("t", 12, 4, DLRM_FP32, (cutting){IN_ROWS, 2}, 1), "overlaps"},
        {part_of("t", 12, 4, DLRM_FP32, (cutting){IN_TURN, 3}, 0), part_of("t", 12, 4, DLRM_FP32, (cutting){IN_TURN, 3}, 2), "its pieces have 32 of 48"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char paths[2][300];
        unlink(in_folder("a"));
        unlink(in_folder("b"));
        snprintf(paths[0], sizeof paths[0], "%s", in_folder("a"));
        snprintf(paths[1], sizeof paths[1], "%s", in_folder("b"));
        one[0] = (dlrm_stored_file){paths[0], write_pieces("a", 1, &pairs[i].a, 1000)};
        one[1] = (dlrm_stored_file){paths[1], write_pieces("b", 1, &pairs[i].b, 1000)};
        refused(2, one, pairs[i].message);
    }
    dlrm_stored *s;
    const dlrm_piece whole = part_of("t", 12, 4, DLRM_FP32, (cutting){IN_ROWS, 1}, 0), other = part_of("x", 12, 4, DLRM_FP32, (cutting){IN_ROWS, 1}, 0);
    const dlrm_piece wide = part_of("t", 12, 5, DLRM_FP32, (cutting){IN_ROWS, 1}, 0), half = part_of("t", 12, 4, DLRM_FP16, (cutting){IN_ROWS, 1}, 0);
    assert_int_equal(dlrm_stored_open(3, files, &s), DLRM_OK);
    assert_int_equal(dlrm_stored_require(s, "here", &whole), DLRM_OK);
    assert_int_equal(dlrm_stored_require(s, "here", &other), DLRM_E_INPUT);
    assert_message("here: has no tensor 'x'");
    assert_int_equal(dlrm_stored_require(s, "here", &wide), DLRM_E_INPUT);
    assert_message("here: tensor 't' has shape [12, 4], expected [12, 5]");
    assert_int_equal(dlrm_stored_require(s, "here", &half), DLRM_E_INPUT);
    assert_message("here: tensor 't' has dtype F32, expected F16");
    dlrm_stored_close(&s);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

static void test_not_finite(void **state)
{
    (void)state;
    static const struct {
        dlrm_dtype dtype;
        uint32_t bits;
        bool finite;
    } values[] = {{DLRM_FP32, 0x7f800000, false}, {DLRM_FP32, 0xffc00001, false}, {DLRM_FP32, 0x7f7fffff, true}, {DLRM_BF16, 0xff80, false},
                  {DLRM_BF16, 0x7f7f, true},      {DLRM_FP16, 0x7c00, false},     {DLRM_FP16, 0xfe00, false},    {DLRM_FP16, 0x7bff, true}};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        const dlrm_piece p = part_of("t", 12, 4, values[k].dtype, (cutting){IN_TURN, 3}, 1);
        uint32_t block[16] = {0};
        dlrm_piece_file *f;
        bool finite;
        char why[200];
        if (p.whole.dtype == DLRM_FP32)
            block[2 * 4 + 3] = values[k].bits;
        else
            ((uint16_t *)block)[2 * 4 + 3] = (uint16_t)values[k].bits;
        unlink(in_folder("inf"));
        assert_int_equal(dlrm_piece_file_plan(1, &p, &f), DLRM_OK);
        assert_int_equal(dlrm_piece_file_create(f, in_folder("inf")), DLRM_OK);
        assert_int_equal(dlrm_piece_file_write(f, 4, block, &finite, why, sizeof why), DLRM_OK);
        assert_int_equal(finite, values[k].finite);
        if (!finite) assert_string_equal(why, "t has a value in row 7, column 3 that is not finite");
        dlrm_piece_file_close(&f);
    }
}

/* More names than a header may hold, or more tables than a manifest: found out before anything is trained, not when it is to be read. */
static void test_too_many_names(void **state)
{
    (void)state;
    enum { N = 190000 };
    dlrm_piece *pieces = calloc(N, sizeof *pieces);
    dlrm_piece_file *f;
    assert_non_null(pieces);
    for (int i = 0; i < N; i++) {
        char name[300];
        snprintf(name, sizeof name, "table.%0*d.weight", 200, i);
        pieces[i] = part_of(name, 1, 2, DLRM_FP32, (cutting){IN_ROWS, 1}, 0);
    }
    assert_int_equal(dlrm_piece_file_plan(N, pieces, &f), DLRM_E_INPUT);
    assert_message("checkpoint: the names of a rank's 190000 pieces of tensors take 1");
    assert_message(" bytes, and a file has room for 100000000; use more ranks, fewer tables or shorter names");
    assert_null(f);
    assert_int_equal(dlrm_piece_file_plan(N / 2, pieces, &f), DLRM_OK);
    dlrm_piece_file_close(&f);
    free(pieces);
    char *text = calloc(1, 80000001);
    assert_non_null(text);
    memset(text, 'x', 80000000);
    json_t *run = json_pack("{s:s}", "tables", text);
    assert_int_equal(dlrm_manifest_check_room(run), DLRM_E_INPUT);
    assert_message("checkpoint: config and tables take 80000013 bytes of a manifest, which has room for 80000000; use fewer tables or shorter names");
    text[79999000] = 0;
    json_object_set_new(run, "tables", json_string(text));
    assert_int_equal(dlrm_manifest_check_room(run), DLRM_OK);
    json_decref(run);
    free(text);
}

static int open_and_read(const dlrm_stored_file *file, const dlrm_piece *p)
{
    dlrm_stored *s;
    float out[8];
    dlrm_status st = dlrm_stored_open(1, file, &s);
    if (st == DLRM_OK) st = dlrm_stored_read(s, p, 0, 2, out);
    dlrm_stored_close(&s);
    return st;
}

static void test_every_bit_of_a_file(void **state)
{
    (void)state;
    const int64_t blocks = dlrm_mem_live_blocks();
    const dlrm_piece p = part_of("t", 2, 3, DLRM_FP32, (cutting){IN_ROWS, 1}, 0);
    char path[300];
    unlink(in_folder("bits"));
    snprintf(path, sizeof path, "%s", in_folder("bits"));
    const dlrm_stored_file file = {path, write_pieces("bits", 1, &p, 1000)};
    assert_int_equal(open_and_read(&file, &p), DLRM_OK);
    int fd = open(path, O_RDWR);
    for (int64_t bit = 0; bit < 8 * file.facts.bytes; bit++) {
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, bit / 8), 1);
        byte ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
        if (open_and_read(&file, &p) != DLRM_E_INPUT) fail_msg("bit %lld of byte %lld is not missed", (long long)bit % 8, (long long)bit / 8);
        assert_message(path);
        byte ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
    }
    assert_int_equal(ftruncate(fd, file.facts.bytes + 1), 0);
    assert_int_equal(open_and_read(&file, &p), DLRM_E_INPUT);
    assert_int_equal(ftruncate(fd, file.facts.bytes), 0);
    assert_int_equal(open_and_read(&file, &p), DLRM_OK);
    close(fd);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

static dlrm_manifest example(dlrm_piece_file_facts *files)
{
    files[0] = (dlrm_piece_file_facts){100, 1, 0xffffffffffffffff};
    files[1] = (dlrm_piece_file_facts){INT64_C(1) << 50, 0, 2};
    return (dlrm_manifest){.serial = 7, .ranks = 2, .files = files, .run = json_pack("{s:{s:s},s:i}", "config", "a", "b", "train_rows", 6),
                           .progress = {.step = INT64_C(1) << 40, .updates = 9, .epoch = 3, .row = 5, .loss_scale = 0x1p40, .good_steps = 6, .skipped_steps = 8, .loss_sum = 0.1 + 0.2, .losses = 4, .evaluated = true,
                                        .auc = NAN}};
}

static void test_manifest(void **state)
{
    (void)state;
    const int64_t blocks = dlrm_mem_live_blocks();
    dlrm_piece_file_facts files[2];
    dlrm_manifest m = example(files), back;
    char *text = dlrm_manifest_text(&m);
    const int64_t bytes = (int64_t)strlen(text);
    if (dlrm_manifest_parse("m", text, bytes, &back) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    assert_int_equal(back.serial, 7);
    assert_int_equal(back.ranks, 2);
    assert_memory_equal(back.files, files, sizeof files);
    assert_int_equal(back.progress.step, INT64_C(1) << 40);
    assert_int_equal(back.progress.updates, 9);
    assert_true(back.progress.loss_scale == 0x1p40 && back.progress.good_steps == 6 && back.progress.skipped_steps == 8);
    assert_true(back.progress.loss_sum == 0.1 + 0.2 && back.progress.losses == 4 && back.progress.evaluated && isnan(back.progress.auc));
    assert_true(json_equal(back.run, m.run));
    dlrm_manifest_clear(&back);
    for (int64_t bit = 0; bit < 8 * bytes; bit++) {
        text[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(dlrm_manifest_parse("m", text, bytes, &back), DLRM_E_INPUT);
        text[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (int64_t n = 0; n < bytes; n++) assert_int_equal(dlrm_manifest_parse("m", text, n, &back), DLRM_E_INPUT);
    free(text);
    json_decref(m.run);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

/* A manifest that is whole but says something wrong. */
static void test_manifest_says(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"format\":\"x\"", "not a checkpoint's manifest"},
        {"\"version\":2", "version 2 of the format, this program reads 1"},
        {"\"serial\":-1", "m: 'serial' is -1, expected a whole number from 0 to 1152921504606846976"},
        {"\"serial\":9223372036854775807", "m: 'serial' is 9223372036854775807, expected a whole number from 0 to 1152921504606846976"},
        {"\"serial\":9223372036854775808", "m: JSON error at byte "},
        {"\"progress\":{}", "m: 'step' is missing, expected a whole number"},
        {"\"progress\":7", "m: 'step' is missing, expected a whole number"},
        {"\"run\":[]", "'run' is not a map"},
        {"\"run\":{}", "m: 'train_rows' is missing, expected a whole number"},
        {"\"files\":[]", "'files' is not a list"},
        {"\"files\":[{\"name\":\"../../etc/passwd\"}]", "file 0 is called '../../etc/passwd', expected 'rank_00000.safetensors'"},
        {"\"files\":[{\"name\":\"rank_00000.safetensors\",\"bytes\":-1}]", "m: 'bytes' is -1, expected a whole number"},
        {"\"files\":[{\"name\":\"rank_00000.safetensors\",\"bytes\":9,\"header_checksum\":\"12\"}]", "'header_checksum' is not a checksum"},
        {"\"step\":1.5", "m: 'step' is 1.5, expected a whole number"},
        {"\"step\":\"5\"", "m: 'step' is \"5\", expected a whole number"},
        {"\"step\":1152921504606846977", "m: 'step' is 1152921504606846977, expected a whole number from 0 to 1152921504606846976"},
        {"\"step\":8", "m: 'updates' is 9, expected a whole number from 0 to 8"},
        {"\"updates\":1099511627777", "m: 'updates' is 1099511627777, expected a whole number from 0 to 1099511627776"},
        {"\"epoch\":1152921504606846977", "m: 'epoch' is 1152921504606846977, expected a whole number"},
        {"\"row\":6", "m: 'row' is 6, expected a whole number from 0 to 5"},
        {"\"train_rows\":5", "m: 'row' is 5, expected a whole number from 0 to 4"},
        {"\"train_rows\":0", "m: 'train_rows' is 0, expected a whole number from 1 to 1152921504606846976"},
        {"\"skipped_steps\":10", "m: 'skipped_steps' is 10, expected a whole number from 0 to 9"},
        {"\"good_steps\":2147483648", "m: 'good_steps' is 2147483648, expected a whole number from 0 to 2147483647"},
        {"\"losses\":1099511627777", "m: 'losses' is 1099511627777, expected a whole number"},
        {"\"loss_sum\":null", "m: 'loss_sum' is null, expected a number"},
        {"\"loss_scale\":1e300", "m: 'loss_scale' is 1.0000000000000001e300, expected 0 or a power of two"},
        {"\"loss_scale\":-2.0", "m: 'loss_scale' is -2.0, expected 0 or a power of two"},
        {"\"loss_scale\":3.0", "m: 'loss_scale' is 3.0, expected 0 or a power of two"},
        {"\"evaluated\":1", "m: 'evaluated' is 1, expected true or false"},
        {"\"auc\":1.5", "m: 'auc' is 1.5, expected null or a number from 0 to 1"},
        {"\"auc\":\"x\"", "m: 'auc' is \"x\", expected null or a number from 0 to 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlrm_piece_file_facts files[2];
        dlrm_manifest m = example(files), back;
        char *text = dlrm_manifest_text(&m), *signed_text;
        const size_t key = strcspn(cases[i][0], ":") + 1;
        strcpy(strstr(text, "\",\"checksum\""), "\"}"); /* as it was before it was signed */
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)key, cases[i][0]);
        char *at = strstr(text, name), *end = at + key;
        assert_non_null(at);
        int depth = 0;
        for (; depth > 0 || (*end != ',' && *end != '}'); end++) depth += (*end == '{' || *end == '[') - (*end == '}' || *end == ']');
        char changed[4000];
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, cases[i][0], end);
        dlrm_manifest_sign(changed, &signed_text);
        assert_int_equal(dlrm_manifest_parse("m", signed_text, (int64_t)strlen(signed_text), &back), DLRM_E_INPUT);
        assert_message(cases[i][1]);
        free(signed_text);
        free(text);
        json_decref(m.run);
    }
}

/* --- no memory, at each of the places that ask for some --- */

static int allocations_left;

static void *failing_malloc(size_t bytes)
{
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

static void test_manifest_without_memory(void **state)
{
    (void)state;
    dlrm_piece_file_facts files[2];
    dlrm_manifest m = example(files);
    char *whole = dlrm_manifest_text(&m), *text = NULL;
    json_set_alloc_funcs(failing_malloc, free);
    for (int n = 0; !text; n++) {
        allocations_left = n;
        text = dlrm_manifest_text(&m);
        assert_true(text || n < 1000);
        if (n == 20) assert_null(text);
    }
    json_set_alloc_funcs(malloc, free);
    assert_string_equal(text, whole);
    free(text);
    free(whole);
    json_decref(m.run);
}

/* Names in the folder: ours to the letter, or not ours. */
static void test_folder(void **state)
{
    (void)state;
    const int64_t blocks = dlrm_mem_live_blocks();
    char removed[200], path[300];
    dlrm_checkpoint_entry *list;
    int n;
    snprintf(path, sizeof path, "%s", in_folder("ckpt"));
    assert_int_equal(dlrm_checkpoints_list(path, NULL, 0, &list, &n), DLRM_OK); /* not there */
    assert_int_equal(n, 0);
    assert_int_equal(mkdir(path, 0777), 0);
    for (int k = 0; k < 4; k++) {
        dlrm_piece_file_facts files[2];
        dlrm_manifest m = example(files);
        m.serial = k == 3 ? 2 : 10 - k; /* the newest is the one with the largest */
        m.progress = (dlrm_train_state){.step = 100 * k};
        char *text = dlrm_manifest_text(&m);
        assert_int_equal(dlrm_checkpoint_begin(path, m.progress.step), DLRM_OK);
        if (k < 3) assert_int_equal(dlrm_checkpoint_commit(path, m.progress.step, text), DLRM_OK);
        free(text);
        json_decref(m.run);
    }
    assert_int_equal(dlrm_checkpoints_list(path, NULL, 0, &list, &n), DLRM_OK);
    assert_int_equal(n, 3);
    assert_string_equal(list[0].name, "step_000000000");
    assert_string_equal(list[2].name, "step_000000200");
    dlrm_free(&list);
    static const char *const foreign[] = {"step_1", "step_0000000001", "step_-00000001", "step_000000001.part", ".step_000000001", ".step_1.part", "step_000000001x"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", path, foreign[i]);
        assert_int_equal(mkdir(name, 0777), 0);
    }
    assert_int_equal(dlrm_checkpoints_clean(path, removed, sizeof removed), DLRM_OK);
    assert_string_equal(removed, ".step_000000300.part");
    assert_int_equal(dlrm_checkpoints_retire(path, 1), DLRM_OK);
    assert_int_equal(dlrm_checkpoints_sweep(path), DLRM_OK);
    assert_int_equal(dlrm_checkpoints_list(path, NULL, 0, &list, &n), DLRM_OK);
    assert_int_equal(n, 1);
    assert_string_equal(list[0].name, "step_000000000");
    dlrm_free(&list);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", path, foreign[i]);
        assert_int_equal(access(name, F_OK), 0);
    }
    /* one of the same step takes its place */
    dlrm_piece_file_facts files[2];
    dlrm_manifest m = example(files), back;
    m.serial = 99;
    m.progress = (dlrm_train_state){.step = 0};
    char *text = dlrm_manifest_text(&m);
    assert_int_equal(dlrm_checkpoint_begin(path, 0), DLRM_OK);
    assert_int_equal(dlrm_checkpoint_commit(path, 0, text), DLRM_OK);
    assert_int_equal(dlrm_manifest_load(in_folder("ckpt/step_000000000"), &back), DLRM_OK);
    assert_int_equal(back.serial, 99);
    assert_int_not_equal(access(in_folder("ckpt/.step_000000000.part"), F_OK), 0);
    dlrm_manifest_clear(&back);
    free(text);
    json_decref(m.run);
    /* a damaged one is no checkpoint and not passed over */
    write_text("ckpt/step_000000000/manifest.json", "{}");
    assert_int_equal(dlrm_checkpoints_list(path, NULL, 0, &list, &n), DLRM_E_INPUT);
    assert_message("step_000000000/manifest.json: does not have its checksum");
    assert_int_equal(dlrm_checkpoints_list(path, removed, sizeof removed, &list, &n), DLRM_OK);
    assert_int_equal(n, 0);
    assert_string_equal(removed, "step_000000000");
    dlrm_free(&list);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut),  cmocka_unit_test(test_no_whole),      cmocka_unit_test(test_not_finite), cmocka_unit_test(test_every_bit_of_a_file),
        cmocka_unit_test(test_manifest), cmocka_unit_test(test_manifest_says), cmocka_unit_test(test_folder),
        cmocka_unit_test(test_manifest_without_memory), cmocka_unit_test(test_too_many_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
