#include "data/shuffle.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

static int64_t cut(int64_t size, int lane)
{
    return (int64_t)((__int128)size * lane / DLRM_LANES);
}

/* --- random orders: Fisher and Yates's --- */

/* Below n; the bias of 2^-64 n is not to be seen. */
static int64_t draw(uint64_t seed, uint64_t stream, uint64_t i, int64_t n)
{
    dlrm_u32x4 bits = dlrm_philox(seed, stream, i);
    uint64_t word = (uint64_t)bits.v[0] << 32 | bits.v[1];
    return (int64_t)((unsigned __int128)word * (uint64_t)n >> 64);
}

#define PERMUTE(name, type)                                                \
    static void name(uint64_t seed, uint64_t stream, type *out, int64_t n) \
    {                                                                      \
        for (int64_t i = 0; i < n; i++) {                                  \
            int64_t k = draw(seed, stream, (uint64_t)i, i + 1);            \
            out[i] = out[k];                                               \
            out[k] = (type)i;                                              \
        }                                                                  \
    }
PERMUTE(permute_places, uint16_t)
PERMUTE(permute_blocks, uint32_t)

static uint64_t stream_of(const char *what, int64_t epoch, int lane, int64_t window)
{
    char name[120];
    snprintf(name, sizeof name, "data.shuffle.%s.%lld.%d.%lld", what, (long long)epoch, lane, (long long)window);
    return dlrm_rng_stream(name);
}

/* --- lanes, blocks, windows --- */

int64_t dlrm_shuffle_lane_rows(int64_t rows, int64_t batch_size, int lane)
{
    int64_t last = rows % batch_size;
    return rows / batch_size * (cut(batch_size, lane + 1) - cut(batch_size, lane)) + cut(last, lane + 1) -
           cut(last, lane);
}

static int64_t blocks_of(int64_t lane_rows)
{
    return (lane_rows + DLRM_SHUFFLE_BLOCK - 1) / DLRM_SHUFFLE_BLOCK;
}

/* Lanes begin at different places of their first windows. */
static int64_t window_of(int lane, int64_t at)
{
    return (at / DLRM_SHUFFLE_BLOCK + lane % DLRM_SHUFFLE_BLOCKS) / DLRM_SHUFFLE_BLOCKS;
}

static int64_t first_block(int lane, int64_t window)
{
    int64_t block = window * DLRM_SHUFFLE_BLOCKS - lane % DLRM_SHUFFLE_BLOCKS;
    return block > 0 ? block : 0;
}

static int64_t window_begin(const dlrm_shuffle *s, int lane, int64_t window)
{
    int64_t row = first_block(lane, window) * DLRM_SHUFFLE_BLOCK;
    return row < s->lane_rows[lane] ? row : s->lane_rows[lane];
}

void dlrm_shuffle_lanes(int64_t size, int64_t begin, int64_t n, int *first, int *end)
{
    *first = *end = 0;
    if (n == 0) return;
    while (cut(size, *first + 1) <= begin) ++*first;
    *end = *first;
    while (cut(size, *end) < begin + n) ++*end;
}

static int64_t blocks_in_all(int64_t rows, int64_t batch_size)
{
    int64_t n = 0;
    for (int k = 0; k < DLRM_LANES; k++) n += blocks_of(dlrm_shuffle_lane_rows(rows, batch_size, k));
    return n;
}

/* A lane's share of a batch meets the rest of one window, whole ones, and a part of the last. */
static int64_t most_pieces(int64_t most)
{
    return 3 * DLRM_LANES + most / DLRM_SHUFFLE_WINDOW;
}

dlrm_status dlrm_shuffle_open(int64_t rows, int64_t batch_size, uint64_t seed, int64_t most, dlrm_shuffle *s)
{
    *s = (dlrm_shuffle){.rows = rows, .batch_size = batch_size, .seed = seed, .epoch = -1};
    for (int k = 0; k < DLRM_LANES; k++) {
        s->lane_rows[k] = dlrm_shuffle_lane_rows(rows, batch_size, k);
        s->section[k + 1] = s->section[k] + s->lane_rows[k];
        s->order_at[k + 1] = s->order_at[k] + blocks_of(s->lane_rows[k]);
    }
    DLRM_ASSERT(s->section[DLRM_LANES] == rows);
    TRY(dlrm_alloc(s->order_at[DLRM_LANES], sizeof *s->order, "the order of rows", &s->order));
    TRY(dlrm_alloc(DLRM_LANES * DLRM_SHUFFLE_WINDOW, sizeof *s->permuted, "the order of rows", &s->permuted));
    TRY(dlrm_alloc(DLRM_LANES, sizeof *s->key, "the order of rows", &s->key));
    TRY(dlrm_alloc(most_pieces(most), sizeof *s->pieces, "the order of rows", &s->pieces));
    TRY(dlrm_alloc(most, sizeof *s->place, "the order of rows", &s->place));
    for (int k = 0; k < DLRM_LANES; k++) s->key[k] = -1;
    return DLRM_OK;
}

