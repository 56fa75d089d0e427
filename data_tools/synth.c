#include "synth.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "dense.h"
#include "options.h"
#include "output.h"
#include "rows.h"
#include "split_binary.h"
#include "synth_model.h"

enum {
    BLOCK_ROWS = 1 << 14,
    ALL_ROWS = 0,
    TEST_ROWS = 1, /* what AUC is computed over */
};

/* A text file, or a split of a split-binary folder: consecutive rows. */
typedef struct section {
    char name[32]; /* below the output; "": the output itself is the file */
    int64_t first, rows, first_block;
    int fd, truth_fd; /* fd -1: split-binary */
    char path[DLRM_PATH_MAX], truth_path[DLRM_PATH_MAX];
    /* Lines have no fixed length: block b goes where block b-1 ends. */
    int64_t next_block, offset;
} section;

typedef struct worker {
    char *text;
    float *truth;
    dlrm_rows rows;
    uint32_t *packed;
    int64_t *histogram; /* [2 sets of rows][2 labels][DLRM_SYNTH_STEPS] */
} worker;

typedef struct synthesis {
    int64_t rows, days, test_begin, test_end;
    int format; /* 0: text, 1: split_binary */
    int64_t threads;
    dlrm_synth_model *model;
    dlrm_output out;
    int n_sections;
    section *sections;
    worker *workers;
    dlrm_dense dense;
    dlrm_columns *columns; /* split_binary */
    pthread_mutex_t lock;  /* of the counters below and the sections' next_block and offset */
    pthread_cond_t turn;
    int64_t next_block, n_blocks, bytes;
    bool failed;
} synthesis;

static const char help_text[] =
    "Makes rows in the shape of Criteo's sets: 13 counts, some negative or empty, and 26 ids of a power law,\n"
    "with the number of ids of the published columns (never more than rows). Labels are drawn from a planted\n"
    "logistic model of the row, whose own AUC bounds what any trained model can reach; most of it can be\n"
    "learned from frequent ids.\n"
    "\n"
    "text          PATH is a file like train.txt or, with --days D, a folder with day_0 ... day_D-1.\n"
    "split_binary  PATH is a folder as 'convert' makes them: ids by planted frequency, 0 = missing; dense\n"
    "              ln(x+3) in float16; the last day, or --test-fraction of the rows, is test/.\n"
    "\n"
    "PATH.truth holds the planted probability of each row as float32: a file, or a folder with one file for\n"
    "each of PATH's days or splits. The exact AUC of the planted model is printed over all rows and, with\n"
    "--days or --test-fraction, over those that 'convert' makes test rows. The same arguments make the same\n"
    "bytes, with any number of threads.";

static char *put_line(const dlrm_synth_model *m, const dlrm_criteo_row *row, char *p)
{
    dlrm_criteo_row hashed = *row;
    for (int k = 0; k < CRITEO_IDS; k++) hashed.ids[k] = dlrm_synth_hash(m, k, row->ids[k]);
    return dlrm_criteo_print(&hashed, p);
}

static void put_columns(const synthesis *s, const dlrm_criteo_row *row, dlrm_rows *rows)
{
    int64_t i = rows->n++;
    rows->label[i] = row->label;
    dlrm_dense_encode(&s->dense, row->dense, row->dense_missing, CRITEO_DENSE, rows->dense + i * rows->dense_bytes);
    for (int k = 0; k < CRITEO_IDS; k++)
        rows->ids[k * rows->capacity + i] = row->ids_missing >> k & 1 ? 0 : row->ids[k] + 1;
}

