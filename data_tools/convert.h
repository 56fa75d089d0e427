/* `dlrm_data convert`: rows from one format to another. What its parts share; most of them are about Criteo's text, which
 * needs vocabularies. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "criteo_line.h"
#include "dense.h"
#include "emit.h"
#include "output.h"
#include "row_source.h"
#include "split_binary.h"
#include "spool.h"
#include "text_input.h"

enum { DLRM_BAD_SHOWN = 10, DLRM_CONVERT_PASSES = 5 };

typedef struct dlrm_convert_options {
    int n_files;
    char **paths;         /* in order: by day where they are day files */
    int days;             /* all paths are day files */
    int test_file;        /* of a split by day; -1: split at the tail */
    double test_fraction; /* of a split at the tail */
    int64_t test_rows;    /* -1: all rows held back */
    dlrm_format to;
    dlrm_source_hints hints; /* format: of the input; DLRM_FORMAT_TEXT, or rows that are ids already */
    const char *out, *vocab;
    int64_t cap, frequency_limit; /* 0: none */
    int dense, dense_type;        /* dlrm_dense_kind, -1: not said, and rows are no text; 0: float16, 1: float32, -1: as the input */
    bool shuffle;
    int64_t seed, threads, memory;
    double max_bad_share;
} dlrm_convert_options;

/* argv: what follows "convert". */
dlrm_status dlrm_convert_options_parse(int argc, char **argv, dlrm_convert_options *out, bool *help) DLRM_MUST_USE;

/* Which lines of a file are training rows (before test_begin), test rows (before test_end) and validation rows. */
typedef struct dlrm_split_plan {
    int64_t *test_begin, *test_end; /* [n_files] */
} dlrm_split_plan;
/* `lines` of each file; NULL where the split is by day, which needs no counts. */
dlrm_status dlrm_split_plan_open(const dlrm_convert_options *o, const int64_t *lines,
                                 dlrm_split_plan *out) DLRM_MUST_USE;
void dlrm_split_plan_close(dlrm_split_plan *p);

/* Malformed lines: how many, and the first few by file and line. Any thread. */
typedef struct dlrm_bad_lines {
    pthread_mutex_t lock;
    int64_t lines, bad; /* seen so far */
    bool hopeless;      /* the run has been given up for their share */
    int n;
    struct dlrm_bad_line {
        uint64_t number;
        char reason[200];
    } first[DLRM_BAD_SHOWN]; /* ascending */
} dlrm_bad_lines;
/* A malformed line. */
void dlrm_bad_lines_add(dlrm_bad_lines *b, uint64_t number, const char *line, size_t bytes);
/* A chunk has been parsed. Fails early where the share is hopeless. */
dlrm_status dlrm_bad_lines_count(dlrm_bad_lines *b, const dlrm_convert_options *o, int64_t lines) DLRM_MUST_USE;
/* Names the first ones on stderr; fails where their share is too large. */
dlrm_status dlrm_bad_lines_judge(dlrm_bad_lines *b, const dlrm_convert_options *o) DLRM_MUST_USE;

typedef struct dlrm_pass {
    const char *name; /* NULL: not run */
    double seconds, cpu_seconds;
    int64_t bytes;
    const char *of; /* what the bytes are */
} dlrm_pass;

typedef struct dlrm_column_report {
    int64_t cardinality, missing, unknown;
    int runs; /* that counting wrote to disk */
} dlrm_column_report;

typedef struct dlrm_convert_report {
    int64_t rows[DLRM_OUT_SPLITS], positives[DLRM_OUT_SPLITS];
    dlrm_column_report columns[CRITEO_IDS];
    dlrm_pass passes[DLRM_CONVERT_PASSES];
    int groups;
    int64_t cap, frequency_limit; /* those in force: with --vocab, the vocabulary's */
} dlrm_convert_report;

/* Writes `folder`/convert.json and prints the closing lines. */
dlrm_status dlrm_convert_report_write(const dlrm_convert_options *o, const dlrm_convert_report *r,
                                      const dlrm_bad_lines *bad, const char *folder) DLRM_MUST_USE;

/* Rows that are ids already. */
dlrm_status dlrm_convert_rows(const dlrm_convert_options *o) DLRM_MUST_USE;
/* The form that a dlrm_dense_kind is; -1 stays -1. */
int dlrm_convert_form(int dense);

dlrm_status dlrm_convert_main(int argc, char **argv) DLRM_MUST_USE;
