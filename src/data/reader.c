/* A reader: a thread that fills a ring of batches ahead of the trainer. Batch number q, counted over epochs, stands in
 * slot q % n_slots. The trainer holds the batch handed out last (two, while ids travel); the thread may fill all other
 * slots. A ring as long as an epoch lets a source whose batches are dear make each of them once. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/tree.h"
#include "data/pack.h"
#include "data/source.h"

enum { MIN_SLOTS = 3, KEPT_SHARE = 32 };
#define KEPT_MOST ((int64_t)4 << 30) /* a kept epoch takes at most these bytes and 1/32 of the machine's memory */

typedef struct slot {
    dlrm_batch batch;
    char *values;  /* all that the batch points to */
    int64_t bytes; /* read from files to fill it */
    bool kept;     /* filled, and never to be filled again */
} slot;

struct dlrm_reader {
    const dlrm_dataset *d;
    dlrm_reader_args args;
    bool *wanted, *own_only;
    void *state; /* of the source */
    dlrm_epoch epoch;
    int64_t end; /* number after the last batch of the last epoch */
    int held;    /* batches that stay with the trainer, the last one handed out among them */
    int n_slots;
    slot *slots;
    int64_t slot_bytes;
    bool keep;

    bool started;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the next three; a slot belongs to the side that they say */
    pthread_cond_t changed;
    int64_t filled, handed; /* number of the next batch to fill, to hand out */
    bool stop;

    int64_t bytes; /* the trainer's side */
};

/* --- memory --- */

/* Lays a batch out in one block at `at` and returns the block's size; b and `at` NULL: measures it. */
static int64_t lay_out(const dlrm_reader *r, int64_t own, dlrm_batch *b, char *at)
{
    const dlrm_model_spec *spec = r->d->spec;
    int64_t used = 0;
#define PLACE(pointer, count)                                          \
    do {                                                               \
        if (at) (pointer) = (void *)(at + used);                       \
        used += ((count) * (int64_t)sizeof *(pointer) + 63) / 64 * 64; \
    } while (0)
    PLACE(b->labels, own);
    PLACE(b->dense, own * spec->dense_features);
    if (r->d->source->packs) {
        const dlrm_pack_args packs = dlrm_pack_args_of(spec, &r->args);
        const int64_t bytes = own * dlrm_pack_sample_bytes(&packs, 0, r->args.ranks);
        if (at) b->packed = at + used;
        return used + (bytes + 63) / 64 * 64;
    }
    for (int j = 0; j < spec->n_inputs; j++) {
        if (!r->args.wanted[j]) continue;
        const int64_t samples = r->args.own_only && r->args.own_only[j] ? own : r->args.batch_size;
        if (spec->inputs[j].variable) PLACE(b->inputs[j].offsets, samples + 1);
        if (dlrm_input_has_keys(spec, j))
            PLACE(b->inputs[j].keys, samples * spec->inputs[j].hotness);
        else
            PLACE(b->inputs[j].ids, samples * spec->inputs[j].hotness);
    }
#undef PLACE
    return used;
}

/* How many slots, and how large. */
static void plan_memory(dlrm_reader *r)
{
    r->slot_bytes = lay_out(r, dlrm_epoch_most_own(r->d, &r->args), NULL, NULL);
    r->held = r->d->source->packs ? 2 : 1;
    r->n_slots = MIN_SLOTS + r->held - 1;
    int64_t most = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / KEPT_SHARE;
    if (most > KEPT_MOST) most = KEPT_MOST;
    if (r->d->source->keeps && r->epoch.batches <= most / (r->slot_bytes + (int64_t)sizeof(slot))) {
        r->keep = true; /* a whole number of epochs, so that a slot always stands for the same batch */
        r->n_slots = (int)(r->epoch.batches * ((MIN_SLOTS + r->epoch.batches - 1) / r->epoch.batches));
    }
}

int64_t dlrm_dataset_reader_memory(const dlrm_dataset *d, const dlrm_reader_args *args)
{
    dlrm_reader r = {.d = d, .args = *args, .epoch = dlrm_epoch_of(d, args)};
    plan_memory(&r);
    return r.n_slots * (r.slot_bytes + (int64_t)sizeof(slot)) + (args->shuffle ? d->source->shuffle_memory(d, args) : 0);
}

static dlrm_status take_memory(dlrm_reader *r)
{
    int n_inputs = r->d->spec->n_inputs;
    int64_t own = dlrm_epoch_most_own(r->d, &r->args);
    plan_memory(r);
    TRY(dlrm_alloc(r->n_slots, sizeof *r->slots, "the batches read ahead", &r->slots));
    for (int i = 0; i < r->n_slots; i++) {
        slot *s = &r->slots[i];
        TRY(dlrm_alloc(n_inputs, sizeof *s->batch.inputs, "a batch's inputs", &s->batch.inputs));
        TRY(dlrm_alloc(r->slot_bytes, 1, "a batch read ahead", &s->values));
        lay_out(r, own, &s->batch, s->values);
    }
    return DLRM_OK;
}

/* --- the thread --- */

/* Zeros are valid labels, dense values, ids and empty bags alike. */
static void blank(const dlrm_reader *r, slot *s)
{
    memset(s->values, 0, (size_t)r->slot_bytes);
    for (int j = 0; j < r->d->spec->n_inputs; j++) {
        const dlrm_input *input = &r->d->spec->inputs[j];
        if (r->wanted[j] && !r->d->source->packs) s->batch.inputs[j].count = input->variable ? 0 : s->batch.inputs[j].samples * input->hotness;
    }
}

