#include "spool.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tool.h"

typedef struct bucket {
    pthread_mutex_t lock;
    dlrm_rows rows; /* `number` holds keys */
} bucket;

/* A thread's room to sort a chunk's rows by bucket. */
typedef struct scatter {
    int64_t capacity;
    uint64_t *key;
    int64_t *start; /* [buckets + 1] */
    int32_t *order;
} scatter;

struct dlrm_spool {
    dlrm_spool_args args;
    char path[DLRM_PATH_MAX];
    uint64_t salt[2];
    int fd;
    atomic_llong bytes;
    int n_buckets;
    bucket *buckets;
    scatter *scatters;    /* [threads] */
    pthread_mutex_t lock; /* of the blocks */
    dlrm_block *blocks;
    int64_t n_blocks, block_capacity;
    int64_t rows[DLRM_OUT_SPLITS]; /* after finish */
    dlrm_rows shape;               /* no rows: widths alone */
};

int64_t dlrm_spool_width(const dlrm_spool *s, int part)
{
    return dlrm_rows_width(&s->shape, part);
}

int64_t dlrm_spool_row_bytes(const dlrm_spool *s)
{
    return dlrm_rows_offset(&s->shape, dlrm_rows_parts(&s->shape));
}

int64_t dlrm_spool_memory(const dlrm_spool_args *a)
{
    return a->shuffle ? (a->block_rows * (8 + 1 + a->dense_bytes + 4 + 4 * a->n_ids) + 1024) << a->bucket_bits : 0;
}

dlrm_status dlrm_spool_open(const dlrm_spool_args *a, dlrm_spool **out)
{
    dlrm_status st;
    dlrm_spool *s;
    *out = NULL;
    TRY(dlrm_alloc(1, sizeof *s, "the spool", &s));
    s->args = *a;
    s->fd = -1;
    s->shape = (dlrm_rows){.n_ids = a->n_ids, .dense_bytes = a->dense_bytes};
    pthread_mutex_init(&s->lock, NULL);
    dlrm_u32x4 salt = dlrm_philox(a->seed, dlrm_rng_stream("shuffle"), 0);
    s->salt[0] = (uint64_t)salt.v[0] << 32 | salt.v[1];
    s->salt[1] = (uint64_t)salt.v[2] << 32 | salt.v[3];
    TRY_TO(fail, st, dlrm_tool_path(s->path, "%s", a->path));
    TRY_TO(fail, st, dlrm_tool_create(s->path, &s->fd));
    if (a->shuffle) {
        TRY_TO(fail, st, dlrm_alloc((int64_t)1 << a->bucket_bits, sizeof *s->buckets, "shuffle buckets", &s->buckets));
        TRY_TO(fail, st, dlrm_alloc(a->threads, sizeof *s->scatters, "shuffle buckets", &s->scatters));
        for (; s->n_buckets < 1 << a->bucket_bits; s->n_buckets++) {
            bucket *b = &s->buckets[s->n_buckets];
            TRY_TO(fail, st, dlrm_rows_open(a->block_rows, a->n_ids, a->dense_bytes, &b->rows));
            pthread_mutex_init(&b->lock, NULL);
        }
        for (int t = 0; t < a->threads; t++)
            TRY_TO(fail, st,
                   dlrm_alloc(s->n_buckets + 1, sizeof *s->scatters->start, "shuffle buckets", &s->scatters[t].start));
    }
    *out = s;
    return DLRM_OK;
fail:
    dlrm_spool_close(&s);
    return st;
}

static void close_buckets(dlrm_spool *s)
{
    for (int i = 0; i < s->n_buckets; i++) {
        dlrm_rows_close(&s->buckets[i].rows);
        pthread_mutex_destroy(&s->buckets[i].lock);
    }
    for (int t = 0; s->scatters && t < s->args.threads; t++) {
        dlrm_free(&s->scatters[t].key);
        dlrm_free(&s->scatters[t].start);
        dlrm_free(&s->scatters[t].order);
    }
    dlrm_free(&s->buckets);
    dlrm_free(&s->scatters);
    s->n_buckets = 0;
}

