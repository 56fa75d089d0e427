/* What a conversion did: convert.json, and the closing lines. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "convert.h"

static double rate(const dlrm_pass *p, double seconds)
{
    return seconds > 0 ? (double)p->bytes * 1e-6 / seconds : 0;
}

/* A path may be any bytes, JSON is UTF-8: others become question marks. */
static json_t *path_json(const char *path)
{
    char copy[DLRM_PATH_MAX];
    json_t *out = json_string(path);
    if (out) return out;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *p = copy; *p; p++)
        if (*p & 0x80) *p = '?';
    return json_string(copy);
}

static json_t *splits(const int64_t *values)
{
    return json_pack("{s:I,s:I,s:I}", "train", (json_int_t)values[DLRM_TRAIN], "test", (json_int_t)values[DLRM_TEST],
                     "validation", (json_int_t)values[DLRM_VALIDATION]);
}

static json_t *options_json(const dlrm_convert_options *o, const dlrm_convert_report *r)
{
    json_t *inputs = json_array();
    for (int i = 0; i < o->n_files; i++) json_array_append_new(inputs, path_json(o->paths[i]));
    json_t *out = json_pack("{s:o,s:o,s:I,s:I,s:s,s:s,s:f,s:I,s:I}", "inputs", inputs, "vocab",
                            o->vocab ? path_json(o->vocab) : json_null(), "cap", (json_int_t)r->cap, "frequency_limit",
                            (json_int_t)r->frequency_limit, "dense", dlrm_form_names[dlrm_convert_form(o->dense)],
                            "dense_type",
                            o->dense == DLRM_DENSE_COUNTS ? "int32" : o->dense_type ? "float32" : "float16", "max_bad_share", o->max_bad_share,
                            "threads", (json_int_t)o->threads, "memory", (json_int_t)o->memory);
    json_object_set_new(out, "shuffle", o->shuffle ? json_integer(o->seed) : json_null());
    if (o->test_file >= 0)
        json_object_set_new(out, "test_file", path_json(o->paths[o->test_file]));
    else
        json_object_set_new(out, "test_fraction", json_real(o->test_fraction));
    json_object_set_new(out, "test_rows", o->test_rows >= 0 ? json_integer(o->test_rows) : json_null());
    return out;
}

static json_t *columns_json(const dlrm_convert_report *r)
{
    json_t *out = json_array();
    for (int k = 0; k < CRITEO_IDS; k++) {
        const dlrm_column_report *c = &r->columns[k];
        char name[32], dtype[32];
        snprintf(name, sizeof name, "cat_%d.bin", k);
        snprintf(dtype, sizeof dtype, "int%d", 8 * dlrm_columns_id_bytes(c->cardinality));
        json_array_append_new(out,
                              json_pack("{s:s,s:I,s:s,s:I,s:I,s:i}", "name", name, "cardinality",
                                        (json_int_t)c->cardinality, "dtype", dtype, "missing", (json_int_t)c->missing,
                                        "unknown", (json_int_t)c->unknown, "runs_on_disk", c->runs));
    }
    return out;
}

static json_t *passes_json(const dlrm_convert_report *r)
{
    json_t *out = json_array();
    for (int i = 0; i < DLRM_CONVERT_PASSES; i++) {
        const dlrm_pass *p = &r->passes[i];
        if (p->name)
            json_array_append_new(out, json_pack("{s:s,s:f,s:f,s:I,s:s,s:f,s:f}", "name", p->name, "seconds",
                                                 p->seconds, "cpu_seconds", p->cpu_seconds, "bytes",
                                                 (json_int_t)p->bytes, "of", p->of, "mb_per_s", rate(p, p->seconds),
                                                 "mb_per_s_per_core", rate(p, p->cpu_seconds)));
    }
    return out;
}

static json_t *bad_json(const dlrm_convert_options *o, const dlrm_bad_lines *bad)
{
    json_t *out = json_array();
    for (int i = 0; i < bad->n; i++) {
        uint64_t number = bad->first[i].number;
        json_array_append_new(out,
                              json_pack("{s:o,s:I,s:s}", "file", path_json(o->paths[dlrm_row_file(number)]), "line",
                                        (json_int_t)dlrm_row_line(number) + 1, "reason", bad->first[i].reason));
    }
    return out;
}

static void print_summary(const dlrm_convert_options *o, const dlrm_convert_report *r, const dlrm_bad_lines *bad)
{
    int64_t table_rows = 0;
    for (int k = 0; k < CRITEO_IDS; k++) table_rows += r->columns[k].cardinality;
    dlrm_info("rows: %lld train, %lld test, %lld validation; %lld of %lld lines malformed; %lld table rows",
              (long long)r->rows[DLRM_TRAIN], (long long)r->rows[DLRM_TEST], (long long)r->rows[DLRM_VALIDATION],
              (long long)bad->bad, (long long)bad->lines, (long long)table_rows);
    for (int i = 0; i < DLRM_CONVERT_PASSES; i++) {
        const dlrm_pass *p = &r->passes[i];
        if (p->name)
            dlrm_info("%-13s %8.2f s  %8.1f MB/s of %s, %.1f MB/s per core", p->name, p->seconds, rate(p, p->seconds),
                      p->of, rate(p, p->cpu_seconds));
    }
    dlrm_info("peak memory: %.0f MiB of %.0f", (double)dlrm_mem_peak_resident() / (1 << 20),
              (double)o->memory / (1 << 20));
}

dlrm_status dlrm_convert_report_write(const dlrm_convert_options *o, const dlrm_convert_report *r,
                                      const dlrm_bad_lines *bad, const char *folder)
{
    char path[DLRM_PATH_MAX];
    TRY(dlrm_tool_path(path, "%s/convert.json", folder));
    json_t *root = json_pack(
        "{s:s,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:i,s:I,s:o}", "version", DLRM_VERSION, "rows", splits(r->rows), "positives",
        splits(r->positives), "lines", (json_int_t)bad->lines, "bad_lines", (json_int_t)bad->bad, "first_bad_lines",
        bad_json(o, bad), "columns", columns_json(r), "passes", passes_json(r), "column_groups", r->groups,
        "peak_resident_bytes", (json_int_t)dlrm_mem_peak_resident(), "options", options_json(o, r));
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (!text) return FAIL(DLRM_E_RUNTIME, "%s: cannot allocate memory for it", path);
    dlrm_status st = dlrm_tool_write_text(path, text);
    free(text);
    if (st == DLRM_OK) print_summary(o, r, bad);
    return st;
}
