/* The keys of a batch, of all vocabularies of a rank, by all its threads. Where a table has more of the keys than a thread's share, each table's
 * work is cut: all keys are looked up in any order while nothing changes, then rows are counted, each by one thread, and last one thread
 * handles the keys that have no row, in their order. So the number of threads changes no row and no count. */
#pragma once
#include "model/vocabulary.h"

typedef struct dlrm_translation_job {
    dlrm_vocabulary *vocabulary;
    int n;                    /* inputs of its table; 0: nothing to do */
    dlrm_translation *inputs; /* in their order */
    int64_t missing;          /* scratch */
} dlrm_translation_job;

/* learn: a batch of training. threads: at most so many. */
void dlrm_translate(int n, dlrm_translation_job *jobs, bool learn, int threads);
