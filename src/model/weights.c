#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/int64.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/same_folder.h"
#include "model/pieces.h"

enum { BLOCK = 1 << 20 /* elements in memory at a time */ };
static const int64_t MAX_FILE_BYTES = (int64_t)8 << 30;

static int count_tensors(const dlrm_model *m)
{
    return dlrm_pieces_first_table(m) + m->spec->n_tables;
}

/* Keys, or counts, of a vocabulary. */
static dlrm_tensor_info vocabulary_tensor(const dlrm_model *m, int i)
{
    const int V = m->spec->n_vocabularies;
    const dlrm_table *t = &m->spec->tables[dlrm_vocabulary_table(m->spec, i % V)];
    dlrm_tensor_info info = {.n_dims = 1, .dims = {t->rows}, .dtype = i < V ? DLRM_I64 : DLRM_U32};
    snprintf(info.name, sizeof info.name, "table.%s.%s", t->name, i < V ? "keys" : "counts");
    return info;
}

/* Tensor i of the model, by the numbers of pieces: the widest types first, so that all are aligned in the file. */
static dlrm_tensor_info tensor(const dlrm_model *m, int i)
{
    dlrm_tensor_info info = {.n_dims = 2};
    if (i < dlrm_pieces_first_param(m)) {
        info = vocabulary_tensor(m, i);
    } else if (i < dlrm_pieces_first_table(m)) {
        const dlrm_param *p = &m->params.list[i - dlrm_pieces_first_param(m)];
        snprintf(info.name, sizeof info.name, "%s", p->name);
        info.n_dims = p->n_dims;
        memcpy(info.dims, p->dims, sizeof p->dims);
    } else {
        const dlrm_table *t = &m->spec->tables[i - dlrm_pieces_first_table(m)];
        snprintf(info.name, sizeof info.name, "table.%s.weight", t->name);
        info.dims[0] = t->rows;
        info.dims[1] = t->dim;
        info.dtype = m->cfg->train.embedding_dtype;
    }
    return info;
}

/* Rows of a piece that are moved at a time. */
static int64_t block_rows(const dlrm_piece *p)
{
    const int64_t bytes = BLOCK * (int64_t)sizeof(float), row = dlrm_piece_row_bytes(p);
    return row < bytes ? bytes / row : 1;
}

/* BLOCK, or the widest tensor's row. */
static int64_t block_elements(const dlrm_model *m)
{
    int64_t most = BLOCK;
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        int64_t width = info.dims[info.n_dims - 1];
        if (width > most && !dlrm_dtype_is_integer(info.dtype)) most = width; /* whose rows are single numbers */
    }
    return most;
}

/* A part of the tensor's rows, into a block without gaps. */
static dlrm_status read_rows(dlrm_tensors *t, const dlrm_piece *p, int64_t row, int64_t n, float *block)
{
    const dlrm_part *a = &p->part;
    if (a->row_step == 1 && a->columns == p->whole_columns)
        return dlrm_tensors_read(t, p->whole.name, (a->first_row + row) * a->columns, n * a->columns, block);
    for (int64_t r = 0; r < n; r++)
        TRY(dlrm_tensors_read(t, p->whole.name, (a->first_row + (row + r) * a->row_step) * p->whole_columns + a->first_column,
                              a->columns, block + r * a->columns));
    return DLRM_OK;
}

static dlrm_status load_pieces(dlrm_model *m, dlrm_tensors *t, float *block, void *narrow)
{
    int n_pieces;
    dlrm_piece *pieces;
    TRY(dlrm_pieces_list(m, false, &pieces, &n_pieces));
    dlrm_status st = DLRM_OK;
    for (int i = 0; i < n_pieces; i++) {
        const dlrm_piece *p = &pieces[i];
        const int64_t most = block_rows(p), rows = p->part.rows;
        for (int64_t row = 0, n; row < rows && st == DLRM_OK; row += n) {
            n = dlrm_min64(rows - row, most);
            if (dlrm_dtype_is_integer(p->whole.dtype))
                st = dlrm_tensors_read_integers(t, p->whole.name, row, n, narrow);
            else
                st = read_rows(t, p, row, n, block);
            if (!dlrm_dtype_is_integer(p->whole.dtype)) dlrm_narrow(p->whole.dtype, block, n * p->part.columns, narrow);
            if (st == DLRM_OK) dlrm_piece_upload(m->be, p, row, n, narrow);
        }
    }
    dlrm_free(&pieces);
    m->be->ops->weights_changed(m->be);
    return st;
}

