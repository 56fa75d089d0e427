#include "vocab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "criteo_line.h"
#include "tool.h"

static const char magic[8] = {'D', 'L', 'R', 'M', 'V', 'O', 'C', '1'};

enum {
    HEADER_BYTES = 40,
    COMMON = 1 << 16, /* counts from here on are ranked one by one, lower ones by counting how many have each count */
    WRITE_WORDS = 1 << 15,
    LARGE = 1 << 20, /* pairs from which on the directory is kept small … */
    PER_CELL = 4,    /* … with so many pairs in a cell, on average, instead of one */
};

/* Values come in ascending order, so a rank among the equally frequent needs no sort: it is the next one free for that
 * count. Two walks do it: the first learns how many values have each count, the second hands out the ids. */
typedef struct ranking {
    int64_t limit;
    int64_t n;       /* values that get an id */
    int64_t *next;   /* [COMMON]: first the number of values of each count, then the next id to give */
    uint64_t *often; /* the values with a count of at least COMMON: */
    uint64_t *often_count;
    int64_t n_often, often_room, often_count_room;
    int64_t *often_id; /* [n_often], parallel to often: ascending values */
    int64_t at;        /* second walk: of often */
    const char *path;
    int fd;
    int64_t offset;
    int n_words;
    uint64_t *words; /* [WRITE_WORDS] */
} ranking;

static dlrm_status keep_often(ranking *r, uint32_t value, uint64_t count)
{
    TRY(dlrm_grow(r->n_often, sizeof *r->often, 1024, "frequent values", &r->often, &r->often_room));
    TRY(dlrm_grow(r->n_often, sizeof *r->often_count, 1024, "frequent values", &r->often_count, &r->often_count_room));
    r->often[r->n_often] = value;
    r->often_count[r->n_often++] = count;
    return DLRM_OK;
}

static dlrm_status learn(void *arg, uint32_t value, uint64_t count)
{
    ranking *r = arg;
    if ((int64_t)count < r->limit) return DLRM_OK;
    r->n++;
    if (count >= COMMON) return keep_often(r, value, count);
    r->next[count]++;
    return DLRM_OK;
}

static int by_count_then_value(const void *a, const void *b, void *arg)
{
    const ranking *r = arg;
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    if (r->often_count[i] != r->often_count[j]) return r->often_count[i] > r->often_count[j] ? -1 : 1;
    return r->often[i] < r->often[j] ? -1 : r->often[i] > r->often[j];
}

static dlrm_status rank_counts(ranking *r)
{
    int64_t *order;
    TRY(dlrm_alloc(r->n_often, sizeof *order, "frequent values", &order));
    dlrm_status st = dlrm_alloc(r->n_often, sizeof *r->often_id, "frequent values", &r->often_id);
    if (st == DLRM_OK) {
        for (int64_t i = 0; i < r->n_often; i++) order[i] = i;
        qsort_r(order, (size_t)r->n_often, sizeof *order, by_count_then_value, r);
        for (int64_t i = 0; i < r->n_often; i++) r->often_id[order[i]] = 1 + i;
        int64_t id = 1 + r->n_often;
        for (int count = COMMON - 1; count > 0; count--) {
            int64_t values = r->next[count];
            r->next[count] = id;
            id += values;
        }
    }
    dlrm_free(&order);
    return st;
}

static dlrm_status flush(ranking *r)
{
    size_t bytes = (size_t)r->n_words * sizeof *r->words;
    TRY(dlrm_tool_pwrite(r->fd, r->words, bytes, r->offset, r->path));
    r->offset += (int64_t)bytes;
    r->n_words = 0;
    return DLRM_OK;
}

static dlrm_status give_id(void *arg, uint32_t value, uint64_t count)
{
    ranking *r = arg;
    if ((int64_t)count < r->limit) return DLRM_OK;
    int64_t id = count >= COMMON ? r->often_id[r->at++] : r->next[count]++;
    r->words[r->n_words++] = (uint64_t)value << 32 | (uint64_t)id;
    return r->n_words == WRITE_WORDS ? flush(r) : DLRM_OK;
}

