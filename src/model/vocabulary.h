/* The vocabulary of a table with `rows: dynamic`: which key has which row. Keys are any integers of 64 bits; row 0 is for
 * those that have no row. What a batch does to it depends on the batch's keys and their order alone: input by input, sample
 * by sample, position by position in the bag. So whoever translates the same batches has the same vocabulary, and ranks that
 * hold columns of the same table need not talk.
 *
 * A batch of training is gone through twice. First every key that has a row is given it, counted, and its row marked as used
 * by this batch. Then the others, in order: a key that has come to have a row meanwhile is given it; else it is counted, and
 * at its occurrence number `admission` gets a row of its own: the lowest one that nobody has had, or, where the capacity is
 * reached, with evict: lru (lfu) the row used by no key of this batch whose key has been used least recently (least
 * frequently; then least recently), the lower row first. Where there is none it reads row 0. With evict: none a full vocabulary
 * changes no more.
 *
 * Keys without a row, with admission > 1, are counted while they are among the last `capacity` new ones: a ring, whose oldest
 * key is forgotten. */
#pragma once
#include "config/spec.h"
#include "model/ranking.h"

typedef struct dlrm_vocabulary_totals {
    int64_t ids, unknown; /* occurrences in training; of these, read row 0 */
    int64_t evicted;      /* rows that changed their key */
    int64_t candidates;   /* keys that began to be counted: the next one's place in the ring */
} dlrm_vocabulary_totals;

typedef struct dlrm_vocabulary {
    const dlrm_table *table;
    /* [1 + capacity + places in the ring]: of the row of this number, then the ring. A count of 0: nobody's. */
    dlrm_entry *entries;
    int64_t ring; /* places */
    dlrm_dictionary dictionary;
    dlrm_ranking ranking;
    int64_t used; /* rows 1 … used have keys */
    uint32_t now; /* batches of training so far */
    dlrm_vocabulary_totals totals;
    int64_t evaluated, evaluated_unknown; /* as `ids` and `unknown`, since they were last set to 0 */
    uint32_t *fresh; /* rows that changed their key in the last batch of training, and start anew */
    int64_t n_fresh, most_fresh;
} dlrm_vocabulary;

/* The keys of one input for a batch, and where their rows go. */
typedef struct dlrm_translation {
    const int64_t *keys;
    int64_t count;
    uint32_t *rows;
} dlrm_translation;

/* most_ids: of a batch, of all inputs of the table. All memory is taken here. */
dlrm_status dlrm_vocabulary_open(const dlrm_table *table, int64_t most_ids, dlrm_vocabulary *out) DLRM_MUST_USE;
void dlrm_vocabulary_close(dlrm_vocabulary *v); /* copes with {0} */
int64_t dlrm_vocabulary_memory(const dlrm_table *table, int64_t most_ids);

/* Rows of n keys, DLRM_NO_ROW where there is none; returns how many these are. Changes nothing: for several threads at once. */
int64_t dlrm_vocabulary_look_up(const dlrm_vocabulary *v, const int64_t *keys, int64_t n, uint32_t *rows);
#define DLRM_NO_ROW UINT32_MAX /* a table has fewer */
/* A batch of training in parts, of which the first and the last are one thread's: all keys have been looked up in between, and each row
 * counted once by each `part` of `parts`, which several threads may take. missing: keys that have none. */
void dlrm_vocabulary_begin(dlrm_vocabulary *v);
void dlrm_vocabulary_use(dlrm_vocabulary *v, const uint32_t *rows, int64_t n, int part, int parts);
void dlrm_vocabulary_meet(dlrm_vocabulary *v, int n, const dlrm_translation *inputs, int64_t missing);
/* A batch of training: the vocabulary learns from it. */
void dlrm_vocabulary_learn(dlrm_vocabulary *v, int n, const dlrm_translation *inputs);
/* A batch that it does not learn from: keys without a row read row 0. And the same when all keys have been looked up. */
void dlrm_vocabulary_unknown(dlrm_vocabulary *v, int n, const dlrm_translation *inputs, int64_t missing);
void dlrm_vocabulary_translate(dlrm_vocabulary *v, int n, const dlrm_translation *inputs);

/* After entries and totals have been read from files: all else follows from them. now: batches of training before.
 * DLRM_E_INPUT names `from`, the tensor and the rows where two keys are the same, row 0 has a count, a row below one with a key has
 * none, or one was used later; or a total that is none; or says that there were more batches than are counted. */
dlrm_status dlrm_vocabulary_loaded(dlrm_vocabulary *v, const char *from, int64_t now) DLRM_MUST_USE;
