/* Criteo's text as info and verify see it. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "criteo_line.h"
#include "info.h"
#include "text_input.h"
#include "tool.h"

typedef struct text_survey {
    int64_t lines, rows, positives, bad, bytes;
    char first_bad[300];
    int64_t bad_line;
    int64_t missing_dense, missing_ids, negative;
    int32_t least;
} text_survey;

static void look_at_chunk(text_survey *s, const dlrm_text_chunk *c, int64_t most)
{
    const char *line = c->text, *stop = c->text + c->bytes;
    dlrm_criteo_row row;
    for (int64_t number = c->first_line; line < stop && (most == 0 || s->lines < most); number++) {
        const char *end = memchr(line, '\n', (size_t)(stop - line));
        s->lines++;
        s->bytes += end + 1 - line;
        if (dlrm_criteo_parse(line, (size_t)(end - line), &row)) {
            s->rows++;
            s->positives += row.label;
            s->missing_dense += __builtin_popcount(row.dense_missing);
            s->missing_ids += __builtin_popcount(row.ids_missing);
            for (int j = 0; j < CRITEO_DENSE; j++) {
                s->negative += row.dense[j] < 0;
                if (row.dense[j] < s->least) s->least = row.dense[j];
            }
        } else if (s->bad++ == 0) {
            s->bad_line = number;
            dlrm_criteo_explain(line, (size_t)(end - line), s->first_bad, sizeof s->first_bad);
        }
        line = end + 1;
    }
}

/* Rows that Criteo's own files have. */
static int64_t published_rows(const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char plain[64];
    snprintf(plain, sizeof plain, "%s", name);
    size_t n = strlen(plain);
    if (n > 3 && strcmp(plain + n - 3, ".gz") == 0) plain[n - 3] = 0;
    if (strcmp(plain, "train.txt") == 0) return 45840617;
    return strcmp(plain, "day_23") == 0 ? 178274637 : 0;
}

static void print(const char *path, const text_survey *s, const dlrm_text_input *in, bool all)
{
    double rows = s->rows > 0 ? (double)s->rows : 1;
    dlrm_info("%s: text, %.3f GB", path, (double)dlrm_text_file_bytes(in) * 1e-9);
    if (all)
        dlrm_info("%-10s %lld", "rows", (long long)s->rows);
    else
        dlrm_info("%-10s about %.0f, by the %lld lines looked at", "rows",
                  (double)dlrm_text_file_bytes(in) / (double)(dlrm_text_bytes_read(in) > 0 ? dlrm_text_bytes_read(in) : 1) *
                      (double)dlrm_text_bytes(in) / ((double)s->bytes / (double)s->lines),
                  (long long)s->lines);
    if (all && published_rows(path) > 0) dlrm_info("%-10s %lld in Criteo's own file of this name", "", (long long)published_rows(path));
    dlrm_info("%-10s %.3f %% with label 1", "labels", 100 * (double)s->positives / rows);
    dlrm_info("%-10s 13 counts a row, %.2f %% missing, %.3f %% negative, the least %d", "dense",
              100 * (double)s->missing_dense / rows / CRITEO_DENSE, 100 * (double)s->negative / rows / CRITEO_DENSE, s->least);
    dlrm_info("%-10s 26 hashes a row, %.2f %% missing; 'dlrm_data convert' makes ids of them", "features",
              100 * (double)s->missing_ids / rows / CRITEO_IDS);
    if (s->bad > 0)
        dlrm_info("problem: %s: line %lld: %s (malformed lines: %lld of %lld)", path, (long long)s->bad_line + 1, s->first_bad,
                  (long long)s->bad, (long long)s->lines);
    if (all && dlrm_text_open_ended(in, 0))
        dlrm_info("problem: %s: the last line does not end in a line break; was the file cut off?", path);
}

dlrm_status dlrm_info_text(const char *path, int64_t lines, int64_t *problems)
{
    char *paths[] = {(char *)path};
    dlrm_text_input *in = NULL;
    dlrm_text_chunk chunk = {0};
    text_survey s = {0};
    bool more = true;
    dlrm_status st = dlrm_text_open(1, paths, &in);
    if (st == DLRM_OK) st = dlrm_text_chunk_alloc(&chunk);
    dlrm_tool_progress_begin();
    while (st == DLRM_OK && more && (lines == 0 || s.lines < lines)) {
        st = dlrm_text_next(in, &chunk, &more);
        if (st == DLRM_OK && more) look_at_chunk(&s, &chunk, lines);
        if (st == DLRM_OK) dlrm_tool_progress("reading lines", dlrm_text_bytes_read(in), dlrm_text_file_bytes(in));
    }
    if (st == DLRM_OK) {
        bool all = !more || lines == 0;
        print(path, &s, in, all);
        *problems = s.bad + (all && dlrm_text_open_ended(in, 0));
    }
    dlrm_free(&chunk.text);
    dlrm_text_close(&in);
    return st;
}
