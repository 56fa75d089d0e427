/* Vocabularies against a plain model of their rules, which looks at everything each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/translate.h"

static uint64_t drawn;

static int64_t draw(int64_t below)
{
    return (int64_t)(dlrm_rng_uniform(5, 7, drawn++) * (float)below);
}

/* --- the dictionary --- */

/* Adds and removes at random; some keys have the same home, and searches go round the end. */
static void test_dictionary(void **state)
{
    enum { KEYS = 40, ROUNDS = 40000 };
    static dlrm_entry entries[KEYS + 1];
    bool there[KEYS + 1] = {false};
    dlrm_dictionary d;
    int n = 0;
    (void)state;
    assert_int_equal(dlrm_dictionary_open(KEYS, entries, &d), DLRM_OK);
    for (int e = 1; e <= KEYS; e++) entries[e].key = e % 3 ? e * INT64_C(0x123456789) : -e;
    entries[1].key = INT64_MIN;
    entries[2].key = INT64_MAX;
    entries[3].key = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const int e = 1 + (int)draw(KEYS);
        if (there[e])
            dlrm_dictionary_remove(&d, entries[e].key);
        else
            dlrm_dictionary_add(&d, entries[e].key, e);
        there[e] = !there[e];
        for (int k = 1; k <= KEYS; k++) assert_int_equal(dlrm_dictionary_find(&d, entries[k].key), there[k] ? k : 0);
        if (round < KEYS) n += there[e];
    }
    assert_true(n > 10);
    for (int e = 1; e <= KEYS; e++) /* as full as it gets */
        if (!there[e]) dlrm_dictionary_add(&d, entries[e].key, e);
    for (int e = 1; e <= KEYS; e++) assert_int_equal(dlrm_dictionary_find(&d, entries[e].key), e);
    assert_int_equal(dlrm_dictionary_find(&d, 12345), 0);
    dlrm_dictionary_close(&d);
}

/* More keys of one home than a slot can say how far they are from it. */
static void test_far(void **state)
{
    enum { KEYS = 150, ROUNDS = 3000 };
    static dlrm_entry entries[KEYS + 1];
    bool there[KEYS + 1] = {false};
    dlrm_dictionary d;
    int n = 0;
    (void)state;
    assert_int_equal(dlrm_dictionary_open(KEYS, entries, &d), DLRM_OK);
    for (int64_t key = 0; n < KEYS; key++) { /* two homes, side by side, before the end */
        const int64_t home = dlrm_dictionary_home(&d, dlrm_dictionary_hash(key));
        if (home == d.n_slots - 20 || home == d.n_slots - 19) entries[++n].key = key;
    }
    for (int round = 0; round < ROUNDS; round++) {
        const int e = round < KEYS ? round + 1 : 1 + (int)draw(KEYS);
        if (there[e])
            dlrm_dictionary_remove(&d, entries[e].key);
        else
            dlrm_dictionary_add(&d, entries[e].key, e);
        there[e] = !there[e];
        for (int k = 1; k <= KEYS; k++) assert_int_equal(dlrm_dictionary_find(&d, entries[k].key), there[k] ? k : 0);
    }
    dlrm_dictionary_close(&d);
}

/* Many keys of a pattern, such as ids have that count up, spread: a search is short. */
static void test_spread(void **state)
{
    enum { KEYS = 1 << 16 };
    dlrm_entry *entries;
    dlrm_dictionary d;
    (void)state;
    for (int pattern = 0; pattern < 3; pattern++) {
        int64_t steps = 0;
        assert_int_equal(dlrm_alloc(KEYS + 1, sizeof *entries, "entries", &entries), DLRM_OK);
        assert_int_equal(dlrm_dictionary_open(KEYS, entries, &d), DLRM_OK);
        for (int64_t e = 1; e <= KEYS; e++) {
            entries[e].key = pattern == 0 ? e : pattern == 1 ? e << 40 : e * -4096;
            dlrm_dictionary_add(&d, entries[e].key, e);
        }
        for (int64_t e = 1; e <= KEYS; e++) {
            const uint64_t hash = dlrm_dictionary_hash(entries[e].key);
            int64_t at = dlrm_dictionary_home(&d, hash), home = at;
            assert_int_equal(dlrm_dictionary_reach(&d, entries[e].key, hash, &at), e);
            steps += (at - home + d.n_slots) % d.n_slots;
        }
        assert_true((double)steps / KEYS < 1.5); /* linear probing, 2 of 3 slots taken: 1 on average */
        dlrm_dictionary_close(&d);
        dlrm_free(&entries);
    }
}

