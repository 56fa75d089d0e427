/* AUC = (pairs of a positive and a negative where the positive scores higher, ties half) / all such pairs.
 *
 * A sample is a 32-bit key that orders as its score does; positives fill the array from its front, negatives from its
 * back, so 4 bytes hold score and label, and 4 more are room for sorting. Each rank sorts its own, joins equal keys
 * into runs (key, positives, negatives), and sends each run to the rank that owns its key: key ranges are cut from a
 * histogram of all ranks' runs so that every rank gets about as many. The owner joins what it gets from all ranks and
 * counts pairs in integers: in half pairs, with the negatives of lower ranks added at the end. */
#include "train/auc.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { BIN_BITS = 16, BINS = 1 << BIN_BITS };

struct dlrm_auc {
    int64_t capacity, positives, negatives; /* stored */
    int64_t nan[2];                         /* seen, by label; not stored */
    uint32_t *keys, *scratch;               /* [capacity] */
};

typedef struct run {
    uint32_t key, positives, negatives; /* of one rank; more than 2^32-1 alike make several runs */
} run;

dlrm_status dlrm_auc_open(int64_t capacity, dlrm_auc **out)
{
    TRY(dlrm_alloc(1, sizeof **out, "the AUC", out));
    dlrm_auc *a = *out;
    a->capacity = capacity;
    dlrm_status st = dlrm_alloc(capacity, sizeof *a->keys, "the scores of an evaluation", &a->keys);
    if (st == DLRM_OK)
        st = dlrm_alloc(capacity, sizeof *a->scratch, "sorting the scores of an evaluation", &a->scratch);
    if (st != DLRM_OK) dlrm_auc_close(out);
    return st;
}

void dlrm_auc_close(dlrm_auc **a)
{
    if (!*a) return;
    dlrm_free(&(*a)->keys);
    dlrm_free(&(*a)->scratch);
    dlrm_free(a);
}

void dlrm_auc_reset(dlrm_auc *a)
{
    a->positives = a->negatives = a->nan[0] = a->nan[1] = 0;
}

/* Unsigned order of the keys = order of the floats: set the sign bit of positive ones, invert negative ones. */
static uint32_t key_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 becomes +0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

void dlrm_auc_add(dlrm_auc *a, int64_t n, const float *scores, const float *labels)
{
    for (int64_t i = 0; i < n; i++) {
        bool positive = labels[i] != 0;
        if (isnan(scores[i])) {
            a->nan[positive]++;
            continue;
        }
        DLRM_ASSERT(a->positives + a->negatives < a->capacity);
        if (positive)
            a->keys[a->positives++] = key_of(scores[i]);
        else
            a->keys[a->capacity - ++a->negatives] = key_of(scores[i]);
    }
}

/* Radix sort, four passes of 8 bits; `scratch` has room for n. */
static void sort_keys(uint32_t *keys, uint32_t *scratch, int64_t n)
{
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t at[256] = {0}, sum = 0;
        for (int64_t i = 0; i < n; i++) at[keys[i] >> shift & 255]++;
        for (int digit = 0; digit < 256; digit++) {
            int64_t here = at[digit];
            at[digit] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++) scratch[at[keys[i] >> shift & 255]++] = keys[i];
        uint32_t *swap = keys;
        keys = scratch;
        scratch = swap;
    }
}

/* The stored samples of one rank, sorted, walked as runs. */
typedef struct walk {
    const uint32_t *positive, *positive_end, *negative, *negative_end;
} walk;

static walk walk_start(const dlrm_auc *a)
{
    const uint32_t *end = a->keys + a->capacity;
    return (walk){a->keys, a->keys + a->positives, end - a->negatives, end};
}

static uint32_t count_equal(const uint32_t **at, const uint32_t *end, uint32_t key)
{
    uint32_t n = 0;
    for (; *at < end && **at == key && n < UINT32_MAX; ++*at) n++;
    return n;
}

