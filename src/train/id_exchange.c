#include "train/id_exchange.h"

#include <string.h>

#include "base/mem.h"
#include "base/tree.h"
#include "data/pack.h"

struct dlrm_id_exchange {
    dlrm_comm *comm;
    const dlrm_model_spec *spec;
    dlrm_reader_args args;
    dlrm_pack pack;
    int64_t *send_at, *recv_at; /* [ranks+1] bytes, of the batch in flight */
    int64_t *sample_at;         /* [ranks+1] */
    char *recv;
    char *ids; /* of all inputs wanted, [batch_size][hotness] each, of 32 bits; first the keys, of 64 */
    int64_t id_bytes;
    dlrm_ids *inputs;       /* [n_inputs] */
    const dlrm_batch *sent; /* in flight */
    dlrm_batch batch;       /* the one finished last */
    bool in_flight;
};

/* Samples of a batch whose ids of input j a rank gets, at most. */
static int64_t most_samples(const dlrm_reader_args *a, int j)
{
    int64_t begin, own = a->batch_size;
    if (a->own_only && a->own_only[j]) {
        dlrm_cut_samples(a->batch_size, a->rank, a->ranks, a->deterministic, a->chunks, &begin, &own);
        own++; /* a short batch can be cut so that it has one more */
    }
    return a->wanted[j] ? own : 0;
}

/* Bytes of input j. */
static int64_t room(const dlrm_model_spec *spec, const dlrm_reader_args *a, int j)
{
    return most_samples(a, j) * spec->inputs[j].hotness * (int64_t)(dlrm_input_has_keys(spec, j) ? sizeof(int64_t) : sizeof(uint32_t));
}

static int64_t id_bytes(const dlrm_model_spec *spec, const dlrm_reader_args *a)
{
    int64_t n = 0;
    for (int j = 0; j < spec->n_inputs; j++) n += room(spec, a, j);
    return n;
}

static int64_t recv_bytes(const dlrm_model_spec *spec, const dlrm_reader_args *a)
{
    const dlrm_pack_args packs = dlrm_pack_args_of(spec, a);
    return (a->batch_size + 1) * dlrm_pack_sample_bytes(&packs, a->rank, a->rank + 1);
}

int64_t dlrm_id_exchange_memory(const dlrm_model_spec *spec, const dlrm_reader_args *a)
{
    return recv_bytes(spec, a) + id_bytes(spec, a);
}

int64_t dlrm_id_exchange_sample_bytes(const dlrm_model_spec *spec, const dlrm_reader_args *a)
{
    const dlrm_pack_args packs = dlrm_pack_args_of(spec, a);
    return dlrm_pack_sample_bytes(&packs, 0, a->ranks) - dlrm_pack_sample_bytes(&packs, a->rank, a->rank + 1);
}

static dlrm_status set_up(dlrm_id_exchange *x)
{
    const dlrm_reader_args *a = &x->args;
    int64_t at = 0;
    const dlrm_pack_args packs = dlrm_pack_args_of(x->spec, a);
    x->id_bytes = id_bytes(x->spec, a);
    TRY(dlrm_pack_open(&packs, &x->pack));
    TRY(dlrm_alloc(a->ranks + 1, sizeof *x->send_at, "the exchange of ids", &x->send_at));
    TRY(dlrm_alloc(a->ranks + 1, sizeof *x->recv_at, "the exchange of ids", &x->recv_at));
    TRY(dlrm_alloc(a->ranks + 1, sizeof *x->sample_at, "the exchange of ids", &x->sample_at));
    TRY(dlrm_alloc(recv_bytes(x->spec, a), 1, "ids received", &x->recv));
    TRY(dlrm_alloc(x->id_bytes, 1, "ids received", &x->ids));
    TRY(dlrm_alloc(x->spec->n_inputs, sizeof *x->inputs, "a batch's inputs", &x->inputs));
    for (int k = 0; k < 2 * x->spec->n_inputs; k++) {
        const int j = k % x->spec->n_inputs;
        const bool keys = k < x->spec->n_inputs;
        if (!a->wanted[j] || dlrm_input_has_keys(x->spec, j) != keys) continue;
        if (keys)
            x->inputs[j].keys = (int64_t *)(void *)(x->ids + at);
        else
            x->inputs[j].ids = (uint32_t *)(void *)(x->ids + at);
        at += room(x->spec, a, j);
    }
    return DLRM_OK;
}

