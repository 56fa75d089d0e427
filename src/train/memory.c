#include "train/memory.h"

#include <stdio.h>

#include "base/mem.h"
#include "model/vocabulary.h"
#include "train/device.h"
#include "train/work.h"

enum { SHOWN = 3 };
static const double gib = 1 << 30;

/* Keys of a vocabulary, which are in the host's memory: where the tables are there, too. */
static int64_t key_bytes(const dlrm_session *s, const dlrm_slice *slice)
{
    const dlrm_table *table = &s->spec.tables[slice->table];
    return s->device < 0 && table->capacity > 0 ? dlrm_vocabulary_memory(table, table->capacity) : 0;
}

static int64_t slice_bytes(const dlrm_session *s, const dlrm_slice *slice)
{
    int64_t weights, state;
    dlrm_work_slice(&s->cfg, slice, &weights, &state);
    return weights + state + key_bytes(s, slice);
}

/* The slice with the most bytes after `before`, of a rank (-1: of any); ties by their order. -1: none. */
static int next_largest(const dlrm_session *s, int rank, int before)
{
    const dlrm_slice *slices = s->place.slices;
    int best = -1;
    for (int k = 0; k < s->place.n_slices; k++) {
        if (rank >= 0 && slices[k].owner != rank && slices[k].owner != DLRM_EVERY_RANK) continue;
        int64_t bytes = slice_bytes(s, &slices[k]), last = before < 0 ? 0 : slice_bytes(s, &slices[before]);
        if (before >= 0 && (bytes > last || (bytes == last && k <= before))) continue;
        if (best < 0 || bytes > slice_bytes(s, &slices[best])) best = k;
    }
    return best;
}

/* "t0 (60000 rows x 16: 0.01 GiB), …": the largest of a rank, or of all ranks (-1), whose slices are told one by one. */
static const char *largest(const dlrm_session *s, int rank, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int n = 0, k = next_largest(s, rank, -1); n < SHOWN && k >= 0 && at < size; n++, k = next_largest(s, rank, k)) {
        const dlrm_slice *slice = &s->place.slices[k];
        at += (size_t)snprintf(text + at, size - at, "%s%s (%lld rows x %d%s: %.2f GiB)", n ? ", " : "", s->spec.tables[slice->table].name,
                               (long long)slice->rows, slice->columns, key_bytes(s, slice) > 0 ? ", and keys" : "",
                               (double)slice_bytes(s, slice) / gib);
    }
    return text;
}

static dlrm_status check_host(dlrm_session *s, const dlrm_work *mine)
{
    const int64_t need = dlrm_comm_local_sum_i64(s->comm, mine->memory_bytes), have = dlrm_mem_available();
    char tables[1000];
    if (have < 0 || need <= have) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "the model needs %.2f GiB on this host (%d ranks), %.2f GiB are available; the largest tables, with optimizer "
                "state: %s; use more hosts, fewer rows%s or smaller tables", (double)need / gib, dlrm_comm_local_ranks(s->comm),
                (double)have / gib, largest(s, -1, tables, sizeof tables), s->spec.n_vocabularies > 0 ? ", a smaller capacity" : "");
}

dlrm_host_tables_args dlrm_memory_host_tables(const dlrm_session *s)
{
    dlrm_host_tables_args a = dlrm_host_tables_args_of(&s->cfg, dlrm_session_max_batch(s), s->host_room);
    if (s->device < 0) a.budget = -1;
    return a;
}

dlrm_status dlrm_memory_home(const dlrm_session *s, int rank, int64_t *home, int64_t *cache)
{
    const dlrm_host_tables_args a = dlrm_memory_host_tables(s);
    const int *own = s->place.owned + s->place.first_owned[rank];
    dlrm_host_tables plan;
    /* a budget that is too small is told of by who opens the tables, with the key's name */
    dlrm_status st = dlrm_host_tables_plan(&s->spec, &s->place, rank, &a, &plan);
    *home = *cache = 0;
    for (int i = 0; st == DLRM_OK && i < s->place.tables[rank]; i++)
        if (plan.home[i]) *home += slice_bytes(s, &s->place.slices[own[i]]);
    for (int i = 0; st == DLRM_OK && i < plan.n_pools; i++)
        *cache += slice_bytes(s, &(dlrm_slice){.rows = plan.pools[i].rows, .columns = plan.pools[i].dim});
    dlrm_host_tables_clear(&plan);
    return st == DLRM_E_INPUT ? DLRM_OK : st;
}

