#include "model/pieces.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/optimizer.h"

/* The suffix of state k. */
static const char *state_suffix(const dlrm_optimizer_config *o, int k)
{
    if (o->name == DLRM_ADAM) return k == 0 ? ".m" : ".v";
    return o->name == DLRM_SGD ? ".momentum" : ".adagrad";
}

/* Replicated tensors are written by the ranks in turn, so that each writes its share. */
static bool has_turn(const dlrm_model *m, int number)
{
    return number % m->comm->ranks == m->comm->rank;
}

/* Weights and states of an MLP parameter; returns how many pieces. */
static int param_pieces(const dlrm_model *m, int i, bool state, dlrm_piece *out)
{
    const dlrm_param *p = &m->params.list[i];
    const dlrm_optimizer_config *opt = &m->cfg->optimizer.dense;
    const int n = 1 + (state ? dlrm_optimizer_states(opt) : 0);
    for (int k = 0; k < n; k++) {
        const float *base = k == 0 ? m->params.w : m->params.state[k - 1];
        const int64_t rows = p->n_dims == 2 ? p->dims[0] : 1, columns = p->dims[p->n_dims - 1];
        out[k] = (dlrm_piece){.tensor = i, .whole = {.n_dims = p->n_dims, .dims = {p->dims[0], p->n_dims == 2 ? p->dims[1] : 0}},
                              .whole_rows = rows, .whole_columns = columns,
                              .part = {.row_step = 1, .rows = rows, .columns = columns}, .at = (char *)(base + p->offset),
                              .pitch = p->pitch, .saved_here = has_turn(m, i)};
        snprintf(out[k].whole.name, sizeof out[k].whole.name, "%s%s", p->name, k == 0 ? "" : state_suffix(opt, k - 1));
    }
    return n;
}

/* The same of a slice of a table; none if it is not on this rank. */
static int slice_pieces(const dlrm_model *m, int i, bool state, dlrm_piece *out)
{
    const dlrm_slice *s = &m->place->slices[i];
    const dlrm_table_shard *t = dlrm_embedding_slice(&m->emb, i);
    if (!t) return 0;
    const dlrm_table *whole = &m->spec->tables[s->table];
    const dlrm_optimizer_config *opt = &m->cfg->optimizer.embedding;
    const int n = 1 + (state ? dlrm_optimizer_states(opt) : 0);
    for (int k = 0; k < n; k++) {
        const bool by_row = k > 0 && dlrm_optimizer_rowwise(opt);
        const int columns = by_row ? 1 : t->dim;
        const dlrm_dtype dtype = k == 0 ? m->cfg->train.embedding_dtype : DLRM_FP32;
        out[k] = (dlrm_piece){.tensor = m->params.n + s->table, .whole = {.n_dims = by_row ? 1 : 2, .dims = {whole->rows, by_row ? 0 : whole->dim}, .dtype = dtype},
                              .whole_rows = whole->rows, .whole_columns = by_row ? 1 : whole->dim,
                              .part = {.first_row = s->first_row, .row_step = s->row_step, .rows = s->rows,
                                       .first_column = by_row ? 0 : s->first_column, .columns = columns},
                              .at = k == 0 ? t->weight : (char *)t->state[k - 1], .pitch = columns,
                              .saved_here = (s->owner != DLRM_EVERY_RANK || has_turn(m, s->table)) && !(by_row && s->first_column > 0)};
        snprintf(out[k].whole.name, sizeof out[k].whole.name, "table.%s.weight%s", whole->name, k == 0 ? "" : state_suffix(opt, k - 1));
    }
    return n;
}

dlrm_status dlrm_pieces_list(const dlrm_model *m, bool state, dlrm_piece **list, int *n)
{
    enum { MOST = 3 /* weights and two states */ };
    *n = 0;
    m->be->ops->write_back(m->be, &m->emb.own.shard);
    TRY(dlrm_alloc((int64_t)MOST * (m->params.n + m->place->n_slices), sizeof **list, "the list of tensors", list));
    for (int i = 0; i < m->params.n; i++) *n += param_pieces(m, i, state, *list + *n);
    for (int i = 0; i < m->place->n_slices; i++) *n += slice_pieces(m, i, state, *list + *n);
    return DLRM_OK;
}

/* Rows that lie together, without padding, are moved at once. */
static int64_t together(const dlrm_piece *p, int64_t n)
{
    return p->pitch == p->part.columns ? n : 1;
}

static char *row_at(const dlrm_piece *p, int64_t row)
{
    return p->at + row * p->pitch * (int64_t)dlrm_dtype_bytes(p->whole.dtype);
}

void dlrm_piece_download(dlrm_backend *be, const dlrm_piece *p, int64_t row, int64_t n, void *block)
{
    const int64_t step = together(p, n), bytes = dlrm_piece_row_bytes(p);
    for (int64_t r = 0; r < n; r += step) be->ops->download(be, (char *)block + r * bytes, row_at(p, row + r), (size_t)(step * bytes));
}

void dlrm_piece_upload(dlrm_backend *be, const dlrm_piece *p, int64_t row, int64_t n, const void *block)
{
    const int64_t step = together(p, n), bytes = dlrm_piece_row_bytes(p);
    for (int64_t r = 0; r < n; r += step) be->ops->upload(be, row_at(p, row + r), (const char *)block + r * bytes, (size_t)(step * bytes));
}
