/* The command line of `dlrm_data convert`, and the plan of the split that follows from it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "convert.h"
#include "options.h"
#include "source_options.h"
#include "transcode.h"

static const char help_text[] =
    "Converts rows between Criteo's raw text (Kaggle's train.txt, Terabyte's day_0 ... day_23, each also as\n"
    ".gz), split_binary (a folder of column files with feature_spec.yaml, as NVIDIA's DeepLearningExamples\n"
    "have it), mlperf_bin (facebook's records of 160 bytes) and hugectr_raw; and from hugectr_norm and\n"
    "npy (torchrec's day_N arrays).\n"
    "\n"
    "text to ids\n"
    "        0: missing, rarer than the frequency limit, or not in the vocabulary of --vocab. 1, 2, ...: by\n"
    "        descending frequency over all files given, test rows included; ties by ascending hash. A table\n"
    "        has one row more than ids given. With --cap N the hash is taken modulo N first: 40000000 gives\n"
    "        MLPerf DLRM v1's tables, plus one row where nothing is missing. DIR/vocab/cat_K.vocab keeps\n"
    "        them: 40 bytes of header, then pairs of uint32 id and uint32 hash by ascending hash.\n"
    "dense   log3: ln(x+3); missing, or x <= -3: 0. log1: ln(max(x,0)+1). counts: max(x,0), an int32. A\n"
    "        missing x is 0 in each. From text split_binary gets log3, records get counts. Else values stay\n"
    "        what they are, but mlperf_bin has counts, split_binary never (log1 unless said). From a\n"
    "        logarithm to a count and back nothing is lost, or the value is named. --from-dense says how\n"
    "        values were made where the input does not (folders of dlrm_data do).\n"
    "records Files without a header: train_data.bin, test_data.bin (the part that is scored) and val_data.bin,\n"
    "        with records.yaml, which says what is in them and has the tables for a config. Where there is no\n"
    "        records.yaml, the dense values' kind is told by their bits, and 160 bytes have 26 one-hot\n"
    "        features, 912 bytes the hotness of MLPerf's DCNv2; else say --dense-features, --hotness and\n"
    "        --cardinalities (without which all rows are read first for the largest ids).\n"
    "to text DIR/train.txt, test.txt, validation.txt. An id is written as its own hash, or as the one that\n"
    "        --vocab DIR has for it, with id 0 empty.\n"
    "split   Text: Files that are all named day_N (.gz) are taken in the order of N, and where there are several\n"
    "        the last one is held back, or the one of --test-day; else the last lines are held back, the\n"
    "        share --test-fraction of all (they are counted first, in a pass of its own). Of what is held\n"
    "        back the first --test-rows lines are test/ and the others validation/, which the description\n"
    "        does not list. Malformed lines count for the cut.\n"
    "shuffle --shuffle SEED puts the training rows in random order, whole rows, any order as likely as any\n"
    "        other. The order depends on the seed and the files' line numbers alone, not on threads or\n"
    "        memory.\n"
    "lines   A malformed line (not 40 fields, a label other than 0 or 1, an integer beyond 32 bits, a hash of\n"
    "        more than 8 digits, a line beyond 4096 bytes ...) is skipped and counted; the first ten are\n"
    "        named. Too many end the run: at the end above --max-bad-share, or at once where 1000 and ten\n"
    "        times that share have been met.\n"
    "memory  stays below --memory, whatever the data: vocabularies that do not fit are counted in sorted runs\n"
    "        on disk and applied a part at a time. It must be at least 24M + 8M per thread; add 24 bytes per\n"
    "        MiB of text beyond 100 GB.\n"
    "disk    beside the output, about 0.6 times the size of the (unpacked) text for the time of the run (to\n"
    "        records: once more the output's size). All is done in DIR.partial, which becomes DIR when complete.\n"
    "report  DIR/convert.json. Its MB/s per core are megabytes per second of processor time.";

/* Bytes below which --memory is refused. */
static int64_t least_memory(int64_t threads)
{
    return (24 + 8 * threads) << 20;
}

/* "…/day_7" or "…/day_7.gz": 7; else -1. */
static int64_t day_of(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (strncmp(name, "day_", 4) != 0) return -1;
    size_t digits = strspn(name + 4, "0123456789");
    const char *rest = name + 4 + digits;
    return digits > 0 && digits < 10 && (!*rest || strcmp(rest, ".gz") == 0) ? atoll(name + 4) : -1;
}

