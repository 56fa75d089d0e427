/* strategy: auto. A search over thresholds and ways to deal slices out, by the cost model, within the ranks' memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "model/host_tables.h"
#include "model/placement_cost.h"

typedef struct search {
    const dlrm_model_spec *spec;
    const dlrm_table_load *loads;
    int ranks;
    const dlrm_placement_args *given; /* of its thresholds, those that are there stay */
    dlrm_placement_args best;
    double first;     /* times what it takes without is what a first threshold of its kind has to come below */
    double seconds;   /* of the slowest rank; < 0: nothing has been tried */
    int64_t fullest;  /* bytes of the rank that holds most */
    int64_t limit;    /* bytes that a rank should hold at most */
    int64_t *bytes;   /* [ranks] scratch */
    int64_t *home;    /* [ranks] of a placement, where tables may lie in the host's memory; else NULL */
    int64_t *sizes;   /* [n_tables] elements, rising */
} search;

static const dlrm_strategy strategies[] = {DLRM_STRATEGY_AUTO, DLRM_MEMORY_BALANCED, DLRM_MEMORY_OPTIMIZED, DLRM_BASIC};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

/* Of the rank that has most: bytes of its tables, or of those in the host's memory (s->home). */
static int64_t fullest(const search *s, const dlrm_placement *p)
{
    int64_t everywhere = 0, most = 0;
    for (int r = 0; r < s->ranks; r++) s->bytes[r] = s->home ? s->home[r] : 0;
    for (int k = 0; k < p->n_slices && !s->home; k++) {
        const dlrm_slice *slice = &p->slices[k];
        *(slice->owner == DLRM_EVERY_RANK ? &everywhere : &s->bytes[slice->owner]) += dlrm_slice_bytes(s->spec, &s->best.work, slice, false);
    }
    for (int r = 0; r < s->ranks; r++) most = s->bytes[r] > most ? s->bytes[r] : most;
    return most + everywhere;
}

static int64_t beyond(int64_t bytes, int64_t limit)
{
    return bytes > limit ? bytes - limit : 0;
}

/* Nearer to the limit of memory or within it, then faster than `below` times that? */
static bool surpasses(const search *s, double below, const search *other)
{
    const int64_t mine = beyond(s->fullest, s->limit), others = beyond(other->fullest, s->limit);
    return other->seconds < 0 || mine < others || (mine == others && s->seconds < other->seconds * below);
}

/* Keeps these arguments if they are better: nearer to the limit of memory or within it, then the slowest rank's time, which has to
 * be `below` times that of those kept. */
static dlrm_status consider(search *s, const dlrm_placement_args *args, double below)
{
    dlrm_placement p;
    search tried = *s;
    tried.best = *args;
    tried.seconds = 0;
    dlrm_status st = dlrm_placement_deal(s->spec, args, s->loads, s->ranks, &p);
    if (st == DLRM_OK) st = dlrm_placement_seconds(s->spec, args, s->loads, &p, p.seconds, s->home);
    if (st == DLRM_OK) {
        for (int r = 0; r < s->ranks; r++) tried.seconds = p.seconds[r] > tried.seconds ? p.seconds[r] : tried.seconds;
        tried.fullest = fullest(s, &p);
    }
    dlrm_placement_clear(&p);
    if (st == DLRM_OK && surpasses(&tried, below, s)) *s = tried;
    return st;
}

/* The limit: what a rank holds at most where slices are dealt out by memory, and a tenth more; and what it may hold. */
static dlrm_status bound_memory(search *s, const dlrm_placement_args *args)
{
    static const dlrm_strategy by_memory[] = {DLRM_MEMORY_BALANCED, DLRM_MEMORY_OPTIMIZED};
    dlrm_status st = DLRM_OK;
    for (int k = 0; k < 2 && st == DLRM_OK; k++) {
        dlrm_placement_args a = *args;
        dlrm_placement p;
        a.strategy = by_memory[k];
        st = dlrm_placement_deal(s->spec, &a, s->loads, s->ranks, &p);
        if (st == DLRM_OK && s->home) st = dlrm_placement_seconds(s->spec, &a, s->loads, &p, p.seconds, s->home);
        const int64_t most = st == DLRM_OK ? (int64_t)(1.1 * (double)fullest(s, &p)) : 0;
        if (most > s->limit) s->limit = most;
        dlrm_placement_clear(&p);
    }
    if (args->memory > 0 && args->memory < s->limit) s->limit = args->memory;
    return st;
}

