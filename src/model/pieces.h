/* The parts of the model's tensors that this rank holds: the one list that weights and checkpoints are read and written
 * by. Tensors are the MLPs' parameters, the tables, and the optimizer's state of both, under the tensor's name and a
 * suffix: .momentum (sgd), .adagrad (both kinds; a value a row with rowwise_adagrad), .m and .v (adam). A table with a
 * vocabulary has besides
 *   table.<name>.keys, .counts     of each row, a count of 0 where it has no key
 *   .last_use                      of each row; with the optimizer's state, as what follows:
 *   .candidates, .candidate_counts where keys are admitted by count: the ring of those that have no row yet
 *   .totals                        ids, of these unknown, rows that changed their key, candidates */
#pragma once
#include "model/model.h"
#include "model/tensors.h"

/* Rows first_row, first_row + row_step, …, `rows` of them, and columns [first_column, first_column + columns) of a tensor. One
 * of one dimension is a matrix of one row (a bias) or of one column (a value for each row of a table). */
typedef struct dlrm_part {
    int64_t first_row, row_step, rows, first_column, columns;
} dlrm_part;

typedef struct dlrm_piece {
    int tensor;             /* its number: keys of vocabularies, their counts, the MLPs' parameters, the tables; -1: other state */
    dlrm_tensor_info whole; /* name, shape and dtype */
    int64_t whole_rows, whole_columns;
    dlrm_part part;
    char *at;          /* its first element, backend memory, */
    bool host;         /* or host memory */
    int64_t pitch;     /* elements from one of its rows to the next */
    bool saved_here;   /* where several ranks hold the same part, one of them writes it */
} dlrm_piece;

/* *list: a new array (dlrm_alloc). state: with the optimizer's. */
dlrm_status dlrm_pieces_list(const dlrm_model *m, bool state, dlrm_piece **list, int *n) DLRM_MUST_USE;
/* Before pieces are downloaded: what they point at is what the steps so far have made of it, until the next one. */
void dlrm_pieces_settle(const dlrm_model *m);
/* Of tensor numbers. */
static inline int dlrm_pieces_first_param(const dlrm_model *m)
{
    return 2 * m->spec->n_vocabularies;
}
static inline int dlrm_pieces_first_table(const dlrm_model *m)
{
    return dlrm_pieces_first_param(m) + m->params.n;
}
static inline int64_t dlrm_piece_row_bytes(const dlrm_piece *p)
{
    return p->part.columns * (int64_t)dlrm_dtype_bytes(p->whole.dtype);
}
static inline int64_t dlrm_piece_bytes(const dlrm_piece *p)
{
    return p->part.rows * dlrm_piece_row_bytes(p);
}
/* Rows [row, row+n) of the piece to or from a host block that has no padding. */
void dlrm_piece_download(dlrm_backend *be, const dlrm_piece *p, int64_t row, int64_t n, void *block);
void dlrm_piece_upload(dlrm_backend *be, const dlrm_piece *p, int64_t row, int64_t n, const void *block);
