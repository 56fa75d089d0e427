#include "emit.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "sort64.h"
#include "vocab.h"

/* One column's work in a group: a stretch of its vocabulary. */
typedef struct piece {
    int column;
    bool first; /* of its column; a later one fills in what the earlier ones left */
    dlrm_vocab vocab;
} piece;

/* A thread's room, for `capacity` rows at a time. */
typedef struct worker {
    int64_t capacity;
    char *a, *b;      /* [capacity] of the widest part */
    uint32_t *pos;    /* sorted order: row j of the output is row pos[j] of those selected */
    uint32_t *picked; /* where the selected rows stand in their bucket, ascending */
    uint32_t *missing, *ids;
    char *block; /* [block_rows] of the widest part */
    int64_t *unknown;
    int64_t positives[DLRM_OUT_SPLITS];
    int64_t bytes_read;
    /* The rows being written: a block that keeps its order, or the `picked` rows of a bucket's blocks. */
    const dlrm_block *blocks;
    int64_t n_blocks, n;
    bool shuffled;
} worker;

typedef struct emission {
    const dlrm_emit_args *args;
    worker *workers;
    piece *pieces; /* of the group */
    int n_pieces;
    bool first_group, last_group;
    atomic_llong next_block, rows_done;
} emission;

static int64_t widest_part(int dense_bytes)
{
    return dense_bytes > 8 ? dense_bytes : 8;
}

static int64_t bytes_per_row(int dense_bytes)
{
    return 2 * widest_part(dense_bytes) + 4 * (int64_t)sizeof(uint32_t);
}

static dlrm_status read_part(const emission *e, worker *w, const dlrm_block *b, int part, void *out)
{
    w->bytes_read += b->rows * dlrm_spool_width(e->args->spool, part);
    return dlrm_spool_read(e->args->spool, b, part, out);
}

/* The picked rows of a part, in the order in which they stand in the bucket, into `a`. */
static dlrm_status load_picked(const emission *e, worker *w, int part)
{
    int64_t width = dlrm_spool_width(e->args->spool, part), at = 0, base = 0;
    for (int64_t i = 0; i < w->n_blocks && at < w->n; base += w->blocks[i++].rows) {
        const dlrm_block *b = &w->blocks[i];
        int64_t end = at;
        while (end < w->n && w->picked[end] < base + b->rows) end++;
        if (end == at) continue;
        bool whole = end - at == b->rows;
        TRY(read_part(e, w, b, part, whole ? w->a + at * width : w->block));
        for (; !whole && at < end; at++)
            memcpy(w->a + at * width, w->block + (w->picked[at] - base) * width, (size_t)width);
        at = end;
    }
    return DLRM_OK;
}

/* A part of the rows being written, in the order of the output, into `b`. */
static dlrm_status fetch(const emission *e, worker *w, int part)
{
    if (!w->shuffled) return read_part(e, w, w->blocks, part, w->b);
    TRY(load_picked(e, w, part));
    size_t width = (size_t)dlrm_spool_width(e->args->spool, part);
    if (width == sizeof(uint32_t)) {
        const uint32_t *in = (const uint32_t *)w->a;
        uint32_t *out = (uint32_t *)w->b;
        for (int64_t j = 0; j < w->n; j++) out[j] = in[w->pos[j]];
    } else {
        for (int64_t j = 0; j < w->n; j++) memcpy(w->b + j * width, w->a + w->pos[j] * width, width);
    }
    return DLRM_OK;
}

/* Writes the group's columns for w->n rows that start at `row` of `split`. */
static dlrm_status write_rows(emission *e, worker *w, int split, int64_t row)
{
    dlrm_columns *out = e->args->out;
    if (e->first_group) {
        TRY(fetch(e, w, DLRM_PART_LABEL));
        for (int64_t i = 0; i < w->n; i++) w->positives[split] += w->b[i];
        TRY(dlrm_columns_labels(out, split, row, w->n, (const uint8_t *)w->b));
        TRY(fetch(e, w, DLRM_PART_DENSE));
        TRY(dlrm_columns_dense(out, split, row, w->n, w->b));
    }
    TRY(fetch(e, w, DLRM_PART_MISSING));
    memcpy(w->missing, w->b, (size_t)w->n * sizeof *w->missing);
    for (int i = 0; i < e->n_pieces; i++) {
        const piece *p = &e->pieces[i];
        TRY(fetch(e, w, DLRM_PART_ID + p->column));
        if (!p->first) TRY(dlrm_columns_ids_read(out, split, p->column, row, w->n, w->ids));
        w->unknown[p->column] +=
            dlrm_vocab_lookup(&p->vocab, (const uint32_t *)w->b, w->missing, p->column, w->n, w->ids);
        TRY(dlrm_columns_ids(out, split, p->column, row, w->n, w->ids, w->a));
    }
    e->rows_done += w->n;
    dlrm_tool_progress("writing columns", e->rows_done * dlrm_spool_row_bytes(e->args->spool),
                       dlrm_spool_bytes(e->args->spool));
    return DLRM_OK;
}