static bool walk_next(walk *w, run *out)
{
    bool p = w->positive < w->positive_end, n = w->negative < w->negative_end;
    if (!p && !n) return false;
    out->key = !n || (p && *w->positive < *w->negative) ? *w->positive : *w->negative;
    out->positives = count_equal(&w->positive, w->positive_end, out->key);
    out->negatives = count_equal(&w->negative, w->negative_end, out->key);
    return true;
}

static int bin_of(uint32_t key)
{
    return (int)(key >> (32 - BIN_BITS));
}

/* What a rank has counted in its key range; summed over ranks in their order, which is that of the keys. */
typedef struct range_counts {
    unsigned __int128 half_pairs; /* positives against negatives of this range: 2 each, ties 1 */
    int64_t positives, negatives;
    int64_t nan[2];
} range_counts;

/* What runs need on their way to the ranks that own their keys. */
typedef struct exchange {
    int64_t *bins;              /* [BINS]: first this rank's runs of each bin, then all ranks' */
    int64_t *send_at, *recv_at; /* [ranks+1], bytes */
    int64_t *all_at;            /* [ranks][ranks+1]: every rank's send_at */
    const run **from;           /* [ranks]: where the walk through each rank's runs is */
    run *send, *recv;
    range_counts *ranges; /* [ranks] */
} exchange;

static void exchange_clear(exchange *x)
{
    dlrm_free(&x->bins);
    dlrm_free(&x->send_at);
    dlrm_free(&x->recv_at);
    dlrm_free(&x->all_at);
    dlrm_free(&x->from);
    dlrm_free(&x->send);
    dlrm_free(&x->recv);
    dlrm_free(&x->ranges);
}

/* Sorts, and counts the runs of each bin. */
static dlrm_status prepare(dlrm_auc *a, int ranks, exchange *x, int64_t *n_runs)
{
    TRY(dlrm_alloc(BINS, sizeof *x->bins, "the AUC's histogram", &x->bins));
    TRY(dlrm_alloc(ranks + 1, sizeof *x->send_at, "the AUC's exchange", &x->send_at));
    TRY(dlrm_alloc(ranks + 1, sizeof *x->recv_at, "the AUC's exchange", &x->recv_at));
    TRY(dlrm_alloc((int64_t)ranks * (ranks + 1), sizeof *x->all_at, "the AUC's exchange", &x->all_at));
    TRY(dlrm_alloc(ranks, sizeof *x->from, "the AUC's exchange", &x->from));
    TRY(dlrm_alloc(ranks, sizeof *x->ranges, "the AUC's exchange", &x->ranges));
    sort_keys(a->keys, a->scratch, a->positives);
    sort_keys(a->keys + a->capacity - a->negatives, a->scratch, a->negatives);
    *n_runs = 0;
    run r;
    for (walk w = walk_start(a); walk_next(&w, &r); ++*n_runs) x->bins[bin_of(r.key)]++;
    return dlrm_alloc(*n_runs, sizeof *x->send, "the AUC's exchange", &x->send);
}

/* The owner of each bin, in place of its count: ascending, so that each rank's share of all runs is about equal. */
static void assign_owners(int64_t *bins, int ranks)
{
    int64_t total = 0, before = 0;
    for (int b = 0; b < BINS; b++) total += bins[b];
    for (int b = 0; b < BINS; b++) {
        int64_t here = bins[b];
        bins[b] = total ? (int64_t)((__int128)before * ranks / total) : 0;
        if (bins[b] == ranks) bins[b] = ranks - 1; /* empty bins after the last run */
        before += here;
    }
}

/* Lists the runs in key order, which is also the order of their owners, and where each owner's begin. */
static void fill_send(const dlrm_auc *a, int ranks, exchange *x)
{
    run r, *out = x->send;
    for (walk w = walk_start(a); walk_next(&w, &r); *out++ = r)
        x->send_at[x->bins[bin_of(r.key)] + 1] += (int64_t)sizeof r;
    for (int p = 0; p < ranks; p++) x->send_at[p + 1] += x->send_at[p];
}

