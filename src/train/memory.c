#include "train/memory.h"

#include <stdio.h>

#include "base/mem.h"
#include "train/device.h"
#include "train/work.h"

enum { SHOWN = 3 };
static const double gib = 1 << 30;

static int64_t slice_bytes(const dlrm_session *s, const dlrm_slice *slice)
{
    int64_t weights, state;
    dlrm_work_slice(&s->cfg, slice, &weights, &state);
    return weights + state;
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
        at += (size_t)snprintf(text + at, size - at, "%s%s (%lld rows x %d: %.2f GiB)", n ? ", " : "", s->spec.tables[slice->table].name,
                               (long long)slice->rows, slice->columns, (double)slice_bytes(s, slice) / gib);
    }
    return text;
}

static dlrm_status check_host(dlrm_session *s, const dlrm_work *mine)
{
    const int64_t need = dlrm_comm_local_sum_i64(s->comm, mine->memory_bytes), have = dlrm_mem_available();
    char tables[1000];
    if (have < 0 || need <= have) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "the model needs %.2f GiB on this host (%d ranks), %.2f GiB are available; the largest tables, with optimizer "
                "state: %s; use more hosts, fewer rows or smaller tables", (double)need / gib, dlrm_comm_local_ranks(s->comm),
                (double)have / gib, largest(s, -1, tables, sizeof tables));
}

static dlrm_status check_device(const dlrm_session *s, const dlrm_work *mine)
{
    const int64_t need = mine->table_bytes + mine->state_bytes;
    int64_t have, total;
    char tables[1000];
    TRY(dlrm_device_memory(s->device, &have, &total));
    if (need <= have) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "rank %d: tables and optimizer state need %.2f GiB on GPU %d, %.2f of %.2f GiB are free; its largest tables, "
                "with optimizer state: %s; use more GPUs, fewer rows or smaller tables", s->comm->rank, (double)need / gib, s->device,
                (double)have / gib, (double)total / gib, largest(s, s->comm->rank, tables, sizeof tables));
}

dlrm_status dlrm_memory_check(dlrm_session *s)
{
    dlrm_work mine = {0};
    TRY(dlrm_comm_agree(s->comm, dlrm_work_of(s, s->comm->rank, &mine), NULL));
    return dlrm_comm_agree(s->comm, s->device < 0 ? check_host(s, &mine) : check_device(s, &mine), NULL);
}
