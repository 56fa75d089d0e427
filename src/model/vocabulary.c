#include "model/vocabulary.h"

#include "base/mem.h"

enum {
    BLOCK = 32 /* keys that are looked up side by side, so that their cache misses overlap */,
    AHEAD = 8,
};
#define SPREAD 0x9E3779B1u /* an odd number: neighbours go to different threads */

static int64_t ring_of(const dlrm_table *t)
{
    return t->admission > 1 ? t->capacity : 0;
}

static int64_t most_fresh(const dlrm_table *t, int64_t most_ids)
{
    if (t->evict == DLRM_EVICT_NONE) return 0;
    return most_ids < t->capacity ? most_ids : t->capacity;
}

int64_t dlrm_vocabulary_memory(const dlrm_table *t, int64_t most_ids)
{
    const int64_t keys = t->capacity + ring_of(t), ranked = t->evict == DLRM_EVICT_NONE ? 0 : t->capacity;
    return (1 + keys) * (int64_t)sizeof(dlrm_entry) + dlrm_dictionary_memory(keys) + ranked * (int64_t)sizeof(dlrm_ranked) +
           most_fresh(t, most_ids) * (int64_t)sizeof(uint32_t);
}

dlrm_status dlrm_vocabulary_open(const dlrm_table *table, int64_t most_ids, dlrm_vocabulary *v)
{
    *v = (dlrm_vocabulary){.table = table, .ring = ring_of(table), .most_fresh = most_fresh(table, most_ids)};
    TRY(dlrm_alloc(1 + table->capacity + v->ring, sizeof *v->entries, "the keys of a vocabulary", &v->entries));
    TRY(dlrm_dictionary_open(table->capacity + v->ring, v->entries, &v->dictionary));
    if (table->evict == DLRM_EVICT_NONE) return DLRM_OK;
    TRY(dlrm_alloc(v->most_fresh, sizeof *v->fresh, "rows that start anew", &v->fresh));
    return dlrm_ranking_open(table->capacity, v->entries, table->evict == DLRM_EVICT_LFU, &v->ranking);
}

void dlrm_vocabulary_close(dlrm_vocabulary *v)
{
    dlrm_ranking_close(&v->ranking);
    dlrm_dictionary_close(&v->dictionary);
    dlrm_free(&v->fresh);
    dlrm_free(&v->entries);
}

/* --- keys that have a row --- */

static void use(dlrm_vocabulary *v, int64_t row)
{
    dlrm_entry *e = &v->entries[row];
    e->count += e->count < UINT32_MAX;
    e->last = v->now;
}

/* n <= BLOCK. counts: the vocabulary that is to count the rows; NULL: none does. */
static inline int64_t look_up_block(const dlrm_vocabulary *v, dlrm_vocabulary *counts, const int64_t *keys, int64_t n, uint32_t *rows)
{
    const dlrm_dictionary *d = &v->dictionary;
    uint64_t hash[BLOCK];
    int64_t at[BLOCK], missing = 0;
    for (int64_t i = 0; i < n; i++) {
        hash[i] = dlrm_dictionary_hash(keys[i]);
        at[i] = dlrm_dictionary_home(d, hash[i]);
        __builtin_prefetch(&d->slots[at[i]]);
    }
    for (int64_t i = 0; i < n; i++) __builtin_prefetch(&d->entries[dlrm_dictionary_probe(d, hash[i], &at[i])], 1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t entry = dlrm_dictionary_reach(d, keys[i], hash[i], &at[i]);
        const bool has_row = entry != 0 && entry <= v->table->capacity;
        rows[i] = has_row ? (uint32_t)entry : DLRM_NO_ROW;
        missing += !has_row;
        if (has_row && counts) use(counts, entry);
    }
    return missing;
}

static inline int64_t look_up(const dlrm_vocabulary *v, dlrm_vocabulary *counts, const int64_t *keys, int64_t n, uint32_t *rows)
{
    int64_t missing = 0;
    for (int64_t i = 0; i < n; i += BLOCK) missing += look_up_block(v, counts, keys + i, n - i < BLOCK ? n - i : BLOCK, rows + i);
    return missing;
}

int64_t dlrm_vocabulary_look_up(const dlrm_vocabulary *v, const int64_t *keys, int64_t n, uint32_t *rows)
{
    return look_up(v, NULL, keys, n, rows);
}

