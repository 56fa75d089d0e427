/* What the vocabularies of tables with `rows: dynamic` come to, over all ranks, for the log. */
#pragma once
#include <jansson.h>

#include "train/session.h"

typedef struct dlrm_vocabulary_count {
    int64_t keys;                  /* held now */
    int64_t ids, unknown, evicted; /* in training so far: ids; of these without a row; rows that changed their key */
    int64_t evaluated, evaluated_unknown; /* the same of evaluations */
} dlrm_vocabulary_count;

typedef struct dlrm_vocabularies {
    dlrm_session *s;
    int n;
    dlrm_vocabulary_count *now, *window, *first; /* [n] as counted last, when the log's window began, when the run did */
} dlrm_vocabularies;

dlrm_status dlrm_vocabularies_open(dlrm_session *s, dlrm_vocabularies *out) DLRM_MUST_USE; /* collective; counts */
void dlrm_vocabularies_close(dlrm_vocabularies *v);                                        /* copes with {0} */
/* Collective, also the next; allocate nothing. */
void dlrm_vocabularies_count(dlrm_vocabularies *v);
/* The share of ids that had no row in what was evaluated since the last call; NaN: nothing was, or has a vocabulary. */
double dlrm_vocabularies_evaluated(dlrm_vocabularies *v);
/* As counted last. A list of maps, one for each table, and a line's part, "" where there is none: for the start; since the
 * window began, which begins anew (`whole`: since the run did). */
json_t *dlrm_vocabularies_start_json(const dlrm_vocabularies *v);
json_t *dlrm_vocabularies_json(const dlrm_vocabularies *v, bool whole);
const char *dlrm_vocabularies_text(const dlrm_vocabularies *v, bool whole, char *buf, size_t bytes);
void dlrm_vocabularies_begin_window(dlrm_vocabularies *v);