void dlrm_spool_close(dlrm_spool **spool)
{
    dlrm_spool *s = *spool;
    if (!s) return;
    close_buckets(s);
    if (s->fd >= 0) {
        close(s->fd);
        unlink(s->path);
    }
    pthread_mutex_destroy(&s->lock);
    dlrm_free(&s->blocks);
    dlrm_free(spool);
}

static dlrm_status note_block(dlrm_spool *s, dlrm_block b)
{
    TRY(dlrm_grow(s->n_blocks, sizeof b, 1024, "the spool's index", &s->blocks, &s->block_capacity));
    s->blocks[s->n_blocks++] = b;
    return DLRM_OK;
}

static dlrm_status write_block(dlrm_spool *s, int group, int64_t order, const dlrm_rows *rows, int64_t begin,
                               int64_t end)
{
    int64_t n = end - begin, bytes = n * dlrm_spool_row_bytes(s), offset = atomic_fetch_add(&s->bytes, bytes);
    if (n == rows->capacity) { /* then memory has no gaps */
        TRY(dlrm_tool_pwrite(s->fd, rows->memory, (size_t)bytes, offset, s->path));
    } else {
        for (int p = 0; p < dlrm_rows_parts(rows); p++) {
            int64_t width = dlrm_rows_width(rows, p), before = dlrm_rows_offset(rows, p);
            const char *data = rows->memory + rows->capacity * before + begin * width;
            TRY(dlrm_tool_pwrite(s->fd, data, (size_t)(n * width), offset + n * before, s->path));
        }
    }
    pthread_mutex_lock(&s->lock);
    dlrm_status st = note_block(s, (dlrm_block){.offset = offset, .place = order, .rows = (int32_t)n, .group = group});
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* Two rounds of a 64-bit finalizer (the one of SplitMix64), salted: different rows have different keys. */
static uint64_t shuffle_key(const dlrm_spool *s, uint64_t row)
{
    for (int round = 0; round < 2; round++) {
        row += s->salt[round];
        row = (row ^ row >> 30) * 0xBF58476D1CE4E5B9u;
        row = (row ^ row >> 27) * 0x94D049BB133111EBu;
        row ^= row >> 31;
    }
    return row;
}

static int64_t bucket_of(const dlrm_spool *s, uint64_t key)
{
    return s->args.bucket_bits ? (int64_t)(key >> (64 - s->args.bucket_bits)) : 0;
}

/* Appends the rows order[0 … n-1] of `from`, less what does not fit; returns how many did. */
static int64_t append_rows(dlrm_rows *to, const dlrm_rows *from, const uint64_t *key, int64_t first,
                           const int32_t *order, int64_t n)
{
    if (n > to->capacity - to->n) n = to->capacity - to->n;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = first + order[i], at = to->n + i;
        to->number[at] = key[order[i]];
        to->label[at] = from->label[row];
        to->missing[at] = from->missing[row];
        memcpy(to->dense + at * to->dense_bytes, from->dense + row * from->dense_bytes, (size_t)to->dense_bytes);
    }
    for (int k = 0; k < to->n_ids; k++) {
        const uint32_t *in = from->ids + k * from->capacity + first;
        uint32_t *out = to->ids + k * to->capacity + to->n;
        for (int64_t i = 0; i < n; i++) out[i] = in[order[i]];
    }
    to->n += n;
    return n;
}

static dlrm_status write_bucket(dlrm_spool *s, int64_t b)
{
    dlrm_rows *rows = &s->buckets[b].rows;
    TRY(write_block(s, DLRM_OUT_SPLITS + (int)b, 0, rows, 0, rows->n));
    rows->n = 0;
    return DLRM_OK;
}

static dlrm_status add_to_bucket(dlrm_spool *s, int64_t b, const dlrm_rows *from, const uint64_t *key, int64_t first,
                                 const int32_t *order, int64_t n)
{
    while (n > 0) {
        int64_t done = append_rows(&s->buckets[b].rows, from, key, first, order, n);
        order += done;
        n -= done;
        if (s->buckets[b].rows.n == s->buckets[b].rows.capacity) TRY(write_bucket(s, b));
    }
    return DLRM_OK;
}

