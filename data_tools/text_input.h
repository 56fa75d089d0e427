/* Text files, plain or gzip (told apart by their first bytes), handed out in chunks of whole lines to any number of
 * threads. A chunk knows its file and the number of its first line, so chunks can be worked on in any order. Several
 * gzip files are inflated at once, where there are threads for it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { DLRM_TEXT_CHUNK = 1 << 20 };

typedef struct dlrm_text_chunk {
    char *text; /* [DLRM_TEXT_CHUNK + 1]; every line ends in "\n", the last one of a file too */
    int64_t bytes;
    int file;
    int64_t first_line, n_lines; /* from 0 */
} dlrm_text_chunk;

typedef struct dlrm_text_input dlrm_text_input;

/* Opens nothing yet but checks that each is a regular, readable file that is not empty. `paths` is borrowed. */
dlrm_status dlrm_text_open(int n_files, char *const *paths, dlrm_text_input **out) DLRM_MUST_USE;
void dlrm_text_close(dlrm_text_input **in);

dlrm_status dlrm_text_chunk_alloc(dlrm_text_chunk *c) DLRM_MUST_USE;

/* Any thread. *more false: all files have been handed out. A line longer than CRITEO_MAX_LINE bytes is cut to one byte
 * more. A gzip file that is damaged or ends early is DLRM_E_INPUT. */
dlrm_status dlrm_text_next(dlrm_text_input *in, dlrm_text_chunk *c, bool *more) DLRM_MUST_USE;

/* To read everything once more. */
void dlrm_text_rewind(dlrm_text_input *in);

int64_t dlrm_text_file_bytes(const dlrm_text_input *in);        /* of all files as they are on disk */
int64_t dlrm_text_bytes_read(const dlrm_text_input *in);        /* of these, since the last rewind; any thread */
int64_t dlrm_text_bytes(const dlrm_text_input *in);             /* of text handed out since the last rewind */
int64_t dlrm_text_rows_guess(const dlrm_text_input *in);        /* more than there are, for usual files */
int64_t dlrm_text_lines(const dlrm_text_input *in, int file);   /* handed out since the last rewind */
bool dlrm_text_open_ended(const dlrm_text_input *in, int file); /* its last line lacks the "\n" */