/* --- the rules, plainly --- */

enum { CAPACITY = 12, MOST = 64, INPUTS = 3 };

typedef struct plain {
    const dlrm_table *table;
    dlrm_entry row[CAPACITY + 1], ring[CAPACITY];
    int64_t used, place, unknown, evicted;
    uint32_t now;
} plain;

static int find_row(const plain *p, int64_t key)
{
    for (int r = 1; r <= p->used; r++)
        if (p->row[r].key == key) return r;
    return 0;
}

static int victim(const plain *p)
{
    int best = 0;
    for (int r = 1; r <= CAPACITY; r++) {
        const dlrm_entry *e = &p->row[r], *b = &p->row[best];
        if (e->last == p->now) continue;
        const bool less = p->table->evict == DLRM_EVICT_LFU && e->count != b->count ? e->count < b->count : e->last < b->last;
        if (best == 0 || less) best = r;
    }
    return best;
}

static uint32_t plain_meet(plain *p, int64_t key)
{
    int row = find_row(p, key), place = -1;
    if (row) {
        p->row[row].count++;
        return (uint32_t)row;
    }
    if (p->table->evict == DLRM_EVICT_NONE && p->used == CAPACITY) return 0;
    dlrm_entry once = {.key = key, .count = 1}, *e = &once;
    if (p->table->admission > 1) {
        for (int i = 0; i < CAPACITY; i++)
            if (p->ring[i].count && p->ring[i].key == key) place = i;
        if (place < 0) {
            place = (int)(p->place++ % CAPACITY);
            p->ring[place] = (dlrm_entry){.key = key};
        }
        e = &p->ring[place];
        if (++e->count < p->table->admission) return 0;
    }
    row = p->used < CAPACITY ? (int)++p->used : victim(p);
    if (row == 0) return 0;
    p->evicted += p->row[row].count > 0;
    p->row[row] = (dlrm_entry){.key = key, .count = e->count, .last = p->now};
    if (place >= 0) p->ring[place].count = 0;
    return (uint32_t)row;
}

static void plain_learn(plain *p, int n, const dlrm_translation *t, uint32_t rows[INPUTS][MOST])
{
    p->now++;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < t[k].count; i++) {
            const int row = find_row(p, t[k].keys[i]);
            rows[k][i] = row ? (uint32_t)row : UINT32_MAX;
            if (!row) continue;
            p->row[row].count++;
            p->row[row].last = p->now;
        }
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < t[k].count; i++) {
            if (rows[k][i] != UINT32_MAX) continue;
            rows[k][i] = plain_meet(p, t[k].keys[i]);
            p->unknown += rows[k][i] == 0;
        }
}

static void compare(const dlrm_vocabulary *v, const plain *p)
{
    assert_int_equal(v->used, p->used);
    assert_int_equal(v->totals.unknown, p->unknown);
    assert_int_equal(v->totals.evicted, p->evicted);
    for (int r = 1; r <= CAPACITY; r++) {
        assert_int_equal(v->entries[r].count, p->row[r].count);
        if (p->row[r].count == 0) continue;
        assert_int_equal(v->entries[r].key, p->row[r].key);
        assert_int_equal(v->entries[r].last, p->row[r].last);
    }
    for (int i = 0; i < v->ring; i++) {
        const dlrm_entry *e = &v->entries[1 + CAPACITY + i];
        assert_int_equal(e->count, p->ring[i].count);
        if (e->count) assert_int_equal(e->key, p->ring[i].key);
    }
}

/* Another one, made from what a checkpoint holds. */
static void reload(dlrm_vocabulary *v)
{
    dlrm_vocabulary again;
    const size_t bytes = (size_t)(1 + CAPACITY + v->ring) * sizeof *v->entries;
    assert_int_equal(dlrm_vocabulary_open(v->table, INPUTS * MOST, &again), DLRM_OK);
    memcpy(again.entries, v->entries, bytes);
    again.totals = v->totals;
    assert_int_equal(dlrm_vocabulary_loaded(&again, "file", v->now), DLRM_OK);
    dlrm_vocabulary_close(v);
    *v = again;
}