/* Writes the rows of a bucket whose keys start with these `bits` bits, from *row on. Where they are too many for the
 * room, in two halves. */
static dlrm_status write_key_range(emission *e, worker *w, uint64_t prefix, int bits, int64_t *row)
{
    int64_t n = 0, base = 0;
    for (int64_t i = 0; i < w->n_blocks; base += w->blocks[i++].rows) {
        TRY(read_part(e, w, &w->blocks[i], DLRM_PART_KEY, w->block));
        for (int64_t r = 0; r < w->blocks[i].rows; r++) {
            uint64_t key = ((const uint64_t *)w->block)[r];
            if (bits > 0 && key >> (64 - bits) != prefix) continue;
            if (n < w->capacity) {
                ((uint64_t *)w->a)[n] = key;
                w->picked[n] = (uint32_t)(base + r);
            }
            n++;
        }
    }
    if (n > w->capacity) {
        TRY(write_key_range(e, w, prefix << 1, bits + 1, row));
        return write_key_range(e, w, prefix << 1 | 1, bits + 1, row);
    }
    if (n == 0) return DLRM_OK;
    w->n = n;
    dlrm_sort_keys((const uint64_t *)w->a, bits, n, (uint64_t *)w->b, w->pos);
    TRY(write_rows(e, w, DLRM_TRAIN, *row));
    *row += n;
    return DLRM_OK;
}

/* A block that keeps its order, or the whole bucket that starts with this block. */
static dlrm_status write_from(emission *e, worker *w, const dlrm_block *b, const dlrm_block *end)
{
    w->blocks = b;
    w->n_blocks = 1;
    w->shuffled = b->group >= DLRM_OUT_SPLITS;
    if (w->shuffled) {
        while (b + w->n_blocks < end && b[w->n_blocks].group == b->group) w->n_blocks++;
        int64_t row = b->place;
        TRY(write_key_range(e, w, (uint64_t)(b->group - DLRM_OUT_SPLITS), e->args->bucket_bits, &row));
    } else {
        w->n = b->rows;
        TRY(write_rows(e, w, b->group, b->place));
    }
    for (int64_t i = 0; e->last_group && i < w->n_blocks; i++) dlrm_spool_release(e->args->spool, &b[i]);
    return DLRM_OK;
}

static dlrm_status emit_job(void *shared, int thread, const atomic_bool *stop)
{
    emission *e = shared;
    worker *w = &e->workers[thread];
    const dlrm_block *blocks;
    int64_t n = dlrm_spool_blocks(e->args->spool, &blocks);
    while (!*stop) {
        int64_t i = e->next_block++;
        if (i >= n) break;
        bool inside_bucket = i > 0 && blocks[i].group >= DLRM_OUT_SPLITS && blocks[i].group == blocks[i - 1].group;
        if (!inside_bucket) TRY(write_from(e, w, &blocks[i], blocks + n));
    }
    return DLRM_OK;
}

static dlrm_status open_worker(const dlrm_emit_args *a, int64_t capacity, worker *w)
{
    int64_t widest = widest_part(a->dense_bytes);
    w->capacity = capacity;
    TRY(dlrm_alloc(capacity, (size_t)widest, "the column pass", &w->a));
    TRY(dlrm_alloc(capacity, (size_t)widest, "the column pass", &w->b));
    TRY(dlrm_alloc(capacity, sizeof *w->pos, "the column pass", &w->pos));
    TRY(dlrm_alloc(capacity, sizeof *w->picked, "the column pass", &w->picked));
    TRY(dlrm_alloc(capacity, sizeof *w->missing, "the column pass", &w->missing));
    TRY(dlrm_alloc(capacity, sizeof *w->ids, "the column pass", &w->ids));
    TRY(dlrm_alloc(a->block_rows, (size_t)widest, "the column pass", &w->block));
    return dlrm_alloc(a->n_ids, sizeof *w->unknown, "the column pass", &w->unknown);
}

