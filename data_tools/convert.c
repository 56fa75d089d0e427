/* The passes of a conversion of text: (count the lines, where the split needs it;) parse the text, counting ids and spooling
 * rows; make the vocabularies; write the columns. */
#include "convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "counts.h"
#include "rows.h"
#include "transcode.h"
#include "vocab.h"

/* No shorter line is well-formed: a label and 39 tabs. */
enum { LEAST_LINE = 41, CHUNK_ROWS = DLRM_TEXT_CHUNK / LEAST_LINE + 1 };

/* For the program itself, its libraries and what is too small to be counted. */
static const int64_t base_bytes = 16 << 20;

typedef struct conversion {
    dlrm_convert_options o;
    dlrm_text_input *text;
    dlrm_split_plan plan;
    dlrm_output out;
    dlrm_dense dense;
    dlrm_spool *spool;
    dlrm_spool_args spool_args;
    dlrm_counts *counts; /* NULL with --vocab */
    dlrm_bad_lines bad;
    char vocab_path[CRITEO_IDS][DLRM_PATH_MAX];
    dlrm_vocab_info vocab[CRITEO_IDS];
    atomic_int next_vocab;
    dlrm_columns *columns;
    int64_t counted_lines; /* by the counting pass, where there is one */
    dlrm_convert_report report;
    int n_passes;
    double pass_start, pass_cpu_start;
} conversion;

/* From the end of the last pass, or the start, to now. */
static void end_pass(conversion *c, const char *name, int64_t bytes, const char *of)
{
    double now = dlrm_now(), cpu = dlrm_tool_cpu_seconds();
    c->report.passes[c->n_passes++] = (dlrm_pass){name, now - c->pass_start, cpu - c->pass_cpu_start, bytes, of};
    c->pass_start = now;
    c->pass_cpu_start = cpu;
}

static dlrm_status count_lines_job(void *shared, int thread, const atomic_bool *stop)
{
    (void)thread;
    conversion *c = shared;
    dlrm_text_chunk chunk = {0};
    bool more = true;
    dlrm_status st = dlrm_text_chunk_alloc(&chunk);
    while (st == DLRM_OK && more && !*stop) {
        st = dlrm_text_next(c->text, &chunk, &more);
        dlrm_tool_progress("counting lines", dlrm_text_bytes_read(c->text), dlrm_text_file_bytes(c->text));
    }
    dlrm_free(&chunk.text);
    return st;
}

/* The tail of the data can only be told from its start when all lines are counted. */
static dlrm_status plan_split(conversion *c)
{
    if (c->o.test_file >= 0 || c->o.test_fraction == 0) return dlrm_split_plan_open(&c->o, NULL, &c->plan);
    int64_t *lines;
    TRY(dlrm_alloc(c->o.n_files, sizeof *lines, "line counts", &lines));
    dlrm_tool_progress_begin();
    dlrm_status st = dlrm_tool_run((int)c->o.threads, count_lines_job, c);
    for (int i = 0; i < c->o.n_files; i++) c->counted_lines += lines[i] = dlrm_text_lines(c->text, i);
    if (st == DLRM_OK) st = dlrm_split_plan_open(&c->o, lines, &c->plan);
    dlrm_free(&lines);
    if (st == DLRM_OK) end_pass(c, "count lines", dlrm_text_bytes(c->text), "text");
    dlrm_text_rewind(c->text);
    return st;
}

static void store_row(const conversion *c, dlrm_rows *rows, uint64_t number, const dlrm_criteo_row *row)
{
    int64_t i = rows->n++;
    uint32_t cap = (uint32_t)c->report.cap;
    rows->number[i] = number;
    rows->label[i] = row->label;
    rows->missing[i] = row->ids_missing;
    dlrm_dense_encode(&c->dense, row->dense, row->dense_missing, CRITEO_DENSE, rows->dense + i * rows->dense_bytes);
    for (int k = 0; k < CRITEO_IDS; k++) {
        uint32_t id = row->ids[k];
        rows->ids[k * rows->capacity + i] = cap && id >= cap ? id % cap : id;
    }
}

