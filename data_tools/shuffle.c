/* Two passes: rows are dealt, whole, to buckets on disk by the top bits of their keys, and each bucket is then sorted by key
 * in memory (spool.h). The key is a bijection of the row's number, so the order depends on the seed and the rows alone. */
#include "shuffle.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "output.h"
#include "sort64.h"
#include "source_options.h"
#include "spool.h"
#include "transcode.h"
#include "vocab.h"

static const char help_text[] =
    "Puts the training rows of IN (split_binary, mlperf_bin, hugectr_raw, hugectr_norm, npy) in random order, any order as\n"
    "likely as any other; test and validation rows keep theirs. DIR is of IN's format (hugectr_norm, npy: split_binary).\n"
    "Whole rows move, in all column files alike. The order depends on the seed and on the number of each row\n"
    "alone, not on memory: it is the one of 'convert --shuffle SEED' of a single text file.\n"
    "\n"
    "Rows pass once through DIR.partial/rows.tmp, so the disk holds IN, DIR and about as much again for the time\n"
    "of the run.";

static const int64_t least_memory = 32 << 20;

typedef struct shuffling {
    const char *in, *out_path;
    dlrm_source_hints hints;
    int64_t seed, memory;
    dlrm_row_source *from;
    dlrm_row_sink *to;
    dlrm_output out;
    dlrm_spool *spool;
    dlrm_spool_args spool_args;
    dlrm_stretch stretch; /* read or to be written */
    dlrm_rows packed;     /* a stretch's rows on their way to the spool */
    /* A bucket, or what of it fits. */
    int64_t capacity, row_bytes;
    uint64_t *key, *word;
    uint32_t *order;
    char *rows, *block; /* [capacity], [block_rows] of row_bytes */
    uint64_t *block_key;
} shuffling;

/* First the buckets' buffers take five eighths of the memory and the index of their blocks (three times 24 bytes, as it grows)
 * the rest; then a bucket that is being sorted takes three quarters. Buckets are as many as make one fit, if the index
 * allows; one that does not fit is read several times. */
static void plan(shuffling *s)
{
    enum { MOST_BITS = 12, LEAST_ROWS = 16, MOST_ROWS = 8192, INDEX_BYTES = 3 * 24 };
    dlrm_spool_args *a = &s->spool_args;
    int64_t rows = s->from->rows[DLRM_TRAIN], each = s->row_bytes + 8 + 8 + 4;
    s->capacity = s->memory / 4 * 3 / each;
    while (a->bucket_bits < MOST_BITS && rows >> a->bucket_bits > s->capacity - s->capacity / 4) a->bucket_bits++;
    for (;; a->bucket_bits--) {
        a->block_rows = (s->memory / 8 * 5 >> a->bucket_bits) / (s->row_bytes + 32) / 8 * 8;
        if (a->block_rows > MOST_ROWS) a->block_rows = MOST_ROWS;
        if (a->bucket_bits == 0) break;
        if (a->block_rows >= LEAST_ROWS && rows / a->block_rows * INDEX_BYTES <= s->memory / 8 * 3) break;
    }
    if (a->block_rows < LEAST_ROWS) a->block_rows = LEAST_ROWS;
    if (s->capacity > rows) s->capacity = rows > 0 ? rows : 1;
}

static dlrm_status open_spool(shuffling *s)
{
    char path[DLRM_PATH_MAX];
    s->row_bytes = dlrm_packed_bytes(&s->from->shape);
    s->spool_args = (dlrm_spool_args){.dense_bytes = (int)s->row_bytes, .threads = 1, .shuffle = true, .seed = (uint64_t)s->seed};
    plan(s);
    TRY(dlrm_tool_path(path, "%s/rows.tmp", s->out.work));
    s->spool_args.path = path;
    dlrm_status st = dlrm_spool_open(&s->spool_args, &s->spool);
    s->spool_args.path = NULL;
    return st;
}

static dlrm_status deal_rows(shuffling *s)
{
    int64_t rows = s->from->rows[DLRM_TRAIN];
    TRY(dlrm_stretch_open(&s->from->shape, dlrm_stretch_rows(&s->from->shape), &s->stretch));
    TRY(dlrm_rows_open(s->stretch.capacity, 0, (int)s->row_bytes, &s->packed));
    dlrm_tool_progress_begin();
    for (int64_t row = 0, n; row < rows; row += n) {
        n = rows - row < s->stretch.capacity ? rows - row : s->stretch.capacity;
        TRY(s->from->read(s->from, DLRM_TRAIN, row, n, &s->stretch));
        for (int64_t i = 0; i < n; i++) {
            s->packed.number[i] = (uint64_t)(row + i);
            dlrm_pack_row(&s->from->shape, &s->stretch, i, s->packed.dense + i * s->row_bytes);
        }
        s->packed.n = n;
        TRY(dlrm_spool_add(s->spool, 0, DLRM_TRAIN, &s->packed, 0, n));
        dlrm_tool_progress("dealing rows", row * s->row_bytes, rows * s->row_bytes);
    }
    dlrm_rows_close(&s->packed);
    return dlrm_spool_finish(s->spool);
}