static int by_day(const void *a, const void *b)
{
    int64_t x = day_of(*(char *const *)a), y = day_of(*(char *const *)b);
    return x < y ? -1 : x > y;
}

static dlrm_status plan_files(dlrm_convert_options *o, int64_t test_day, bool fraction_given)
{
    o->days = 1;
    for (int i = 0; i < o->n_files; i++) o->days &= day_of(o->paths[i]) >= 0;
    o->test_file = -1;
    if (!o->days) {
        if (test_day >= 0) return FAIL(DLRM_E_USAGE, "--test-day: %s is not named day_N or day_N.gz", o->paths[0]);
        return DLRM_OK;
    }
    qsort(o->paths, (size_t)o->n_files, sizeof *o->paths, by_day);
    for (int i = 1; i < o->n_files; i++)
        if (day_of(o->paths[i]) == day_of(o->paths[i - 1]))
            return FAIL(DLRM_E_USAGE, "%s and %s are the same day", o->paths[i - 1], o->paths[i]);
    if (test_day >= 0) {
        for (int i = 0; i < o->n_files; i++)
            if (day_of(o->paths[i]) == test_day) o->test_file = i;
        if (o->test_file < 0)
            return FAIL(DLRM_E_USAGE, "--test-day: no file of day %lld is given", (long long)test_day);
    } else if (o->n_files > 1 && !fraction_given) {
        o->test_file = o->n_files - 1;
    }
    return DLRM_OK;
}

/* What was said about text that only text has; NULL: nothing. */
static const char *said_of_text(const dlrm_convert_options *o, int64_t test_day)
{
    return test_day >= 0              ? "test-day"
           : o->test_fraction >= 0    ? "test-fraction"
           : o->test_rows >= 0        ? "test-rows"
           : o->cap >= 0              ? "cap"
           : o->frequency_limit >= 0  ? "frequency-limit"
           : o->seed >= 0             ? "shuffle"
           : o->max_bad_share >= 0    ? "max-bad-share"
           : o->threads > 0           ? "threads"
                                      : NULL;
}

static const char *said_of_rows(const dlrm_source_hints *h)
{
    return h->form >= 0 ? "from-dense" : h->n_dense >= 0 ? "dense-features" : h->cardinalities ? "cardinalities" : h->hotness ? "hotness"
         : h->key_width ? "key-bits"
                        : NULL;
}

/* Rows that are ids already: few of the options are for them. */
static dlrm_status settle_rows(dlrm_convert_options *o, int64_t test_day)
{
    const char *text_only = said_of_text(o, test_day);
    if (text_only)
        return FAIL(DLRM_E_USAGE, "--%s is for text; the input is %s%s", text_only, dlrm_format_names[o->hints.format],
                    strcmp(text_only, "shuffle") == 0 ? ", which 'dlrm_data shuffle' shuffles" : "");
    if (o->n_files != 1) return FAIL(DLRM_E_USAGE, "%d inputs, expected one folder or file of %s", o->n_files, dlrm_format_names[o->hints.format]);
    if (o->vocab && o->to != DLRM_FORMAT_TEXT) return FAIL(DLRM_E_USAGE, "--vocab goes with text, as input or output");
    if (o->memory == 0) o->memory = dlrm_tool_free_memory();
    return DLRM_OK;
}

