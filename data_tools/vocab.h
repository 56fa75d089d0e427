/* A column's vocabulary: which id each value (hash) gets. Id 0 stands for a missing value, one rarer than the frequency
 * limit and one that is not in the vocabulary; ids 1, 2, … go by descending frequency, ties by ascending value.
 *
 * File: 40 bytes of header — "DLRMVOC1", then uint64 n (values), cap, frequency limit, rows counted — and n pairs
 * {uint32 id, uint32 value} by ascending value. All little-endian. The table of such a column has n + 1 rows. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "counts.h"

typedef struct dlrm_vocab_info {
    int64_t n;
    int64_t cap;   /* values were taken modulo this before counting; 0: not */
    int64_t limit; /* values that occurred less often have no id */
    int64_t rows;
} dlrm_vocab_info;

/* From a finished column of counts. out->n is set; the rest is the caller's. */
dlrm_status dlrm_vocab_write(const char *path, dlrm_counts *counts, int column, dlrm_vocab_info *info) DLRM_MUST_USE;

/* Where a converted folder keeps a column's; path[DLRM_PATH_MAX]. */
dlrm_status dlrm_vocab_path(const char *folder, int column, char *path) DLRM_MUST_USE;
dlrm_status dlrm_vocab_copy(const char *from, const char *to) DLRM_MUST_USE; /* a file */
/* Copies a converted folder's vocabularies, where it has some, so that the ids of folder `to` can still be turned into
 * hashes. */
dlrm_status dlrm_vocab_keep(const char *from, const char *to) DLRM_MUST_USE;
/* out[i]: the value whose id is i+1; [info->n]. */
dlrm_status dlrm_vocab_hashes(const char *path, const dlrm_vocab_info *info, uint32_t *out) DLRM_MUST_USE;

/* Checks the header against the file's size. */
dlrm_status dlrm_vocab_info_read(const char *path, dlrm_vocab_info *info) DLRM_MUST_USE;

/* A stretch of a vocabulary in memory: the values [low, high] and all that is known of them. A vocabulary that does not
 * fit into memory is used one stretch at a time. */
typedef struct dlrm_vocab {
    uint32_t low, high;
    int64_t n;
    uint64_t *pairs;     /* value << 32 | id, ascending */
    uint32_t base;       /* the first pair's value */
    int64_t span;        /* the last pair's value - base; -1: no pairs */
    uint32_t *directory; /* cell c holds the pairs [directory[c], directory[c+1]) */
    int shift;           /* cell of a value: (value - base) >> shift */
} dlrm_vocab;

/* Bytes that a stretch of n pairs takes, and how many pairs fit into so many bytes. */
int64_t dlrm_vocab_bytes(int64_t n);
int64_t dlrm_vocab_fitting(int64_t bytes);

/* Pairs [first, first+n) of the file. The stretches of a file divide all 2^32 values among them. */
dlrm_status dlrm_vocab_load(const char *path, int64_t first, int64_t n, dlrm_vocab *out) DLRM_MUST_USE;
void dlrm_vocab_clear(dlrm_vocab *v);

/* ids[i] = the id of values[i] where bit `bit` of missing[i] is clear, else 0. Entries outside the stretch are left.
 * Returns how many values of the stretch are not in the vocabulary. */
int64_t dlrm_vocab_lookup(const dlrm_vocab *v, const uint32_t *values, const uint32_t *missing, int bit, int64_t n,
                          uint32_t *ids);
