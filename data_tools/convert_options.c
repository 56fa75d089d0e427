/* The command line of `dlrm_data convert`, and the plan of the split that follows from it. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert.h"
#include "options.h"

/* Rows of Terabyte's last day that MLPerf scores: its first half, rounded up. */
static const int64_t terabyte_test_rows = 89137319;

static const char help_text[] =
    "Converts Criteo's raw text (Kaggle's train.txt, Terabyte's day_0 ... day_23, each also as .gz) to a\n"
    "folder of column files with feature_spec.yaml, as NVIDIA's DeepLearningExamples have it and dlrm-train\n"
    "reads it.\n"
    "\n"
    "ids     0: missing, rarer than the frequency limit, or not in the vocabulary of --vocab. 1, 2, ...: by\n"
    "        descending frequency over all files given, test rows included; ties by ascending hash. A table\n"
    "        has one row more than ids given. With --cap N the hash is taken modulo N first: 40000000 gives\n"
    "        MLPerf DLRM v1's tables, plus one row where nothing is missing. DIR/vocab/cat_K.vocab keeps\n"
    "        them: 40 bytes of header, then pairs of uint32 id and uint32 hash by ascending hash.\n"
    "dense   ln(x+3), or ln(max(x,0)+1) with --dense log1; missing, or x <= -3: 0.\n"
    "split   Files that are all named day_N (.gz) are taken in the order of N, and where there are several\n"
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
    "disk    beside the output, about 0.6 times the size of the (unpacked) text for the time of the run. All\n"
    "        is done in DIR.partial, which becomes DIR when complete.\n"
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

dlrm_status dlrm_convert_options_parse(int argc, char **argv, dlrm_convert_options *o, bool *help)
{
    static const char *const from_names[] = {"text", NULL}, *const to_names[] = {"split_binary", NULL};
    static const char *const dense_names[] = {"log3", "log1", NULL}, *const type_names[] = {"float16", "float32", NULL};
    int from = 0, to = 0;
    int64_t test_day = -1;
    *o = (dlrm_convert_options){.test_fraction = -1,
                                .test_rows = -1,
                                .cap = -1,
                                .frequency_limit = -1,
                                .seed = -1,
                                .threads = dlrm_tool_cores(),
                                .max_bad_share = 0.001};
    const dlrm_option options[] = {
        {"from", DLRM_OPT_CHOICE, &from, "FORMAT", "text (default)", .choices = from_names},
        {"to", DLRM_OPT_CHOICE, &to, "FORMAT", "split_binary (default)", .choices = to_names},
        {"out", DLRM_OPT_TEXT, &o->out, "DIR", "the folder to make (required)", .min = 0},
        {"test-day", DLRM_OPT_INT, &test_day, "N", "hold back file day_N (default: the last of several day files)",
         .min = 0, .max = 999999999},
        {"test-fraction", DLRM_OPT_FLOAT, &o->test_fraction, "F",
         "hold back the last lines, this share of all (default 1/7; 0: none)", .min = 0, .max = 1},
        {"test-rows", DLRM_OPT_INT, &o->test_rows, "N",
         "of these the first N are test/ (default: all; by day 89137319)", .min = 0, .max = 1e15},
        {"vocab", DLRM_OPT_TEXT, &o->vocab, "DIR", "use the vocabularies of this converted folder", .min = 0},
        {"frequency-limit", DLRM_OPT_INT, &o->frequency_limit, "N", "hashes that occur less often get id 0 (default 0)",
         .min = 0, .max = 1e15},
        {"cap", DLRM_OPT_INT, &o->cap, "N", "hashes modulo N before the vocabulary (default: not)", .min = 1,
         .max = 4294967295.0},
        {"dense", DLRM_OPT_CHOICE, &o->dense, "KIND", "log3 (default) or log1", .choices = dense_names},
        {"dense-type", DLRM_OPT_CHOICE, &o->dense_type, "TYPE", "float16 (default) or float32", .choices = type_names},
        {"shuffle", DLRM_OPT_INT, &o->seed, "SEED", "shuffle the training rows (default: keep their order)", .min = 0,
         .max = 9e18},
        {"max-bad-share", DLRM_OPT_FLOAT, &o->max_bad_share, "F",
         "of malformed lines that is tolerated (default 0.001)", .min = 0, .max = 1},
        {"memory", DLRM_OPT_SIZE, &o->memory, "BYTES", "bound, such as 4G (default: half of what is free)", .min = 0},
        {"threads", DLRM_OPT_INT, &o->threads, "N", "default: the cores", .min = 1, .max = 1024},
    };
    const dlrm_usage usage = {"convert", "INPUT... --out DIR [options]", help_text, options,
                              sizeof options / sizeof *options};
    TRY(dlrm_options_parse(&usage, argc, argv, &o->n_files, help));
    if (*help) return DLRM_OK;
    o->paths = argv;
    o->shuffle = o->seed >= 0;
    if (o->n_files == 0) return FAIL(DLRM_E_USAGE, "no input files; see 'dlrm_data convert --help'");
    if (!o->out) return FAIL(DLRM_E_USAGE, "--out DIR is required; see 'dlrm_data convert --help'");
    if (o->vocab && (o->cap >= 0 || o->frequency_limit >= 0))
        return FAIL(DLRM_E_USAGE, "--%s does not go with --vocab, whose vocabularies have it fixed",
                    o->cap >= 0 ? "cap" : "frequency-limit");
    if (test_day >= 0 && o->test_fraction >= 0)
        return FAIL(DLRM_E_USAGE, "--test-day and --test-fraction exclude each other");
    TRY(plan_files(o, test_day, o->test_fraction >= 0));
    if (o->test_file >= 0 && o->test_rows < 0) o->test_rows = terabyte_test_rows;
    if (o->test_fraction < 0) o->test_fraction = 1.0 / 7;
    if (o->cap < 0) o->cap = 0;
    if (o->frequency_limit < 0) o->frequency_limit = 0;
    int64_t least = least_memory(o->threads);
    if (o->memory == 0) {
        int64_t available = dlrm_mem_available();
        o->memory = (available < 0 ? (int64_t)1 << 30 : available) / 2;
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
