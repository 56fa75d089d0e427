/* Headerless records (mlperf_bin, hugectr_raw) as a source of rows. Without a records.yaml, what the files do not say
 * comes from the hints; else: 13 dense values whose kind their bits tell, records of 160 bytes have 26 one-hot ids, and
 * those of 912 bytes the 214 of MLPerf's DCNv2 recipe; cardinalities are not known. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kinds.h"
#include "base/mem.h"
#include "criteo_line.h"
#include "data/file.h"
#include "multihot.h"
#include "records_files.h"

typedef struct record_source {
    dlrm_row_source base;
    dlrm_record_files files;
    dlrm_record_layout layout;
    int fd[DLRM_OUT_SPLITS];
    char *raw;
    int64_t raw_bytes;
} record_source;

static dlrm_status read_raw(record_source *s, int split, int64_t row, int64_t n)
{
    int64_t size = dlrm_record_bytes(&s->layout);
    TRY(dlrm_tool_room(n * size, "a read buffer", &s->raw, &s->raw_bytes));
    return dlrm_tool_pread(s->fd[split], s->raw, (size_t)(n * size), row * size, s->files.path[split]);
}

/* The first error of a stretch, or each of its rows by itself where findings are collected. */
static dlrm_status report_row(record_source *s, int split, int64_t row, int64_t n, dlrm_stretch *out)
{
    const char *path = s->files.path[split];
    int64_t size = dlrm_record_bytes(&s->layout);
    if (!s->base.findings) return dlrm_record_offender(&s->layout, s->raw, n, path, row);
    for (int64_t i = 0; i < n; i++) {
        if (dlrm_record_offender(&s->layout, s->raw + i * size, 1, path, row + i) == DLRM_OK) continue;
        TRY(dlrm_found(s->base.findings, &s->fd[split], "rows with a bad label or dense value", "%s", dlrm_error_message()));
        out->labels[i] = 0;
        memset((char *)out->dense + i * s->layout.n_dense * 4, 0, (size_t)s->layout.n_dense * 4);
    }
    return DLRM_OK;
}

static dlrm_status report_ids(record_source *s, int split, int f, int64_t row, int64_t n, int64_t cardinality, dlrm_stretch *out)
{
    const dlrm_feature *feature = &s->base.shape.features[f];
    const char *path = s->files.path[split];
    int64_t size = dlrm_record_bytes(&s->layout);
    uint32_t *ids = dlrm_stretch_ids(out, &s->base.shape, f);
    for (int64_t i = 0; i < n; i++) {
        if (dlrm_record_id_offender(&s->layout, s->raw + i * size, 1, (int)feature->first, feature->hotness, cardinality, feature->name,
                                    path, row + i) == DLRM_OK)
            continue;
        if (!s->base.findings) return DLRM_E_INPUT;
        TRY(dlrm_found(s->base.findings, &feature->name, "rows with ids outside the table", "%s", dlrm_error_message()));
        memset(ids + i * feature->hotness, 0, (size_t)feature->hotness * sizeof *ids);
    }
    return DLRM_OK;
}

static dlrm_status read_rows(dlrm_row_source *base, int split, int64_t row, int64_t n, dlrm_stretch *out)
{
    record_source *s = (record_source *)base;
    int64_t words = dlrm_record_bytes(&s->layout) / 4;
    uint32_t bad = 0;
    bool good = true;
    TRY(read_raw(s, split, row, n));
    out->first = row;
    out->n = n;
    for (int64_t i = 0; i < n; i++) {
        uint32_t label;
        memcpy(&label, s->raw + i * words * 4, sizeof label);
        out->labels[i] = (uint8_t)label;
        bad |= label & ~1u;
        memcpy((char *)out->dense + i * s->layout.n_dense * 4, s->raw + (i * words + 1) * 4, (size_t)s->layout.n_dense * 4);
    }
    if (s->layout.dense == DLRM_RECORD_FLOATS)
        for (int64_t i = 0; i < n * s->layout.n_dense; i++) good &= ((const uint32_t *)out->dense)[i] << 1 < 0xFF000000u;
    else
        for (int64_t i = 0; i < n * s->layout.n_dense; i++) good &= ((const int32_t *)out->dense)[i] >= 0;
    if (bad || !good) TRY(report_row(s, split, row, n, out));
    for (int f = 0; f < base->shape.n_features; f++) {
        const dlrm_feature *feature = &base->shape.features[f];
        int64_t cardinality = feature->cardinality ? feature->cardinality : (int64_t)1 << 32;
        if (!dlrm_record_ids(&s->layout, s->raw, n, (int)feature->first, feature->hotness, cardinality,
                             dlrm_stretch_ids(out, &base->shape, f)))
            TRY(report_ids(s, split, f, row, n, cardinality, out));
    }
    return DLRM_OK;
}

