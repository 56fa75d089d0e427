/* Which format files are in, by what they are called and by their first bytes; what cannot be read is named as what it is. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/file.h"
#include "records_files.h"

const char *const dlrm_format_names[DLRM_FORMATS + 1] = {"text", "split_binary", "mlperf_bin", "hugectr_raw", "hugectr_norm", "npy", NULL};
const char *const dlrm_out_split_names[DLRM_OUT_SPLITS] = {"train", "test", "validation"};

static bool has(const char *folder, const char *name)
{
    char path[DLRM_PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < DLRM_PATH_MAX && access(path, F_OK) == 0;
}

/* --- a file by its content --- */

/* The first line of a text file, unpacked; tabs: how many it has. False: not text. */
static bool first_line(const char *path, char *line, int bytes, int *tabs)
{
    gzFile in = gzopen(path, "rb");
    if (!in) return false;
    bool got = gzgets(in, line, bytes) != NULL;
    gzclose(in);
    *tabs = 0;
    for (const char *p = line; got && *p; p++) {
        *tabs += *p == '\t';
        got = isprint((unsigned char)*p) || isspace((unsigned char)*p);
    }
    return got && *line;
}

static dlrm_status recognise_text(const char *path, const char *line, int tabs, dlrm_format *out)
{
    *out = DLRM_FORMAT_TEXT;
    if (tabs == 39) return DLRM_OK;
    if (isdigit((unsigned char)*line) && line[strspn(line, "0123456789")] == '\n') {
        *out = DLRM_FORMAT_HUGECTR_NORM; /* a file list */
        return DLRM_OK;
    }
    if (tabs == 38)
        return FAIL(DLRM_E_INPUT,
                    "%s: Criteo's text without labels (39 fields, as Kaggle's test.txt): there is nothing to train or score on", path);
    if (strchr(line, ','))
        return FAIL(DLRM_E_INPUT, "%s: comma-separated text; expected Criteo's 40 fields with tabs between them and no header line", path);
    return FAIL(DLRM_E_INPUT, "%s: text whose first line has %d fields, expected Criteo's 40 with tabs between them", path, tabs + 1);
}

/* Headerless records: each make-up that divides the file's size is tried on its first records. */
static dlrm_status recognise_records(const char *path, dlrm_format *out)
{
    static const struct {
        int n_ids;
        dlrm_record_dense dense;
        dlrm_format format;
    } known[] = {{26, DLRM_RECORD_COUNTS, DLRM_FORMAT_MLPERF_BIN},
                 {214, DLRM_RECORD_FLOATS, DLRM_FORMAT_HUGECTR_RAW},
                 {26, DLRM_RECORD_FLOATS, DLRM_FORMAT_HUGECTR_RAW}};
    enum { ROOM = 912 * 64 };
    char records[ROOM];
    struct stat st;
    int fd;
    TRY(dlrm_file_open(path, true, &fd));
    ssize_t got = fstat(fd, &st) == 0 ? pread(fd, records, ROOM, 0) : -1;
    const int failed = errno;
    dlrm_file_close(&fd);
    if (got < 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(failed));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        dlrm_record_layout layout = {13, known[i].dense, known[i].n_ids};
        dlrm_record_dense found;
        dlrm_record_evidence e = {0};
        int64_t bytes = dlrm_record_bytes(&layout);
        if (got < bytes || st.st_size % bytes) continue;
        dlrm_record_inspect(&layout, records, got / bytes, &e);
        *out = known[i].format;
        if (dlrm_record_judge(&e, path, &found) == DLRM_OK && found == known[i].dense) return DLRM_OK;
    }
    return FAIL(DLRM_E_INPUT,
                "%s: %lld bytes that are none of the known formats; if they are records, name them with --from, --dense-features, "
                "--hotness and --dense",
                path, (long long)st.st_size);
}