static void parse_chunk(conversion *c, const dlrm_text_chunk *chunk, dlrm_rows *rows)
{
    const char *line = chunk->text, *stop = chunk->text + chunk->bytes;
    uint64_t number = dlrm_row_number(chunk->file, chunk->first_line);
    dlrm_criteo_row row;
    rows->n = 0;
    for (; line < stop; number++) {
        const char *end = memchr(line, '\n', (size_t)(stop - line));
        if (dlrm_criteo_parse(line, (size_t)(end - line), &row))
            store_row(c, rows, number, &row);
        else
            dlrm_bad_lines_add(&c->bad, number, line, (size_t)(end - line));
        line = end + 1;
    }
}

/* The first row whose line is not before `line` of the file. */
static int64_t rows_before(const dlrm_rows *rows, int file, int64_t line)
{
    if (line <= 0) return 0;
    uint64_t number = line < (int64_t)1 << 40 ? dlrm_row_number(file, line) : UINT64_MAX;
    int64_t low = 0, high = rows->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (rows->number[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static dlrm_status take_chunk(conversion *c, int thread, const dlrm_text_chunk *chunk, dlrm_rows *rows)
{
    parse_chunk(c, chunk, rows);
    TRY(dlrm_bad_lines_count(&c->bad, &c->o, chunk->n_lines));
    int64_t test = rows_before(rows, chunk->file, c->plan.test_begin[chunk->file]);
    int64_t rest = rows_before(rows, chunk->file, c->plan.test_end[chunk->file]);
    TRY(dlrm_spool_add(c->spool, thread, DLRM_TRAIN, rows, 0, test));
    TRY(dlrm_spool_add(c->spool, thread, DLRM_TEST, rows, test, rest));
    TRY(dlrm_spool_add(c->spool, thread, DLRM_VALIDATION, rows, rest, rows->n));
    return c->counts ? dlrm_counts_add(c->counts, rows->ids, rows->capacity, rows->missing, rows->n) : DLRM_OK;
}

static dlrm_status parse_job(void *shared, int thread, const atomic_bool *stop)
{
    conversion *c = shared;
    dlrm_text_chunk chunk = {0};
    dlrm_rows rows = {0};
    bool more;
    dlrm_status st;
    TRY_TO(done, st, dlrm_text_chunk_alloc(&chunk));
    TRY_TO(done, st, dlrm_rows_open(CHUNK_ROWS, CRITEO_IDS, CRITEO_DENSE * c->dense.bytes, &rows));
    while (!*stop) {
        TRY_TO(done, st, dlrm_text_next(c->text, &chunk, &more));
        if (!more) break;
        TRY_TO(done, st, take_chunk(c, thread, &chunk, &rows));
        dlrm_tool_progress("parsing", dlrm_text_bytes_read(c->text), dlrm_text_file_bytes(c->text));
    }
done:
    dlrm_rows_close(&rows);
    dlrm_free(&chunk.text);
    return st;
}

/* A thread's buffers in the text pass: a chunk, a file's rest, gzip's buffers, parsed rows and their order by bucket. */
static int64_t text_pass_bytes(const conversion *c)
{
    int64_t row = 8 + 1 + CRITEO_DENSE * c->dense.bytes + 4 + 4 * CRITEO_IDS + 12;
    return 2 * DLRM_TEXT_CHUNK + (256 << 10) + CHUNK_ROWS * row;
}

/* Enough buckets for one to be sorted in a thread's share of the column pass, and for the threads to have several each;
 * their buffers may take an eighth of the memory. */
static void plan_buckets(conversion *c)
{
    enum { MOST_BITS = 12, LEAST_ROWS = 64, MOST_ROWS = 8192, ROW_BYTES = 200 };
    dlrm_spool_args *a = &c->spool_args;
    int64_t rows = dlrm_text_rows_guess(c->text), fitting = c->o.memory / 4 / c->o.threads / ROW_BYTES + 1,
            room = c->o.memory / 8;
    while (a->bucket_bits < MOST_BITS && (rows >> a->bucket_bits > fitting || 1 << a->bucket_bits < 4 * c->o.threads))
        a->bucket_bits++;
    a->block_rows = LEAST_ROWS;
    while (a->bucket_bits > 0 && dlrm_spool_memory(a) > room) a->bucket_bits--;
    while (a->block_rows < MOST_ROWS && a->block_rows << a->bucket_bits < rows) {
        a->block_rows *= 2;
        if (dlrm_spool_memory(a) <= room) continue;
        a->block_rows /= 2;
        break;
    }
}

static dlrm_status text_pass(conversion *c)
{
    char path[DLRM_PATH_MAX];
    TRY(dlrm_tool_path(path, "%s/rows.tmp", c->out.work));
    c->spool_args = (dlrm_spool_args){.path = path,
                                      .n_ids = CRITEO_IDS,
                                      .dense_bytes = CRITEO_DENSE * c->dense.bytes,
                                      .threads = (int)c->o.threads,
                                      .shuffle = c->o.shuffle,
                                      .seed = (uint64_t)c->o.seed};
    if (c->o.shuffle) plan_buckets(c);
    TRY(dlrm_spool_open(&c->spool_args, &c->spool));
    int64_t rest = c->o.memory - base_bytes - c->o.threads * text_pass_bytes(c) - dlrm_spool_memory(&c->spool_args);
    if (!c->o.vocab) TRY(dlrm_counts_open(CRITEO_IDS, rest, c->out.work, &c->counts));
    dlrm_tool_progress_begin();
    TRY(dlrm_tool_run((int)c->o.threads, parse_job, c));
    TRY(dlrm_spool_finish(c->spool));
    end_pass(c, "parse", dlrm_text_bytes(c->text), "text");
    TRY(dlrm_bad_lines_judge(&c->bad, &c->o));
    if (c->counted_lines && c->counted_lines != c->bad.lines)
        return FAIL(DLRM_E_INPUT, "the input files changed during the run: %lld lines, then %lld",
                    (long long)c->counted_lines, (long long)c->bad.lines);
    for (int i = 0; i < c->o.n_files; i++)
        if (dlrm_text_open_ended(c->text, i))
            fprintf(stderr, "dlrm_data: %s: the last line does not end in a line break; was the file cut off?\n",
                    c->o.paths[i]);
    int64_t rows = 0, *by_split = c->report.rows;
    for (int s = 0; s < DLRM_OUT_SPLITS; s++) rows += by_split[s] = dlrm_spool_rows(c->spool, s);
    if (by_split[DLRM_TRAIN] == 0)
        return FAIL(DLRM_E_INPUT, "all of the %lld rows are held back, and without training rows nothing can be read of what is made; "
                    "expected a smaller --test-fraction, or more day files than that of --test-day", (long long)rows);
    return DLRM_OK;
}

static dlrm_status vocab_job(void *shared, int thread, const atomic_bool *stop)
{
    (void)thread;
    conversion *c = shared;
    int64_t rows = c->report.rows[DLRM_TRAIN] + c->report.rows[DLRM_TEST] + c->report.rows[DLRM_VALIDATION];
    while (!*stop) {
        int k = c->next_vocab++;
        if (k >= CRITEO_IDS) break;
        c->vocab[k] = (dlrm_vocab_info){.cap = c->o.cap, .limit = c->o.frequency_limit, .rows = rows};
        TRY(dlrm_counts_finish(c->counts, k));
        c->report.columns[k].runs = dlrm_counts_runs(c->counts, k);
        TRY(dlrm_vocab_write(c->vocab_path[k], c->counts, k, &c->vocab[k]));
        c->report.columns[k].missing = dlrm_counts_missing(c->counts, k);
        dlrm_counts_drop(c->counts, k);
    }
    return DLRM_OK;
}

static dlrm_status read_vocab_headers(conversion *c)
{
    for (int k = 0; k < CRITEO_IDS; k++) {
        char path[DLRM_PATH_MAX];
        TRY(dlrm_vocab_path(c->o.vocab, k, path));
        TRY(dlrm_vocab_info_read(path, &c->vocab[k]));
        if (c->vocab[k].cap != c->vocab[0].cap)
            return FAIL(DLRM_E_INPUT, "%s: made with cap %lld, cat_0.vocab with %lld", path, (long long)c->vocab[k].cap,
                        (long long)c->vocab[0].cap);
    }
    return DLRM_OK;
}

static dlrm_status make_vocabularies(conversion *c)
{
    char folder[DLRM_PATH_MAX], made[DLRM_PATH_MAX];
    int64_t bytes = 0;
    TRY(dlrm_tool_path(folder, "%s/vocab", c->out.work));
    TRY(dlrm_tool_make_folder(folder));
    for (int k = 0; k < CRITEO_IDS; k++) {
        TRY(dlrm_vocab_path(c->out.work, k, made));
        /* A given vocabulary is read where it was given, so that an error names the user's file and not the copy. */
        TRY(dlrm_vocab_path(c->o.vocab ? c->o.vocab : c->out.work, k, c->vocab_path[k]));
        if (c->o.vocab) TRY(dlrm_vocab_copy(c->vocab_path[k], made));
    }
    if (!c->o.vocab) TRY(dlrm_tool_run((int)c->o.threads, vocab_job, c));
    dlrm_counts_close(&c->counts);
    for (int k = 0; k < CRITEO_IDS; k++) {
        c->report.columns[k].cardinality = c->vocab[k].n + 1;
        bytes += 8 * c->vocab[k].n;
    }
    end_pass(c, "vocabularies", bytes, "vocabulary");
    return DLRM_OK;
}

/* Columns are what ids are given to, a few at a time; records are made from them in one more pass. */
static dlrm_status columns_folder(const conversion *c, char *folder)
{
    return dlrm_tool_path(folder, c->o.to == DLRM_FORMAT_SPLIT_BINARY ? "%s" : "%s/columns", c->out.work);
}

static dlrm_status column_pass(conversion *c)
{
    int64_t cardinality[CRITEO_IDS], n[CRITEO_IDS], unknown[CRITEO_IDS] = {0};
    for (int k = 0; k < CRITEO_IDS; k++) cardinality[k] = (n[k] = c->vocab[k].n) + 1;
    dlrm_columns_shape shape = {.n_dense = CRITEO_DENSE,
                                .dense_bytes = c->dense.bytes,
                                .n_ids = CRITEO_IDS,
                                .cardinality = cardinality,
                                .dense = c->dense.kind == DLRM_DENSE_COUNTS ? NULL : dlrm_form_names[dlrm_convert_form(c->o.dense)]};
    char folder[DLRM_PATH_MAX];
    TRY(columns_folder(c, folder));
    if (c->o.to != DLRM_FORMAT_SPLIT_BINARY) TRY(dlrm_tool_make_folder(folder));
    TRY(dlrm_columns_open(folder, &shape, c->report.rows, &c->columns));
    dlrm_emit_args args = {.spool = c->spool,
                           .n_ids = CRITEO_IDS,
                           .dense_bytes = CRITEO_DENSE * c->dense.bytes,
                           .bucket_bits = c->spool_args.bucket_bits,
                           .vocab_path = c->vocab_path,
                           .vocab_n = n,
                           .threads = (int)c->o.threads,
                           .memory = c->o.memory - base_bytes,
                           .block_rows = CHUNK_ROWS,
                           .out = c->columns};
    dlrm_emit_result result = {.unknown = unknown};
    TRY(dlrm_emit(&args, &result));
    TRY(dlrm_columns_finish(c->columns));
    c->report.groups = result.groups;
    memcpy(c->report.positives, result.positives, sizeof result.positives);
    for (int k = 0; k < CRITEO_IDS; k++) c->report.columns[k].unknown = unknown[k];
    end_pass(c, "write columns", result.bytes_read, "spooled rows");
    return DLRM_OK;
}

static dlrm_status record_pass(conversion *c)
{
    char folder[DLRM_PATH_MAX];
    dlrm_row_source *from = NULL;
    dlrm_row_sink *to = NULL;
    dlrm_source_hints hints = {.format = DLRM_FORMAT_SPLIT_BINARY, .form = dlrm_convert_form(c->o.dense), .n_dense = -1};
    dlrm_sink_args args = {.format = c->o.to, .folder = c->out.work};
    memcpy(args.rows, c->report.rows, sizeof args.rows);
    TRY(columns_folder(c, folder));
    dlrm_columns_close(&c->columns);
    dlrm_status st = dlrm_source_open(folder, &hints, NULL, &from);
    if (st == DLRM_OK) {
        args.shape = &from->shape;
        st = dlrm_sink_open(&args, &to);
    }
    if (st == DLRM_OK) st = dlrm_transcode(from, folder, to);
    if (st == DLRM_OK) end_pass(c, "write records", from->disk_bytes, "columns");
    dlrm_sink_close(&to);
    dlrm_source_close(&from);
    return st == DLRM_OK ? dlrm_tool_remove_tree(folder) : st;
}

static dlrm_status convert(conversion *c)
{
    c->pass_start = dlrm_now();
    TRY(dlrm_text_open(c->o.n_files, c->o.paths, &c->text));
    if (c->o.vocab) TRY(read_vocab_headers(c));
    c->report.cap = c->o.vocab ? c->vocab[0].cap : c->o.cap;
    c->report.frequency_limit = c->o.vocab ? c->vocab[0].limit : c->o.frequency_limit;
    TRY(dlrm_dense_open((dlrm_dense_kind)c->o.dense, c->o.dense_type ? 4 : 2, &c->dense));
    TRY(dlrm_output_begin(c->o.out, &c->out));
    TRY(plan_split(c));
    TRY(text_pass(c));
    TRY(make_vocabularies(c));
    TRY(column_pass(c));
    dlrm_spool_close(&c->spool);
    if (c->o.to != DLRM_FORMAT_SPLIT_BINARY) TRY(record_pass(c));
    TRY(dlrm_convert_report_write(&c->o, &c->report, &c->bad, c->out.work));
    TRY(dlrm_output_commit(&c->out));
    dlrm_info("wrote %s", c->out.path);
    return DLRM_OK;
}

dlrm_status dlrm_convert_main(int argc, char **argv)
{
    conversion *c;
    bool help;
    TRY(dlrm_alloc(1, sizeof *c, "the conversion", &c));
    c->out.lock = -1;
    pthread_mutex_init(&c->bad.lock, NULL);
    dlrm_status st = dlrm_convert_options_parse(argc, argv, &c->o, &help);
    if (st == DLRM_OK && !help) st = c->o.hints.format == DLRM_FORMAT_TEXT ? convert(c) : dlrm_convert_rows(&c->o);
    dlrm_columns_close(&c->columns);
    dlrm_counts_close(&c->counts);
    dlrm_spool_close(&c->spool);
    dlrm_output_abandon(&c->out);
    dlrm_split_plan_close(&c->plan);
    dlrm_dense_close(&c->dense);
    dlrm_text_close(&c->text);
    pthread_mutex_destroy(&c->bad.lock);
    dlrm_free(&c);
    return st;
}