/* --- thresholds, those that are not given --- */

enum { TRIED = 24 /* thresholds of each kind */ };
/* What another threshold has to bring; and a first one of its kind (the model is no better than that), alone or with others. */
static const double BETTER = 0.999, WORTHWHILE = 0.971;

/* A budget of the device that does for no placement is told of, with its key's name, by who opens the tables. */
static bool fits(const search *s)
{
    return s->best.memory == 0 || s->fullest <= s->best.memory || s->seconds >= DLRM_TOO_SMALL_S;
}

/* While memory does not do, dealt out by memory, too. */
static dlrm_status consider_cut(search *s, const dlrm_placement_args *args, bool new_kind)
{
    dlrm_placement_args a = *args;
    TRY(consider(s, &a, new_kind ? s->first : BETTER));
    if (fits(s)) return DLRM_OK;
    a.strategy = DLRM_MEMORY_OPTIMIZED;
    return consider(s, &a, new_kind ? s->first : BETTER);
}

static dlrm_status replicate(search *s)
{
    const int T = s->spec->n_tables;
    const bool given = s->given->data_parallel >= 0;
    for (int i = 0; i < TRIED && !given; i++) {
        dlrm_placement_args a = s->best;
        a.data_parallel = s->sizes[(int64_t)i * (T - 1) / (TRIED - 1)];
        TRY(consider(s, &a, s->best.data_parallel < 0 ? s->first : BETTER));
    }
    return DLRM_OK;
}

static dlrm_status cut_columns(search *s)
{
    const int64_t share = (s->spec->table_elements + s->ranks - 1) / s->ranks;
    const bool given = s->given->column_slice >= 0;
    for (int i = -4; i < 6 && !given; i++) {
        dlrm_placement_args a = s->best;
        a.column_slice = i < 0 ? share << -i : share >> i;
        if (a.column_slice > 0) TRY(consider_cut(s, &a, s->best.column_slice < 0));
    }
    return DLRM_OK;
}

static dlrm_status cut_rows(search *s)
{
    const int T = s->spec->n_tables;
    const bool given = s->given->row_slice >= 0;
    for (int i = 0; i < TRIED && i < T && !given; i++) {
        dlrm_placement_args a = s->best;
        a.row_slice = s->sizes[T - 1 - i];
        TRY(consider_cut(s, &a, s->best.row_slice < 0));
    }
    return DLRM_OK;
}

static dlrm_status search_thresholds(search *s)
{
    if (!fits(s)) { /* what makes it fit first */
        TRY(cut_columns(s));
        TRY(cut_rows(s));
        return replicate(s);
    }
    TRY(replicate(s));
    TRY(cut_columns(s));
    return cut_rows(s);
}

/* Once more, from what has been found and from each way to deal slices out, whatever a first threshold brings: little things that come
 * together may not leave the best of all that behind. Two rounds, for one kind changes what another does. */