void dlrm_shuffle_close(dlrm_shuffle *s)
{
    dlrm_free(&s->order);
    dlrm_free(&s->permuted);
    dlrm_free(&s->key);
    dlrm_free(&s->pieces);
    dlrm_free(&s->place);
}

int64_t dlrm_shuffle_memory(int64_t rows, int64_t batch_size, int64_t most)
{
    return blocks_in_all(rows, batch_size) * (int64_t)sizeof(uint32_t) +
           DLRM_LANES * DLRM_SHUFFLE_WINDOW * (int64_t)sizeof(uint16_t) +
           most_pieces(most) * (int64_t)sizeof(dlrm_shuffle_piece) + most * (int64_t)sizeof(uint16_t);
}

/* --- an epoch --- */

/* A block that is not full stays last, in a window that others fill. */
static void begin_epoch(dlrm_shuffle *s, int64_t epoch)
{
    s->epoch = epoch;
    s->shift = draw(s->seed, stream_of("shift", epoch, 0, 0), 0, s->rows);
    for (int k = 0; k < DLRM_LANES; k++) {
        int64_t blocks = blocks_of(s->lane_rows[k]), full = s->lane_rows[k] / DLRM_SHUFFLE_BLOCK;
        uint32_t *order = s->order + s->order_at[k];
        permute_blocks(s->seed, stream_of("blocks", epoch, k, 0), order, full);
        if (full < blocks) order[full] = (uint32_t)full;
    }
}

/* The windows' keys: epochs times windows would not overflow before the heat death of the disk. */
static int64_t key_of(int64_t epoch, int64_t window)
{
    return epoch << 32 | window;
}

static void plan_lane(dlrm_shuffle *s, int lane, int64_t at, int64_t first, int64_t n)
{
    for (int64_t m; n > 0; n -= m, at += m, first += m) {
        int64_t window = window_of(lane, at), begin = window_begin(s, lane, window),
                end = window_begin(s, lane, window + 1);
        uint16_t *permuted = s->permuted + (int64_t)lane * DLRM_SHUFFLE_WINDOW;
        m = n < end - at ? n : end - at;
        dlrm_shuffle_piece *p = &s->pieces[s->n_pieces++];
        *p = (dlrm_shuffle_piece){
            .lane = lane, .window = window, .key = key_of(s->epoch, window), .first = first, .n = m};
        if (s->key[lane] != p->key)
            permute_places(s->seed, stream_of("rows", s->epoch, lane, window), permuted, end - begin);
        s->key[lane] = p->key;
        memcpy(s->place + (first - s->begin), permuted + (at - begin), (size_t)m * sizeof *s->place);
    }
}

void dlrm_shuffle_plan(dlrm_shuffle *s, int64_t epoch, int64_t first, int64_t size, int64_t begin, int64_t n)
{
    int lane, end;
    if (epoch != s->epoch) begin_epoch(s, epoch);
    s->begin = begin;
    s->n_pieces = 0;
    dlrm_shuffle_lanes(size, begin, n, &lane, &end);
    for (; lane < end; lane++) {
        int64_t a = cut(size, lane), b = cut(size, lane + 1), from = a > begin ? a : begin,
                to = b < begin + n ? b : begin + n;
        int64_t before = first / s->batch_size * (cut(s->batch_size, lane + 1) - cut(s->batch_size, lane));
        plan_lane(s, lane, before + from - a, from, to - from);
    }
}

static int64_t row_at(const dlrm_shuffle *s, int lane, int64_t block, int64_t place)
{
    int64_t row =
        s->section[lane] + (int64_t)s->order[s->order_at[lane] + block] * DLRM_SHUFFLE_BLOCK + place + s->shift;
    return row < s->rows ? row : row - s->rows;
}

int64_t dlrm_shuffle_row(const dlrm_shuffle *s, int64_t i)
{
    const dlrm_shuffle_piece *p = s->pieces;
    while (i >= p->first + p->n) p++;
    int64_t place = s->place[i - s->begin];
    return row_at(s, p->lane, first_block(p->lane, p->window) + place / DLRM_SHUFFLE_BLOCK, place % DLRM_SHUFFLE_BLOCK);
}

dlrm_status dlrm_shuffle_read(const dlrm_shuffle *s, int lane, int64_t window, dlrm_read_run *read, void *ctx,
                              int64_t row_bytes, void *out)
{
    char *to = out;
    int64_t left = window_begin(s, lane, window + 1) - window_begin(s, lane, window);
    for (int64_t block = first_block(lane, window); left > 0; block++) {
        int64_t n = left < DLRM_SHUFFLE_BLOCK ? left : DLRM_SHUFFLE_BLOCK, row = row_at(s, lane, block, 0);
        int64_t before_end = s->rows - row < n ? s->rows - row : n; /* a block may go on at the first row */
        TRY(read(ctx, row, before_end, to));
        if (before_end < n) TRY(read(ctx, 0, n - before_end, to + before_end * row_bytes));
        to += n * row_bytes;
        left -= n;
    }
    return DLRM_OK;
}
