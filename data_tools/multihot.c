/* Table t's row r stands for the bag {r, tail[t][r]…}, where all tails come from one stream of random numbers, table by
 * table and row by row (facebook's torchrec_dlrm, multi_hot.py, distribution uniform). Tails of MLPerf's tables take 23 GB,
 * so the columns are made in passes: each has tails in memory for some tables, or for a stretch of a large one's rows. */
#include "multihot.h"

#include <stdio.h>
#include <string.h>

#include "base/int64.h"
#include "base/log.h"
#include "base/mem.h"
#include "mt19937.h"
#include "output.h"
#include "source_options.h"
#include "split_binary.h"
#include "transcode.h"

const int dlrm_mlperf_hotness[DLRM_MLPERF_FEATURES] = {3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};

/* The rows of DLRM-DCNv2's tables: Terabyte's ids, modulo 40,000,000. */
static const int64_t mlperf_rows[DLRM_MLPERF_FEATURES] = {40000000, 39060,    17295,    7424,     20265,  3,     7122, 1543, 63,
                                                          40000000, 3067956,  405282,   10,       2209,   11938, 155,  4,    976,
                                                          14,       40000000, 40000000, 40000000, 590152, 12973, 108,  36};

static const char help_text[] =
    "Makes MLPerf's multi-hot rows (DLRM-DCNv2) of one-hot ones: each id becomes a bag of so many ids, the first\n"
    "of which is the id modulo its table's rows, and the others are random, but the same wherever that id occurs.\n"
    "With seed 0 the bags are those of the reference, bit by bit. IN is any folder that 'dlrm_data convert' reads\n"
    "or makes, with one id a row of each feature; DIR is a split_binary folder (for HugeCTR: convert DIR --to\n"
    "hugectr_raw).\n"
    "\n"
    "Where memory does not hold the random ids of all tables (MLPerf's: 23 GB), IN is read several times.\n"
    "Nothing of the result depends on it.";

/* Rows [low, high) of a table and their tails. */
typedef struct piece {
    int feature;
    int64_t low, high;
    uint32_t *tails; /* [high-low][hotness-1] */
} piece;

/* Where the making has got to: at row `row` of table `feature`, with `room` bytes left in this pass. */
typedef struct place {
    int feature;
    int64_t row, room;
    bool begun; /* the pass has a piece */
} place;

enum { MANY_PASSES = 10 };

typedef struct making {
    const char *in;
    dlrm_source_hints hints;
    int64_t cap, seed, memory;
    const char *hotness, *rows, *out_path;
    dlrm_row_source *from;
    dlrm_output out;
    dlrm_shape shape; /* of the rows made */
    dlrm_columns *columns;
    dlrm_mt19937 generator;
    dlrm_stretch one_hot;
    uint32_t *bags, *packed; /* [stretch][largest hotness] */
    uint16_t *halves;
    piece *pieces; /* of a pass */
    int n_pieces, passes;
    bool *wanted; /* [n_features]: columns of a pass */
} making;

/* --- the shape --- */

static dlrm_status lists(making *m)
{
    int64_t *list;
    int n_hotness = 0, n_rows = 0, n = m->from->shape.n_features;
    dlrm_shape *shape = &m->shape;
    TRY(dlrm_alloc(2 * (int64_t)n, sizeof *list, "lists", &list));
    dlrm_status st = DLRM_OK;
    if (m->hotness) st = dlrm_parse_list("hotness", m->hotness, 1 << 20, n, list, &n_hotness);
    if (st == DLRM_OK && m->rows && strcmp(m->rows, "mlperf") == 0) {
        n_rows = DLRM_MLPERF_FEATURES;
        memcpy(list + n, mlperf_rows, (size_t)(n < n_rows ? n : n_rows) * sizeof *list);
    } else if (st == DLRM_OK && m->rows) {
        st = dlrm_parse_list("rows", m->rows, INT32_MAX - 1, n, list + n, &n_rows);
    }
    if (st == DLRM_OK && (m->hotness ? n_hotness : DLRM_MLPERF_FEATURES) != n)
        st = FAIL(DLRM_E_USAGE, "--hotness: %s%d values, expected one for each of %d features",
                  m->hotness ? "" : "not given, and MLPerf's are ", m->hotness ? n_hotness : DLRM_MLPERF_FEATURES, n);
    if (st == DLRM_OK && m->rows && n_rows != n)
        st = FAIL(DLRM_E_USAGE, "--rows: %d values, expected one for each of %d features", n_rows, n);
    for (int f = 0; st == DLRM_OK && f < n; f++) {
        dlrm_feature *to = &shape->features[f];
        if (to->hotness != 1 || to->variable)
            st = FAIL(DLRM_E_INPUT, "%s: feature %s has %d ids a row already, expected one", m->in, to->name, to->hotness);
        to->hotness = m->hotness ? (int)list[f] : dlrm_mlperf_hotness[f];
        to->cardinality = m->rows ? list[n + f] : to->cardinality < m->cap ? to->cardinality : m->cap;
    }
    dlrm_free(&list);
    return st;
}

