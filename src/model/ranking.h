/* The rows of a vocabulary in the order in which they give way: by their last use, or by their count, then their last use;
 * then the lower row first. A heap of what was known when a row was last looked at: uses only move a row back, so they
 * need not be told, and what comes to the top is brought up to date until the first is really the first. */
#pragma once
#include "model/dictionary.h"

typedef struct dlrm_ranked {
    uint32_t count, last, row;
} dlrm_ranked;

typedef struct dlrm_ranking {
    const dlrm_entry *entries; /* by row; the owner's */
    bool by_count;
    int64_t capacity, n, aside;
    dlrm_ranked *rows; /* [capacity]: the heap, and at the end those that are put aside */
} dlrm_ranking;

dlrm_status dlrm_ranking_open(int64_t capacity, const dlrm_entry *entries, bool by_count, dlrm_ranking *out) DLRM_MUST_USE;
void dlrm_ranking_close(dlrm_ranking *r); /* copes with {0} */
void dlrm_ranking_clear(dlrm_ranking *r);
void dlrm_ranking_add(dlrm_ranking *r, uint32_t row);
/* Takes out the first row that batch `now` does not use. 0: there is none. */
uint32_t dlrm_ranking_take(dlrm_ranking *r, uint32_t now);
/* At a batch's end: rows that it used have been put aside, and come back. */
void dlrm_ranking_settle(dlrm_ranking *r);