static dlrm_status load_own(dlrm_model *m, const char *path, const char *name_map, char *unused, size_t bytes)
{
    dlrm_status st;
    dlrm_tensors *t = NULL;
    float *block = NULL;
    void *narrow = NULL; /* the same in the tensor's dtype */
    TRY_TO(done, st, dlrm_tensors_open(path, name_map, &t));
    TRY_TO(done, st, dlrm_alloc(block_elements(m), sizeof *block, "weights being read", &block));
    TRY_TO(done, st, dlrm_alloc(block_elements(m), sizeof *block, "weights being read", &narrow));
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        TRY_TO(done, st, dlrm_tensors_require(t, &info));
    }
    TRY_TO(done, st, load_pieces(m, t, block, narrow));
    TRY_TO(done, st, dlrm_tables_loaded(&m->emb.own, path, 0));
    dlrm_tensors_unused(t, unused, bytes);
done:
    dlrm_free(&narrow);
    dlrm_free(&block);
    dlrm_tensors_close(&t);
    return st;
}

dlrm_status dlrm_weights_load(dlrm_model *m, const char *path, const char *name_map)
{
    char unused[1000] = "";
    TRY(dlrm_comm_agree(m->comm, load_own(m, path, name_map, unused, sizeof unused)));
    if (unused[0]) dlrm_warn("%s: not in the model, ignored: %s", path, unused);
    dlrm_info("weights from %s", path);
    return DLRM_OK;
}

static dlrm_status plan(const dlrm_model *m, const char *folder, dlrm_export **out)
{
    dlrm_tensor_info *list;
    TRY(dlrm_alloc(count_tensors(m), sizeof *list, "export plan", &list));
    for (int i = 0; i < count_tensors(m); i++) list[i] = tensor(m, i);
    dlrm_status st = dlrm_export_plan(folder, count_tensors(m), list, MAX_FILE_BYTES, out);
    dlrm_free(&list);
    return st;
}

dlrm_status dlrm_weights_check_export(dlrm_model *m, const char *folder)
{
    dlrm_export *e = NULL;
    dlrm_status st = plan(m, folder, &e);
    if (st == DLRM_OK && m->comm->rank == 0) st = dlrm_export_check(e);
    dlrm_export_close(&e);
    TRY(dlrm_comm_agree(m->comm, st));
    return dlrm_same_folder_check(m->comm, "checkpoint.export", folder);
}

static dlrm_status write_rows(dlrm_export *e, const dlrm_piece *p, int64_t row, int64_t n, const char *block)
{
    const dlrm_part *a = &p->part;
    if (a->row_step == 1 && a->columns == p->whole_columns)
        return dlrm_export_write(e, p->tensor, (a->first_row + row) * a->columns, n * a->columns, block);
    for (int64_t r = 0; r < n; r++)
        TRY(dlrm_export_write(e, p->tensor, (a->first_row + (row + r) * a->row_step) * p->whole_columns + a->first_column, a->columns,
                              block + r * dlrm_piece_row_bytes(p)));
    return DLRM_OK;
}

static dlrm_status write_own(dlrm_model *m, dlrm_export *e)
{
    int n_pieces;
    char *block = NULL;
    dlrm_piece *pieces = NULL;
    dlrm_status st;
    TRY_TO(done, st, dlrm_pieces_list(m, false, &pieces, &n_pieces));
    TRY_TO(done, st, dlrm_alloc(block_elements(m), sizeof(float), "weights being written", &block));
    dlrm_pieces_settle(m);
    for (int i = 0; i < n_pieces; i++) {
        const dlrm_piece *p = &pieces[i];
        const int64_t most = block_rows(p), rows = p->saved_here ? p->part.rows : 0;
        for (int64_t row = 0, n; row < rows; row += n) {
            n = dlrm_min64(rows - row, most);
            dlrm_piece_download(m->be, p, row, n, block);
            TRY_TO(done, st, write_rows(e, p, row, n, block));
        }
    }
    st = dlrm_export_flush(e);
done:
    dlrm_free(&block);
    dlrm_free(&pieces);
    return st;
}

dlrm_status dlrm_weights_export(dlrm_model *m, const char *folder)
{
    dlrm_status st;
    dlrm_export *e = NULL;
    TRY_TO(done, st, dlrm_comm_agree(m->comm, plan(m, folder, &e)));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, m->comm->rank == 0 ? dlrm_export_begin(e) : DLRM_OK));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, write_own(m, e)));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, m->comm->rank == 0 ? dlrm_export_commit(e) : DLRM_OK));
    dlrm_info("weights exported to %s", folder);
done:
    dlrm_export_close(&e);
    return st;
}