static dlrm_status settle_text(dlrm_convert_options *o, int64_t test_day)
{
    const char *rows_only = said_of_rows(&o->hints);
    if (rows_only) return FAIL(DLRM_E_USAGE, "--%s is not for text", rows_only);
    if (o->to == DLRM_FORMAT_TEXT) return FAIL(DLRM_E_USAGE, "--to: text, but the input is text already");
    bool records = o->to != DLRM_FORMAT_SPLIT_BINARY;
    if (o->dense < 0) o->dense = records ? DLRM_DENSE_COUNTS : DLRM_DENSE_LOG3;
    dlrm_dense_form form;
    TRY(dlrm_transcode_form(DLRM_FORM_COUNTS, o->to, dlrm_convert_form(o->dense), &form));
    if (records && o->dense_type == 0) return FAIL(DLRM_E_USAGE, "--dense-type: float16, but %s has 4 bytes a value", dlrm_format_names[o->to]);
    if (o->dense_type < 0) o->dense_type = records;
    o->shuffle = o->seed >= 0;
    if (o->threads == 0) o->threads = dlrm_tool_cores();
    if (o->max_bad_share < 0) o->max_bad_share = 0.001;
    if (o->vocab && (o->cap >= 0 || o->frequency_limit >= 0))
        return FAIL(DLRM_E_USAGE, "--%s does not go with --vocab, whose vocabularies have it fixed",
                    o->cap >= 0 ? "cap" : "frequency-limit");
    if (test_day >= 0 && o->test_fraction >= 0)
        return FAIL(DLRM_E_USAGE, "--test-day and --test-fraction exclude each other");
    TRY(plan_files(o, test_day, o->test_fraction >= 0));
    if (o->test_file >= 0 && o->test_rows < 0) o->test_rows = CRITEO_TERABYTE_TEST_ROWS;
    if (o->test_fraction < 0) o->test_fraction = 1.0 / 7;
    if (o->cap < 0) o->cap = 0;
    if (o->frequency_limit < 0) o->frequency_limit = 0;
    int64_t least = least_memory(o->threads);
    if (o->memory == 0) {
        o->memory = dlrm_tool_free_memory();
        if (o->memory < least)
            return FAIL(
                DLRM_E_RUNTIME,
                "half of the free memory is %lld MiB, but %lld threads need %lld; use fewer --threads, or set --memory",
                (long long)(o->memory >> 20), (long long)o->threads, (long long)(least >> 20));
    }
    if (o->memory < least)
        return FAIL(DLRM_E_USAGE, "--memory: %lld MiB, expected at least %lld for %lld threads",
                    (long long)(o->memory >> 20), (long long)(least >> 20), (long long)o->threads);
    return DLRM_OK;
}

int dlrm_convert_form(int dense)
{
    static const dlrm_dense_form forms[] = {[DLRM_DENSE_LOG3] = DLRM_FORM_LOG3, [DLRM_DENSE_LOG1] = DLRM_FORM_LOG1,
                                            [DLRM_DENSE_COUNTS] = DLRM_FORM_COUNTS};
    return dense < 0 ? -1 : (int)forms[dense];
}

/* Text may start with a malformed line, so what is not recognised is text, too; a folder never is. */
static dlrm_status recognise_input(dlrm_convert_options *o)
{
    struct stat st;
    dlrm_format found = DLRM_FORMAT_TEXT;
    dlrm_status recognised = dlrm_recognise(o->paths[0], &found);
    bool folder = stat(o->paths[0], &st) == 0 && S_ISDIR(st.st_mode);
    if (recognised != DLRM_OK && folder) return recognised;
    o->hints.format = recognised == DLRM_OK ? (int)found : DLRM_FORMAT_TEXT;
    return DLRM_OK;
}