static void close_source(dlrm_row_source *base)
{
    record_source *s = (record_source *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->fd[i] >= 0) close(s->fd[i]);
    dlrm_free(&s->raw);
}

/* --- what the records are --- */

static dlrm_status file_bytes(const record_source *s, int split, int64_t *bytes)
{
    struct stat st;
    if (fstat(s->fd[split], &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", s->files.path[split], strerror(errno));
    *bytes = st.st_size;
    return DLRM_OK;
}

/* A file's records at its beginning, in its middle and at its end. */
static dlrm_status inspect(record_source *s, int split, dlrm_record_evidence *e)
{
    enum { PLACES = 3 };
    int64_t rows = s->base.rows[split], n = rows < PLACES * DLRM_RECORD_SAMPLE ? rows : DLRM_RECORD_SAMPLE;
    for (int place = 0; place < (n == rows ? 1 : PLACES); place++) {
        TRY(read_raw(s, split, (rows - n) / (PLACES - 1) * place, n));
        dlrm_record_inspect(&s->layout, s->raw, n, e);
    }
    return DLRM_OK;
}

/* Whether the first records have labels where MLPerf's 214 ids a row put them, and not where 26 do. */
static dlrm_status looks_like_dcn(record_source *s, int split, int n_dense, int64_t bytes, bool *out)
{
    enum { LOOK = 64 };
    const int n_ids[] = {DLRM_MLPERF_IDS, DLRM_MLPERF_FEATURES};
    bool fits[2];
    for (int i = 0; i < 2; i++) {
        dlrm_record_evidence e = {0};
        s->layout = (dlrm_record_layout){.n_dense = n_dense, .n_ids = n_ids[i]};
        int64_t size = dlrm_record_bytes(&s->layout), n = bytes / size < LOOK ? bytes / size : LOOK;
        fits[i] = bytes > 0 && bytes % size == 0;
        if (!fits[i]) continue;
        TRY(read_raw(s, split, 0, n));
        dlrm_record_inspect(&s->layout, s->raw, n, &e);
        fits[i] = e.bad_labels == 0;
    }
    *out = fits[0] && !fits[1];
    return DLRM_OK;
}

static dlrm_status shape_from_hints(record_source *s, const dlrm_source_hints *h, int split)
{
    enum { MOST = 1 << 16 };
    int64_t *list, bytes = 0;
    int n_hotness = 0, n_cardinalities = 0, n_dense = h->n_dense >= 0 ? (int)h->n_dense : 13;
    dlrm_status st;
    TRY(file_bytes(s, split, &bytes));
    TRY(dlrm_alloc(2 * MOST, sizeof *list, "lists", &list));
    int64_t *cardinalities = list + MOST;
    if (h->hotness) TRY_TO(end, st, dlrm_parse_list("hotness", h->hotness, 1 << 20, MOST, list, &n_hotness));
    if (h->cardinalities)
        TRY_TO(end, st, dlrm_parse_list("cardinalities", h->cardinalities, DLRM_MAX_ROWS, MOST, cardinalities, &n_cardinalities));
    if (n_hotness && n_cardinalities && n_hotness != n_cardinalities)
        TRY_TO(end, st, FAIL(DLRM_E_USAGE, "--hotness has %d values, --cardinalities has %d", n_hotness, n_cardinalities));
    int n = n_hotness ? n_hotness : n_cardinalities ? n_cardinalities : DLRM_MLPERF_FEATURES;
    TRY_TO(end, st, dlrm_shape_open(n_dense, n, &s->base.shape));
    bool dcn = false;
    if (!n_hotness && n == DLRM_MLPERF_FEATURES && s->files.format == DLRM_FORMAT_HUGECTR_RAW)
        TRY_TO(end, st, looks_like_dcn(s, split, n_dense, bytes, &dcn));
    for (int f = 0; f < n; f++) {
        dlrm_feature *to = &s->base.shape.features[f];
        to->hotness = n_hotness ? (int)list[f] : dcn ? dlrm_mlperf_hotness[f] : 1;
        to->cardinality = n_cardinalities ? cardinalities[f] : 0;
    }
    dlrm_shape_settle(&s->base.shape);
    st = DLRM_OK;
end:
    dlrm_free(&list);
    return st;
}

static dlrm_status open_files(record_source *s)
{
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        if (*s->files.path[i]) TRY(dlrm_file_open(s->files.path[i], true, &s->fd[i]));
    }
    return DLRM_OK;
}

static dlrm_status count_rows(record_source *s)
{
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        int64_t bytes = 0;
        if (s->fd[i] < 0) continue;
        TRY(file_bytes(s, i, &bytes));
        TRY(dlrm_record_rows(&s->layout, s->files.path[i], bytes, &s->base.rows[i]));
        if (s->files.rows[i] && s->files.rows[i] != s->base.rows[i])
            TRY(dlrm_found(s->base.findings, &s->files.rows[i], "files of another length than described",
                           "%s: found %lld rows, expected the %lld of %s: the file is cut off, or of another folder", s->files.path[i],
                           (long long)s->base.rows[i], (long long)s->files.rows[i], dlrm_records_description));
        s->base.disk_bytes += bytes;
    }
    return DLRM_OK;
}

