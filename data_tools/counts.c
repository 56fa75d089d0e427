#include "counts.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "mix32.h"
#include "sort64.h"
#include "tool.h"

enum {
    FIRST_BITS = 12,       /* slots of a new table, as a power of two */
    AHEAD = 12,            /* rows whose slots are prefetched */
    MERGE_BYTES = 4 << 20, /* buffers of one walk, shared by the runs … */
    MERGE_LEAST = 4096,    /* … each of which has at least so many */
};

typedef struct run {
    int64_t offset, n;
} run;

typedef struct column {
    pthread_mutex_t lock;
    uint64_t *slot; /* value << 32 | count; 0 = free. After finish: [n] sorted */
    int bits;
    int64_t n;    /* distinct values in the table */
    int64_t rows; /* added since the table was empty: no count can be larger */
    int64_t missing;
    int n_runs;
    int64_t run_capacity;
    run *runs;
    int fd;
    int64_t file_bytes;
    char path[DLRM_PATH_MAX];
} column;

struct dlrm_counts {
    int n_columns;
    column *columns;
    int64_t share;         /* bytes that a column may take whatever the others have */
    int64_t shared_budget; /* bytes for all beyond their shares */
    atomic_llong shared_used;
    atomic_uint next_column; /* where the next thread starts */
};

static size_t table_bytes(int bits)
{
    return sizeof(uint64_t) << bits;
}