static dlrm_status take_room(shuffling *s)
{
    TRY(dlrm_alloc(s->capacity, sizeof *s->key, "a bucket", &s->key));
    TRY(dlrm_alloc(s->capacity, sizeof *s->word, "a bucket", &s->word));
    TRY(dlrm_alloc(s->capacity, sizeof *s->order, "a bucket", &s->order));
    TRY(dlrm_alloc(s->capacity, (size_t)s->row_bytes, "a bucket", &s->rows));
    TRY(dlrm_alloc(s->spool_args.block_rows, sizeof *s->block_key, "a bucket", &s->block_key));
    return dlrm_alloc(s->spool_args.block_rows, (size_t)s->row_bytes, "a bucket", &s->block);
}

/* The rows of the bucket whose keys start with these bits, in the order in which the blocks have them; *n may be more than
 * the room, and then only the count is right. */
static dlrm_status load(shuffling *s, const dlrm_block *blocks, int64_t n_blocks, uint64_t prefix, int bits, int64_t *n)
{
    *n = 0;
    for (int64_t b = 0; b < n_blocks; b++) {
        bool read = false;
        TRY(dlrm_spool_read(s->spool, &blocks[b], DLRM_PART_KEY, s->block_key));
        for (int32_t i = 0; i < blocks[b].rows; i++) {
            if (bits > 0 && s->block_key[i] >> (64 - bits) != prefix) continue;
            if (*n < s->capacity) {
                if (!read) TRY(dlrm_spool_read(s->spool, &blocks[b], DLRM_PART_DENSE, s->block));
                read = true;
                s->key[*n] = s->block_key[i];
                memcpy(s->rows + *n * s->row_bytes, s->block + i * s->row_bytes, (size_t)s->row_bytes);
            }
            ++*n;
        }
    }
    return DLRM_OK;
}

static dlrm_status write_sorted(shuffling *s, int bits, int64_t n, int64_t *row)
{
    dlrm_stretch *out = &s->stretch;
    dlrm_sort_keys(s->key, bits, n, s->word, s->order);
    for (int64_t first = 0; first < n; first += out->n) {
        out->n = n - first < out->capacity ? n - first : out->capacity;
        out->first = *row;
        for (int64_t i = 0; i < out->n; i++) dlrm_unpack_row(&s->from->shape, s->rows + s->order[first + i] * s->row_bytes, out, i);
        TRY(s->to->write(s->to, DLRM_TRAIN, out));
        *row += out->n;
        dlrm_tool_progress("writing rows", *row * s->row_bytes, s->from->rows[DLRM_TRAIN] * s->row_bytes);
    }
    return DLRM_OK;
}

/* A bucket from key prefix `prefix` on; where it does not fit, in two halves. */
static dlrm_status write_bucket(shuffling *s, const dlrm_block *blocks, int64_t n_blocks, uint64_t prefix, int bits, int64_t *row)
{
    int64_t n;
    TRY(load(s, blocks, n_blocks, prefix, bits, &n));
    if (n <= s->capacity) return write_sorted(s, bits, n, row);
    TRY(write_bucket(s, blocks, n_blocks, prefix << 1, bits + 1, row));
    return write_bucket(s, blocks, n_blocks, prefix << 1 | 1, bits + 1, row);
}

static dlrm_status write_train(shuffling *s)
{
    const dlrm_block *blocks;
    int64_t all = dlrm_spool_blocks(s->spool, &blocks), row = 0;
    TRY(take_room(s));
    dlrm_tool_progress_begin();
    for (int64_t first = 0, n; first < all; first += n) {
        for (n = 1; first + n < all && blocks[first + n].group == blocks[first].group;) n++;
        TRY(write_bucket(s, &blocks[first], n, (uint64_t)(blocks[first].group - DLRM_OUT_SPLITS), s->spool_args.bucket_bits, &row));
        for (int64_t b = first; b < first + n; b++) dlrm_spool_release(s->spool, &blocks[b]);
    }
    DLRM_ASSERT(row == s->from->rows[DLRM_TRAIN]);
    return DLRM_OK;
}