static dlrm_status open_output(making *m)
{
    const dlrm_shape *shape = &m->shape;
    int64_t *cardinality, n = shape->n_features;
    TRY(dlrm_alloc(n, sizeof *cardinality + sizeof(int), "the features", &cardinality));
    int *hotness = (int *)(cardinality + n);
    for (int f = 0; f < n; f++) {
        cardinality[f] = shape->features[f].cardinality;
        hotness[f] = shape->features[f].hotness;
    }
    dlrm_columns_shape columns = {.n_dense = shape->n_dense,
                                  .dense_bytes = m->from->dense_bytes,
                                  .n_ids = (int)n,
                                  .cardinality = cardinality,
                                  .hotness = hotness,
                                  .dense = shape->form == DLRM_FORM_FLOATS ? NULL : dlrm_form_names[shape->form]};
    dlrm_status st = dlrm_output_begin(m->out_path, &m->out);
    if (st == DLRM_OK) st = dlrm_columns_open(m->out.work, &columns, m->from->rows, &m->columns);
    dlrm_free(&cardinality);
    return st;
}

static dlrm_status take_room(making *m)
{
    int64_t most = 1;
    for (int f = 0; f < m->shape.n_features; f++)
        if (m->shape.features[f].hotness > most) most = m->shape.features[f].hotness;
    TRY(dlrm_stretch_open(&m->from->shape, dlrm_stretch_rows(&m->shape), &m->one_hot));
    TRY(dlrm_alloc(m->one_hot.capacity * most, sizeof *m->bags, "bags", &m->bags));
    TRY(dlrm_alloc(m->one_hot.capacity * most, sizeof *m->packed, "bags", &m->packed));
    TRY(dlrm_alloc(m->one_hot.capacity * m->shape.n_dense, sizeof *m->halves, "dense values", &m->halves));
    TRY(dlrm_alloc(m->shape.n_features, sizeof *m->wanted, "the features", &m->wanted));
    return dlrm_alloc(m->shape.n_features, sizeof *m->pieces, "the features", &m->pieces);
}

/* --- a pass --- */

static void drop_pieces(making *m)
{
    for (int i = 0; i < m->n_pieces; i++) dlrm_free(&m->pieces[i].tails);
    m->n_pieces = 0;
}

static int64_t tail_bytes(const dlrm_feature *f)
{
    return (f->hotness - 1) * (int64_t)sizeof(uint32_t);
}

/* The next piece of a pass: as much of a table as fits, one row at least. False: the pass is full, or all tables are done. */
static bool next_piece(const making *m, place *at, piece *out)
{
    if (at->feature == m->shape.n_features) return false;
    const dlrm_feature *f = &m->shape.features[at->feature];
    const int64_t bytes = tail_bytes(f);
    int64_t n = f->cardinality - at->row;
    if (n * bytes > at->room) {
        if (at->begun) return false;
        n = dlrm_max64(at->room / bytes, 1);
    }
    *out = (piece){.feature = at->feature, .low = at->row, .high = at->row + n};
    at->begun = true;
    at->room -= n * bytes;
    at->row += n;
    if (at->row < f->cardinality) return true;
    at->feature++;
    at->row = 0;
    return true;
}

static void begin_pass(const making *m, place *at)
{
    at->room = m->memory;
    at->begun = false;
}