/* Zeroed and not yet touched, in large pages where the system has them: tables are read at random. */
static dlrm_status map_table(int bits, uint64_t **out)
{
    void *p = mmap(NULL, table_bytes(bits), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return FAIL(DLRM_E_RUNTIME, "cannot allocate %zu bytes for counting: %s", table_bytes(bits), strerror(errno));
    madvise(p, table_bytes(bits), MADV_HUGEPAGE);
    *out = p;
    return DLRM_OK;
}

static int64_t beyond_share(const dlrm_counts *c, int64_t bytes)
{
    return bytes > c->share ? bytes - c->share : 0;
}

static void unmap_table(dlrm_counts *c, column *t)
{
    if (!t->slot) return;
    munmap(t->slot, table_bytes(t->bits));
    c->shared_used -= beyond_share(c, (int64_t)table_bytes(t->bits));
    t->slot = NULL;
}

dlrm_status dlrm_counts_open(int columns, int64_t budget_bytes, const char *folder, dlrm_counts **out)
{
    dlrm_status st;
    dlrm_counts *c;
    *out = NULL;
    TRY(dlrm_alloc(1, sizeof *c, "counts", &c));
    TRY_TO(fail, st, dlrm_alloc(columns, sizeof *c->columns, "counts", &c->columns));
    c->n_columns = columns;
    for (int k = 0; k < columns; k++) {
        c->columns[k].fd = -1;
        pthread_mutex_init(&c->columns[k].lock, NULL);
    }
    /* Half is divided evenly, so that no column has to write tiny runs because others took all. */
    c->share = budget_bytes / 2 / columns;
    c->shared_budget = budget_bytes - c->share * columns;
    for (int k = 0; k < columns; k++) {
        column *t = &c->columns[k];
        t->bits = FIRST_BITS;
        TRY_TO(fail, st, map_table(t->bits, &t->slot));
        TRY_TO(fail, st, dlrm_tool_path(t->path, "%s/counts_%d.tmp", folder, k));
    }
    *out = c;
    return DLRM_OK;
fail:
    dlrm_counts_close(&c);
    return st;
}

void dlrm_counts_drop(dlrm_counts *c, int k)
{
    column *t = &c->columns[k];
    unmap_table(c, t);
    dlrm_free(&t->runs);
    t->n_runs = 0;
    t->run_capacity = 0;
    if (t->fd < 0) return;
    close(t->fd);
    unlink(t->path);
    t->fd = -1;
}

void dlrm_counts_close(dlrm_counts **counts)
{
    dlrm_counts *c = *counts;
    if (!c) return;
    for (int k = 0; k < c->n_columns; k++) {
        dlrm_counts_drop(c, k);
        pthread_mutex_destroy(&c->columns[k].lock);
    }
    dlrm_free(&c->columns);
    dlrm_free(counts);
}

static inline int64_t first_slot(const column *t, uint32_t v)
{
    return dlrm_mix32(v) >> (32 - t->bits);
}

static void put_word(column *t, uint64_t word)
{
    int64_t mask = ((int64_t)1 << t->bits) - 1, i = first_slot(t, (uint32_t)(word >> 32));
    while (t->slot[i]) i = (i + 1) & mask;
    t->slot[i] = word;
}

/* Moves the words to the front of the table, sorted by value. */
static void sort_table(column *t)
{
    int64_t slots = (int64_t)1 << t->bits, n = 0;
    for (int64_t i = 0; i < slots; i++) {
        uint64_t word = t->slot[i];
        if (!word) continue;
        t->slot[i] = 0;
        t->slot[n++] = word;
    }
    dlrm_sort64(t->slot, n);
}

static dlrm_status spill(column *t)
{
    if (t->fd < 0) TRY(dlrm_tool_create(t->path, &t->fd));
    TRY(dlrm_grow(t->n_runs, sizeof *t->runs, 16, "a list of runs", &t->runs, &t->run_capacity));
    sort_table(t);
    size_t bytes = (size_t)t->n * sizeof *t->slot;
    TRY(dlrm_tool_pwrite(t->fd, t->slot, bytes, t->file_bytes, t->path));
    t->runs[t->n_runs++] = (run){t->file_bytes, t->n};
    t->file_bytes += (int64_t)bytes;
    memset(t->slot, 0, bytes);
    t->n = t->rows = 0;
    return DLRM_OK;
}

/* Twice as large where the budget has room for the old and the new table side by side, which is needed for a moment. */
static dlrm_status grow(dlrm_counts *c, column *t, bool *grown)
{
    *grown = false;
    if (t->bits == 32) return DLRM_OK;
    int64_t old_bytes = (int64_t)table_bytes(t->bits), both = 3 * old_bytes;
    int64_t extra = beyond_share(c, both) - beyond_share(c, old_bytes);
    if (atomic_fetch_add(&c->shared_used, extra) + extra > c->shared_budget) {
        c->shared_used -= extra;
        return DLRM_OK;
    }
    column bigger = {.bits = t->bits + 1};
    dlrm_status st = map_table(bigger.bits, &bigger.slot);
    if (st == DLRM_OK) {
        for (int64_t i = 0; i < (int64_t)1 << t->bits; i++)
            if (t->slot[i]) put_word(&bigger, t->slot[i]);
        munmap(t->slot, (size_t)old_bytes);
        t->slot = bigger.slot;
        t->bits = bigger.bits;
        *grown = true;
    }
    c->shared_used -= extra - (*grown ? beyond_share(c, 2 * old_bytes) - beyond_share(c, old_bytes) : 0);
    return st;
}

static dlrm_status make_room(dlrm_counts *c, column *t)
{
    bool grown;
    TRY(grow(c, t, &grown));
    return grown ? DLRM_OK : spill(t);
}

static dlrm_status add_column(dlrm_counts *c, int k, const uint32_t *values, const uint32_t *missing, int64_t n)
{
    column *t = &c->columns[k];
    if (t->rows + n > UINT32_MAX) TRY(spill(t)); /* before a count overflows */
    t->rows += n;
    int64_t absent = 0, limit = ((int64_t)1 << t->bits) / 4 * 3, mask = ((int64_t)1 << t->bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n) __builtin_prefetch(&t->slot[first_slot(t, values[i + AHEAD])], 1);
        if (missing[i] >> k & 1) {
            absent++;
            continue;
        }
        uint32_t v = values[i];
        int64_t s = first_slot(t, v);
        while (t->slot[s] && t->slot[s] >> 32 != v) s = (s + 1) & mask;
        if (t->slot[s]) {
            t->slot[s]++;
            continue;
        }
        t->slot[s] = (uint64_t)v << 32 | 1;
        if (++t->n < limit) continue;
        TRY(make_room(c, t));
        limit = ((int64_t)1 << t->bits) / 4 * 3;
        mask = ((int64_t)1 << t->bits) - 1;
    }
    t->missing += absent;
    return DLRM_OK;
}

dlrm_status dlrm_counts_add(dlrm_counts *c, const uint32_t *values, int64_t stride, const uint32_t *missing, int64_t n)
{
    DLRM_ASSERT(c->n_columns <= 32 && n <= 1 << 30);
    uint32_t left = (uint32_t)(((uint64_t)1 << c->n_columns) - 1);
    int start = (int)(c->next_column++ % (unsigned)c->n_columns);
    for (bool wait = false; left; wait = true) { /* first what is free, then in order */
        for (int i = 0; i < c->n_columns; i++) {
            int k = (start + i) % c->n_columns;
            if (!(left >> k & 1)) continue;
            column *t = &c->columns[k];
            if (wait)
                pthread_mutex_lock(&t->lock);
            else if (pthread_mutex_trylock(&t->lock) != 0)
                continue;
            dlrm_status st = add_column(c, k, values + k * stride, missing, n);
            pthread_mutex_unlock(&t->lock);
            TRY(st);
            left &= ~(1u << k);
        }
    }
    return DLRM_OK;
}