static dlrm_status rank_and_write(ranking *r, dlrm_counts *counts, int column, dlrm_vocab_info *info)
{
    TRY(dlrm_alloc(COMMON, sizeof *r->next, "a vocabulary", &r->next));
    TRY(dlrm_alloc(WRITE_WORDS, sizeof *r->words, "a vocabulary", &r->words));
    TRY(dlrm_counts_walk(counts, column, learn, r));
    if (r->n >= INT32_MAX - 1)
        return FAIL(DLRM_E_INPUT,
                    "C%d has %lld different values, more than ids of 32 bits can count; set --frequency-limit or --cap",
                    column + 1, (long long)r->n);
    TRY(rank_counts(r));
    info->n = r->n;
    uint64_t head[HEADER_BYTES / 8];
    memcpy(head, magic, sizeof magic);
    head[1] = (uint64_t)info->n;
    head[2] = (uint64_t)info->cap;
    head[3] = (uint64_t)info->limit;
    head[4] = (uint64_t)info->rows;
    TRY(dlrm_tool_create(r->path, &r->fd));
    TRY(dlrm_tool_pwrite(r->fd, head, sizeof head, 0, r->path));
    r->offset = sizeof head;
    TRY(dlrm_counts_walk(counts, column, give_id, r));
    TRY(flush(r));
    return dlrm_tool_close(&r->fd, r->path);
}

dlrm_status dlrm_vocab_write(const char *path, dlrm_counts *counts, int column, dlrm_vocab_info *info)
{
    ranking r = {.limit = info->limit, .path = path, .fd = -1};
    dlrm_status st = rank_and_write(&r, counts, column, info);
    if (r.fd >= 0) close(r.fd);
    dlrm_free(&r.next);
    dlrm_free(&r.words);
    dlrm_free(&r.often);
    dlrm_free(&r.often_count);
    dlrm_free(&r.often_id);
    return st;
}

static dlrm_status open_vocab(const char *path, dlrm_vocab_info *info, int *fd)
{
    uint64_t head[HEADER_BYTES / 8];
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would be waited for */
    if (*fd < 0) return FAIL(DLRM_E_INPUT, "%s: cannot open this vocabulary: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0 || st.st_size < HEADER_BYTES || pread(*fd, head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head, magic, sizeof magic) != 0) {
        close(*fd);
        return FAIL(DLRM_E_INPUT, "%s: not a vocabulary of dlrm_data (it does not start with DLRMVOC1)", path);
    }
    *info = (dlrm_vocab_info){(int64_t)head[1], (int64_t)head[2], (int64_t)head[3], (int64_t)head[4]};
    if (info->n < 0 || info->n >= INT32_MAX - 1 || info->cap < 0 || info->cap > UINT32_MAX ||
        st.st_size != HEADER_BYTES + info->n * 8) {
        close(*fd);
        return FAIL(DLRM_E_INPUT, "%s: %lld bytes, but its header announces %lld values of 8 bytes after %d bytes",
                    path, (long long)st.st_size, (long long)info->n, HEADER_BYTES);
    }
    return DLRM_OK;
}

dlrm_status dlrm_vocab_info_read(const char *path, dlrm_vocab_info *info)
{
    int fd;
    TRY(open_vocab(path, info, &fd));
    close(fd);
    return DLRM_OK;
}

static int64_t cells_for(int64_t n)
{
    return (n < LARGE ? n : n / PER_CELL) + 1;
}

int64_t dlrm_vocab_bytes(int64_t n)
{
    return n * 8 + 4 * (2 * cells_for(n) + 2); /* rounding the cell's width to a power of two may double the cells */
}

int64_t dlrm_vocab_fitting(int64_t bytes)
{
    int64_t n = bytes / 11;
    if (n < LARGE) n = bytes / 17;
    return n > 1 ? n : 1;
}

static dlrm_status check_pairs(const dlrm_vocab *v, const char *path, int64_t first, int64_t all)
{
    for (int64_t i = 0; i < v->n; i++) {
        uint32_t id = (uint32_t)v->pairs[i];
        if (i > 0 && v->pairs[i] >> 32 <= v->pairs[i - 1] >> 32)
            return FAIL(DLRM_E_INPUT, "%s: pair %lld: value %08x does not follow %08x", path, (long long)(first + i),
                        (unsigned)(v->pairs[i] >> 32), (unsigned)(v->pairs[i - 1] >> 32));
        if (id < 1 || id > all)
            return FAIL(DLRM_E_INPUT, "%s: pair %lld: id %u, expected 1 to %lld", path, (long long)(first + i), id,
                        (long long)all);
    }
    return DLRM_OK;
}

