#include "data/records.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "data files are little-endian and read as they are"
#endif

static const uint32_t one_as_float = 0x3F800000;

int64_t dlrm_record_bytes(const dlrm_record_layout *l)
{
    return DLRM_RECORD_WORD * (1 + (int64_t)l->n_dense + l->n_ids);
}

dlrm_status dlrm_record_rows(const dlrm_record_layout *l, const char *path, int64_t file_bytes, int64_t *rows)
{
    int64_t bytes = dlrm_record_bytes(l);
    *rows = file_bytes / bytes;
    if (file_bytes == 0) return FAIL(DLRM_E_INPUT, "%s: the file is empty, expected records of %lld bytes", path, (long long)bytes);
    if (file_bytes % bytes)
        return FAIL(DLRM_E_INPUT,
                    "%s: found %lld bytes, which are %lld records and %lld bytes; expected a multiple of %lld bytes (a label, "
                    "%d dense values and %d ids of 4 bytes): the file is cut off, or its records are others",
                    path, (long long)file_bytes, (long long)*rows, (long long)(file_bytes % bytes), (long long)bytes, l->n_dense, l->n_ids);
    return DLRM_OK;
}

static uint32_t word_at(const void *records, int64_t word)
{
    uint32_t v;
    memcpy(&v, (const char *)records + word * DLRM_RECORD_WORD, sizeof v);
    return v;
}

static float float_at(const void *records, int64_t word)
{
    float v;
    memcpy(&v, (const char *)records + word * DLRM_RECORD_WORD, sizeof v);
    return v;
}

static int64_t record_words(const dlrm_record_layout *l)
{
    return dlrm_record_bytes(l) / DLRM_RECORD_WORD;
}

/* --- which kind --- */

const char *dlrm_record_dense_text(dlrm_record_dense d)
{
    return d == DLRM_RECORD_COUNTS ? "int32 counts" : "float32 values";
}

static bool looks_like_float(uint32_t word)
{
    uint32_t exponent = word >> 23 & 0xFF; /* bias 127 */
    return exponent >= 127 - 20 && exponent < 127 + 20;
}

void dlrm_record_inspect(const dlrm_record_layout *l, const void *records, int64_t n, dlrm_record_evidence *e)
{
    int64_t words = record_words(l);
    for (int64_t i = 0; i < n; i++) {
        uint32_t label = word_at(records, i * words);
        e->float_labels += label == one_as_float;
        e->bad_labels += label > 1 && label != one_as_float;
        for (int j = 0; j < l->n_dense; j++) {
            uint32_t word = word_at(records, i * words + 1 + j);
            if (word == 0)
                e->zeros++;
            else if (word < 1u << 23)
                e->counts++;
            else if (looks_like_float(word))
                e->floats++;
            else
                e->others++;
        }
    }
    e->records += n;
}

dlrm_status dlrm_record_judge(const dlrm_record_evidence *e, const char *path, dlrm_record_dense *out)
{
    int64_t dense = e->zeros + e->counts + e->floats + e->others, known = e->counts + e->floats;
    if (e->float_labels > 0 && e->bad_labels == 0)
        return FAIL(DLRM_E_INPUT,
                    "%s: of %lld records looked at, %lld have a label of 1065353216, the bits of float 1; expected int32 "
                    "labels 0 and 1",
                    path, (long long)e->records, (long long)e->float_labels);
    if (e->bad_labels > 0)
        return FAIL(DLRM_E_INPUT,
                    "%s: of %lld records looked at, %lld have a label other than 0 and 1: the records are others than "
                    "said, or not records",
                    path, (long long)e->records, (long long)(e->bad_labels + e->float_labels));
    *out = DLRM_RECORD_COUNTS;
    if (dense == 0) return DLRM_OK;
    if (known == 0 || e->others > known)
        return FAIL(DLRM_E_INPUT,
                    "%s: cannot tell whether the dense values are int32 counts or float32: of %lld looked at, %lld are 0 and "
                    "%lld look like neither",
                    path, (long long)dense, (long long)e->zeros, (long long)e->others);
    if (e->floats * 100 <= e->counts) return DLRM_OK;
    *out = DLRM_RECORD_FLOATS;
    if (e->counts == 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT,
                "%s: cannot tell whether the dense values are int32 counts or float32: of %lld looked at, %lld look like "
                "counts and %lld like floats",
                path, (long long)dense, (long long)e->counts, (long long)e->floats);
}

dlrm_status dlrm_record_expect(const dlrm_record_evidence *e, const char *path, dlrm_record_dense said)
{
    dlrm_record_dense found;
    TRY(dlrm_record_judge(e, path, &found));
    if (found == said || e->zeros + e->counts + e->floats + e->others == 0) return DLRM_OK;
    return FAIL(DLRM_E_INPUT,
                "%s: the dense values are %s (of %lld looked at that are not 0, %lld look like counts and %lld like floats), "
                "expected %s",
                path, dlrm_record_dense_text(found), (long long)(e->counts + e->floats + e->others), (long long)e->counts,
                (long long)e->floats, dlrm_record_dense_text(said));
}