dlrm_status dlrm_id_exchange_open(dlrm_comm *comm, const dlrm_model_spec *spec, const dlrm_reader_args *args,
                                  dlrm_id_exchange **out)
{
    dlrm_id_exchange *x;
    TRY(dlrm_alloc(1, sizeof *x, "the exchange of ids", &x));
    *x = (dlrm_id_exchange){.comm = comm, .spec = spec, .args = *args};
    *out = x;
    dlrm_status st = set_up(x);
    if (st != DLRM_OK) dlrm_id_exchange_close(out);
    return st;
}

void dlrm_id_exchange_close(dlrm_id_exchange **xp)
{
    dlrm_id_exchange *x = *xp;
    if (!x) return;
    if (x->in_flight) dlrm_comm_alltoallv_finish(x->comm);
    dlrm_pack_close(&x->pack);
    dlrm_free(&x->send_at);
    dlrm_free(&x->recv_at);
    dlrm_free(&x->sample_at);
    dlrm_free(&x->recv);
    dlrm_free(&x->ids);
    dlrm_free(&x->inputs);
    dlrm_free(xp);
}

void *dlrm_id_exchange_block(dlrm_id_exchange *x, size_t *bytes)
{
    *bytes = (size_t)x->id_bytes;
    return x->ids;
}

void dlrm_id_exchange_start(dlrm_id_exchange *x, const dlrm_batch *b)
{
    const dlrm_reader_args *a = &x->args;
    const int me = a->rank;
    const int64_t kept = x->pack.rank_at[me + 1] - x->pack.rank_at[me]; /* bytes of a sample */
    DLRM_ASSERT(!x->in_flight && b->packed);
    for (int p = 0; p < a->ranks; p++) {
        int64_t own;
        dlrm_cut_samples(b->size, p, a->ranks, a->deterministic, a->chunks, &x->sample_at[p], &own);
        x->sample_at[p + 1] = x->sample_at[p] + own;
        x->recv_at[p + 1] = x->recv_at[p] + own * (p == me ? kept : x->pack.received);
        x->send_at[p + 1] = b->own * x->pack.rank_at[p + 1];
    }
    x->sent = b;
    dlrm_comm_alltoallv_start(x->comm, b->packed, x->send_at, x->recv, x->recv_at);
    x->in_flight = true;
}

const dlrm_batch *dlrm_id_exchange_finish(dlrm_id_exchange *x)
{
    const dlrm_reader_args *a = &x->args;
    const int64_t before = x->pack.rank_at[a->rank];
    DLRM_ASSERT(x->in_flight);
    dlrm_comm_alltoallv_finish(x->comm);
    x->in_flight = false;
    x->batch = *x->sent;
    for (int k = 0; k < x->pack.n_items; k++) {
        const dlrm_pack_item *item = &x->pack.items[k];
        if (item->rank != a->rank) continue;
        dlrm_ids *in = &x->inputs[item->input];
        const int64_t hotness = x->spec->inputs[item->input].hotness;
        const bool own_only = a->own_only && a->own_only[item->input];
        in->first = own_only ? x->batch.begin : 0;
        in->samples = own_only ? x->batch.own : x->batch.size;
        in->count = in->samples * hotness;
        for (int p = own_only ? a->rank : 0; p < (own_only ? a->rank + 1 : a->ranks); p++) {
            const int64_t first = x->sample_at[p], own = x->sample_at[p + 1] - first;
            const char *from = x->recv + x->recv_at[p] + own * (item->at - before);
            if (in->keys)
                memcpy(in->keys + (first - in->first) * hotness, from, (size_t)(own * hotness) * sizeof *in->keys);
            else
                dlrm_unpack_ids(from, own * hotness, item->width, in->ids + (first - in->first) * hotness);
        }
    }
    x->batch.inputs = x->inputs;
    return &x->batch;
}
