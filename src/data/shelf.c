#include "data/shelf.h"

#include <string.h>

#include "base/mem.h"

static int64_t window_rows(int64_t rows, int64_t batch_size, int first_lane, int end_lane)
{
    int64_t most = 0;
    for (int k = first_lane; k < end_lane; k++) {
        int64_t n = dlrm_shuffle_lane_rows(rows, batch_size, k);
        most = n > most ? n : most;
    }
    return most < DLRM_SHUFFLE_WINDOW ? most : DLRM_SHUFFLE_WINDOW;
}

int64_t dlrm_shelf_memory(int64_t rows, int64_t batch_size, int first_lane, int end_lane, int64_t row_bytes)
{
    return (end_lane - first_lane) * window_rows(rows, batch_size, first_lane, end_lane) * row_bytes;
}

dlrm_status dlrm_shelf_open(const dlrm_shuffle *s, int first_lane, int end_lane, int64_t row_bytes, dlrm_shelf *h)
{
    int lanes = end_lane - first_lane;
    *h = (dlrm_shelf){.row_bytes = row_bytes, .first_lane = first_lane, .end_lane = end_lane};
    h->lane_bytes = window_rows(s->rows, s->batch_size, first_lane, end_lane) * row_bytes;
    TRY(dlrm_alloc(lanes * h->lane_bytes, 1, "shuffled rows", &h->rows));
    TRY(dlrm_alloc(lanes, sizeof *h->key, "shuffled rows", &h->key));
    for (int k = 0; k < lanes; k++) h->key[k] = -1;
    return DLRM_OK;
}

void dlrm_shelf_close(dlrm_shelf *h)
{
    dlrm_free(&h->rows);
    dlrm_free(&h->key);
}

enum { AHEAD = 12, LINE = 64 }; /* rows asked for before their turn: a window is larger than the caches */

static void ask_for(const char *row, int64_t row_bytes)
{
    for (int64_t at = 0; at < row_bytes; at += LINE) __builtin_prefetch(row + at);
    __builtin_prefetch(row + row_bytes - 1);
}

#define GATHER(bytes)                                                                            \
    case bytes:                                                                                  \
        for (int64_t k = 0; k < n; k++) memcpy(out + k * bytes, rows + place[k] * bytes, bytes); \
        return;

/* Narrow columns' windows stay in a cache, and have loops without a call. */
static void gather(const char *restrict rows, const uint16_t *restrict place, int64_t n, int64_t row_bytes,
                   char *restrict out)
{
    switch (row_bytes) {
        GATHER(1)
        GATHER(2)
        GATHER(4)
        GATHER(8)
    }
    for (int64_t k = 0; k < n; k++) {
        if (k + AHEAD < n) ask_for(rows + place[k + AHEAD] * row_bytes, row_bytes);
        memcpy(out + k * row_bytes, rows + place[k] * row_bytes, (size_t)row_bytes);
    }
}

dlrm_status dlrm_shelf_take(dlrm_shelf *h, const dlrm_shuffle *s, int64_t i, int64_t n, dlrm_read_run *read, void *ctx,
                            void *out)
{
    char *to = out;
    const dlrm_shuffle_piece *p = s->pieces;
    for (int64_t m; n > 0; p++) {
        if (i >= p->first + p->n) continue;
        DLRM_ASSERT(p->lane >= h->first_lane && p->lane < h->end_lane);
        int lane = p->lane - h->first_lane;
        char *rows = h->rows + lane * h->lane_bytes;
        if (h->key[lane] != p->key) {
            h->key[lane] = -1;
            TRY(dlrm_shuffle_read(s, p->lane, p->window, read, ctx, h->row_bytes, rows));
            h->key[lane] = p->key;
        }
        m = p->first + p->n - i < n ? p->first + p->n - i : n;
        gather(rows, s->place + (i - s->begin), m, h->row_bytes, to);
        to += m * h->row_bytes;
        i += m;
        n -= m;
    }
    return DLRM_OK;
}