/* Entries that share a cache line are the same part's. */
void dlrm_vocabulary_use(dlrm_vocabulary *v, const uint32_t *rows, int64_t n, int part, int parts)
{
    uint32_t mine[4 * BLOCK];
    for (int64_t i = 0; i < n; i += 4 * BLOCK) {
        const int64_t end = n - i < 4 * BLOCK ? n : i + 4 * BLOCK;
        int found = 0;
        for (int64_t k = i; k < end; k++) { /* half of the rows are others', in no order: without a branch */
            mine[found] = rows[k];
            found += rows[k] != DLRM_NO_ROW && ((uint64_t)((rows[k] >> 2) * SPREAD)) * (uint32_t)parts >> 32 == (uint32_t)part;
        }
        for (int k = 0; k < found; k++) __builtin_prefetch(&v->entries[mine[k]], 1);
        for (int k = 0; k < found; k++) use(v, mine[k]);
    }
}

/* --- keys that have none --- */

/* A row for a new key; 0: there is none. */
static uint32_t take_row(dlrm_vocabulary *v)
{
    if (v->used < v->table->capacity) return (uint32_t)++v->used;
    const uint32_t row = dlrm_ranking_take(&v->ranking, v->now);
    if (row == 0) return 0;
    dlrm_dictionary_remove(&v->dictionary, v->entries[row].key);
    DLRM_ASSERT(v->n_fresh < v->most_fresh);
    v->fresh[v->n_fresh++] = row;
    v->totals.evicted++;
    return row;
}

/* The place where a key without a row is counted. */
static int64_t new_candidate(dlrm_vocabulary *v, int64_t key)
{
    const int64_t place = 1 + v->table->capacity + v->totals.candidates++ % v->ring;
    if (v->entries[place].count > 0) dlrm_dictionary_remove(&v->dictionary, v->entries[place].key);
    v->entries[place] = (dlrm_entry){.key = key};
    dlrm_dictionary_add(&v->dictionary, key, place);
    return place;
}

/* An occurrence of a key that had no row when the batch began. */
static uint32_t meet(dlrm_vocabulary *v, int64_t key)
{
    const bool evicts = v->table->evict != DLRM_EVICT_NONE;
    int64_t entry = dlrm_dictionary_find(&v->dictionary, key), place = 0;
    uint32_t count = 1;
    if (entry != 0 && entry <= v->table->capacity) {
        use(v, entry);
        return (uint32_t)entry;
    }
    if (!evicts && v->used == v->table->capacity) return 0;
    if (v->ring > 0) {
        place = entry ? entry : new_candidate(v, key);
        dlrm_entry *e = &v->entries[place];
        e->count += e->count < UINT32_MAX;
        if (e->count < v->table->admission) return 0;
        count = e->count;
    }
    const uint32_t row = take_row(v);
    if (row == 0) return 0;
    if (place) {
        dlrm_dictionary_remove(&v->dictionary, key);
        v->entries[place] = (dlrm_entry){0};
    }
    v->entries[row] = (dlrm_entry){.key = key, .count = count, .last = v->now};
    dlrm_dictionary_add(&v->dictionary, key, row);
    if (evicts) dlrm_ranking_add(&v->ranking, row);
    return row;
}

static void meet_all(dlrm_vocabulary *v, const dlrm_translation *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        if (i + AHEAD < t->count && t->rows[i + AHEAD] == DLRM_NO_ROW)
            __builtin_prefetch(&v->dictionary.slots[dlrm_dictionary_home(&v->dictionary, dlrm_dictionary_hash(t->keys[i + AHEAD]))]);
        if (t->rows[i] != DLRM_NO_ROW) continue;
        t->rows[i] = meet(v, t->keys[i]);
        v->totals.unknown += t->rows[i] == 0;
    }
}

void dlrm_vocabulary_begin(dlrm_vocabulary *v)
{
    v->now++;
    v->n_fresh = 0;
}

void dlrm_vocabulary_meet(dlrm_vocabulary *v, int n, const dlrm_translation *inputs, int64_t missing)
{
    for (int k = 0; k < n; k++) v->totals.ids += inputs[k].count;
    for (int k = 0; k < n && missing > 0; k++) meet_all(v, &inputs[k]);
    dlrm_ranking_settle(&v->ranking);
}

void dlrm_vocabulary_learn(dlrm_vocabulary *v, int n, const dlrm_translation *inputs)
{
    int64_t missing = 0;
    dlrm_vocabulary_begin(v);
    for (int k = 0; k < n; k++) missing += look_up(v, v, inputs[k].keys, inputs[k].count, inputs[k].rows);
    dlrm_vocabulary_meet(v, n, inputs, missing);
}