/* --- reading --- */

enum { SMALL = 1 << 14 }; /* almost all counts are below */
static float small_logs[SMALL];
static pthread_once_t small_logs_made = PTHREAD_ONCE_INIT;

static float log_of(int32_t count)
{
    return (float)log((double)count + 1.0);
}

static void make_small_logs(void)
{
    for (int i = 0; i < SMALL; i++) small_logs[i] = log_of(i);
}

float dlrm_record_log1p(int32_t count)
{
    pthread_once(&small_logs_made, make_small_logs);
    return count < SMALL ? small_logs[count] : log_of(count);
}

bool dlrm_record_labels(const dlrm_record_layout *l, const void *records, int64_t n, float *out)
{
    int64_t words = record_words(l);
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t label = word_at(records, i * words);
        bad |= label & ~1u;
        out[i] = (float)label;
    }
    return bad == 0;
}

bool dlrm_record_dense_values(const dlrm_record_layout *l, const void *records, int64_t n, float *out)
{
    int64_t words = record_words(l);
    bool bad = false;
    pthread_once(&small_logs_made, make_small_logs);
    for (int64_t i = 0; i < n; i++, out += l->n_dense) {
        if (l->dense == DLRM_RECORD_FLOATS) {
            memcpy(out, (const char *)records + (i * words + 1) * DLRM_RECORD_WORD, (size_t)l->n_dense * sizeof *out);
            for (int j = 0; j < l->n_dense; j++) bad |= !isfinite(out[j]);
            continue;
        }
        for (int j = 0; j < l->n_dense; j++) {
            uint32_t word = word_at(records, i * words + 1 + j);
            out[j] = word < SMALL ? small_logs[word] : word <= INT32_MAX ? log_of((int32_t)word) : 0.0f;
            bad |= word > INT32_MAX;
        }
    }
    return !bad;
}

bool dlrm_record_ids(const dlrm_record_layout *l, const void *records, int64_t n, int first, int hotness, int64_t rows, uint32_t *out)
{
    int64_t words = record_words(l), at = 1 + l->n_dense + first;
    uint32_t last = (uint32_t)(rows - 1), most = 0;
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < hotness; h++) {
            uint32_t id = word_at(records, i * words + at + h);
            most = id > most ? id : most;
            *out++ = id;
        }
    return most <= last;
}

static dlrm_status bad_label(const char *path, int64_t row, uint32_t label)
{
    if (label == one_as_float)
        return FAIL(DLRM_E_INPUT, "%s: row %lld: label 1065353216, the bits of float 1; expected an int32 0 or 1", path, (long long)row);
    return FAIL(DLRM_E_INPUT, "%s: row %lld: label %d is neither 0 nor 1", path, (long long)row, (int32_t)label);
}

dlrm_status dlrm_record_offender(const dlrm_record_layout *l, const void *records, int64_t n, const char *path, int64_t row)
{
    int64_t words = record_words(l);
    for (int64_t i = 0; i < n; i++) {
        uint32_t label = word_at(records, i * words);
        if (label > 1) return bad_label(path, row + i, label);
    }
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < l->n_dense; j++) {
            int64_t at = i * words + 1 + j;
            if (l->dense == DLRM_RECORD_FLOATS && !isfinite(float_at(records, at)))
                return FAIL(DLRM_E_INPUT, "%s: row %lld: value %g in column %d is not finite", path, (long long)(row + i),
                            (double)float_at(records, at), j);
            if (l->dense == DLRM_RECORD_COUNTS && word_at(records, at) > INT32_MAX)
                return FAIL(DLRM_E_INPUT, "%s: row %lld: count %d in column %d is negative, expected a count from 0", path,
                            (long long)(row + i), (int32_t)word_at(records, at), j);
        }
    return DLRM_OK;
}

dlrm_status dlrm_record_id_offender(const dlrm_record_layout *l, const void *records, int64_t n, int first, int hotness, int64_t rows,
                                    const char *table, const char *path, int64_t row)
{
    int64_t words = record_words(l), at = 1 + l->n_dense + first;
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < hotness; h++) {
            uint32_t id = word_at(records, i * words + at + h);
            if (id < rows) continue;
            const char *hint = id == rows       ? ": one too many; is the number of rows the largest id?"
                               : id > INT32_MAX ? ", or negative as an int32: a hash that was never made an id?"
                                                : "";
            return FAIL(DLRM_E_INPUT, "%s: row %lld: id %u is outside [0, %lld) of table %s%s", path, (long long)(row + i), id,
                        (long long)rows, table, hint);
        }
    return DLRM_OK;
}
