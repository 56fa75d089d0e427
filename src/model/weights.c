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

/* Where this rank holds tensor i (backend memory), and its elements; NULL: another rank does. */
static float *held(const dlrm_model *m, int i, int64_t *elements)
{
    if (i < m->params.n) {
        *elements = m->params.list[i].size;
        return m->params.w + m->params.list[i].offset;
    }
    for (int k = 0; k < m->emb.shard.n_tables; k++)
        if (m->emb.table[k] == i - m->params.n) {
            const dlrm_table_shard *t = &m->emb.shard.tables[k];
            *elements = t->rows * t->dim;
            return t->weight;
        }
    return NULL;
}

static dlrm_status load_own(dlrm_model *m, const char *path, const char *name_map, char *unused, size_t bytes)
{
    dlrm_status st;
    dlrm_tensors *t = NULL;
    float *block = NULL;
    TRY_TO(done, st, dlrm_tensors_open(path, name_map, &t));
    TRY_TO(done, st, dlrm_alloc(BLOCK, sizeof *block, "weights being read", &block));
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        TRY_TO(done, st, dlrm_tensors_require(t, &info));
    }
    for (int i = 0; i < count_tensors(m); i++) {
        dlrm_tensor_info info = tensor(m, i);
        int64_t elements = 0;
        float *to = held(m, i, &elements);
        for (int64_t at = 0; to && at < elements; at += BLOCK) {
            int64_t n = elements - at < BLOCK ? elements - at : BLOCK;
            TRY_TO(done, st, dlrm_tensors_read(t, info.name, at, n, block));
            m->be->ops->upload(m->be, to + at, block, (size_t)n * sizeof *block);
        }
    }
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
    TRY(dlrm_alloc(BLOCK, sizeof *block, "weights being written", &block));
    for (int i = 0; i < count_tensors(m) && st == DLRM_OK; i++) {
        int64_t elements = 0;
        const float *from = i < m->params.n && m->comm->rank != 0 ? NULL : held(m, i, &elements);
        for (int64_t at = 0; from && at < elements && st == DLRM_OK; at += BLOCK) {
            int64_t n = elements - at < BLOCK ? elements - at : BLOCK;
            m->be->ops->download(m->be, block, from + at, (size_t)n * sizeof *block);
            st = dlrm_export_write(e, i, at, n, block);
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