/* MLPerf scores the first half of Terabyte's last day, the longer one by a row: HugeCTR calls it val, others test. */
static void put_halves_right(record_source *s)
{
    if (s->base.rows[DLRM_VALIDATION] != CRITEO_TERABYTE_TEST_ROWS || s->base.rows[DLRM_TEST] != CRITEO_TERABYTE_TEST_ROWS - 1) return;
    char path[DLRM_PATH_MAX];
    int fd = s->fd[DLRM_TEST];
    memcpy(path, s->files.path[DLRM_TEST], DLRM_PATH_MAX);
    memcpy(s->files.path[DLRM_TEST], s->files.path[DLRM_VALIDATION], DLRM_PATH_MAX);
    memcpy(s->files.path[DLRM_VALIDATION], path, DLRM_PATH_MAX);
    s->fd[DLRM_TEST] = s->fd[DLRM_VALIDATION];
    s->fd[DLRM_VALIDATION] = fd;
    s->base.rows[DLRM_TEST]++;
    s->base.rows[DLRM_VALIDATION]--;
    s->base.note = "val holds the 89137319 rows that MLPerf scores, so it counts as test";
}

/* The kind of dense value: as said, which the bits must bear out, or as the bits have it. */
static dlrm_status judge_dense(record_source *s, const dlrm_source_hints *h, bool described)
{
    dlrm_dense_form *form = &s->base.shape.form;
    int wanted = described ? (int)*form : h->form;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        dlrm_record_evidence e = {0};
        dlrm_record_dense kind = wanted == DLRM_FORM_COUNTS ? DLRM_RECORD_COUNTS : DLRM_RECORD_FLOATS;
        if (s->fd[i] < 0) continue;
        TRY(inspect(s, i, &e));
        bool silent = e.counts + e.floats + e.others == 0;  /* all 0: either kind */
        if (wanted >= 0) e.float_labels = e.bad_labels = 0; /* named by row, later */
        if (wanted < 0) {
            TRY(dlrm_record_judge(&e, s->files.path[i], &kind));
            wanted = kind == DLRM_RECORD_COUNTS ? DLRM_FORM_COUNTS : DLRM_FORM_FLOATS;
        } else if (!silent && dlrm_record_expect(&e, s->files.path[i], kind) != DLRM_OK) {
            TRY(dlrm_found(s->base.findings, &s->layout, "another kind of record", "%s", dlrm_error_message()));
        }
    }
    *form = (dlrm_dense_form)wanted;
    s->layout.dense = *form == DLRM_FORM_COUNTS ? DLRM_RECORD_COUNTS : DLRM_RECORD_FLOATS;
    if (s->base.format == DLRM_FORMAT_MLPERF_BIN && s->layout.dense == DLRM_RECORD_FLOATS)
        s->base.note = "float32 dense values in facebook's record: DeepLearningExamples' intermediate, or one-hot HugeCTR Raw";
    return DLRM_OK;
}

static dlrm_status open_all(record_source *s, const char *path, const dlrm_source_hints *h)
{
    char description[DLRM_PATH_MAX];
    dlrm_format format = s->base.format;
    TRY(dlrm_tool_path(description, "%s/%s", path, dlrm_records_description));
    bool described = access(description, F_OK) == 0;
    if (described) {
        TRY(dlrm_records_load(path, &s->files, &s->base.shape));
        s->base.format = s->files.format;
    } else if (!dlrm_record_files_find(path, format, &s->files)) {
        return FAIL(DLRM_E_INPUT, "%s: no file of records here; expected names such as train_data.bin or day_train.bin", path);
    }
    TRY(open_files(s));
    int first = 0;
    while (s->fd[first] < 0) first++;
    if (!described) TRY(shape_from_hints(s, h, first));
    s->layout = (dlrm_record_layout){.n_dense = s->base.shape.n_dense, .n_ids = (int)s->base.shape.n_ids};
    TRY(count_rows(s));
    if (!described) put_halves_right(s);
    return judge_dense(s, h, described);
}

dlrm_status dlrm_record_source_open(const char *path, dlrm_format format, const dlrm_source_hints *h, dlrm_findings *findings,
                                    dlrm_row_source **out)
{
    record_source *s;
    TRY(dlrm_alloc(1, sizeof *s, "a source of rows", &s));
    s->base.format = format;
    s->base.dense_bytes = 4;
    s->base.read = read_rows;
    s->base.close = close_source;
    s->base.findings = findings;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) s->fd[i] = -1;
    *out = &s->base;
    return open_all(s, path, h);
}