dlrm_status dlrm_memory_check_budget(const dlrm_session *s)
{
    const dlrm_host_tables_args a = dlrm_memory_host_tables(s);
    int64_t most = 0;
    dlrm_status st = DLRM_OK;
    for (int rank = 0; rank < s->ranks && a.budget >= 0; rank++) {
        dlrm_host_tables plan;
        const dlrm_status one = dlrm_host_tables_plan(&s->spec, &s->place, rank, &a, &plan);
        const int64_t need = plan.device_elements + plan.cache_elements;
        dlrm_host_tables_clear(&plan);
        if (one == DLRM_OK || need <= most) continue;
        if (one != DLRM_E_INPUT) return one;
        most = need;
        st = dlrm_host_tables_fail(&s->cfg);
    }
    return st;
}

static dlrm_status check_device(const dlrm_session *s, const dlrm_work *mine)
{
    int64_t have, total, home, cache;
    char tables[1000];
    const dlrm_status st = dlrm_memory_home(s, s->comm->rank, &home, &cache);
    const int64_t need = mine->table_bytes + mine->state_bytes - home + cache, host_need = dlrm_comm_local_sum_i64(s->comm, home);
    if (st != DLRM_OK) return st;
    TRY(dlrm_device_memory(s->device, &have, &total));
    if (dlrm_mem_available() >= 0 && host_need > dlrm_mem_available())
        return FAIL(DLRM_E_RUNTIME, "tables in this host's memory (parallel.device_embedding_elements) need %.2f GiB, with optimizer state, %.2f GiB "
                    "are available", (double)host_need / gib, (double)dlrm_mem_available() / gib);
    if (need <= have) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "rank %d: tables and optimizer state need %.2f GiB on GPU %d, %.2f of %.2f GiB are free; its largest tables, "
                "with optimizer state: %s; use more GPUs, fewer rows or smaller tables, or parallel.device_embedding_elements", s->comm->rank,
                (double)need / gib, s->device, (double)have / gib, (double)total / gib, largest(s, s->comm->rank, tables, sizeof tables));
}

static dlrm_status own_budget(const dlrm_session *s, int local_ranks, int64_t *bytes)
{
    int64_t total;
    if (s->device < 0 || s->cfg.parallel.device_embedding_elements >= 0)
        *bytes = dlrm_mem_available() / local_ranks;
    else
        TRY(dlrm_device_memory(s->device, bytes, &total));
    return DLRM_OK;
}

dlrm_status dlrm_memory_budget(const dlrm_session *s, int64_t *bytes)
{
    int64_t own = -1, *all;
    dlrm_status st = own_budget(s, dlrm_comm_local_ranks(s->comm), &own);
    if (st == DLRM_OK) st = dlrm_alloc(s->comm->ranks, sizeof *all, "memory of ranks", &all);
    TRY(dlrm_comm_agree(s->comm, st));
    dlrm_comm_allgather(s->comm, &own, sizeof own, all);
    for (int p = 0; p < s->comm->ranks; p++)
        if (all[p] > 0 && (own <= 0 || all[p] < own)) own = all[p];
    *bytes = own > 0 ? own / 10 * 9 : 0;
    dlrm_free(&all);
    return DLRM_OK;
}

/* What tables may take of the host's memory: a rank's share of what is there now, with some left for all else. */
static int64_t host_room(dlrm_comm *c)
{
    const int64_t have = dlrm_mem_available();
    return have < 0 ? -1 : have / dlrm_comm_local_ranks(c) / 10 * 9;
}

dlrm_status dlrm_memory_check(dlrm_session *s)
{
    dlrm_work mine = {0};
    s->host_room = host_room(s->comm);
    TRY(dlrm_comm_agree(s->comm, dlrm_work_of(s, s->comm->rank, &mine)));
    return dlrm_comm_agree(s->comm, s->device < 0 ? check_host(s, &mine) : check_device(s, &mine));
}
