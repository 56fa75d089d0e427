/* The pieces of a checkpoint's files, to be read by tensor and range, whatever the ranks that wrote them. Nothing in the
 * files is trusted: their headers and checksums are those of the manifest, the pieces of a tensor cover it exactly once,
 * and each block that is read has its checksum. Errors are DLRM_E_INPUT and name file and tensor. */
#pragma once
#include "checkpoint/piece_file.h"

typedef struct dlrm_stored dlrm_stored;

typedef struct dlrm_stored_file {
    const char *path;
    dlrm_piece_file_facts facts;
} dlrm_stored_file;

dlrm_status dlrm_stored_open(int n, const dlrm_stored_file *files, dlrm_stored **out) DLRM_MUST_USE;
void dlrm_stored_close(dlrm_stored **s);
/* Is the tensor of this piece there, with its shape and dtype? `from`: what to name in the message when it is not. */
dlrm_status dlrm_stored_require(const dlrm_stored *s, const char *from, const dlrm_piece *want) DLRM_MUST_USE;
/* Rows [row, row+n) of the piece, without padding. In bounded memory: a block for each stored piece that it touches, kept for
 * what follows until the next call for another tensor. */
dlrm_status dlrm_stored_read(dlrm_stored *s, const dlrm_piece *want, int64_t row, int64_t n, void *out) DLRM_MUST_USE;