void dlrm_vocabulary_unknown(dlrm_vocabulary *v, int n, const dlrm_translation *inputs, int64_t missing)
{
    for (int k = 0; k < n; k++) {
        for (int64_t i = 0; missing > 0 && i < inputs[k].count; i++)
            if (inputs[k].rows[i] == DLRM_NO_ROW) inputs[k].rows[i] = 0;
        v->evaluated += inputs[k].count;
    }
    v->evaluated_unknown += missing;
}

void dlrm_vocabulary_translate(dlrm_vocabulary *v, int n, const dlrm_translation *inputs)
{
    int64_t missing = 0;
    for (int k = 0; k < n; k++) missing += look_up(v, NULL, inputs[k].keys, inputs[k].count, inputs[k].rows);
    dlrm_vocabulary_unknown(v, n, inputs, missing);
}

/* --- from files --- */

static dlrm_status add_loaded(dlrm_vocabulary *v, const char *from, int64_t entry)
{
    const int64_t key = v->entries[entry].key, other = dlrm_dictionary_find(&v->dictionary, key), capacity = v->table->capacity;
    if (other && entry <= capacity)
        return FAIL(DLRM_E_INPUT, "%s: tensor 'table.%s.keys': rows %lld and %lld have the same key, %lld", from, v->table->name,
                    (long long)other, (long long)entry, (long long)key);
    if (other)
        return FAIL(DLRM_E_INPUT, "%s: tensor 'table.%s.candidates': the key at %lld, %lld, is there already", from, v->table->name,
                    (long long)(entry - capacity - 1), (long long)key);
    dlrm_dictionary_add(&v->dictionary, key, entry);
    return DLRM_OK;
}

/* Counts go on from there without an overflow. */
static dlrm_status check_totals(const dlrm_vocabulary *v, const char *from)
{
    static const int64_t most = INT64_C(1) << 60;
    const dlrm_vocabulary_totals *t = &v->totals;
    const int64_t found[] = {t->ids, t->unknown, t->evicted, t->candidates};
    for (int i = 0; i < 4; i++)
        if (found[i] < 0 || found[i] > most)
            return FAIL(DLRM_E_INPUT, "%s: tensor 'table.%s.totals': found %lld at %d, expected a number from 0 to %lld", from, v->table->name,
                        (long long)found[i], i, (long long)most);
    return DLRM_OK;
}

dlrm_status dlrm_vocabulary_loaded(dlrm_vocabulary *v, const char *from, int64_t now)
{
    const int64_t capacity = v->table->capacity, all = capacity + v->ring;
    DLRM_ASSERT(now >= 0);
    if (now >= UINT32_MAX)
        return FAIL(DLRM_E_INPUT, "%s: found step %lld, but table %s with rows: dynamic counts steps to %lld", from, (long long)now,
                    v->table->name, (long long)UINT32_MAX - 1);
    v->now = (uint32_t)now;
    v->used = 0;
    if (v->entries[0].count > 0)
        return FAIL(DLRM_E_INPUT, "%s: tensor 'table.%s.counts': found %lld for row 0, expected 0: it is for keys that have no row", from,
                    v->table->name, (long long)v->entries[0].count);
    v->entries[0] = (dlrm_entry){0};
    dlrm_ranking_clear(&v->ranking);
    TRY(check_totals(v, from));
    for (int64_t entry = 1; entry <= all; entry++) {
        if (entry + BLOCK <= all)
            __builtin_prefetch(&v->dictionary.slots[dlrm_dictionary_home(&v->dictionary, dlrm_dictionary_hash(v->entries[entry + BLOCK].key))], 1);
        if (v->entries[entry].count == 0) v->entries[entry] = (dlrm_entry){0}; /* nobody's, whatever key stood there */
        if (v->entries[entry].count == 0) continue;
        TRY(add_loaded(v, from, entry));
        if (entry > capacity) continue;
        if (entry != ++v->used)
            return FAIL(DLRM_E_INPUT, "%s: tensor 'table.%s.counts': row %lld has no key (a count of 0), but row %lld has; expected rows with "
                        "keys first", from, v->table->name, (long long)v->used, (long long)entry);
        if (v->entries[entry].last > v->now)
            return FAIL(DLRM_E_INPUT, "%s: tensor 'table.%s.last_use': row %lld was used at step %lld, expected at most %lld, the last one", from,
                        v->table->name, (long long)entry, (long long)v->entries[entry].last, (long long)now);
        if (v->table->evict != DLRM_EVICT_NONE) dlrm_ranking_add(&v->ranking, (uint32_t)entry);
    }
    return DLRM_OK;
}
