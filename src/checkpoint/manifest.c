#include "checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/sum.h"
#include "model/tensors_impl.h"

enum { FORMAT_VERSION = 1, MAX_BYTES = 100 * 1000 * 1000 };
static const int64_t MOST = INT64_C(1) << 60; /* of any count: more than there can be, and the sum of some fits */
#define TAIL "\",\"checksum\":\"" /* before the 16 digits */

void dlrm_rank_file_name(int rank, char out[DLRM_RANK_FILE_BYTES])
{
    snprintf(out, DLRM_RANK_FILE_BYTES, "rank_%05d.safetensors", rank);
}

static void hex(uint64_t v, char out[DLRM_SUM_TEXT])
{
    snprintf(out, DLRM_SUM_TEXT, "%016llx", (unsigned long long)v);
}

dlrm_status dlrm_manifest_check_room(const json_t *run)
{
    enum { ROOM = MAX_BYTES / 5 * 4 /* the rest is for as many files as there can be */ };
    const size_t bytes = json_dumpb(run, NULL, 0, JSON_COMPACT);
    if (bytes <= ROOM) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "checkpoint: config and tables take %zu bytes of a manifest, which has room for %d; use fewer tables or shorter names", bytes,
                ROOM);
}

/* NULL: no memory, as below. */
static json_t *files_json(const dlrm_manifest *m)
{
    json_t *files = json_array();
    for (int r = 0; files && r < m->ranks; r++) {
        char name[DLRM_RANK_FILE_BYTES], header[DLRM_SUM_TEXT], sums[DLRM_SUM_TEXT];
        dlrm_rank_file_name(r, name);
        hex(m->files[r].header_sum, header);
        hex(m->files[r].sums_sum, sums);
        json_t *file = json_pack("{s:s,s:I,s:s,s:s}", "name", name, "bytes", (json_int_t)m->files[r].bytes, "header_checksum", header,
                                 "checksums_checksum", sums);
        if (json_array_append_new(files, file) == 0) continue;
        json_decref(files);
        files = NULL;
    }
    return files;
}

static json_t *progress_json(const dlrm_train_state *p)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:f,s:I,s:b,s:o}", "step", (json_int_t)p->step, "updates", (json_int_t)p->updates,
                     "epoch", (json_int_t)p->epoch, "row", (json_int_t)p->row, "loss_scale", p->loss_scale, "good_steps",
                     (json_int_t)p->good_steps, "skipped_steps", (json_int_t)p->skipped_steps, "loss_sum", p->loss_sum, "losses",
                     (json_int_t)p->losses, "evaluated", (int)p->evaluated, "auc", isfinite(p->auc) ? json_real(p->auc) : json_null());
}

char *dlrm_manifest_text(const dlrm_manifest *m)
{
    json_t *progress = progress_json(&m->progress), *files = files_json(m), *root = NULL;
    /* The last member is a text: dlrm_manifest_sign. */
    if (progress && files)
        root = json_pack("{s:s,s:i,s:I,s:O,s:O,s:O,s:s}", "format", "dlrm-train checkpoint", "version", FORMAT_VERSION, "serial",
                         (json_int_t)m->serial, "progress", progress, "run", m->run, "files", files, "program", DLRM_VERSION);
    char *body = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL, *text = NULL;
    json_decref(progress);
    json_decref(files);
    json_decref(root);
    if (body) dlrm_manifest_sign(body, &text);
    free(body);
    return text;
}

void dlrm_manifest_sign(const char *body, char **out)
{
    char sum[DLRM_SUM_TEXT];
    size_t n = strlen(body) - 2; /* without "} */
    DLRM_ASSERT(!strcmp(body + n, "\"}"));
    hex(dlrm_sum(body, n), sum);
    if (asprintf(out, "%.*s" TAIL "%s\"}\n", (int)n, body, sum) < 0) *out = NULL;
}