static dlrm_status copy_split(shuffling *s, int split)
{
    for (int64_t row = 0, rows = s->from->rows[split]; row < rows; row += s->stretch.n) {
        TRY(s->from->read(s->from, split, row, rows - row < s->stretch.capacity ? rows - row : s->stretch.capacity, &s->stretch));
        TRY(s->to->write(s->to, split, &s->stretch));
    }
    return DLRM_OK;
}

static bool read_only(dlrm_format f)
{
    return f == DLRM_FORMAT_HUGECTR_NORM || f == DLRM_FORMAT_NPY;
}

static dlrm_status shuffle(shuffling *s)
{
    double start = dlrm_now();
    TRY(dlrm_source_open(s->in, &s->hints, NULL, &s->from));
    TRY(dlrm_source_scan_cardinalities(s->from));
    TRY(dlrm_output_begin(s->out_path, &s->out));
    dlrm_sink_args args = {.format = read_only(s->from->format) ? DLRM_FORMAT_SPLIT_BINARY : s->from->format,
                           .folder = s->out.work,
                           .shape = &s->from->shape,
                           .dense_bytes = s->from->dense_bytes};
    memcpy(args.rows, s->from->rows, sizeof args.rows);
    TRY(dlrm_sink_open(&args, &s->to));
    TRY(open_spool(s));
    TRY(deal_rows(s));
    TRY(write_train(s));
    TRY(copy_split(s, DLRM_TEST));
    TRY(copy_split(s, DLRM_VALIDATION));
    int64_t bytes = dlrm_spool_bytes(s->spool);
    dlrm_spool_close(&s->spool);
    TRY(s->to->finish(s->to));
    TRY(dlrm_vocab_keep(s->in, s->out.work));
    TRY(dlrm_output_commit(&s->out));
    dlrm_info("wrote %s: %lld training rows shuffled with seed %lld; %.1f s, %.0f MB/s, %d buckets, peak memory %.0f MiB of %.0f",
              s->out.path, (long long)s->from->rows[DLRM_TRAIN], (long long)s->seed, dlrm_now() - start,
              (double)bytes * 1e-6 / (dlrm_now() - start), 1 << s->spool_args.bucket_bits, (double)dlrm_mem_peak_resident() / (1 << 20),
              (double)s->memory / (1 << 20));
    return DLRM_OK;
}

dlrm_status dlrm_shuffle_main(int argc, char **argv)
{
    shuffling s = {.hints = {.format = -1, .form = -1, .n_dense = -1}, .seed = -1, .out.lock = -1};
    int n_positional;
    bool help;
    const dlrm_option options[] = {
        {"out", DLRM_OPT_TEXT, &s.out_path, "DIR", "the folder to make (required)", .min = 0},
        {"seed", DLRM_OPT_INT, &s.seed, "S", "of the order (required)", .min = 0, .max = 9e18},
        {"memory", DLRM_OPT_SIZE, &s.memory, "BYTES", "bound, such as 4G, at least 32M (default: half of what is free)", .min = 0},
        {"from", DLRM_OPT_CHOICE, &s.hints.format, "FORMAT", "of IN (default: recognised)", .choices = dlrm_format_names},
        DLRM_HINT_OPTIONS(s.hints),
        DLRM_HOTNESS_OPTION(s.hints),
    };
    const dlrm_usage usage = {"shuffle", "IN --seed S --out DIR [options]", help_text, options, sizeof options / sizeof *options};
    TRY(dlrm_options_parse(&usage, argc, argv, &n_positional, &help));
    if (help) return DLRM_OK;
    if (n_positional != 1 || !s.out_path || s.seed < 0)
        return FAIL(DLRM_E_USAGE, "expected IN, --seed S and --out DIR; see 'dlrm_data shuffle --help'");
    s.in = argv[0];
    if (s.memory == 0) s.memory = dlrm_tool_free_memory();
    if (s.memory < least_memory) return FAIL(DLRM_E_USAGE, "--memory: %lld MiB, expected at least 32", (long long)(s.memory >> 20));
    s.memory -= least_memory / 2; /* the program itself, stretches of rows */
    dlrm_status st = shuffle(&s);
    dlrm_spool_close(&s.spool);
    dlrm_sink_close(&s.to);
    dlrm_output_abandon(&s.out);
    dlrm_stretch_close(&s.stretch);
    dlrm_rows_close(&s.packed);
    dlrm_free(&s.key);
    dlrm_free(&s.word);
    dlrm_free(&s.order);
    dlrm_free(&s.rows);
    dlrm_free(&s.block);
    dlrm_free(&s.block_key);
    dlrm_source_close(&s.from);
    return st;
}
