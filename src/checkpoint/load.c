#include "checkpoint/load.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/stored.h"

typedef struct loading {
    dlrm_model *model;
    const char *folder;
    dlrm_stored *stored;
    dlrm_piece *pieces;
    int n, piece; /* the next one to read, */
    int64_t row;  /* and its row */
    char *chunk;
    int64_t chunk_bytes;
} loading;

static dlrm_status open_files(loading *l, const dlrm_manifest *m)
{
    char *paths;
    const size_t bytes = strlen(l->folder) + 1 + DLRM_RANK_FILE_BYTES;
    dlrm_stored_file *files = NULL;
    dlrm_status st;
    TRY(dlrm_alloc(m->ranks, bytes, "a checkpoint's paths", &paths));
    TRY_TO(done, st, dlrm_alloc(m->ranks, sizeof *files, "a checkpoint's files", &files));
    for (int r = 0; r < m->ranks; r++) {
        char name[DLRM_RANK_FILE_BYTES], *path = paths + (size_t)r * bytes;
        dlrm_rank_file_name(r, name);
        snprintf(path, bytes, "%s/%s", l->folder, name);
        files[r] = (dlrm_stored_file){path, m->files[r]};
    }
    st = dlrm_stored_open(m->ranks, files, &l->stored);
done:
    dlrm_free(&files);
    dlrm_free(&paths);
    return st;
}

static dlrm_status prepare(loading *l, const dlrm_manifest *m, bool state)
{
    TRY(open_files(l, m));
    TRY(dlrm_pieces_list(l->model, state, &l->pieces, &l->n));
    l->chunk_bytes = DLRM_PIECE_CHUNK;
    for (int i = 0; i < l->n; i++) {
        TRY(dlrm_stored_require(l->stored, l->folder, &l->pieces[i]));
        int64_t row = dlrm_piece_row_bytes(&l->pieces[i]);
        if (row > l->chunk_bytes) l->chunk_bytes = row;
    }
    return dlrm_alloc(l->chunk_bytes, 1, "a checkpoint's chunk", &l->chunk);
}

/* For dlrm_comm_work: reads for a while. */
static dlrm_status load_some(void *ctx, bool *done)
{
    loading *l = ctx;
    const double end = dlrm_now() + DLRM_WORK_S;
    while (l->piece < l->n && dlrm_now() < end) {
        const dlrm_piece *p = &l->pieces[l->piece];
        const int64_t left = p->part.rows - l->row, fit = l->chunk_bytes / dlrm_piece_row_bytes(p), n = left < fit ? left : fit;
        TRY(dlrm_stored_read(l->stored, p, l->row, n, l->chunk));
        dlrm_piece_upload(l->model->be, p, l->row, n, l->chunk);
        l->row += n;
        if (l->row < p->part.rows) continue;
        l->piece++;
        l->row = 0;
    }
    *done = l->piece == l->n;
    return DLRM_OK;
}

/* Without loss scaling the updates that were skipped are none; with it and from a run without, the first scale stays. */
static void go_on(dlrm_model *m, const dlrm_train_state *at)
{
    const dlrm_scale scale = {.scale = (float)at->loss_scale, .good = (int)at->good_steps, .skipped = at->skipped_steps};
    m->updates = m->scaled ? at->updates : at->updates - at->skipped_steps;
    if (m->scaled && at->loss_scale > 0) m->be->ops->scale_set(m->be, &scale);
}

dlrm_status dlrm_checkpoint_load(dlrm_model *m, const char *folder, const dlrm_manifest *manifest, bool state)
{
    loading l = {.model = m, .folder = folder};
    dlrm_status st;
    TRY_TO(done, st, dlrm_comm_agree(m->comm, prepare(&l, manifest, state)));
    TRY_TO(done, st, dlrm_comm_work(m->comm, load_some, &l));
    TRY_TO(done, st, dlrm_comm_agree(m->comm, dlrm_tables_loaded(&m->emb.own, folder, manifest->progress.step)));
    m->be->ops->weights_changed(m->be);
    go_on(m, &manifest->progress);
done:
    dlrm_free(&l.chunk);
    dlrm_free(&l.pieces);
    dlrm_stored_close(&l.stored);
    return st;
}
