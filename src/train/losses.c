#include "train/losses.h"

#include <math.h>

#include "base/mem.h"

dlrm_status dlrm_losses_open(const dlrm_comm *c, dlrm_backend *be, int capacity, dlrm_losses *l)
{
    *l = (dlrm_losses){.be = be, .capacity = capacity};
    TRY(be->ops->alloc(be, (int64_t)capacity * DLRM_MAX_NODES, sizeof(double), "losses", &l->noted));
    TRY(dlrm_alloc((int64_t)capacity * DLRM_MAX_NODES, sizeof(double), "losses", &l->mine));
    TRY(dlrm_alloc((int64_t)capacity * DLRM_MAX_NODES * c->ranks, sizeof(double), "losses", &l->all));
    TRY(dlrm_alloc(capacity, sizeof *l->samples, "losses", &l->samples));
    return dlrm_alloc(capacity, sizeof *l->mean, "losses", &l->mean);
}

void dlrm_losses_close(dlrm_losses *l)
{
    if (l->be) l->be->ops->release(l->be, &l->noted);
    dlrm_free(&l->mine);
    dlrm_free(&l->all);
    dlrm_free(&l->samples);
    dlrm_free(&l->mean);
}

bool dlrm_losses_full(const dlrm_losses *l)
{
    return l->n == l->capacity;
}

double *dlrm_losses_add(dlrm_losses *l, int64_t B)
{
    DLRM_ASSERT(l->n < l->capacity);
    l->samples[l->n] = B;
    return l->noted + (int64_t)l->n++ * DLRM_MAX_NODES;
}

int dlrm_losses_flush(dlrm_losses *l, dlrm_comm *c, const dlrm_reduce *r)
{
    const int n = l->n, stride = n * DLRM_MAX_NODES;
    l->n = 0;
    l->flushed = n;
    if (n == 0) return 0;
    l->be->ops->download(l->be, l->mine, l->noted, (size_t)stride * sizeof(double));
    dlrm_comm_allgather(c, l->mine, stride * (int64_t)sizeof(double), l->all);
    for (int i = 0; i < n; i++)
        l->mean[i] = dlrm_reduce_fold_f64(r, c->ranks, l->all + (int64_t)i * DLRM_MAX_NODES, stride) / (double)l->samples[i];
    return n;
}

int dlrm_losses_culprit(const dlrm_losses *l, const dlrm_reduce *r, int ranks, int i)
{
    for (int p = 0; p < ranks; p++) {
        const double *partial = l->all + ((int64_t)p * l->flushed + i) * DLRM_MAX_NODES;
        for (int k = 0; k < r->first_node[p + 1] - r->first_node[p]; k++)
            if (!isfinite(partial[k])) return p;
    }
    return -1;
}
