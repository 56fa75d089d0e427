#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/tensors.h"

enum { BLOCK = 1 << 20 /* elements in memory at a time */ };
static const int64_t MAX_FILE_BYTES = (int64_t)8 << 30;

static int count_tensors(const dlrm_model *m)
{
    return m->params.n + m->spec->n_tables;
}

/* Tensor i of the model: the MLP parameters, then the tables. */
static dlrm_tensor_info tensor(const dlrm_model *m, int i)
{
    dlrm_tensor_info info = {.n_dims = 2};
    if (i < m->params.n) {
        const dlrm_param *p = &m->params.list[i];
        snprintf(info.name, sizeof info.name, "%s", p->name);
        info.n_dims = p->n_dims;
        memcpy(info.dims, p->dims, sizeof p->dims);
    } else {
        const dlrm_table *t = &m->spec->tables[i - m->params.n];
        snprintf(info.name, sizeof info.name, "table.%s.weight", t->name);
        info.dims[0] = t->rows;
        info.dims[1] = t->dim;
    }
    return info;
}

/* Tensor i as this rank holds it, in backend memory. */
typedef struct holding {
    float *at; /* NULL: another rank has it */
    int64_t rows, width, pitch;
} holding;

static holding held(const dlrm_model *m, int i)
{
    if (i < m->params.n) {
        const dlrm_param *p = &m->params.list[i];
        return (holding){m->params.w + p->offset, p->n_dims == 2 ? p->dims[0] : 1, p->dims[p->n_dims - 1], p->pitch};
    }
    for (int k = 0; k < m->emb.shard.n_tables; k++)
        if (m->emb.table[k] == i - m->params.n) {
            const dlrm_table_shard *t = &m->emb.shard.tables[k];
            return (holding){t->weight, t->rows, t->dim, t->dim};
        }
    return (holding){0};
}

/* Rows that are moved at a time. */
static int64_t block_rows(const holding *h)
{
    return h->width < BLOCK ? BLOCK / h->width : 1;
}

/* Copies rows [row, row+n) to or from a host block without padding. */
static void move_rows(dlrm_backend *be, const holding *h, int64_t row, int64_t n, float *block, bool to_host)
{
    const int64_t step = h->pitch == h->width ? n : 1; /* as many at a time as lie together */
    for (int64_t r = 0; r < n; r += step) {
        float *there = h->at + (row + r) * h->pitch, *here = block + r * h->width;
        size_t bytes = (size_t)(step * h->width) * sizeof *here;
        if (to_host)
            be->ops->download(be, here, there, bytes);
        else
            be->ops->upload(be, there, here, bytes);
    }
}

/* BLOCK, or the widest tensor's row. */
static int64_t block_elements(const dlrm_model *m)
{
    int64_t most = BLOCK;
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        int64_t width = info.dims[info.n_dims - 1];
        if (width > most) most = width;
    }
    return most;
}

static dlrm_status load_own(dlrm_model *m, const char *path, const char *name_map, char *unused, size_t bytes)
{
    dlrm_status st;
    dlrm_tensors *t = NULL;
    float *block = NULL;
    TRY_TO(done, st, dlrm_tensors_open(path, name_map, &t));
    TRY_TO(done, st, dlrm_alloc(block_elements(m), sizeof *block, "weights being read", &block));
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        TRY_TO(done, st, dlrm_tensors_require(t, &info));
    }
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        const holding h = held(m, i);
        const int64_t most = h.at ? block_rows(&h) : 0;
        for (int64_t row = 0; row < h.rows; row += most) {
            int64_t n = h.rows - row < most ? h.rows - row : most;
            TRY_TO(done, st, dlrm_tensors_read(t, info.name, row * h.width, n * h.width, block));
            move_rows(m->be, &h, row, n, block, false);
        }
    }
    m->be->ops->weights_changed(m->be);
    dlrm_tensors_unused(t, unused, bytes);
done:
    dlrm_free(&block);
    dlrm_tensors_close(&t);
    return st;
}

dlrm_status dlrm_weights_load(dlrm_model *m, const char *path, const char *name_map)
{
    char unused[1000] = "";
    TRY(dlrm_comm_agree(m->comm, load_own(m, path, name_map, unused, sizeof unused), NULL));
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
    return dlrm_comm_agree(m->comm, st, NULL);
}

static dlrm_status write_own(dlrm_model *m, dlrm_export *e)
{
    float *block;
    dlrm_status st = DLRM_OK;
    TRY(dlrm_alloc(block_elements(m), sizeof *block, "weights being written", &block));
    for (int i = 0; i < count_tensors(m) && st == DLRM_OK; i++) {
        const holding h = i < m->params.n && m->comm->rank != 0 ? (holding){0} : held(m, i);
        const int64_t most = h.at ? block_rows(&h) : 0;
        for (int64_t row = 0; row < h.rows && st == DLRM_OK; row += most) {
            int64_t n = h.rows - row < most ? h.rows - row : most;
            move_rows(m->be, &h, row, n, block, true);
            st = dlrm_export_write(e, i, row * h.width, n * h.width, block);
        }
    }
    dlrm_free(&block);
    return st != DLRM_OK ? st : dlrm_export_flush(e);
}

dlrm_status dlrm_weights_export(dlrm_model *m, const char *folder)
{
    dlrm_status st;
    dlrm_export *e = NULL;
    TRY_TO(done, st, dlrm_comm_agree(m->comm, plan(m, folder, &e), NULL));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, m->comm->rank == 0 ? dlrm_export_begin(e) : DLRM_OK, NULL));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, write_own(m, e), NULL));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, m->comm->rank == 0 ? dlrm_export_commit(e) : DLRM_OK, NULL));
    dlrm_info("weights exported to %s", folder);
done:
    dlrm_export_close(&e);
    return st;
}
