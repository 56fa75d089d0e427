/* How often each 32-bit value occurs, for many columns at once, in bounded memory. A column is an open-addressing table
 * of (value, count) words; one that may not grow further is sorted and appended to a file as a run, and starts again
 * empty. Walking a column merges its runs, so that values come in ascending order with their total counts. */
#pragma once
#include <stdint.h>

#include "base/status.h"

typedef struct dlrm_counts dlrm_counts;

/* Tables take at most budget_bytes together; run files stand in `folder` until close. */
dlrm_status dlrm_counts_open(int columns, int64_t budget_bytes, const char *folder, dlrm_counts **out) DLRM_MUST_USE;
void dlrm_counts_close(dlrm_counts **c);

/* Counts n rows of all columns: column k's values are values[k*stride …]; bit k of missing[i]: row i has none there.
 * Any thread; a thread starts with the columns that no other one is counting. n at most 2^30. */
dlrm_status dlrm_counts_add(dlrm_counts *c, const uint32_t *values, int64_t stride, const uint32_t *missing,
                            int64_t n) DLRM_MUST_USE;

/* Ends counting for a column: afterwards it can be walked, any number of times, and is not added to. Different columns
 * may be finished and walked by different threads. */
dlrm_status dlrm_counts_finish(dlrm_counts *c, int column) DLRM_MUST_USE;
typedef dlrm_status (*dlrm_counts_visit)(void *arg, uint32_t value, uint64_t count);
dlrm_status dlrm_counts_walk(dlrm_counts *c, int column, dlrm_counts_visit visit, void *arg) DLRM_MUST_USE;
void dlrm_counts_drop(dlrm_counts *c, int column); /* frees a column's memory and run file */

int64_t dlrm_counts_missing(const dlrm_counts *c, int column);
int dlrm_counts_runs(const dlrm_counts *c, int column); /* written to disk */