static dlrm_status scatter_rows(dlrm_spool *s, scatter *w, const dlrm_rows *rows, int64_t begin, int64_t end)
{
    int64_t n = end - begin;
    if (w->capacity < rows->capacity) {
        TRY(dlrm_alloc(rows->capacity, sizeof *w->key, "shuffle keys", &w->key));
        TRY(dlrm_alloc(rows->capacity, sizeof *w->order, "shuffle keys", &w->order));
        w->capacity = rows->capacity;
    }
    memset(w->start, 0, ((size_t)s->n_buckets + 1) * sizeof *w->start);
    for (int64_t i = 0; i < n; i++) {
        w->key[i] = shuffle_key(s, rows->number[begin + i]);
        w->start[bucket_of(s, w->key[i]) + 1]++;
    }
    for (int b = 0; b < s->n_buckets; b++) w->start[b + 1] += w->start[b];
    for (int64_t i = 0; i < n; i++) w->order[w->start[bucket_of(s, w->key[i])]++] = (int32_t)i;
    /* start[b] is now where bucket b ends */
    for (int64_t b = 0, from = 0; b < s->n_buckets; from = w->start[b++]) {
        if (from == w->start[b]) continue;
        pthread_mutex_lock(&s->buckets[b].lock);
        dlrm_status st = add_to_bucket(s, b, rows, w->key, begin, w->order + from, w->start[b] - from);
        pthread_mutex_unlock(&s->buckets[b].lock);
        TRY(st);
    }
    return DLRM_OK;
}

dlrm_status dlrm_spool_add(dlrm_spool *s, int thread, int split, const dlrm_rows *rows, int64_t begin, int64_t end)
{
    if (begin == end) return DLRM_OK;
    if (s->args.shuffle && split == DLRM_TRAIN) return scatter_rows(s, &s->scatters[thread], rows, begin, end);
    return write_block(s, split, (int64_t)rows->number[begin], rows, begin, end);
}

static int by_group_then_place(const void *a, const void *b)
{
    const dlrm_block *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

dlrm_status dlrm_spool_finish(dlrm_spool *s)
{
    for (int b = 0; b < s->n_buckets; b++)
        if (s->buckets[b].rows.n > 0) TRY(write_bucket(s, b));
    close_buckets(s);
    /* Until here a block's place was the number of its first row, and 0 in buckets. */
    if (s->n_blocks) qsort(s->blocks, (size_t)s->n_blocks, sizeof *s->blocks, by_group_then_place);
    for (int64_t i = 0; i < s->n_blocks; i++) {
        dlrm_block *b = &s->blocks[i];
        int split = b->group < DLRM_OUT_SPLITS ? b->group : DLRM_TRAIN;
        bool same_bucket = i > 0 && b->group >= DLRM_OUT_SPLITS && b->group == b[-1].group;
        b->place = same_bucket ? b[-1].place : s->rows[split];
        s->rows[split] += b->rows;
    }
    return DLRM_OK;
}

int64_t dlrm_spool_rows(const dlrm_spool *s, int split)
{
    return s->rows[split];
}

int64_t dlrm_spool_blocks(const dlrm_spool *s, const dlrm_block **blocks)
{
    *blocks = s->blocks;
    return s->n_blocks;
}

int64_t dlrm_spool_bytes(const dlrm_spool *s)
{
    return s->bytes;
}

dlrm_status dlrm_spool_read(dlrm_spool *s, const dlrm_block *b, int part, void *out)
{
    int64_t offset = b->offset + b->rows * dlrm_rows_offset(&s->shape, part);
    return dlrm_tool_pread(s->fd, out, (size_t)(b->rows * dlrm_rows_width(&s->shape, part)), offset, s->path);
}

void dlrm_spool_release(dlrm_spool *s, const dlrm_block *b)
{
    /* Where it fails the space stays taken until the file goes: no harm done. */
    (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, b->offset, b->rows * dlrm_spool_row_bytes(s));
}