dlrm_status dlrm_counts_finish(dlrm_counts *c, int k)
{
    column *t = &c->columns[k];
    if (t->n_runs == 0) {
        sort_table(t);
    } else {
        if (t->n > 0) TRY(spill(t));
        unmap_table(c, t);
    }
    return DLRM_OK;
}

/* One run being read: words [at, n) of the buffer, then `left` more from the file. */
typedef struct cursor {
    uint64_t *buffer;
    int64_t at, n, left, offset;
} cursor;

static dlrm_status refill(column *t, cursor *q, int64_t words)
{
    q->n = q->left < words ? q->left : words;
    q->at = 0;
    TRY(dlrm_tool_pread(t->fd, q->buffer, (size_t)q->n * sizeof *q->buffer, q->offset, t->path));
    q->offset += q->n * (int64_t)sizeof *q->buffer;
    q->left -= q->n;
    return DLRM_OK;
}

static void sift_down(cursor **heap, int n, int i)
{
    for (;;) {
        int least = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (heap[child]->buffer[heap[child]->at] < heap[least]->buffer[heap[least]->at]) least = child;
        if (least == i) return;
        cursor *q = heap[i];
        heap[i] = heap[least];
        heap[least] = q;
        i = least;
    }
}

static dlrm_status merge(column *t, int64_t words, cursor *cursors, cursor **heap, dlrm_counts_visit visit, void *arg)
{
    int n = t->n_runs;
    for (int r = 0; r < n; r++) {
        cursors[r].left = t->runs[r].n;
        cursors[r].offset = t->runs[r].offset;
        TRY(refill(t, &cursors[r], words));
        heap[r] = &cursors[r];
    }
    for (int i = n / 2; i-- > 0;) sift_down(heap, n, i);
    while (n > 0) {
        uint32_t value = (uint32_t)(heap[0]->buffer[heap[0]->at] >> 32);
        uint64_t count = 0;
        while (n > 0 && heap[0]->buffer[heap[0]->at] >> 32 == value) {
            cursor *q = heap[0];
            count += (uint32_t)q->buffer[q->at++];
            if (q->at == q->n && q->left > 0) TRY(refill(t, q, words));
            if (q->at == q->n) heap[0] = heap[--n];
            sift_down(heap, n, 0);
        }
        TRY(visit(arg, value, count));
    }
    return DLRM_OK;
}

dlrm_status dlrm_counts_walk(dlrm_counts *c, int k, dlrm_counts_visit visit, void *arg)
{
    column *t = &c->columns[k];
    if (t->n_runs == 0) {
        for (int64_t i = 0; i < t->n; i++) TRY(visit(arg, (uint32_t)(t->slot[i] >> 32), (uint32_t)t->slot[i]));
        return DLRM_OK;
    }
    int64_t bytes = MERGE_BYTES / t->n_runs > MERGE_LEAST ? MERGE_BYTES / t->n_runs : MERGE_LEAST;
    int64_t words = bytes / (int64_t)sizeof(uint64_t);
    dlrm_status st;
    cursor *cursors = NULL, **heap = NULL;
    uint64_t *buffers = NULL;
    TRY_TO(done, st, dlrm_alloc(t->n_runs, sizeof *cursors, "a merge", &cursors));
    TRY_TO(done, st, dlrm_alloc(t->n_runs, sizeof *heap, "a merge", &heap));
    TRY_TO(done, st, dlrm_alloc(t->n_runs * words, sizeof *buffers, "a merge", &buffers));
    for (int r = 0; r < t->n_runs; r++) cursors[r].buffer = buffers + r * words;
    st = merge(t, words, cursors, heap, visit, arg);
done:
    dlrm_free(&cursors);
    dlrm_free(&heap);
    dlrm_free(&buffers);
    return st;
}

int64_t dlrm_counts_missing(const dlrm_counts *c, int k)
{
    return c->columns[k].missing;
}

int dlrm_counts_runs(const dlrm_counts *c, int k)
{
    return c->columns[k].n_runs;
}