/* The rows that changed their key are those that it says. */
static void check_fresh(const dlrm_vocabulary *v, const plain *before, const plain *after)
{
    bool fresh[CAPACITY + 1] = {false};
    for (int64_t i = 0; i < v->n_fresh; i++) {
        assert_in_range(v->fresh[i], 1, CAPACITY);
        assert_false(fresh[v->fresh[i]]);
        fresh[v->fresh[i]] = true;
    }
    for (int r = 1; r <= CAPACITY; r++)
        if (before->row[r].count) assert_int_equal(fresh[r], before->row[r].key != after->row[r].key);
}

static void run(dlrm_evict evict, uint32_t admission, int64_t span)
{
    const dlrm_table table = {.name = "t", .rows = CAPACITY + 1, .capacity = CAPACITY, .evict = evict, .admission = admission};
    const int64_t blocks = dlrm_mem_live_blocks();
    dlrm_vocabulary v;
    plain p = {.table = &table};
    int64_t keys[INPUTS][MOST], ids = 0;
    uint32_t rows[INPUTS][MOST], expected[INPUTS][MOST];
    assert_int_equal(dlrm_vocabulary_open(&table, INPUTS * MOST, &v), DLRM_OK);
    assert_int_equal(dlrm_mem_live_bytes() > 0, 1);
    for (int batch = 0; batch < 300; batch++) {
        const int n = 1 + (int)draw(INPUTS);
        dlrm_translation t[INPUTS];
        const plain before = p;
        for (int k = 0; k < n; k++) {
            t[k] = (dlrm_translation){.keys = keys[k], .count = draw(batch % 4 ? 8 : MOST), .rows = rows[k]};
            for (int64_t i = 0; i < t[k].count; i++) {
                const int64_t id = draw(draw(2) ? span : 6);
                keys[k][i] = id % 2 ? INT64_MIN + id : id;
            }
            ids += t[k].count;
        }
        plain_learn(&p, n, t, expected);
        dlrm_vocabulary_learn(&v, n, t);
        for (int k = 0; k < n; k++) assert_memory_equal(rows[k], expected[k], (size_t)t[k].count * sizeof **rows);
        compare(&v, &p);
        check_fresh(&v, &before, &p);
        assert_int_equal(v.totals.ids, ids);
        if (batch % 7 == 3) reload(&v);
        if (batch % 5 != 2) continue;
        dlrm_vocabulary_translate(&v, n, t); /* changes nothing, and knows what has a row now */
        for (int k = 0; k < n; k++)
            for (int64_t i = 0; i < t[k].count; i++) assert_int_equal(rows[k][i], find_row(&p, keys[k][i]));
        compare(&v, &p);
    }
    assert_true(p.unknown > 20 || (admission == 1 && evict != DLRM_EVICT_NONE));
    assert_int_equal(p.evicted > 0, evict != DLRM_EVICT_NONE);
    dlrm_vocabulary_close(&v);
    assert_int_equal(dlrm_mem_live_blocks(), blocks);
}

static void test_rules(void **state)
{
    static const dlrm_evict evicts[] = {DLRM_EVICT_NONE, DLRM_EVICT_LRU, DLRM_EVICT_LFU};
    (void)state;
    for (int k = 0; k < 3; k++)
        for (uint32_t admission = 1; admission <= 3; admission++) {
            run(evicts[k], admission, 30);
            run(evicts[k], admission, 200);
        }
}

/* A batch that uses every row leaves none for a new key. */
static void test_all_in_use(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const dlrm_table table = {.name = "t", .rows = 4, .capacity = 3, .evict = k ? DLRM_EVICT_LFU : DLRM_EVICT_LRU, .admission = 1};
        const int64_t first[] = {7, 8, 9, 10, 8}, second[] = {10, 11, 7, 7, 12};
        uint32_t rows[5];
        dlrm_vocabulary v;
        assert_int_equal(dlrm_vocabulary_open(&table, 5, &v), DLRM_OK);
        dlrm_vocabulary_learn(&v, 1, &(dlrm_translation){first, 5, rows});
        assert_memory_equal(rows, ((uint32_t[]){1, 2, 3, 0, 2}), sizeof rows);
        assert_int_equal(v.n_fresh, 0);
        dlrm_vocabulary_learn(&v, 1, &(dlrm_translation){second, 5, rows}); /* 7 stays; 9 (least frequent) or 8 (lower row) goes first */
        assert_memory_equal(rows, k ? ((uint32_t[]){3, 2, 1, 1, 0}) : ((uint32_t[]){2, 3, 1, 1, 0}), sizeof rows);
        assert_int_equal(v.n_fresh, 2);
        dlrm_vocabulary_close(&v);
    }
}