/* A pass reads and unpacks all rows of the input, so many of them are slow: said before they begin. */
static void announce_passes(const making *m)
{
    place at = {0};
    piece p;
    int64_t passes = 0, bytes = 0;
    while (at.feature < m->shape.n_features) {
        begin_pass(m, &at);
        while (next_piece(m, &at, &p)) {
        }
        passes++;
    }
    if (passes < MANY_PASSES) return;
    for (int f = 0; f < m->shape.n_features; f++) bytes += m->shape.features[f].cardinality * tail_bytes(&m->shape.features[f]);
    fprintf(stderr, "dlrm_data: the random ids take %.0f MiB and --memory is %.0f: %s is read %lld times; more memory makes that fewer\n",
            (double)bytes / (1 << 20), (double)m->memory / (1 << 20), m->in, (long long)passes);
}

static dlrm_status load_pieces(making *m, place *at)
{
    memset(m->wanted, 0, (size_t)m->shape.n_features * sizeof *m->wanted);
    begin_pass(m, at);
    for (piece *p; next_piece(m, at, p = &m->pieces[m->n_pieces]);) {
        const dlrm_feature *f = &m->shape.features[p->feature];
        const int64_t ids = (p->high - p->low) * (f->hotness - 1);
        m->n_pieces++;
        TRY(dlrm_alloc(ids, sizeof *p->tails, "the random ids; see --memory", &p->tails));
        dlrm_mt_randint(&m->generator, (uint32_t)f->cardinality, ids, p->tails);
        m->wanted[p->feature] = true;
    }
    return DLRM_OK;
}

static dlrm_status write_bags(making *m, const piece *p, int split)
{
    const dlrm_feature *f = &m->shape.features[p->feature];
    const dlrm_stretch *rows = &m->one_hot;
    const uint32_t *ids = dlrm_stretch_ids(rows, &m->from->shape, p->feature);
    int tail = f->hotness - 1;
    if (p->low > 0) TRY(dlrm_columns_ids_read(m->columns, split, p->feature, rows->first, rows->n, m->bags));
    for (int64_t i = 0; i < rows->n; i++) {
        uint32_t *bag = m->bags + i * f->hotness;
        int64_t id = ids[i] % f->cardinality;
        if (id < p->low || id >= p->high) {
            if (p->low == 0) memset(bag, 0, (size_t)f->hotness * sizeof *bag); /* a later pass's */
            continue;
        }
        bag[0] = (uint32_t)id;
        memcpy(bag + 1, p->tails + (id - p->low) * tail, (size_t)tail * sizeof *bag);
    }
    return dlrm_columns_ids(m->columns, split, p->feature, rows->first, rows->n, m->bags, m->packed);
}

static dlrm_status write_rest(making *m, int split)
{
    dlrm_stretch *rows = &m->one_hot;
    TRY(dlrm_columns_labels(m->columns, split, rows->first, rows->n, rows->labels));
    if (m->shape.n_dense == 0) return DLRM_OK;
    TRY(dlrm_dense_recode(m->from->shape.form, m->shape.form, &m->shape, m->in, rows));
    return dlrm_columns_dense(m->columns, split, rows->first, rows->n,
                              m->from->dense_bytes == 2 ? dlrm_dense_halves(&m->shape, rows, m->halves) : rows->dense);
}

static dlrm_status pass(making *m)
{
    int64_t done = 0, all = m->from->rows[0] + m->from->rows[1] + m->from->rows[2];
    m->from->wanted = m->wanted;
    dlrm_tool_progress_begin();
    for (int split = 0; split < DLRM_OUT_SPLITS; split++)
        for (int64_t row = 0, rows = m->from->rows[split]; row < rows; row += m->one_hot.n) {
            TRY(m->from->read(m->from, split, row, rows - row < m->one_hot.capacity ? rows - row : m->one_hot.capacity, &m->one_hot));
            if (m->passes == 0) TRY(write_rest(m, split));
            for (int i = 0; i < m->n_pieces; i++) TRY(write_bags(m, &m->pieces[i], split));
            done += m->one_hot.n;
            dlrm_tool_progress("making bags", 4 * done * m->shape.n_ids, 4 * all * m->shape.n_ids);
        }
    m->passes++;
    return DLRM_OK;
}

