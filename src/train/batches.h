/* Batches as the model takes them: a reader's and, where it reads a row format, with their ids exchanged. Collective. */
#pragma once
#include "train/id_exchange.h"
#include "train/session.h"

typedef struct dlrm_batches {
    dlrm_session *s;
    dlrm_reader *reader;
    dlrm_id_exchange *exchange; /* NULL: nothing to exchange */
    bool ahead;                 /* the next batch's ids are on their way */
    bool ahead_ends;            /* it is the last of its epoch */
} dlrm_batches;

/* args stays valid until close. Page-locks the memory that batches lie in, for devices that copy from it. */
dlrm_status dlrm_batches_open(dlrm_session *s, const dlrm_reader_args *args, dlrm_batches *out) DLRM_MUST_USE;
/* Copes with {0}. */
void dlrm_batches_close(dlrm_batches *b);
/* Has the next batch's ids sent while other things are done, if there is something to send; there must be a next batch. */
void dlrm_batches_ahead(dlrm_batches *b);
/* As dlrm_reader_next. The batch before is given back: no device may still copy from it (feed_wait). */
const dlrm_batch *dlrm_batches_next(dlrm_batches *b, bool *epoch_end);
int64_t dlrm_batches_bytes(const dlrm_batches *b); /* file bytes read so far */
