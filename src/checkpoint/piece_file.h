/* What one rank writes of a checkpoint: a safetensors file with the pieces that it holds and is to save, and their
 * checksums.
 *
 *   rank_00003.safetensors
 *     __metadata__   format: pt; checkpoint: 1; sum_block: 1048576; and for each piece where it belongs:
 *                    whole=ROWSxCOLUMNS row=FIRST step=STEP column=FIRST
 *     checksums      U64 [n]: of the pieces' blocks of 1 MiB, in the order of the pieces in the file
 *     pieces         TENSOR (all of it), TENSOR@rows_A_B (rows A to B-1), TENSOR@rows_A_B_S (every S-th of these),
 *                    TENSOR@cols_A_B; F32, BF16 or F16; what vocabularies have besides is I64 or U32
 *
 * The checksums of the header and of the tensor `checksums` stand in the manifest, so every byte is accounted for. */
#pragma once
#include "model/pieces.h"

enum {
    DLRM_PIECE_NAME_BYTES = sizeof((dlrm_tensor_info *)0)->name,
    DLRM_PIECE_CHUNK = 4 << 20 /* bytes of a piece that are moved at a time, or its longest row */
};

typedef struct dlrm_piece_file dlrm_piece_file;

/* Lays out a file for these pieces (those that are saved here and not empty); takes all memory that writing it needs. */
dlrm_status dlrm_piece_file_plan(int n, const dlrm_piece *pieces, dlrm_piece_file **out) DLRM_MUST_USE;
void dlrm_piece_file_close(dlrm_piece_file **f); /* closes what is open, removes nothing */
int64_t dlrm_piece_file_bytes(const dlrm_piece_file *f);
/* The pieces in it, in order, and the bytes of them all. */
const dlrm_piece *dlrm_piece_file_pieces(const dlrm_piece_file *f, int *n, int64_t *bytes);

/* What the manifest says of a file. */
typedef struct dlrm_piece_file_facts {
    int64_t bytes;
    uint64_t header_sum, sums_sum;
} dlrm_piece_file_facts;

/* A file is made once or more, each time: create, write all pieces' rows in order, finish. None of these calls MPI or
 * takes memory, so they may run in a thread of their own. DLRM_E_RUNTIME: the disk. */
dlrm_status dlrm_piece_file_create(dlrm_piece_file *f, const char *path) DLRM_MUST_USE;
/* The next rows: all of piece *i from *row on that fit `room` bytes (at least a row). Returns how many; 0: there are no
 * more. */
int64_t dlrm_piece_file_next(const dlrm_piece_file *f, int64_t room, const dlrm_piece **piece, int64_t *row);
/* Writes those rows. *finite: none of the values is NaN or infinite; else `why` names the first one. */
dlrm_status dlrm_piece_file_write(dlrm_piece_file *f, int64_t rows, const void *data, bool *finite, char *why,
                                  size_t why_bytes) DLRM_MUST_USE;
/* The checksums; all on the disk. */
dlrm_status dlrm_piece_file_finish(dlrm_piece_file *f, dlrm_piece_file_facts *out) DLRM_MUST_USE;