static dlrm_status recognise_file(const char *path, dlrm_format *out)
{
    static const struct {
        const char *magic, *what;
    } others[] = {{"\x93NUMPY", "a NumPy array (torchrec's day_N_*.npy); name the folder that holds a day's three"},
                  {"PK\3\4", "a zip archive (facebook's or torchrec's .npz)"},
                  {"PAR1", "a Parquet file (NVTabular's): not read by dlrm_data; write split_binary or HugeCTR's formats from there"},
                  {"DLRMVOC1", "a vocabulary of dlrm_data"}};
    char head[72] = "", line[1 << 14];
    int tabs, fd;
    TRY(dlrm_file_open(path, true, &fd));
    ssize_t got = pread(fd, head, sizeof head, 0);
    dlrm_file_close(&fd);
    if (got <= 0) return FAIL(DLRM_E_INPUT, "%s: the file is empty", path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (memcmp(head, others[i].magic, strlen(others[i].magic)) == 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, others[i].what);
    int64_t words[9];
    memcpy(words, head, sizeof words);
    bool sums = (int32_t)words[0] == 64;
    if (sums) memcpy(words, head + 4, 64);
    if (got >= 64 && words[0] == sums && words[1] > 0 && words[2] == 1 && words[4] > 0 && words[4] < 1 << 16 && words[5] == 0 &&
        words[6] == 0) {
        *out = DLRM_FORMAT_HUGECTR_NORM;
        return DLRM_OK;
    }
    bool packed = head[0] == '\x1f' && head[1] == '\x8b';
    if ((packed || !memchr(head, 0, got)) && first_line(path, line, sizeof line, &tabs)) return recognise_text(path, line, tabs, out);
    return recognise_records(path, out);
}

/* --- a folder by what is in it --- */

static dlrm_status recognise_folder(const char *path, dlrm_format *out)
{
    dlrm_record_files files;
    if (has(path, "feature_spec.yaml") || has(path, "model_size.json")) {
        *out = DLRM_FORMAT_SPLIT_BINARY;
        return DLRM_OK;
    }
    if (has(path, dlrm_records_description)) {
        dlrm_shape shape;
        dlrm_status st = dlrm_records_load(path, &files, &shape);
        *out = files.format;
        dlrm_shape_clear(&shape);
        return st;
    }
    if (has(path, "file_list.txt") || (has(path, "_file_list.txt") && !has(path, "_metadata"))) {
        *out = DLRM_FORMAT_HUGECTR_NORM;
        return DLRM_OK;
    }
    if (has(path, "_metadata") || has(path, "_metadata.json"))
        return FAIL(DLRM_E_INPUT,
                    "%s: a Parquet folder (NVTabular's): not read by dlrm_data; write split_binary or HugeCTR's formats from there", path);
    if (has(path, "category.bin") && has(path, "metadata.json"))
        return FAIL(DLRM_E_INPUT, "%s: whole matrices (label.bin, dense.bin, category.bin) of HugeCTR's sparse operation kit: not read",
                    path);
    if (has(path, "label.bin") && has(path, "cat_0.bin"))
        return FAIL(DLRM_E_INPUT, "%s: one split of a split_binary folder; name the folder above it, which describes the files", path);
    if (has(path, "day_0_labels.npy") || has(path, "train_labels.npy")) {
        *out = DLRM_FORMAT_NPY;
        return DLRM_OK;
    }
    if (dlrm_record_files_find(path, DLRM_FORMAT_HUGECTR_RAW, &files))
        return recognise_records(files.path[*files.path[DLRM_TRAIN] ? DLRM_TRAIN : DLRM_TEST], out);
    if (has(path, "train.txt") || has(path, "train.txt.gz") || has(path, "day_0") || has(path, "day_0.gz"))
        return FAIL(DLRM_E_INPUT, "%s: a folder of Criteo's text; name its files", path);
    return FAIL(DLRM_E_INPUT,
                "%s: a folder of none of the known formats: no feature_spec.yaml, model_size.json, records.yaml, train_data.bin, "
                "*_train.bin or file_list.txt",
                path);
}

dlrm_status dlrm_recognise(const char *path, dlrm_format *out)
{
    struct stat st;
    if (stat(path, &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return recognise_folder(path, out);
    if (!S_ISREG(st.st_mode)) return FAIL(DLRM_E_INPUT, "%s: neither a file nor a folder", path);
    return recognise_file(path, out);
}

/* --- opening --- */

/* Options that nothing would read: of other formats, or of what records.yaml says. */
static dlrm_status check_hints(const char *path, dlrm_format format, const dlrm_source_hints *h)
{
    bool records = format == DLRM_FORMAT_MLPERF_BIN || format == DLRM_FORMAT_HUGECTR_RAW;
    bool described = records && has(path, dlrm_records_description);
    bool bare = records && !described;
    const char *option = h->hotness && !bare                                      ? "--hotness"
                         : h->n_dense >= 0 && !bare                               ? "--dense-features"
                         : h->cardinalities && !bare && format != DLRM_FORMAT_NPY ? "--cardinalities"
                         : h->form >= 0 && described                              ? "--from-dense"
                                                                                  : NULL;
    if (!option) return DLRM_OK;
    if (described) return FAIL(DLRM_E_USAGE, "%s: %s/%s says that already", option, path, dlrm_records_description);
    return FAIL(DLRM_E_USAGE, "%s is not for %s, which %s is", option, dlrm_format_names[format], path);
}

dlrm_status dlrm_source_open(const char *path, const dlrm_source_hints *h, dlrm_findings *findings, dlrm_row_source **out)
{
    dlrm_format format = (dlrm_format)h->format;
    char plain[DLRM_PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    TRY(dlrm_tool_path(plain, "%.*s", (int)n, path));
    *out = NULL;
    if (h->format < 0) TRY(dlrm_recognise(plain, &format));
    TRY(check_hints(plain, format, h));
    dlrm_status st;
    switch (format) {
    case DLRM_FORMAT_SPLIT_BINARY:
        st = dlrm_split_source_open(plain, h, out);
        break;
    case DLRM_FORMAT_MLPERF_BIN:
    case DLRM_FORMAT_HUGECTR_RAW:
        st = dlrm_record_source_open(plain, format, h, findings, out);
        break;
    case DLRM_FORMAT_NPY:
        st = dlrm_npy_source_open(plain, h, out);
        break;
    case DLRM_FORMAT_HUGECTR_NORM:
        st = dlrm_norm_source_open(plain, h, out);
        break;
    default:
        st = FAIL(DLRM_E_INPUT, "%s: text; expected rows in a binary format", plain);
    }
    if (st != DLRM_OK) {
        dlrm_source_close(out);
        return st;
    }
    (*out)->findings = findings;
    return DLRM_OK;
}

void dlrm_source_close(dlrm_row_source **s)
{
    if (!*s) return;
    (*s)->close(*s);
    dlrm_shape_clear(&(*s)->shape);
    dlrm_free(s);
}

dlrm_status dlrm_source_scan_cardinalities(dlrm_row_source *s)
{
    enum { ROWS = 4096 };
    dlrm_stretch rows = {0};
    dlrm_shape *shape = &s->shape;
    bool known = true;
    int64_t done = 0, all = 0, *largest;
    for (int f = 0; f < shape->n_features; f++) known &= shape->features[f].cardinality > 0;
    if (known) return DLRM_OK;
    dlrm_status st = dlrm_alloc(shape->n_features, sizeof *largest, "the largest ids", &largest);
    if (st != DLRM_OK) return st;
    TRY_TO(end, st, dlrm_stretch_open(shape, ROWS, &rows));
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) all += s->rows[i];
    dlrm_tool_progress_begin();
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        for (int64_t row = 0; row < s->rows[i]; row += rows.n) {
            TRY_TO(end, st, s->read(s, i, row, s->rows[i] - row < ROWS ? s->rows[i] - row : ROWS, &rows));
            for (int f = 0; f < shape->n_features; f++) {
                const uint32_t *ids = dlrm_stretch_ids(&rows, shape, f);
                for (int64_t j = 0; j < rows.n * shape->features[f].hotness; j++)
                    if (ids[j] > largest[f]) largest[f] = ids[j];
            }
            done += rows.n;
            dlrm_tool_progress("looking for the largest ids", done * 4 * (1 + shape->n_dense + shape->n_ids),
                               all * 4 * (1 + shape->n_dense + shape->n_ids));
        }
    for (int f = 0; f < shape->n_features; f++)
        if (shape->features[f].cardinality == 0) shape->features[f].cardinality = largest[f] + 1;
end:
    dlrm_stretch_close(&rows);
    dlrm_free(&largest);
    return st;
}