/* Makes rows [first, first+n) in w; returns the bytes of their text. */
static int64_t make_rows(const synthesis *s, worker *w, int64_t first, int64_t n)
{
    char *p = w->text;
    w->rows.n = 0;
    for (int64_t i = 0; i < n; i++) {
        dlrm_criteo_row row;
        int64_t r = first + i;
        uint32_t steps = dlrm_synth_row(s->model, r, &row);
        w->truth[i] = (float)steps / DLRM_SYNTH_STEPS;
        int64_t *of_label = w->histogram + row.label * DLRM_SYNTH_STEPS;
        of_label[steps]++;
        if (r >= s->test_begin && r < s->test_end) of_label[2 * DLRM_SYNTH_STEPS + steps]++;
        if (s->format == 0)
            p = put_line(s->model, &row, p);
        else
            put_columns(s, &row, &w->rows);
    }
    return p - w->text;
}

static dlrm_status write_columns(const synthesis *s, worker *w, int split, int64_t row)
{
    int64_t n = w->rows.n;
    TRY(dlrm_columns_labels(s->columns, split, row, n, w->rows.label));
    TRY(dlrm_columns_dense(s->columns, split, row, n, w->rows.dense));
    for (int k = 0; k < CRITEO_IDS; k++)
        TRY(dlrm_columns_ids(s->columns, split, k, row, n, w->rows.ids + k * w->rows.capacity, w->packed));
    return DLRM_OK;
}

/* The place of a block's text in its file: known when the blocks before it have theirs. */
static int64_t take_place(synthesis *s, section *c, int64_t block, int64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    while (c->next_block != block && !s->failed) pthread_cond_wait(&s->turn, &s->lock);
    int64_t place = c->offset;
    c->offset += bytes;
    c->next_block++;
    s->bytes += bytes;
    pthread_cond_broadcast(&s->turn);
    pthread_mutex_unlock(&s->lock);
    return place;
}

static dlrm_status write_block(synthesis *s, worker *w, int64_t block)
{
    section *c = s->sections;
    while (c + 1 < s->sections + s->n_sections && block >= c[1].first_block) c++;
    block -= c->first_block;
    int64_t first = block * BLOCK_ROWS, n = c->rows - first < BLOCK_ROWS ? c->rows - first : BLOCK_ROWS;
    int64_t bytes = make_rows(s, w, c->first + first, n);
    TRY(dlrm_tool_pwrite(c->truth_fd, w->truth, (size_t)n * sizeof *w->truth, first * (int64_t)sizeof *w->truth,
                         c->truth_path));
    if (s->format == 1) return write_columns(s, w, (int)(c - s->sections), first);
    int64_t place = take_place(s, c, block, bytes);
    return dlrm_tool_pwrite(c->fd, w->text, (size_t)bytes, place, c->path);
}

