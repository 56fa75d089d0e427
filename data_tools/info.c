#include "info.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "source_options.h"
#include "stats.h"
#include "transcode.h"

static const char info_text[] =
    "Says what PATH, a folder or a file, is: its format, rows, features, cardinalities, hotness, dense values,\n"
    "share of label 1, and what is wrong with it, as far as a sample of its rows shows. Ends with status 1 where\n"
    "problems were found.";
static const char verify_text[] =
    "Reads every row of PATH, a folder or a file, and checks each value: labels are 0 or 1, dense values are\n"
    "finite (counts are from 0), ids are below their cardinality, bags are no longer than their most, files have\n"
    "as many rows as each other, checksums (hugectr_norm) are right, lines (text) are well-formed. The first\n"
    "problem of each kind and file is named and the others are counted. Ends with status 1 where there are some.\n"
    "Where cardinalities are not said, any id is taken: --cardinalities says them.";

typedef struct survey {
    const char *path;
    bool all;
    int64_t sample; /* rows of each split */
    dlrm_source_hints hints;
    dlrm_findings *findings;
    dlrm_row_source *from;
    dlrm_stats stats;
    dlrm_stretch rows;
} survey;

static dlrm_status look_at(survey *s, int split, int64_t row, int64_t end)
{
    for (int64_t n; row < end; row += n) {
        n = end - row < s->rows.capacity ? end - row : s->rows.capacity;
        TRY(s->from->read(s->from, split, row, n, &s->rows));
        dlrm_stats_add(&s->stats, &s->from->shape, split, &s->rows);
        dlrm_tool_progress("reading rows", row, end);
    }
    return DLRM_OK;
}

/* A sample is some stretches spread over the split; a format that can only be read in order gives its first rows. */
static dlrm_status look_at_split(survey *s, int split)
{
    enum { PLACES = 16 };
    int64_t rows = s->from->rows[split], each = s->sample / PLACES + 1;
    if (s->all || rows <= s->sample) return look_at(s, split, 0, rows);
    if (s->from->format == DLRM_FORMAT_HUGECTR_NORM) return look_at(s, split, 0, s->sample);
    for (int place = 0; place < PLACES; place++) {
        int64_t first = (rows - each) / (PLACES - 1) * place;
        TRY(look_at(s, split, place < PLACES - 1 ? first : rows - each, place < PLACES - 1 ? first + each : rows));
    }
    return DLRM_OK;
}

static dlrm_status survey_rows(survey *s)
{
    TRY(dlrm_source_open(s->path, &s->hints, s->findings, &s->from));
    TRY(dlrm_stats_open(&s->from->shape, &s->stats));
    TRY(dlrm_stretch_open(&s->from->shape, dlrm_stretch_rows(&s->from->shape), &s->rows));
    dlrm_tool_progress_begin();
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) TRY(look_at_split(s, i));
    TRY(dlrm_stats_judge(&s->stats, s->from, s->path, s->findings));
    dlrm_stats_print(&s->stats, s->from, s->path, s->all);
    dlrm_findings_print(s->findings);
    return DLRM_OK;
}

static dlrm_status verdict(const survey *s, int64_t problems)
{
    if (problems == 0) {
        dlrm_info("%s",
                  s->all ? "every row verified: no problems" : "no problems found in the rows looked at; 'dlrm_data verify' reads all");
        return DLRM_OK;
    }
    return FAIL(DLRM_E_INPUT, "%s: %lld problem%s found", s->path, (long long)problems, problems > 1 ? "s" : "");
}

static dlrm_status run(survey *s)
{
    dlrm_format format = (dlrm_format)s->hints.format;
    int64_t problems = 0;
    if (s->hints.format < 0) TRY(dlrm_recognise(s->path, &format));
    if (format == DLRM_FORMAT_TEXT) {
        TRY(dlrm_info_text(s->path, s->all ? 0 : s->sample, &problems));
        return verdict(s, problems);
    }
    TRY(dlrm_alloc(1, sizeof *s->findings, "findings", &s->findings));
    dlrm_status st = survey_rows(s);
    if (st == DLRM_OK) st = verdict(s, s->findings->all);
    dlrm_stretch_close(&s->rows);
    dlrm_stats_clear(&s->stats);
    dlrm_source_close(&s->from);
    dlrm_free(&s->findings);
    return st;
}

static dlrm_status main_of(bool all, int argc, char **argv)
{
    survey s = {.all = all, .sample = 100000, .hints = {.format = -1, .form = -1, .n_dense = -1}};
    int n_positional;
    bool help;
    const dlrm_option options[] = {
        {"from", DLRM_OPT_CHOICE, &s.hints.format, "FORMAT", "of PATH (default: recognised)", .choices = dlrm_format_names},
        DLRM_HINT_OPTIONS(s.hints),
        DLRM_HOTNESS_OPTION(s.hints),
        {"sample", DLRM_OPT_INT, &s.sample, "N", "rows of each split to look at (default 100000)", .min = 1, .max = 1e15}, /* info alone */
    };
    const int n = sizeof options / sizeof *options;
    const dlrm_usage usage = {all ? "verify" : "info", "PATH [options]", all ? verify_text : info_text, options, all ? n - 1 : n};
    TRY(dlrm_options_parse(&usage, argc, argv, &n_positional, &help));
    if (help) return DLRM_OK;
    if (n_positional != 1) return FAIL(DLRM_E_USAGE, "expected one PATH; see 'dlrm_data %s --help'", usage.command);
    s.path = argv[0];
    return run(&s);
}

dlrm_status dlrm_info_main(int argc, char **argv)
{
    return main_of(false, argc, argv);
}

dlrm_status dlrm_verify_main(int argc, char **argv)
{
    return main_of(true, argc, argv);
}