/* --- several threads --- */

enum { TABLES = 3, LARGE = 20000, SMALL = 500 };

typedef struct team {
    dlrm_table tables[TABLES];
    dlrm_vocabulary vocabularies[TABLES];
    uint32_t rows[TABLES][2][LARGE];
} team;

static void open_team(team *t, dlrm_evict evict, uint32_t admission)
{
    for (int k = 0; k < TABLES; k++) {
        t->tables[k] = (dlrm_table){.name = "t", .rows = 3001, .capacity = 3000, .evict = evict, .admission = admission};
        assert_int_equal(dlrm_vocabulary_open(&t->tables[k], 2 * LARGE, &t->vocabularies[k]), DLRM_OK);
    }
}

/* The first table has nearly all keys, in two inputs; the last has none. */
static void translate_batch(team *t, const int64_t *keys, bool learn, int threads)
{
    dlrm_translation inputs[2][2] = {{{keys, LARGE, t->rows[0][0]}, {keys + LARGE, LARGE - 5, t->rows[0][1]}}, {{keys + 7, SMALL, t->rows[1][0]}}};
    dlrm_translation_job jobs[TABLES] = {{&t->vocabularies[0], 2, inputs[0], 0}, {&t->vocabularies[1], 1, inputs[1], 0}, {&t->vocabularies[2], 0, NULL, 0}};
    dlrm_translate(TABLES, jobs, learn, threads);
}

static void same_team(const team *a, const team *b)
{
    assert_memory_equal(a->rows, b->rows, sizeof a->rows);
    for (int k = 0; k < TABLES; k++) {
        const dlrm_vocabulary *v = &a->vocabularies[k], *w = &b->vocabularies[k];
        assert_memory_equal(v->entries, w->entries, (size_t)(1 + 3000 + v->ring) * sizeof *v->entries);
        assert_memory_equal(&v->totals, &w->totals, sizeof v->totals);
        assert_int_equal(v->used, w->used);
        assert_int_equal(v->n_fresh, w->n_fresh);
        if (v->n_fresh) assert_memory_equal(v->fresh, w->fresh, (size_t)v->n_fresh * sizeof *v->fresh);
        assert_int_equal(v->evaluated, w->evaluated);
        assert_int_equal(v->evaluated_unknown, w->evaluated_unknown);
    }
}

/* Any number of threads gives the same rows, counts and evictions as one does. */
static void test_threads(void **state)
{
    static const dlrm_evict evicts[] = {DLRM_EVICT_NONE, DLRM_EVICT_LRU, DLRM_EVICT_LFU};
    static const int threads[] = {1, 4, 5, 9};
    static team teams[4];
    static int64_t keys[2 * LARGE];
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        memset(teams, 0, sizeof teams);
        for (int k = 0; k < 4; k++) open_team(&teams[k], evicts[kind / 2], 1 + kind % 2);
        for (int batch = 0; batch < 6; batch++) {
            const bool learn = batch % 3 != 2;
            for (int i = 0; i < 2 * LARGE; i++) keys[i] = i % 3 ? draw(50) : batch * 1000 + draw(4000);
            for (int k = 0; k < 4; k++) translate_batch(&teams[k], keys, learn, threads[k]);
            for (int k = 1; k < 4; k++) same_team(&teams[0], &teams[k]);
        }
        assert_true(teams[0].vocabularies[0].totals.ids == 4 * (2 * LARGE - 5) && teams[0].vocabularies[0].used > 1000);
        for (int k = 0; k < 4; k++)
            for (int t = 0; t < TABLES; t++) dlrm_vocabulary_close(&teams[k].vocabularies[t]);
    }
}

/* --- what files may hold --- */