static void close_workers(emission *e)
{
    for (int t = 0; e->workers && t < e->args->threads; t++) {
        worker *w = &e->workers[t];
        dlrm_free(&w->a);
        dlrm_free(&w->b);
        dlrm_free(&w->pos);
        dlrm_free(&w->picked);
        dlrm_free(&w->missing);
        dlrm_free(&w->ids);
        dlrm_free(&w->block);
        dlrm_free(&w->unknown);
    }
    dlrm_free(&e->workers);
}

/* Half of the memory is for shuffling, as far as the buckets need it; the rest is for vocabularies. */
static int64_t worker_capacity(const dlrm_emit_args *a)
{
    const dlrm_block *blocks;
    int64_t n = dlrm_spool_blocks(a->spool, &blocks), rows = 0, needed = a->block_rows;
    for (int64_t i = 0; i < n; i++) {
        if (blocks[i].group < DLRM_OUT_SPLITS) continue;
        rows = i > 0 && blocks[i].group == blocks[i - 1].group ? rows + blocks[i].rows : blocks[i].rows;
        if (rows > needed) needed = rows;
    }
    int64_t room = a->memory / 2 / a->threads / bytes_per_row(a->dense_bytes);
    if (room > needed) room = needed;
    return room > a->block_rows ? room : a->block_rows;
}

/* Loads the next group: from pair *first of column *column on, as much as fits into `memory`. */
static dlrm_status load_group(emission *e, int *column, int64_t *first, int64_t memory)
{
    const dlrm_emit_args *a = e->args;
    e->n_pieces = 0;
    while (*column < a->n_ids) {
        int64_t n = a->vocab_n[*column] - *first;
        if (dlrm_vocab_bytes(n) > memory) {
            if (e->n_pieces > 0) break;
            n = dlrm_vocab_fitting(memory);
        }
        piece *p = &e->pieces[e->n_pieces];
        *p = (piece){.column = *column, .first = *first == 0};
        TRY(dlrm_vocab_load(a->vocab_path[*column], *first, n, &p->vocab));
        e->n_pieces++;
        memory -= dlrm_vocab_bytes(n);
        *first += n;
        if (*first < a->vocab_n[*column]) break;
        ++*column;
        *first = 0;
    }
    return DLRM_OK;
}

static void drop_group(emission *e)
{
    for (int i = 0; i < e->n_pieces; i++) dlrm_vocab_clear(&e->pieces[i].vocab);
    e->n_pieces = 0;
}

static dlrm_status emit_groups(emission *e, dlrm_emit_result *result)
{
    const dlrm_emit_args *a = e->args;
    int64_t capacity = worker_capacity(a), first = 0;
    TRY(dlrm_alloc(a->threads, sizeof *e->workers, "the column pass", &e->workers));
    TRY(dlrm_alloc(a->n_ids, sizeof *e->pieces, "the column pass", &e->pieces));
    for (int t = 0; t < a->threads; t++) TRY(open_worker(a, capacity, &e->workers[t]));
    int64_t rest = a->memory - a->threads * (capacity * bytes_per_row(a->dense_bytes) +
                                             a->block_rows * widest_part(a->dense_bytes));
    for (int column = 0; column < a->n_ids;) {
        TRY(load_group(e, &column, &first, rest));
        e->first_group = result->groups++ == 0;
        e->last_group = column == a->n_ids;
        e->next_block = e->rows_done = 0;
        dlrm_tool_progress_begin();
        TRY(dlrm_tool_run(a->threads, emit_job, e));
        drop_group(e);
    }
    return DLRM_OK;
}

dlrm_status dlrm_emit(const dlrm_emit_args *args, dlrm_emit_result *result)
{
    emission e = {.args = args};
    result->groups = 0;
    result->bytes_read = 0;
    memset(result->positives, 0, sizeof result->positives);
    dlrm_status st = emit_groups(&e, result);
    for (int t = 0; st == DLRM_OK && t < args->threads; t++) {
        const worker *w = &e.workers[t];
        result->bytes_read += w->bytes_read;
        for (int s = 0; s < DLRM_OUT_SPLITS; s++) result->positives[s] += w->positives[s];
        for (int k = 0; k < args->n_ids; k++) result->unknown[k] += w->unknown[k];
    }
    drop_group(&e);
    close_workers(&e);
    dlrm_free(&e.pieces);
    return st;
}
