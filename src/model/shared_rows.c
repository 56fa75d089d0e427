#include "model/shared_rows.h"

#include "base/mem.h"
#include "model/optimizer.h"

static bool is_cut(const dlrm_placement *place, int table)
{
    const int first = place->first_slice[table];
    return place->first_slice[table + 1] - first > 1 && place->slices[first].row_step == 1;
}

int64_t dlrm_shared_rows_places(const dlrm_model_spec *spec, const dlrm_placement *place, const dlrm_optimizer_config *opt, int rank)
{
    int64_t n = 0;
    for (int k = 0; k < place->n_slices && dlrm_optimizer_rowwise(opt); k++) {
        const int t = place->slices[k].table, peers = place->first_slice[t + 1] - place->first_slice[t] - 1;
        if (place->slices[k].owner == rank && is_cut(place, t)) n += peers * dlrm_table_hotness(spec, t);
    }
    return n;
}

/* Each rank's block has the tables that both have, in their order: the same on both sides. */
static void lay_out(const dlrm_model_spec *spec, const dlrm_placement *place, int rank, dlrm_shard *shard, const int *slices, dlrm_shared_rows *s)
{
    int64_t *at = s->bytes_at, used = 0; /* at: where each block is filled up to */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < shard->n_tables; i++) {
            const int t = place->slices[slices[i]].table;
            if (!is_cut(place, t)) continue;
            const int64_t ids = dlrm_table_hotness(spec, t);
            if (pass) shard->tables[i].peer_at = s->peer_at + used;
            for (int k = place->first_slice[t]; k < place->first_slice[t + 1]; k++) {
                const int owner = place->slices[k].owner;
                if (owner == rank) continue;
                if (pass) s->peer_at[used++] = at[owner];
                at[owner] += ids;
                shard->tables[i].n_peers += pass;
            }
        }
        for (int p = 0; p < place->ranks && !pass; p++) {
            s->block_at[p + 1] = s->block_at[p] + at[p];
            at[p] = s->block_at[p];
        }
    }
}

dlrm_status dlrm_shared_rows_open(dlrm_backend *be, const dlrm_model_spec *spec, const dlrm_placement *place,
                                  const dlrm_optimizer_config *opt, int rank, dlrm_shard *shard, const int *slices, dlrm_shared_rows *s)
{
    const int64_t places = dlrm_shared_rows_places(spec, place, opt, rank);
    *s = (dlrm_shared_rows){0};
    for (int t = 0; t < spec->n_tables && dlrm_optimizer_rowwise(opt); t++) s->any |= is_cut(place, t);
    if (!s->any) return DLRM_OK;
    TRY(dlrm_alloc(place->n_slices, sizeof *s->peer_at, "peers of tables", &s->peer_at));
    TRY(dlrm_alloc(place->ranks + 1, sizeof *s->block_at, "peers of tables", &s->block_at));
    TRY(dlrm_alloc(place->ranks + 1, sizeof *s->bytes_at, "peers of tables", &s->bytes_at));
    lay_out(spec, place, rank, shard, slices, s);
    DLRM_ASSERT(s->block_at[place->ranks] == places);
    TRY(be->ops->alloc(be, shard->max_batch * places, sizeof *s->own, "squares of gradients", &s->own));
    return be->ops->alloc(be, shard->max_batch * places, sizeof *s->peers, "squares of gradients", &s->peers);
}

void dlrm_shared_rows_close(dlrm_backend *be, dlrm_shared_rows *s)
{
    be->ops->release(be, &s->own);
    be->ops->release(be, &s->peers);
    dlrm_free(&s->peer_at);
    dlrm_free(&s->block_at);
    dlrm_free(&s->bytes_at);
}

void dlrm_shared_rows_exchange(dlrm_backend *be, dlrm_shared_rows *s, dlrm_exchange *x, dlrm_update_args *a)
{
    if (!s->any) return;
    for (int p = 0; p <= x->comm->ranks; p++) s->bytes_at[p] = a->B * s->block_at[p] * (int64_t)sizeof *s->own;
    a->own_squares = s->own;
    a->peer_squares = s->peers;
    be->ops->row_squares(be, a);
    be->ops->lap(be, DLRM_PHASE_UPDATE);
    x->ops->finish(x, x->ops->blocks_start(x, s->own, s->bytes_at, s->peers, s->bytes_at));
    be->ops->lap(be, DLRM_PHASE_EXCHANGE);
}