/* Walks through the runs of all ranks at once, in key order. A look at each rank's next run per key costs as much, over
 * all ranks, as one pass over all scores. */
static void count_pairs(const exchange *x, int ranks, range_counts *out)
{
    for (int p = 0; p < ranks; p++) x->from[p] = x->recv + x->recv_at[p] / (int64_t)sizeof(run);
    for (;;) {
        uint32_t key = 0;
        bool any = false;
        for (int p = 0; p < ranks; p++) {
            const run *end = x->recv + x->recv_at[p + 1] / (int64_t)sizeof(run);
            if (x->from[p] == end || (any && x->from[p]->key >= key)) continue;
            key = x->from[p]->key;
            any = true;
        }
        if (!any) return;
        int64_t positives = 0, negatives = 0;
        for (int p = 0; p < ranks; p++) {
            const run *end = x->recv + x->recv_at[p + 1] / (int64_t)sizeof(run);
            for (; x->from[p] < end && x->from[p]->key == key; x->from[p]++) {
                positives += x->from[p]->positives;
                negatives += x->from[p]->negatives;
            }
        }
        out->half_pairs += (unsigned __int128)positives * (uint64_t)(2 * out->negatives + negatives);
        out->positives += positives;
        out->negatives += negatives;
    }
}

static double divide(const range_counts *range, int ranks, int64_t *samples, int64_t *positives)
{
    unsigned __int128 half_pairs = 0;
    int64_t p = 0, n = 0, nan[2] = {0};
    for (int r = 0; r < ranks; r++) {
        half_pairs += range[r].half_pairs + (unsigned __int128)range[r].positives * (uint64_t)(2 * n);
        p += range[r].positives;
        n += range[r].negatives;
        nan[0] += range[r].nan[0];
        nan[1] += range[r].nan[1];
    }
    *samples = p + n + nan[0] + nan[1];
    *positives = p + nan[1];
    if (p == 0 || n == 0 || nan[0] || nan[1]) return NAN;
    return (double)half_pairs / (double)((unsigned __int128)p * (uint64_t)n * 2);
}

static dlrm_status compute(dlrm_auc *a, dlrm_comm *comm, exchange *x, double *auc, int64_t *samples, int64_t *positives)
{
    int64_t n_runs;
    TRY(dlrm_comm_agree(comm, prepare(a, comm->ranks, x, &n_runs)));
    dlrm_comm_sum_i64(comm, x->bins, BINS);
    assign_owners(x->bins, comm->ranks);
    fill_send(a, comm->ranks, x);

    dlrm_comm_allgather(comm, x->send_at, (comm->ranks + 1) * (int64_t)sizeof *x->send_at, x->all_at);
    for (int p = 0; p < comm->ranks; p++) {
        const int64_t *at = x->all_at + (int64_t)p * (comm->ranks + 1) + comm->rank;
        x->recv_at[p + 1] = x->recv_at[p] + at[1] - at[0];
    }
    dlrm_status st = dlrm_alloc(x->recv_at[comm->ranks], 1, "the AUC's exchange", &x->recv);
    TRY(dlrm_comm_agree(comm, st));
    dlrm_comm_alltoallv(comm, x->send, x->send_at, x->recv, x->recv_at);

    range_counts own = {.nan = {a->nan[0], a->nan[1]}};
    count_pairs(x, comm->ranks, &own);
    dlrm_comm_allgather(comm, &own, sizeof own, x->ranges);
    *auc = divide(x->ranges, comm->ranks, samples, positives);
    return DLRM_OK;
}

dlrm_status dlrm_auc_compute(dlrm_auc *a, dlrm_comm *comm, double *auc, int64_t *samples, int64_t *positives)
{
    exchange x = {0};
    dlrm_status st = compute(a, comm, &x, auc, samples, positives);
    exchange_clear(&x);
    return st;
}