static void fill(dlrm_reader *r, slot *s, int64_t number)
{
    const dlrm_reader_args *a = &r->args;
    dlrm_batch *b = &s->batch;
    if (s->kept) return;
    b->epoch = number / r->epoch.batches;
    b->first_row = number % r->epoch.batches * a->batch_size;
    b->size = r->epoch.rows - b->first_row < a->batch_size ? r->epoch.rows - b->first_row : a->batch_size;
    dlrm_cut_samples(b->size, a->rank, a->ranks, a->deterministic, a->chunks, &b->begin, &b->own);
    for (int j = 0; j < r->d->spec->n_inputs; j++) {
        b->inputs[j].first = r->own_only[j] ? b->begin : 0;
        b->inputs[j].samples = r->own_only[j] ? b->own : b->size;
    }
    b->clamped = 0;
    b->message[0] = '\0';
    s->bytes = 0;
    b->status = r->d->source->fill(r->state, b, &s->bytes);
    s->kept = r->keep && b->status == DLRM_OK;
    if (b->status == DLRM_OK) return;
    snprintf(b->message, sizeof b->message, "%s", dlrm_error_message());
    blank(r, s);
}

/* Waits until batch r->filled has a free slot; false: no more to do. */
static bool wait_for_slot(dlrm_reader *r)
{
    pthread_mutex_lock(&r->mutex);
    while (!r->stop && r->filled < r->end && r->filled >= r->handed - r->held + r->n_slots)
        pthread_cond_wait(&r->changed, &r->mutex);
    bool more = !r->stop && r->filled < r->end;
    pthread_mutex_unlock(&r->mutex);
    return more;
}

static void *read_ahead(void *arg)
{
    dlrm_reader *r = arg;
    while (wait_for_slot(r)) {
        fill(r, &r->slots[r->filled % r->n_slots], r->filled); /* only this thread changes r->filled */
        pthread_mutex_lock(&r->mutex);
        r->filled++;
        pthread_cond_signal(&r->changed);
        pthread_mutex_unlock(&r->mutex);
    }
    return NULL;
}

/* --- the trainer's side --- */

static dlrm_status set_up(dlrm_reader *r, const dlrm_reader_args *args)
{
    int n = r->d->spec->n_inputs;
    TRY(dlrm_alloc(n, sizeof *r->wanted, "the inputs of a reader", &r->wanted));
    memcpy(r->wanted, args->wanted, (size_t)n * sizeof *r->wanted);
    r->args.wanted = r->wanted;
    TRY(dlrm_alloc(n, sizeof *r->own_only, "the inputs of a reader", &r->own_only));
    if (args->own_only) memcpy(r->own_only, args->own_only, (size_t)n * sizeof *r->own_only);
    r->args.own_only = r->own_only;
    r->epoch = dlrm_epoch_of(r->d, args);
    if (args->epochs == 0 || __builtin_mul_overflow(args->epochs, r->epoch.batches, &r->end)) r->end = INT64_MAX;
    r->filled = r->handed = args->first_batch;
    TRY(take_memory(r));
    TRY(r->d->source->open(r->d, &r->args, &r->state));
    TRY(dlrm_thread_start(&r->thread, read_ahead, r, "reads ahead"));
    r->started = true;
    return DLRM_OK;
}

dlrm_status dlrm_reader_open(dlrm_dataset *d, const dlrm_reader_args *args, dlrm_reader **out)
{
    *out = NULL;
    DLRM_ASSERT(d->rows[args->split] > 0 && args->batch_size > 0 && (!args->shuffle || d->source->shuffle_memory));
    dlrm_reader *r;
    TRY(dlrm_alloc(1, sizeof *r, "a reader", &r));
    r->d = d;
    r->args = *args;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
    dlrm_status st = set_up(r, args);
    if (st == DLRM_OK)
        *out = r;
    else
        dlrm_reader_close(&r);
    return st;
}

void dlrm_reader_close(dlrm_reader **reader)
{
    dlrm_reader *r = *reader;
    if (!r) return;
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    if (r->started) pthread_join(r->thread, NULL);
    r->d->source->close(&r->state);
    for (int i = 0; r->slots && i < r->n_slots; i++) {
        dlrm_free(&r->slots[i].batch.inputs);
        dlrm_free(&r->slots[i].values);
    }
    dlrm_free(&r->slots);
    dlrm_free(&r->wanted);
    dlrm_free(&r->own_only);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    dlrm_free(reader);
}

dlrm_status dlrm_reader_each_block(dlrm_reader *r, dlrm_status (*f)(void *ctx, void *block, size_t bytes), void *ctx)
{
    for (int i = 0; i < r->n_slots; i++) TRY(f(ctx, r->slots[i].values, (size_t)r->slot_bytes));
    return DLRM_OK;
}

const dlrm_batch *dlrm_reader_next(dlrm_reader *r, bool *epoch_end)
{
    *epoch_end = false;
    if (r->handed >= r->end) return NULL;
    pthread_mutex_lock(&r->mutex);
    int64_t number = r->handed++; /* gives back the batch handed out before */
    pthread_cond_signal(&r->changed);
    while (r->filled <= number) pthread_cond_wait(&r->changed, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
    const slot *s = &r->slots[number % r->n_slots];
    r->bytes += s->bytes;
    *epoch_end = (number + 1) % r->epoch.batches == 0;
    return &s->batch;
}

int64_t dlrm_reader_bytes(const dlrm_reader *r)
{
    return r->bytes;
}
