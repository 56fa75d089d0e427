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
        out[k] = (dlrm_piece){.tensor = dlrm_pieces_first_param(m) + i, .whole = {.n_dims = p->n_dims, .dims = {p->dims[0], p->n_dims == 2 ? p->dims[1] : 0}},
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
        out[k] = (dlrm_piece){.tensor = dlrm_pieces_first_table(m) + s->table, .whole = {.n_dims = by_row ? 1 : 2, .dims = {whole->rows, by_row ? 0 : whole->dim}, .dtype = dtype},
                              .whole_rows = whole->rows, .whole_columns = by_row ? 1 : whole->dim,
                              .part = {.first_row = s->first_row, .row_step = s->row_step, .rows = s->rows,
                                       .first_column = by_row ? 0 : s->first_column, .columns = columns},
                              .at = k == 0 ? t->weight : (char *)t->state[k - 1], .pitch = columns,
                              .saved_here = (s->owner != DLRM_EVERY_RANK || has_turn(m, s->table)) && !(by_row && s->first_column > 0)};
        snprintf(out[k].whole.name, sizeof out[k].whole.name, "table.%s.weight%s", whole->name, k == 0 ? "" : state_suffix(opt, k - 1));
    }
    return n;
}

/* One field of n entries of a vocabulary; or n numbers of one row. */
static dlrm_piece vocabulary_piece(const dlrm_table *table, const char *suffix, void *at, dlrm_dtype dtype, int64_t n, bool entries)
{
    dlrm_piece p = {.tensor = -1, .whole = {.n_dims = 1, .dims = {n}, .dtype = dtype}, .whole_rows = entries ? n : 1,
                    .whole_columns = entries ? 1 : n, .at = at, .host = true,
                    .pitch = entries ? (int64_t)(sizeof(dlrm_entry) / dlrm_dtype_bytes(dtype)) : n};
    p.part = (dlrm_part){.row_step = 1, .rows = p.whole_rows, .columns = p.whole_columns};
    snprintf(p.whole.name, sizeof p.whole.name, "table.%s.%s", table->name, suffix);
    return p;
}

enum { MOST_VOCABULARY_PIECES = 6 };

/* None if no slice of the table is on this rank. Who has the first one saves it. */
static int vocabulary_pieces(const dlrm_model *m, int t, bool state, dlrm_piece *out)
{
    const dlrm_table *table = &m->spec->tables[t];
    dlrm_vocabulary *v = dlrm_tables_vocabulary(&m->emb.own, t);
    int n = 0;
    if (!v) return 0;
    dlrm_entry *rows = v->entries, *ring = rows + 1 + table->capacity;
    out[n++] = vocabulary_piece(table, "keys", &rows->key, DLRM_I64, table->rows, true);
    out[n++] = vocabulary_piece(table, "counts", &rows->count, DLRM_U32, table->rows, true);
    for (int k = 0; k < n; k++) out[k].tensor = k * m->spec->n_vocabularies + table->vocabulary;
    if (state) out[n++] = vocabulary_piece(table, "last_use", &rows->last, DLRM_U32, table->rows, true);
    if (state && v->ring > 0) out[n++] = vocabulary_piece(table, "candidates", &ring->key, DLRM_I64, v->ring, true);
    if (state && v->ring > 0) out[n++] = vocabulary_piece(table, "candidate_counts", &ring->count, DLRM_U32, v->ring, true);
    if (state) out[n++] = vocabulary_piece(table, "totals", &v->totals, DLRM_I64, sizeof v->totals / sizeof(int64_t), false);
    for (int k = 0; k < n; k++) out[k].saved_here = m->place->slices[m->place->first_slice[t]].owner == m->comm->rank;
    return n;
}

dlrm_status dlrm_pieces_list(const dlrm_model *m, bool state, dlrm_piece **list, int *n)
{
    enum { MOST = 3 /* weights and two states */ };
    const int64_t most = (int64_t)MOST * (m->params.n + m->place->n_slices) + (int64_t)MOST_VOCABULARY_PIECES * m->spec->n_vocabularies;
    *n = 0;
    TRY(dlrm_alloc(most, sizeof **list, "the list of tensors", list));
    for (int i = 0; i < m->params.n; i++) *n += param_pieces(m, i, state, *list + *n);
    for (int i = 0; i < m->place->n_slices; i++) *n += slice_pieces(m, i, state, *list + *n);
    for (int t = 0; t < m->spec->n_tables; t++) *n += vocabulary_pieces(m, t, state, *list + *n);
    return DLRM_OK;
}

void dlrm_pieces_settle(const dlrm_model *m)
{
    m->be->ops->write_back(m->be, &m->emb.own.shard);
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
    for (int64_t r = 0; r < n; r += step) {
        if (p->host)
            memcpy((char *)block + r * bytes, row_at(p, row + r), (size_t)(step * bytes));
        else
            be->ops->download(be, (char *)block + r * bytes, row_at(p, row + r), (size_t)(step * bytes));
    }
}

void dlrm_piece_upload(dlrm_backend *be, const dlrm_piece *p, int64_t row, int64_t n, const void *block)
{
    const int64_t step = together(p, n), bytes = dlrm_piece_row_bytes(p);
    for (int64_t r = 0; r < n; r += step) {
        if (p->host)
            memcpy(row_at(p, row + r), (const char *)block + r * bytes, (size_t)(step * bytes));
        else
            be->ops->upload(be, row_at(p, row + r), (const char *)block + r * bytes, (size_t)(step * bytes));
    }
}
