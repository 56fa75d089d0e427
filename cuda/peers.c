/* Memory on each rank's GPU that the GPUs of all ranks can write into: CUDA's handles between processes of a host, over NVLink or PCIe.
 * Whether that can be had is found out by trying, and decided by all ranks alike. */
#include "base/mem.h"
#include "cuda_internal.h"

enum { BLOCK = 2 << 20 /* bytes of the driver's blocks: what begins at one of them is an allocation's first byte, as handles need it */,
       MOST_SHARED = 2,
       MOST_RANKS = CONSTANTS / DLRM_SORTED /* recorded steps keep a table of a lookup's bags for each rank */ };

struct cuda_peers {
    dlrm_backend *be;
    dlrm_comm *comm;
    int n;
    void **blocks[MOST_SHARED]; /* [n][ranks]; NULL: not mapped */
    /* Where ranks meet */
    uint64_t **flags;   /* device: [ranks] */
    uint64_t *meetings; /* device */
    int *stop;          /* host */
};

/* What a rank tells the others of its memory. */
typedef struct offer {
    cudaIpcMemHandle_t handle;
    int64_t usable;
} offer;

static bool make_offer(void *block, offer *out)
{
    *out = (offer){0};
    return (uintptr_t)block % BLOCK == 0 && cudaIpcGetMemHandle(&out->handle, block) == cudaSuccess;
}

static bool map_all(const dlrm_comm *comm, void **blocks, const offer *offers)
{
    for (int k = 0; k < comm->ranks; k++) {
        if (k == comm->rank) continue;
        if (offers[k].usable && cudaIpcOpenMemHandle(&blocks[k], offers[k].handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) continue;
        blocks[k] = NULL;
        return false;
    }
    return offers[comm->rank].usable;
}

static void unmap_all(const dlrm_comm *comm, void **blocks)
{
    for (int k = 0; k < comm->ranks; k++) {
        if (k == comm->rank || !blocks[k]) continue;
        cudaIpcCloseMemHandle(blocks[k]);
        blocks[k] = NULL;
    }
}

/* Do all ranks say so? */
static bool all(dlrm_comm *comm, bool mine)
{
    int64_t without = !mine;
    dlrm_comm_sum_i64(comm, &without, 1);
    if (without > 0) (void)cudaGetLastError(); /* of what was tried */
    return without == 0;
}

/* This rank's memory. */
static dlrm_status open_block(cuda_peers *p, int64_t bytes, const char *what, offer **offers)
{
    const int R = p->comm->ranks;
    DLRM_ASSERT(p->n < MOST_SHARED);
    TRY(dlrm_alloc(R + 1, sizeof **offers, "exchange", offers)); /* the last: what this rank says */
    TRY(dlrm_alloc(R, sizeof *p->blocks[0], "exchange", &p->blocks[p->n]));
    return cuda_alloc(p->be, (bytes / BLOCK + 1) * BLOCK, 1, what, &p->blocks[p->n][p->comm->rank]);
}

dlrm_status cuda_peers_share(cuda_peers *p, int64_t bytes, const char *what, void **blocks)
{
    dlrm_comm *comm = p->comm;
    offer *offers = NULL;
    dlrm_status st;
    for (int k = 0; k < comm->ranks; k++) blocks[k] = NULL;
    TRY_TO(done, st, dlrm_comm_agree(comm, open_block(p, bytes, what, &offers)));
    void **mapped = p->blocks[p->n++];
    offer *mine = &offers[comm->ranks];
    mine->usable = make_offer(mapped[comm->rank], mine);
    dlrm_comm_allgather(comm, mine, sizeof *mine, offers);
    if (all(comm, map_all(comm, mapped, offers))) {
        for (int k = 0; k < comm->ranks; k++) blocks[k] = mapped[k];
    } else {
        unmap_all(comm, mapped);
        dlrm_comm_barrier(comm); /* memory goes when nobody has it mapped any more */
        cuda_release(p->be, &mapped[comm->rank]);
    }
done:
    dlrm_free(&offers);
    return st;
}

static dlrm_status open_meeting(cuda_peers *p, void **flags)
{
    const size_t bytes = (size_t)p->comm->ranks * sizeof *p->flags;
    TRY(p->be->ops->alloc_host(p->be, 1, sizeof *p->stop, "exchange", &p->stop));
    TRY(cuda_alloc(p->be, 1, sizeof *p->meetings, "exchange", &p->meetings));
    TRY(cuda_alloc(p->be, 1, (int64_t)bytes, "exchange", &p->flags));
    p->be->ops->upload(p->be, p->flags, flags, bytes);
    return DLRM_OK;
}

dlrm_status cuda_peers_open(dlrm_backend *be, dlrm_comm *comm, cuda_peers **out)
{
    void **flags;
    if (!all(comm, dlrm_comm_local_ranks(comm) == comm->ranks && comm->ranks <= MOST_RANKS)) return DLRM_OK;
    cuda_peers *p;
    dlrm_status st = dlrm_comm_agree(comm, dlrm_alloc(1, sizeof *p, "exchange", &p));
    if (st != DLRM_OK) dlrm_free(&p); /* closing is collective */
    TRY(st);
    *out = p;
    p->be = be;
    p->comm = comm;
    TRY(dlrm_comm_agree(comm, dlrm_alloc(comm->ranks, sizeof *flags, "exchange", &flags)));
    st = cuda_peers_share(p, comm->ranks * (int64_t)sizeof **p->flags, "exchange", flags);
    const bool reached = st == DLRM_OK && flags[comm->rank];
    if (reached) st = dlrm_comm_agree(comm, open_meeting(p, flags));
    dlrm_free(&flags);
    if (st == DLRM_OK && !reached) cuda_peers_close(out);
    return st;
}

void cuda_peers_meet(const cuda_peers *p)
{
    const cuda_impl *c = cuda_of(p->be);
    cuda_must(c, dlrm_cuda_meet(p->flags, p->comm->rank, p->comm->ranks, p->meetings, p->stop, c->beside.stream), "an exchange");
}

void cuda_peers_stop(cuda_peers *p)
{
    if (p && p->stop) *(volatile int *)p->stop = 1;
}

void cuda_peers_close(cuda_peers **pp)
{
    cuda_peers *p = *pp;
    if (!p) return;
    for (int i = 0; i < p->n; i++) unmap_all(p->comm, p->blocks[i]);
    dlrm_comm_barrier(p->comm); /* as above */
    for (int i = 0; i < MOST_SHARED; i++) {
        if (p->blocks[i]) cuda_release(p->be, &p->blocks[i][p->comm->rank]);
        dlrm_free(&p->blocks[i]);
    }
    cuda_release(p->be, &p->flags);
    cuda_release(p->be, &p->meetings);
    p->be->ops->release_host(p->be, &p->stop);
    dlrm_free(pp);
}
