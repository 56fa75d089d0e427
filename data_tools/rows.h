/* Parsed rows as columns: what the text pass hands to counting and to the spool. */
#pragma once
#include <stdint.h>

#include "base/status.h"

/* A row's number: its file, and its line there from 0. Rows of the input ascend by it. */
static inline uint64_t dlrm_row_number(int file, int64_t line)
{
    return (uint64_t)file << 40 | (uint64_t)line;
}

static inline int dlrm_row_file(uint64_t number)
{
    return (int)(number >> 40);
}

static inline int64_t dlrm_row_line(uint64_t number)
{
    return (int64_t)(number & (((uint64_t)1 << 40) - 1));
}

/* The parts of a row, in the order in which memory and the spool's blocks hold them. */
enum { DLRM_PART_KEY, DLRM_PART_MISSING, DLRM_PART_DENSE, DLRM_PART_LABEL, DLRM_PART_ID };

typedef struct dlrm_rows {
    int64_t capacity, n;
    int n_ids, dense_bytes; /* of a row */
    char *memory;           /* all parts, one after the other, with room for `capacity` rows each */
    uint64_t *number;       /* dlrm_row_number, or what the key part is to be */
    uint32_t *missing;      /* bit k: the row has no id in column k */
    char *dense;
    uint8_t *label;
    uint32_t *ids; /* column k: ids[k*capacity …] */
} dlrm_rows;

/* `capacity` is rounded up to a multiple of 8, which keeps all parts aligned. */
dlrm_status dlrm_rows_open(int64_t capacity, int n_ids, int dense_bytes, dlrm_rows *out) DLRM_MUST_USE;
void dlrm_rows_close(dlrm_rows *r);
int dlrm_rows_parts(const dlrm_rows *r);                /* DLRM_PART_ID + n_ids */
int64_t dlrm_rows_width(const dlrm_rows *r, int part);  /* bytes */
int64_t dlrm_rows_offset(const dlrm_rows *r, int part); /* bytes of a row before the part: it starts at n times that */