static void refuse_at(int64_t step, const char *message, void (*damage)(dlrm_vocabulary *))
{
    const dlrm_table table = {.name = "t", .rows = 6, .capacity = 5, .evict = DLRM_EVICT_LRU, .admission = 2};
    dlrm_vocabulary v;
    assert_int_equal(dlrm_vocabulary_open(&table, 5, &v), DLRM_OK);
    for (int r = 1; r <= 3; r++) v.entries[r] = (dlrm_entry){.key = 10 * r, .count = 1};
    v.entries[6] = (dlrm_entry){.key = 90, .count = 1};
    damage(&v);
    assert_int_equal(dlrm_vocabulary_loaded(&v, "file", step), DLRM_E_INPUT);
    assert_non_null(strstr(dlrm_error_message(), message));
    dlrm_vocabulary_close(&v);
}

static void refuse(const char *message, void (*damage)(dlrm_vocabulary *))
{
    refuse_at(3, message, damage);
}

static void same_key(dlrm_vocabulary *v) { v->entries[3].key = 10; }
static void same_candidate(dlrm_vocabulary *v) { v->entries[6].key = 20; }
static void gap(dlrm_vocabulary *v) { v->entries[2].count = 0; }
static void row_0(dlrm_vocabulary *v) { v->entries[0].count = 7; }
static void negative(dlrm_vocabulary *v) { v->totals.candidates = -1; }
static void too_many(dlrm_vocabulary *v) { v->totals.ids = INT64_MAX; }
static void later(dlrm_vocabulary *v) { v->entries[2].last = 4; }
static void nothing(dlrm_vocabulary *v) { (void)v; }

static void test_damaged(void **state)
{
    (void)state;
    refuse("file: tensor 'table.t.keys': rows 1 and 3 have the same key, 10", same_key);
    refuse("file: tensor 'table.t.candidates': the key at 0, 20, is there already", same_candidate);
    refuse("file: tensor 'table.t.counts': row 2 has no key (a count of 0), but row 3 has", gap);
    refuse("file: tensor 'table.t.counts': found 7 for row 0, expected 0: it is for keys that have no row", row_0);
    refuse("file: tensor 'table.t.totals': found -1 at 3", negative);
    refuse("file: tensor 'table.t.totals': found 9223372036854775807 at 0", too_many);
    refuse("file: tensor 'table.t.last_use': row 2 was used at step 4, expected at most 3", later);
    refuse_at(UINT32_MAX, "file: found step 4294967295, but table t with rows: dynamic counts steps to 4294967294", nothing);
}

/* Keys of rows that are nobody's mean nothing, and are not handed on. */
static void test_stale_keys(void **state)
{
    const dlrm_table table = {.name = "t", .rows = 6, .capacity = 5, .admission = 1};
    const int64_t keys[] = {30};
    uint32_t rows[1];
    dlrm_vocabulary v;
    (void)state;
    assert_int_equal(dlrm_vocabulary_open(&table, 1, &v), DLRM_OK);
    v.entries[1] = (dlrm_entry){.key = 10, .count = 1};
    v.entries[4] = (dlrm_entry){.key = 10};
    v.entries[5] = (dlrm_entry){.key = 30};
    assert_int_equal(dlrm_vocabulary_loaded(&v, "file", 1), DLRM_OK);
    assert_int_equal(v.used, 1);
    assert_int_equal(v.entries[4].key, 0);
    dlrm_vocabulary_learn(&v, 1, &(dlrm_translation){keys, 1, rows});
    assert_int_equal(rows[0], 2);
    dlrm_vocabulary_close(&v);
}

/* Counts end at 2^32 - 1. */
static void test_saturation(void **state)
{
    const dlrm_table table = {.name = "t", .rows = 3, .capacity = 2, .evict = DLRM_EVICT_LFU, .admission = 1};
    const int64_t keys[] = {5, 5, 5};
    uint32_t rows[3];
    dlrm_vocabulary v;
    (void)state;
    assert_int_equal(dlrm_vocabulary_open(&table, 3, &v), DLRM_OK);
    v.entries[1] = (dlrm_entry){.key = 5, .count = UINT32_MAX - 1};
    assert_int_equal(dlrm_vocabulary_loaded(&v, "file", 1), DLRM_OK);
    dlrm_vocabulary_learn(&v, 1, &(dlrm_translation){keys, 3, rows});
    assert_int_equal(v.entries[1].count, UINT32_MAX);
    dlrm_vocabulary_close(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dictionary), cmocka_unit_test(test_spread),   cmocka_unit_test(test_rules),
        cmocka_unit_test(test_all_in_use), cmocka_unit_test(test_damaged), cmocka_unit_test(test_stale_keys), cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_far),        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