static dlrm_status make_directory(dlrm_vocab *v)
{
    v->base = v->n ? (uint32_t)(v->pairs[0] >> 32) : 0;
    v->span = v->n ? (int64_t)(v->pairs[v->n - 1] >> 32) - v->base : -1;
    while (v->span >> v->shift >= 2 * cells_for(v->n)) v->shift++;
    int64_t cells = (v->span >> v->shift) + 1, cell = 0;
    TRY(dlrm_alloc(cells + 1, sizeof *v->directory, "a vocabulary's directory", &v->directory));
    for (int64_t i = 0; i < v->n; i++) {
        int64_t own = (uint32_t)((uint32_t)(v->pairs[i] >> 32) - v->base) >> v->shift;
        while (cell < own) v->directory[++cell] = (uint32_t)i;
    }
    while (cell < cells) v->directory[++cell] = (uint32_t)v->n;
    return DLRM_OK;
}

static dlrm_status load(dlrm_vocab *v, int fd, const char *path, int64_t first, int64_t all)
{
    uint64_t next = 0;
    bool last = first + v->n == all;
    TRY(dlrm_alloc(v->n, sizeof *v->pairs, "a vocabulary", &v->pairs));
    TRY(dlrm_tool_pread(fd, v->pairs, (size_t)v->n * 8, HEADER_BYTES + first * 8, path));
    if (!last) TRY(dlrm_tool_pread(fd, &next, 8, HEADER_BYTES + (first + v->n) * 8, path));
    v->low = first == 0 ? 0 : (uint32_t)(v->pairs[0] >> 32);
    v->high = last ? UINT32_MAX : (uint32_t)(next >> 32) - 1;
    TRY(check_pairs(v, path, first, all));
    if (v->n > 0 && v->pairs[v->n - 1] >> 32 > v->high)
        return FAIL(DLRM_E_INPUT, "%s: pair %lld: its value does not follow the one before", path,
                    (long long)(first + v->n));
    return make_directory(v);
}

dlrm_status dlrm_vocab_load(const char *path, int64_t first, int64_t n, dlrm_vocab *out)
{
    dlrm_vocab_info info = {0};
    int fd;
    *out = (dlrm_vocab){.n = n};
    TRY(open_vocab(path, &info, &fd));
    DLRM_ASSERT(first + n <= info.n);
    dlrm_status st = load(out, fd, path, first, info.n);
    close(fd);
    if (st != DLRM_OK) dlrm_vocab_clear(out);
    return st;
}

void dlrm_vocab_clear(dlrm_vocab *v)
{
    dlrm_free(&v->pairs);
    dlrm_free(&v->directory);
}

/* Whether this stretch decides what the value's id is. */
static inline bool decides(const dlrm_vocab *v, uint32_t value)
{
    return value >= v->low && value <= v->high;
}

/* The value's cell in the directory; false: it is below the first or above the last pair. */
static inline bool cell_of(const dlrm_vocab *v, uint32_t value, uint32_t *cell)
{
    uint32_t offset = value - v->base; /* wraps around, to a large number, for one below */
    *cell = offset >> v->shift;
    return (int64_t)offset <= v->span;
}

static inline uint32_t find(const dlrm_vocab *v, uint32_t value)
{
    uint32_t cell;
    if (!cell_of(v, value, &cell)) return 0;
    uint32_t a = v->directory[cell], b = v->directory[cell + 1];
    while (b - a > 8) { /* only where values crowd together */
        uint32_t middle = a + (b - a) / 2;
        if (v->pairs[middle] >> 32 <= value)
            a = middle;
        else
            b = middle;
    }
    for (; a < b; a++)
        if (v->pairs[a] >> 32 == value) return (uint32_t)v->pairs[a];
    return 0;
}

