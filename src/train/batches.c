#include "train/batches.h"

static dlrm_status pin(void *be, void *block, size_t bytes)
{
    return ((dlrm_backend *)be)->ops->pin(be, block, bytes);
}

static dlrm_status unpin(void *be, void *block, size_t bytes)
{
    (void)bytes;
    ((dlrm_backend *)be)->ops->unpin(be, block);
    return DLRM_OK;
}

static dlrm_status each_block(dlrm_batches *b, dlrm_status (*f)(void *ctx, void *block, size_t bytes))
{
    size_t bytes;
    if (b->reader) TRY(dlrm_reader_each_block(b->reader, f, &b->s->be));
    if (!b->exchange) return DLRM_OK;
    void *block = dlrm_id_exchange_block(b->exchange, &bytes);
    return bytes > 0 ? f(&b->s->be, block, bytes) : DLRM_OK;
}

dlrm_status dlrm_batches_open(dlrm_session *s, const dlrm_reader_args *args, dlrm_batches *b)
{
    *b = (dlrm_batches){.s = s};
    if (dlrm_dataset_exchanges(s->data)) TRY(dlrm_id_exchange_open(s->comm, &s->spec, args, &b->exchange));
    TRY(dlrm_reader_open(s->data, args, &b->reader));
    return each_block(b, pin);
}

void dlrm_batches_close(dlrm_batches *b)
{
    if (!b->s) return;
    if (b->reader) {
        b->s->be.ops->feed_wait(&b->s->be);
        (void)!each_block(b, unpin);
    }
    dlrm_id_exchange_close(&b->exchange);
    dlrm_reader_close(&b->reader);
    *b = (dlrm_batches){0};
}

void dlrm_batches_ahead(dlrm_batches *b)
{
    if (!b->exchange || b->ahead) return;
    const dlrm_batch *batch = dlrm_reader_next(b->reader, &b->ahead_ends);
    DLRM_ASSERT(batch);
    dlrm_id_exchange_start(b->exchange, batch);
    b->ahead = true;
}

const dlrm_batch *dlrm_batches_next(dlrm_batches *b, bool *epoch_end)
{
    if (!b->exchange) return dlrm_reader_next(b->reader, epoch_end);
    dlrm_batches_ahead(b);
    *epoch_end = b->ahead_ends;
    b->ahead = false;
    return dlrm_id_exchange_finish(b->exchange);
}

int64_t dlrm_batches_bytes(const dlrm_batches *b)
{
    return b->reader ? dlrm_reader_bytes(b->reader) : 0;
}