dlrm_status dlrm_convert_options_parse(int argc, char **argv, dlrm_convert_options *o, bool *help)
{
    static const char *const to_names[] = {"text", "split_binary", "mlperf_bin", "hugectr_raw", NULL}; /* as dlrm_format */
    static const char *const dense_names[] = {"log3", "log1", "counts", NULL}, *const type_names[] = {"float16", "float32", NULL};
    int to = DLRM_FORMAT_SPLIT_BINARY;
    int64_t test_day = -1;
    *o = (dlrm_convert_options){.hints = {.format = -1, .form = -1, .n_dense = -1},
                                .test_fraction = -1,
                                .test_rows = -1,
                                .cap = -1,
                                .frequency_limit = -1,
                                .dense = -1,
                                .dense_type = -1,
                                .seed = -1,
                                .max_bad_share = -1};
    const dlrm_option options[] = {
        {"from", DLRM_OPT_CHOICE, &o->hints.format, "FORMAT", "of the input (default: recognised)", .choices = dlrm_format_names},
        {"to", DLRM_OPT_CHOICE, &to, "FORMAT", "split_binary (default), mlperf_bin, hugectr_raw or text", .choices = to_names},
        {"out", DLRM_OPT_TEXT, &o->out, "DIR", "the folder to make (required)", .min = 0},
        {"dense", DLRM_OPT_CHOICE, &o->dense, "KIND", "log3, log1 or counts (default: see above)", .choices = dense_names},
        {"dense-type", DLRM_OPT_CHOICE, &o->dense_type, "TYPE", "float16 or float32 (default: float16 from text, else as the input)",
         .choices = type_names},
        {"vocab", DLRM_OPT_TEXT, &o->vocab, "DIR", "use the vocabularies of this converted folder", .min = 0},
        {"memory", DLRM_OPT_SIZE, &o->memory, "BYTES", "bound, such as 4G (default: half of what is free)", .min = 0},
        {"test-day", DLRM_OPT_INT, &test_day, "N", "text: hold back file day_N (default: the last of several day files)",
         .min = 0, .max = 999999999},
        {"test-fraction", DLRM_OPT_FLOAT, &o->test_fraction, "F",
         "text: hold back the last lines, this share of all (default 1/7; 0: none)", .min = 0, .max = 1},
        {"test-rows", DLRM_OPT_INT, &o->test_rows, "N",
         "text: of these the first N are test/ (default: all; by day 89137319)", .min = 0, .max = 1e15},
        {"frequency-limit", DLRM_OPT_INT, &o->frequency_limit, "N", "text: hashes that occur less often get id 0 (default 0)",
         .min = 0, .max = 1e15},
        {"cap", DLRM_OPT_INT, &o->cap, "N", "text: hashes modulo N before the vocabulary (default: not)", .min = 1,
         .max = 4294967295.0},
        {"shuffle", DLRM_OPT_INT, &o->seed, "SEED", "text: shuffle the training rows (default: keep their order)", .min = 0,
         .max = 9e18},
        {"max-bad-share", DLRM_OPT_FLOAT, &o->max_bad_share, "F",
         "text: of malformed lines that is tolerated (default 0.001)", .min = 0, .max = 1},
        {"threads", DLRM_OPT_INT, &o->threads, "N", "text: default: the cores", .min = 1, .max = 1024},
        DLRM_HINT_OPTIONS(o->hints),
        DLRM_HOTNESS_OPTION(o->hints),
    };
    const dlrm_usage usage = {"convert", "INPUT... --out DIR [options]", help_text, options,
                              sizeof options / sizeof *options};
    TRY(dlrm_options_parse(&usage, argc, argv, &o->n_files, help));
    if (*help) return DLRM_OK;
    o->paths = argv;
    o->to = (dlrm_format)to;
    if (o->n_files == 0) return FAIL(DLRM_E_USAGE, "no input files; see 'dlrm_data convert --help'");
    if (!o->out) return FAIL(DLRM_E_USAGE, "--out DIR is required; see 'dlrm_data convert --help'");
    if (o->hints.format < 0) TRY(recognise_input(o));
    return o->hints.format == DLRM_FORMAT_TEXT ? settle_text(o, test_day) : settle_rows(o, test_day);
}

dlrm_status dlrm_split_plan_open(const dlrm_convert_options *o, const int64_t *lines, dlrm_split_plan *out)
{
    dlrm_status st;
    *out = (dlrm_split_plan){0};
    TRY_TO(fail, st, dlrm_alloc(o->n_files, sizeof *out->test_begin, "the split", &out->test_begin));
    TRY_TO(fail, st, dlrm_alloc(o->n_files, sizeof *out->test_end, "the split", &out->test_end));
    int64_t all = 0, begin = 0, end = 0, base = 0;
    for (int i = 0; lines && i < o->n_files; i++) all += lines[i];
    begin = all - (int64_t)(o->test_fraction * (double)all + 1e-6); /* 0.1 of 1000 is 100 */
    end = o->test_rows >= 0 && o->test_rows < all - begin ? begin + o->test_rows : all;
    for (int i = 0; i < o->n_files; i++) {
        if (lines) { /* a cut may lie in an earlier file, or beyond this one */
            out->test_begin[i] = begin - base;
            out->test_end[i] = end - base;
            base += lines[i];
        } else {
            out->test_begin[i] = i == o->test_file ? 0 : INT64_MAX;
            out->test_end[i] = i == o->test_file ? o->test_rows : INT64_MAX;
        }
    }
    return DLRM_OK;
fail:
    dlrm_split_plan_close(out);
    return st;
}

void dlrm_split_plan_close(dlrm_split_plan *p)
{
    dlrm_free(&p->test_begin);
    dlrm_free(&p->test_end);
}