static dlrm_status make(making *m)
{
    place at = {0};
    double start = dlrm_now();
    TRY(dlrm_source_open(m->in, &m->hints, NULL, &m->from));
    TRY(dlrm_shape_refuse_keys(&m->from->shape, "no bags of random ids are made of"));
    TRY(dlrm_source_scan_cardinalities(m->from));
    TRY(dlrm_shape_copy(&m->from->shape, &m->shape));
    TRY(dlrm_transcode_form(m->from->shape.form, DLRM_FORMAT_SPLIT_BINARY, -1, &m->shape.form));
    TRY(lists(m));
    dlrm_shape_settle(&m->shape);
    TRY(open_output(m));
    TRY(take_room(m));
    dlrm_mt_seed(&m->generator, (uint32_t)m->seed);
    announce_passes(m);
    while (at.feature < m->shape.n_features) {
        TRY(load_pieces(m, &at));
        TRY(pass(m));
        drop_pieces(m);
    }
    TRY(dlrm_columns_finish(m->columns));
    TRY(dlrm_output_commit(&m->out));
    dlrm_info("wrote %s: %lld rows of %lld ids; %.1f s, %d pass%s over the input", m->out.path,
              (long long)(m->from->rows[0] + m->from->rows[1] + m->from->rows[2]), (long long)m->shape.n_ids, dlrm_now() - start, m->passes,
              m->passes > 1 ? "es" : "");
    return DLRM_OK;
}

dlrm_status dlrm_multihot_main(int argc, char **argv)
{
    making m = {.hints = {.format = -1, .form = -1, .n_dense = -1}, .cap = 40000000, .out.lock = -1};
    int n_positional;
    bool help;
    const dlrm_option options[] = {
        {"out", DLRM_OPT_TEXT, &m.out_path, "DIR", "the folder to make (required)", .min = 0},
        {"hotness", DLRM_OPT_TEXT, &m.hotness, "LIST", "ids of each feature's bags, as 3,2,1 (default: MLPerf's 26, 214 in all)", .min = 0},
        {"rows", DLRM_OPT_TEXT, &m.rows, "LIST", "rows of each table, or mlperf (default: the cardinality, at most --cap)", .min = 0},
        {"cap", DLRM_OPT_INT, &m.cap, "N", "default 40000000, MLPerf's", .min = 1, .max = INT32_MAX - 1},
        {"seed", DLRM_OPT_INT, &m.seed, "S", "default 0, MLPerf's", .min = 0, .max = UINT32_MAX},
        {"memory", DLRM_OPT_SIZE, &m.memory, "BYTES", "for random ids, such as 4G (default: half of what is free)", .min = 0},
        {"from", DLRM_OPT_CHOICE, &m.hints.format, "FORMAT", "of IN (default: recognised)", .choices = dlrm_format_names},
        DLRM_HINT_OPTIONS(m.hints),
    };
    const dlrm_usage usage = {"multihot", "IN --out DIR [options]", help_text, options, sizeof options / sizeof *options};
    TRY(dlrm_options_parse(&usage, argc, argv, &n_positional, &help));
    if (help) return DLRM_OK;
    if (n_positional != 1 || !m.out_path) return FAIL(DLRM_E_USAGE, "expected IN and --out DIR; see 'dlrm_data multihot --help'");
    m.in = argv[0];
    if (m.memory == 0) m.memory = dlrm_tool_free_memory();
    if (m.memory < 1 << 20) return FAIL(DLRM_E_USAGE, "--memory: %lld, expected at least 1M", (long long)m.memory);
    dlrm_status st = make(&m);
    drop_pieces(&m);
    dlrm_free(&m.pieces);
    dlrm_free(&m.wanted);
    dlrm_free(&m.halves);
    dlrm_free(&m.packed);
    dlrm_free(&m.bags);
    dlrm_stretch_close(&m.one_hot);
    dlrm_columns_close(&m.columns);
    dlrm_output_abandon(&m.out);
    dlrm_shape_clear(&m.shape);
    dlrm_source_close(&m.from);
    return st;
}