/* Is the text what was written? The checksum is of all that stands before TAIL. */
static bool is_sound(const char *text, int64_t bytes)
{
    const int64_t tail = (int64_t)(sizeof TAIL - 1) + DLRM_SUM_TEXT - 1 + 3;
    char end[64], sum[DLRM_SUM_TEXT];
    if (bytes < tail || bytes > MAX_BYTES) return false;
    hex(dlrm_sum(text, (size_t)(bytes - tail)), sum);
    snprintf(end, sizeof end, TAIL "%s\"}\n", sum);
    return memcmp(text + bytes - tail, end, (size_t)tail) == 0;
}

/* --- reading --- */

/* What is said of a member that is not as it should be. */
static dlrm_status wrong(const char *path, const json_t *map, const char *key, const char *expected)
{
    const json_t *v = json_object_get(map, key);
    char *found = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    dlrm_status st = FAIL(DLRM_E_INPUT, "%s: '%s' is %.60s, expected %s", path, key, found ? found : "missing", expected);
    free(found);
    return st;
}

static dlrm_status whole_number(const char *path, const json_t *map, const char *key, int64_t least, int64_t most, int64_t *out)
{
    const json_t *v = json_object_get(map, key);
    char expected[100];
    *out = json_integer_value(v);
    if (json_is_integer(v) && *out >= least && *out <= most) return DLRM_OK;
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)least, (long long)most);
    return wrong(path, map, key, expected);
}

static dlrm_status sum_of(const char *path, const json_t *map, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(map, key));
    char again[DLRM_SUM_TEXT];
    unsigned long long v = 0;
    if (text && sscanf(text, "%16llx", &v) == 1) {
        hex(v, again);
        *out = v;
        if (!strcmp(again, text)) return DLRM_OK;
    }
    return FAIL(DLRM_E_INPUT, "%s: '%s' is not a checksum of 16 digits", path, key);
}

/* 0, or a float that is a power of two. */
static bool is_scale(double v)
{
    int exponent;
    return v == 0 || (frexp(v, &exponent) == 0.5 && exponent > FLT_MIN_EXP && exponent <= FLT_MAX_EXP);
}

/* Nothing else has looked at these numbers, and a forged manifest has its checksum, too: they are what a training can have come to. */
static dlrm_status read_progress(const char *path, const json_t *map, int64_t train_rows, dlrm_train_state *p)
{
    TRY(whole_number(path, map, "step", 0, MOST, &p->step));
    TRY(whole_number(path, map, "updates", 0, p->step, &p->updates));
    TRY(whole_number(path, map, "epoch", 0, MOST, &p->epoch));
    TRY(whole_number(path, map, "row", 0, train_rows - 1, &p->row));
    TRY(whole_number(path, map, "skipped_steps", 0, p->updates, &p->skipped_steps));
    TRY(whole_number(path, map, "good_steps", 0, INT32_MAX, &p->good_steps));
    TRY(whole_number(path, map, "losses", 0, p->step, &p->losses));
    const json_t *sum = json_object_get(map, "loss_sum"), *scale = json_object_get(map, "loss_scale");
    const json_t *evaluated = json_object_get(map, "evaluated"), *auc = json_object_get(map, "auc");
    p->loss_sum = json_number_value(sum);
    p->loss_scale = json_number_value(scale);
    p->evaluated = json_is_true(evaluated);
    p->auc = json_is_null(auc) ? NAN : json_number_value(auc);
    if (!json_is_number(sum)) return wrong(path, map, "loss_sum", "a number");
    if (!json_is_number(scale) || !is_scale(p->loss_scale)) return wrong(path, map, "loss_scale", "0 or a power of two");
    if (!json_is_boolean(evaluated)) return wrong(path, map, "evaluated", "true or false");
    if (!json_is_null(auc) && !(json_is_number(auc) && p->auc >= 0 && p->auc <= 1)) return wrong(path, map, "auc", "null or a number from 0 to 1");
    return DLRM_OK;
}

