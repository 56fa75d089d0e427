#include "model/ranking.h"

#include "base/mem.h"

dlrm_status dlrm_ranking_open(int64_t capacity, const dlrm_entry *entries, bool by_count, dlrm_ranking *r)
{
    *r = (dlrm_ranking){.entries = entries, .by_count = by_count, .capacity = capacity};
    return dlrm_alloc(capacity, sizeof *r->rows, "the order of a vocabulary's rows", &r->rows);
}

void dlrm_ranking_close(dlrm_ranking *r)
{
    dlrm_free(&r->rows);
}

void dlrm_ranking_clear(dlrm_ranking *r)
{
    r->n = r->aside = 0;
}

static dlrm_ranked now_of(const dlrm_ranking *r, uint32_t row)
{
    const dlrm_entry *e = &r->entries[row];
    return (dlrm_ranked){.count = r->by_count ? e->count : 0, .last = e->last, .row = row};
}

static bool before(const dlrm_ranked *a, const dlrm_ranked *b)
{
    if (a->count != b->count) return a->count < b->count;
    if (a->last != b->last) return a->last < b->last;
    return a->row < b->row;
}

/* Children of a node lie side by side, and those of the next level are asked for while one of them is chosen. */
enum { WAYS = 4 };

static void rise(dlrm_ranking *r, dlrm_ranked node)
{
    int64_t at = r->n++;
    for (int64_t above; at > 0 && before(&node, &r->rows[above = (at - 1) / WAYS]); at = above) r->rows[at] = r->rows[above];
    r->rows[at] = node;
}

/* The first of a node's children; n: it has none. */
static int64_t first_below(const dlrm_ranking *r, int64_t at)
{
    const int64_t begin = WAYS * at + 1, end = begin + WAYS < r->n ? begin + WAYS : r->n;
    int64_t first = begin;
    if (begin >= r->n) return r->n;
    for (int64_t next = WAYS * begin + 1, last = WAYS * end + 1; next < last && next < r->n; next += 64 / (int64_t)sizeof *r->rows)
        __builtin_prefetch(&r->rows[next]);
    for (int64_t k = begin + 1; k < end; k++)
        if (before(&r->rows[k], &r->rows[first])) first = k;
    return first;
}

/* From the top. */
static void sink(dlrm_ranking *r, dlrm_ranked node)
{
    int64_t at = 0;
    for (int64_t below; (below = first_below(r, at)) < r->n && before(&r->rows[below], &node); at = below) r->rows[at] = r->rows[below];
    r->rows[at] = node;
}

/* The next ones to go will be looked at. */
static void drop_top(dlrm_ranking *r)
{
    r->n--;
    if (r->n > 0) sink(r, r->rows[r->n]);
    for (int64_t k = 0; k <= WAYS && k < r->n; k++) __builtin_prefetch(&r->entries[r->rows[k].row], 1);
}

void dlrm_ranking_add(dlrm_ranking *r, uint32_t row)
{
    DLRM_ASSERT(r->n + r->aside < r->capacity);
    rise(r, now_of(r, row));
}

uint32_t dlrm_ranking_take(dlrm_ranking *r, uint32_t now)
{
    while (r->n > 0) {
        const dlrm_ranked top = r->rows[0], current = now_of(r, top.row);
        if (before(&top, &current)) {
            sink(r, current);
        } else if (current.last != now) {
            drop_top(r);
            return top.row;
        } else if (!r->by_count) {
            return 0; /* the one used longest ago is in use, and so are all others */
        } else {
            drop_top(r);
            r->rows[r->capacity - ++r->aside] = top;
        }
    }
    return 0;
}

void dlrm_ranking_settle(dlrm_ranking *r)
{
    while (r->aside > 0) rise(r, r->rows[r->capacity - r->aside--]);
}