int64_t dlrm_vocab_lookup(const dlrm_vocab *v, const uint32_t *values, const uint32_t *missing, int bit, int64_t n,
                          uint32_t *ids)
{
    enum { GROUP = 16, CACHED = 1 << 14 };
    uint32_t cell;
    int64_t unknown = 0;
    /* The caches do not hold all of a large one: a group's part of the directory is fetched two groups ahead, and what that
     * points to one group ahead. */
    const int64_t ahead = v->n >= CACHED ? GROUP : 0;
    for (int64_t at = -2 * ahead; at < n; at += GROUP) {
        for (int64_t i = at + 2 * ahead; ahead && i < at + 3 * ahead && i < n; i++)
            if (cell_of(v, values[i], &cell)) __builtin_prefetch(&v->directory[cell]);
        for (int64_t i = at + ahead; at >= -ahead && ahead && i < at + 2 * ahead && i < n; i++)
            if (cell_of(v, values[i], &cell)) __builtin_prefetch(&v->pairs[v->directory[cell]]);
        const int64_t stop = n - at > GROUP ? at + GROUP : n;
        for (int64_t i = at < 0 ? stop : at; i < stop; i++) {
            if (!decides(v, values[i])) continue;
            bool absent = missing[i] >> bit & 1;
            ids[i] = absent ? 0 : find(v, values[i]);
            unknown += !absent && ids[i] == 0;
        }
    }
    return unknown;
}

dlrm_status dlrm_vocab_path(const char *folder, int column, char *path)
{
    return dlrm_tool_path(path, "%s/vocab/cat_%d.vocab", folder, column);
}

dlrm_status dlrm_vocab_copy(const char *from, const char *to)
{
    enum { PIECE = 1 << 18 };
    char *buffer = NULL;
    int in = -1, out = -1;
    dlrm_status st;
    TRY_TO(done, st, dlrm_alloc(PIECE, 1, "copying a vocabulary", &buffer));
    in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0) TRY_TO(done, st, FAIL(DLRM_E_INPUT, "%s: %s", from, strerror(errno)));
    TRY_TO(done, st, dlrm_tool_create(to, &out));
    for (int64_t at = 0;;) {
        ssize_t n = pread(in, buffer, PIECE, at);
        if (n < 0) TRY_TO(done, st, FAIL(DLRM_E_RUNTIME, "%s: cannot read: %s", from, strerror(errno)));
        if (n == 0) break;
        TRY_TO(done, st, dlrm_tool_pwrite(out, buffer, (size_t)n, at, to));
        at += n;
    }
    st = dlrm_tool_close(&out, to);
done:
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    dlrm_free(&buffer);
    return st;
}

dlrm_status dlrm_vocab_hashes(const char *path, const dlrm_vocab_info *info, uint32_t *out)
{
    enum { PIECE = 1 << 15 };
    uint32_t *pairs = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    dlrm_status st = dlrm_alloc(PIECE, 8, "a vocabulary", &pairs);
    for (int64_t first = 0; st == DLRM_OK && first < info->n; first += PIECE) {
        int64_t n = info->n - first < PIECE ? info->n - first : PIECE;
        st = dlrm_tool_pread(fd, pairs, (size_t)n * 8, HEADER_BYTES + first * 8, path);
        for (int64_t i = 0; st == DLRM_OK && i < n; i++) {
            if (pairs[2 * i] < 1 || pairs[2 * i] > info->n)
                st = FAIL(DLRM_E_INPUT, "%s: id %u is outside [1, %lld]", path, pairs[2 * i], (long long)info->n);
            else
                out[pairs[2 * i] - 1] = pairs[2 * i + 1];
        }
    }
    close(fd);
    dlrm_free(&pairs);
    return st;
}

dlrm_status dlrm_vocab_keep(const char *from, const char *to)
{
    char path[DLRM_PATH_MAX], copy[DLRM_PATH_MAX];
    TRY(dlrm_vocab_path(from, CRITEO_IDS - 1, path));
    if (access(path, F_OK) != 0) return DLRM_OK;
    TRY(dlrm_tool_path(path, "%s/vocab", to));
    TRY(dlrm_tool_make_folder(path));
    for (int k = 0; k < CRITEO_IDS; k++) {
        TRY(dlrm_vocab_path(from, k, path));
        TRY(dlrm_vocab_path(to, k, copy));
        TRY(dlrm_vocab_copy(path, copy));
    }
    return DLRM_OK;
}