static dlrm_status search_further(search *s)
{
    search best = *s;
    for (int k = -1; k < STRATEGIES; k++) {
        search t = best;
        t.first = BETTER;
        if (k >= 0) {
            dlrm_placement_args a = *s->given;
            a.strategy = strategies[k];
            t.seconds = -1;
            TRY(consider(&t, &a, BETTER));
        }
        for (int round = 0; round < 2; round++) TRY(search_thresholds(&t));
        if (surpasses(&t, 1, &best)) best = t;
    }
    if (surpasses(&best, WORTHWHILE, s)) *s = best;
    return DLRM_OK;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Without going `further`, whether any placement fits will do. */
static dlrm_status run(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks, bool further, search *s)
{
    dlrm_status st;
    *s = (search){.spec = spec, .loads = loads, .ranks = ranks, .given = args, .best = *args, .first = WORTHWHILE, .seconds = -1};
    TRY_TO(done, st, dlrm_alloc(ranks, sizeof *s->bytes, "placement", &s->bytes));
    if (args->host) TRY_TO(done, st, dlrm_alloc(ranks, sizeof *s->home, "placement", &s->home));
    TRY_TO(done, st, dlrm_alloc(spec->n_tables, sizeof *s->sizes, "placement", &s->sizes));
    for (int t = 0; t < spec->n_tables; t++) s->sizes[t] = spec->tables[t].rows * spec->tables[t].dim;
    qsort(s->sizes, (size_t)spec->n_tables, sizeof *s->sizes, by_size);
    TRY_TO(done, st, bound_memory(s, args));
    for (int k = 0; k < STRATEGIES; k++) {
        dlrm_placement_args a = *args;
        a.strategy = strategies[k];
        TRY_TO(done, st, consider(s, &a, BETTER));
    }
    if (ranks > 1) TRY_TO(done, st, search_thresholds(s));
    if (ranks > 1 && further && fits(s)) TRY_TO(done, st, search_further(s));
done:
    dlrm_free(&s->sizes);
    dlrm_free(&s->bytes);
    dlrm_free(&s->home);
    return st;
}

/* --- too little memory --- */

enum { SHOWN = 3, MOST_RANKS = 1024 };
static const double GIB = 1 << 30;

static int64_t table_bytes(const dlrm_model_spec *spec, const dlrm_placement_args *args, int t)
{
    return dlrm_slice_bytes(spec, &args->work, &(dlrm_slice){.table = t, .rows = spec->tables[t].rows, .columns = spec->tables[t].dim}, false);
}

/* "t0 (60000 rows x 16: 0.01 GiB), t1 (500 rows x 16, and keys: 0.00 GiB), …" */
static void largest(const dlrm_model_spec *spec, const dlrm_placement_args *args, char *text, size_t size)
{
    size_t at = 0;
    int64_t last = INT64_MAX;
    int before = -1; /* told last: of `last` bytes */
    text[0] = 0;
    for (int n = 0; n < SHOWN && n < spec->n_tables && at < size; n++) {
        int best = -1;
        for (int t = 0; t < spec->n_tables; t++) {
            const int64_t bytes = table_bytes(spec, args, t);
            if (bytes > last || (bytes == last && t <= before)) continue;
            if (best < 0 || bytes > table_bytes(spec, args, best)) best = t;
        }
        const dlrm_table *t = &spec->tables[best];
        before = best;
        last = table_bytes(spec, args, best);
        at += (size_t)snprintf(text + at, size - at, "%s%s (%lld rows x %d%s: %.2f GiB)", n ? ", " : "", t->name, (long long)t->rows, t->dim,
                               args->work.keeps_keys && t->capacity > 0 ? ", and keys" : "", (double)last / GIB);
    }
}

/* The least number of ranks, of more than these, that would do; 0: none up to MOST_RANKS. */
static dlrm_status enough_ranks(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                int64_t total, int *enough)
{
    const int64_t least = args->host ? 0 : (total + args->memory - 1) / args->memory;
    *enough = 0;
    for (int64_t n = least > ranks ? least : ranks + 1; n <= MOST_RANKS && *enough == 0; n += 1 + n / 16) {
        search s;
        TRY(run(spec, args, loads, (int)n, false, &s));
        if (fits(&s)) *enough = (int)n;
    }
    return DLRM_OK;
}

static dlrm_status refuse(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, const search *s)
{
    char tables[1000], advice[200];
    const char *where = args->host ? " of the host's memory, beside what stays on the device" : "";
    int64_t total = 0;
    int enough;
    snprintf(advice, sizeof advice, "with these thresholds no number of ranks up to %d would do", MOST_RANKS);
    for (int t = 0; t < spec->n_tables; t++) total += table_bytes(spec, args, t);
    TRY(enough_ranks(spec, args, loads, s->ranks, total, &enough));
    if (enough) snprintf(advice, sizeof advice, "%d ranks with as much memory each would do", enough);
    if (!args->host && total / args->memory >= MOST_RANKS)
        snprintf(advice, sizeof advice, "more than %lld ranks with as much memory each are needed", (long long)(total / args->memory));
    largest(spec, args, tables, sizeof tables);
    return FAIL(DLRM_E_RUNTIME, "no placement of the tables fits %d rank%s of %.2f GiB%s: one would hold %.2f GiB; tables and optimizer state need "
                "%.2f GiB in all, the largest %s; %s", s->ranks, s->ranks > 1 ? "s" : "", (double)args->memory / GIB, where, (double)s->fullest / GIB,
                (double)total / GIB, tables, advice);
}

dlrm_status dlrm_placement_choose(const dlrm_model_spec *spec, const dlrm_placement_args *args, const dlrm_table_load *loads, int ranks,
                                  dlrm_placement_args *out)
{
    search s;
    TRY(run(spec, args, loads, ranks, true, &s));
    *out = s.best;
    return fits(&s) ? DLRM_OK : refuse(spec, args, loads, &s);
}