static dlrm_status read_files(const char *path, const json_t *list, dlrm_manifest *m)
{
    const size_t n = json_array_size(list);
    if (n < 1 || n > DLRM_MAX_CHECKPOINT_RANKS)
        return FAIL(DLRM_E_INPUT, "%s: 'files' is not a list of 1 to %d", path, DLRM_MAX_CHECKPOINT_RANKS);
    m->ranks = (int)n;
    TRY(dlrm_alloc(m->ranks, sizeof *m->files, "a checkpoint's files", &m->files));
    for (int r = 0; r < m->ranks; r++) {
        const json_t *file = json_array_get(list, (size_t)r);
        const char *name = json_string_value(json_object_get(file, "name"));
        char expected[DLRM_RANK_FILE_BYTES];
        dlrm_rank_file_name(r, expected);
        if (!name || strcmp(name, expected) != 0) /* never another path */
            return FAIL(DLRM_E_INPUT, "%s: file %d is called '%.60s', expected '%s'", path, r, name ? name : "", expected);
        TRY(whole_number(path, file, "bytes", 0, MOST, &m->files[r].bytes));
        TRY(sum_of(path, file, "header_checksum", &m->files[r].header_sum));
        TRY(sum_of(path, file, "checksums_checksum", &m->files[r].sums_sum));
    }
    return DLRM_OK;
}

static dlrm_status read_root(const char *path, const json_t *root, dlrm_manifest *m)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    int64_t version, train_rows;
    if (!format || strcmp(format, "dlrm-train checkpoint") != 0) return FAIL(DLRM_E_INPUT, "%s: not a checkpoint's manifest", path);
    TRY(whole_number(path, root, "version", 0, MOST, &version));
    if (version != FORMAT_VERSION)
        return FAIL(DLRM_E_INPUT, "%s: version %lld of the format, this program reads %d", path, (long long)version, FORMAT_VERSION);
    TRY(whole_number(path, root, "serial", 0, MOST, &m->serial));
    m->run = json_incref(json_object_get(root, "run"));
    if (!json_is_object(m->run)) return FAIL(DLRM_E_INPUT, "%s: 'run' is not a map", path);
    TRY(whole_number(path, m->run, "train_rows", 1, MOST, &train_rows));
    TRY(read_progress(path, json_object_get(root, "progress"), train_rows, &m->progress));
    return read_files(path, json_object_get(root, "files"), m);
}

dlrm_status dlrm_manifest_parse(const char *path, const char *text, int64_t bytes, dlrm_manifest *m)
{
    json_error_t error;
    *m = (dlrm_manifest){0};
    if (!is_sound(text, bytes))
        return FAIL(DLRM_E_INPUT, "%s: does not have its checksum: the file is damaged, or no checkpoint's manifest", path);
    json_t *root = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    dlrm_status st = root ? read_root(path, root, m) : FAIL(DLRM_E_INPUT, "%s: JSON error at byte %d: %s", path, error.position, error.text);
    json_decref(root);
    if (st != DLRM_OK) dlrm_manifest_clear(m);
    return st;
}

dlrm_status dlrm_manifest_load(const char *folder, dlrm_manifest *m)
{
    char path[PATH_MAX], *text = NULL;
    struct stat s;
    *m = (dlrm_manifest){0};
    if (snprintf(path, sizeof path, "%s/" DLRM_MANIFEST_NAME, folder) >= (int)sizeof path)
        return FAIL(DLRM_E_INPUT, "%.60s…: the path is too long", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FAIL(DLRM_E_INPUT, "%s: cannot open: %s", path, strerror(errno));
    dlrm_status st = fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size > MAX_BYTES
                         ? FAIL(DLRM_E_INPUT, "%s: not a file of at most %d bytes", path, MAX_BYTES)
                         : dlrm_alloc(s.st_size, 1, "a checkpoint's manifest", &text);
    if (st == DLRM_OK) st = dlrm_st_pread(fd, path, 0, s.st_size, text);
    close(fd);
    if (st == DLRM_OK) st = dlrm_manifest_parse(path, text, s.st_size, m);
    dlrm_free(&text);
    return st;
}

void dlrm_manifest_clear(dlrm_manifest *m)
{
    dlrm_free(&m->files);
    json_decref(m->run);
    *m = (dlrm_manifest){0};
}