static dlrm_status synth_job(void *shared, int thread, const atomic_bool *stop)
{
    synthesis *s = shared;
    dlrm_status st = DLRM_OK;
    while (st == DLRM_OK && !*stop) {
        pthread_mutex_lock(&s->lock);
        int64_t block = s->next_block++, bytes = s->bytes;
        pthread_mutex_unlock(&s->lock);
        if (block >= s->n_blocks) break;
        st = write_block(s, &s->workers[thread], block);
        dlrm_tool_progress("making rows", bytes, block > 0 ? bytes / block * s->n_blocks : 0);
    }
    if (st != DLRM_OK) { /* nobody may wait for this thread's turn */
        pthread_mutex_lock(&s->lock);
        s->failed = true;
        pthread_cond_broadcast(&s->turn);
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}

static dlrm_status open_section(synthesis *s, section *c, const char *name, int64_t first, int64_t end)
{
    c->first = first;
    c->rows = end - first;
    c->first_block = s->n_blocks;
    c->fd = c->truth_fd = -1;
    s->n_blocks += (c->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const char *slash = *name ? "/" : "";
    TRY(dlrm_tool_path(c->path, "%s/data%s%s", s->out.work, slash, name));
    TRY(dlrm_tool_path(c->truth_path, "%s/truth%s%s", s->out.work, slash, name));
    if (s->format == 0) TRY(dlrm_tool_create(c->path, &c->fd));
    return dlrm_tool_create(c->truth_path, &c->truth_fd);
}

static dlrm_status open_columns(synthesis *s, const char *folder)
{
    int64_t cardinality[CRITEO_IDS], rows[DLRM_OUT_SPLITS] = {s->test_begin, s->rows - s->test_begin, 0};
    for (int k = 0; k < CRITEO_IDS; k++) cardinality[k] = s->model->column[k].n + 1;
    dlrm_columns_shape shape = {.n_dense = CRITEO_DENSE, .dense_bytes = s->dense.bytes, .n_ids = CRITEO_IDS, .cardinality = cardinality, .dense = "log3"};
    return dlrm_columns_open(folder, &shape, rows, &s->columns);
}

static dlrm_status open_sections(synthesis *s)
{
    char data[DLRM_PATH_MAX], truth[DLRM_PATH_MAX], name[32];
    bool folder = s->days > 0 || s->format == 1;
    TRY(dlrm_tool_path(data, "%s/data", s->out.work));
    TRY(dlrm_tool_path(truth, "%s/truth", s->out.work));
    if (folder) {
        TRY(dlrm_tool_make_folder(data));
        TRY(dlrm_tool_make_folder(truth));
    }
    int most = s->format == 1 ? 2 : s->days > 0 ? (int)s->days : 1;
    TRY(dlrm_alloc(most, sizeof *s->sections, "output files", &s->sections));
    if (s->format == 1) {
        TRY(open_columns(s, data));
        s->n_sections = 1;
        TRY(open_section(s, &s->sections[0], "train", 0, s->test_begin));
        s->n_sections = 2;
        return open_section(s, &s->sections[1], "test", s->test_begin, s->rows);
    }
    for (; s->n_sections < most;) {
        int64_t d = s->n_sections++;
        snprintf(name, sizeof name, "day_%lld", (long long)d);
        TRY(open_section(s, &s->sections[d], folder ? name : "", s->rows * d / most, s->rows * (d + 1) / most));
    }
    return DLRM_OK;
}

static dlrm_status open_workers(synthesis *s)
{
    TRY(dlrm_alloc(s->threads, sizeof *s->workers, "threads", &s->workers));
    for (int64_t t = 0; t < s->threads; t++) {
        worker *w = &s->workers[t];
        TRY(dlrm_alloc(BLOCK_ROWS, sizeof *w->truth, "made rows", &w->truth));
        TRY(dlrm_alloc(4 * DLRM_SYNTH_STEPS, sizeof *w->histogram, "the planted AUC", &w->histogram));
        if (s->format == 0) {
            TRY(dlrm_alloc(BLOCK_ROWS, CRITEO_LONGEST_PRINT, "made rows", &w->text));
        } else {
            TRY(dlrm_rows_open(BLOCK_ROWS, CRITEO_IDS, CRITEO_DENSE * s->dense.bytes, &w->rows));
            TRY(dlrm_alloc(BLOCK_ROWS, sizeof *w->packed, "made rows", &w->packed));
        }
    }
    return DLRM_OK;
}

static void clear(synthesis *s)
{
    for (int64_t t = 0; s->workers && t < s->threads; t++) {
        worker *w = &s->workers[t];
        dlrm_free(&w->text);
        dlrm_free(&w->truth);
        dlrm_rows_close(&w->rows);
        dlrm_free(&w->packed);
        dlrm_free(&w->histogram);
    }
    dlrm_free(&s->workers);
    for (int i = 0; i < s->n_sections; i++) {
        if (s->sections[i].fd >= 0) close(s->sections[i].fd);
        if (s->sections[i].truth_fd >= 0) close(s->sections[i].truth_fd);
    }
    dlrm_free(&s->sections);
    dlrm_columns_close(&s->columns);
    dlrm_dense_close(&s->dense);
    dlrm_synth_model_close(&s->model);
    dlrm_output_abandon(&s->out);
}

/* Exact: ties, which the steps make common, count half. */
static void print_auc(const synthesis *s, int set, const char *what)
{
    unsigned __int128 twice_pairs = 0;
    int64_t negatives = 0, positives = 0;
    for (int i = 0; i < DLRM_SYNTH_STEPS; i++) {
        int64_t of[2] = {0, 0};
        for (int64_t t = 0; t < s->threads; t++)
            for (int label = 0; label < 2; label++)
                of[label] += s->workers[t].histogram[(2 * set + label) * DLRM_SYNTH_STEPS + i];
        twice_pairs += (unsigned __int128)of[1] * (uint64_t)(2 * negatives + of[0]);
        negatives += of[0];
        positives += of[1];
    }
    if (negatives == 0 || positives == 0) {
        dlrm_info("planted AUC, %s: none, as all labels are alike (%lld rows)", what,
                  (long long)(negatives + positives));
        return;
    }
    double auc = (double)twice_pairs / 2 / ((double)negatives * (double)positives);
    dlrm_info("planted AUC, %s: %.6f (%lld rows, %.2f %% positive)", what, auc, (long long)(negatives + positives),
              100.0 * (double)positives / (double)(negatives + positives));
}

static dlrm_status move_into_place(synthesis *s)
{
    static const char *const names[] = {"truth", "data"}, *const suffixes[] = {".truth", ""};
    for (int i = 0; i < 2; i++) {
        char from[DLRM_PATH_MAX], to[DLRM_PATH_MAX];
        TRY(dlrm_tool_path(from, "%s/%s", s->out.work, names[i]));
        TRY(dlrm_tool_path(to, "%s%s", s->out.path, suffixes[i]));
        if (rename(from, to) != 0)
            return FAIL(DLRM_E_RUNTIME, "%s: cannot rename it to %s: %s", from, to, strerror(errno));
    }
    return DLRM_OK;
}

static dlrm_status synthesize(synthesis *s, const char *path, const dlrm_synth_args *args)
{
    char truth[DLRM_PATH_MAX];
    struct stat st;
    double start = dlrm_now();
    TRY(dlrm_output_begin(path, &s->out));
    TRY(dlrm_tool_path(truth, "%s.truth", s->out.path));
    if (lstat(truth, &st) == 0)
        return FAIL(DLRM_E_INPUT, "%s: exists already; name a new output, or remove it first", truth);
    TRY(dlrm_synth_model_open(args, &s->model));
    TRY(dlrm_dense_open(DLRM_DENSE_LOG3, 2, &s->dense));
    TRY(open_sections(s));
    TRY(open_workers(s));
    dlrm_tool_progress_begin();
    TRY(dlrm_tool_run((int)s->threads, synth_job, s));
    for (int i = 0; i < s->n_sections; i++) {
        section *c = &s->sections[i];
        if (c->fd >= 0) TRY(dlrm_tool_close(&c->fd, c->path));
        TRY(dlrm_tool_close(&c->truth_fd, c->truth_path));
    }
    if (s->columns) TRY(dlrm_columns_finish(s->columns));
    TRY(move_into_place(s));
    if (s->format == 0)
        dlrm_info("wrote %s: %lld rows, %.1f MB in %.1f s, %.1f MB/s per core", s->out.path, (long long)s->rows,
                  (double)s->bytes * 1e-6, dlrm_now() - start, (double)s->bytes * 1e-6 / dlrm_tool_cpu_seconds());
    else
        dlrm_info("wrote %s: %lld rows in %.1f s", s->out.path, (long long)s->rows, dlrm_now() - start);
    print_auc(s, ALL_ROWS, "all rows");
    if (s->test_begin < s->test_end) print_auc(s, TEST_ROWS, "test rows");
    return DLRM_OK;
}

static dlrm_status parse_and_run(synthesis *s, int argc, char **argv)
{
    static const char *const format_names[] = {"text", "split_binary", NULL}, *const shape_names[] = {"terabyte",
                                                                                                      "kaggle", NULL};
    const char *path = NULL;
    int shape = DLRM_SYNTH_TERABYTE, n_positional;
    int64_t seed = 1;
    double fraction = -1;
    bool help;
    dlrm_synth_args a = {.scale = 1, .alpha = 1.05, .positive_rate = 0.2, .auc = 0.8};
    s->threads = dlrm_tool_cores();
    const dlrm_option options[] = {
        {"rows", DLRM_OPT_INT, &s->rows, "N", "in all (required)", .min = 1, .max = 1e12},
        {"out", DLRM_OPT_TEXT, &path, "PATH", "what to make (required)", .min = 0},
        {"days", DLRM_OPT_INT, &s->days, "D", "files of equal size, day_0 to day_D-1; the last is for testing",
         .min = 1, .max = 1000},
        {"format", DLRM_OPT_CHOICE, &s->format, "FORMAT", "text (default) or split_binary", .choices = format_names},
        {"seed", DLRM_OPT_INT, &seed, "S", "default 1", .min = 0, .max = 9e18},
        {"alpha", DLRM_OPT_FLOAT, &a.alpha, "A", "of the ids' power law, default 1.05; 0: uniform", .min = 0, .max = 4},
        {"shape", DLRM_OPT_CHOICE, &shape, "SET", "terabyte (default) or kaggle: numbers of ids, empty fields",
         .choices = shape_names},
        {"scale", DLRM_OPT_FLOAT, &a.scale, "X", "of the columns with more than 1000 ids, default 1", .min = 0,
         .max = 1},
        {"positive-rate", DLRM_OPT_FLOAT, &a.positive_rate, "P", "mean probability of label 1, default 0.2",
         .min = 0.001, .max = 0.999},
        {"auc", DLRM_OPT_FLOAT, &a.auc, "X", "of the planted model, about; default 0.8", .min = 0.5, .max = 0.95},
        {"test-fraction", DLRM_OPT_FLOAT, &fraction, "F", "as in convert; default 1/7 for split_binary without --days",
         .min = 0, .max = 1},
        {"threads", DLRM_OPT_INT, &s->threads, "N", "default: the cores", .min = 1, .max = 1024},
    };
    const dlrm_usage usage = {"synth", "--rows N --out PATH [options]", help_text, options,
                              sizeof options / sizeof *options};
    TRY(dlrm_options_parse(&usage, argc, argv, &n_positional, &help));
    if (help) return DLRM_OK;
    if (n_positional > 0) return FAIL(DLRM_E_USAGE, "%s: no such argument; see 'dlrm_data synth --help'", argv[0]);
    if (s->rows == 0 || !path)
        return FAIL(DLRM_E_USAGE, "--%s is required; see 'dlrm_data synth --help'", path ? "rows" : "out");
    if (s->days > 0 && fraction >= 0) return FAIL(DLRM_E_USAGE, "--days and --test-fraction exclude each other");
    if (s->days > s->rows) return FAIL(DLRM_E_USAGE, "--days: %lld, expected at most the rows", (long long)s->days);
    if (fraction < 0) fraction = s->format == 1 && s->days < 2 ? 1.0 / 7 : 0;
    s->test_begin = s->rows - (int64_t)(fraction * (double)s->rows + 1e-6);
    s->test_end = s->rows;
    if (s->days > 1) {
        s->test_begin = s->rows * (s->days - 1) / s->days;
        if (s->test_end - s->test_begin > CRITEO_TERABYTE_TEST_ROWS) s->test_end = s->test_begin + CRITEO_TERABYTE_TEST_ROWS;
    }
    a.seed = (uint64_t)seed;
    a.shape = (dlrm_synth_shape)shape;
    a.rows = s->rows;
    return synthesize(s, path, &a);
}

dlrm_status dlrm_synth_main(int argc, char **argv)
{
    synthesis *s;
    TRY(dlrm_alloc(1, sizeof *s, "the synthesis", &s));
    s->out.lock = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->turn, NULL);
    dlrm_status st = parse_and_run(s, argc, argv);
    clear(s);
    pthread_cond_destroy(&s->turn);
    pthread_mutex_destroy(&s->lock);
    dlrm_free(&s);
    return st;
}
