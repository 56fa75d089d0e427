#include "model/dictionary.h"

#include "base/mem.h"

/* Two slots of three are taken at most: a key that is not there is known as such after 5 slots on average. */
static int64_t slots_for(int64_t most)
{
    return most + (most + 1) / 2 + 1;
}

dlrm_status dlrm_dictionary_open(int64_t most, const dlrm_entry *entries, dlrm_dictionary *d)
{
    DLRM_ASSERT(most < (int64_t)1 << (64 - DLRM_FAR_BITS - DLRM_TAG_BITS));
    *d = (dlrm_dictionary){.entries = entries, .n_slots = slots_for(most)};
    return dlrm_alloc(d->n_slots, sizeof *d->slots, "the slots of a vocabulary", &d->slots);
}

void dlrm_dictionary_close(dlrm_dictionary *d)
{
    dlrm_free(&d->slots);
}

int64_t dlrm_dictionary_memory(int64_t most)
{
    return slots_for(most) * (int64_t)sizeof *((dlrm_dictionary *)0)->slots;
}

static uint64_t slot_of(int64_t entry, int64_t far, uint64_t hash)
{
    const uint64_t tag = hash & (((uint64_t)1 << DLRM_TAG_BITS) - 1);
    return ((uint64_t)entry << DLRM_FAR_BITS | (uint64_t)(far < DLRM_FAR ? far : DLRM_FAR)) << DLRM_TAG_BITS | tag;
}

/* Slots from `from` on to `to`, round the end. */
static int64_t distance(const dlrm_dictionary *d, int64_t from, int64_t to)
{
    return to >= from ? to - from : to + d->n_slots - from;
}

/* Of what stands there, from its key's home. */
static int64_t far_of(const dlrm_dictionary *d, int64_t at)
{
    const int64_t far = (int64_t)(d->slots[at] >> DLRM_TAG_BITS & DLRM_FAR);
    if (far < DLRM_FAR) return far;
    const int64_t key = d->entries[dlrm_dictionary_entry(d, at)].key;
    return distance(d, dlrm_dictionary_home(d, dlrm_dictionary_hash(key)), at);
}

void dlrm_dictionary_add(dlrm_dictionary *d, int64_t key, int64_t entry)
{
    const uint64_t hash = dlrm_dictionary_hash(key);
    const int64_t home = dlrm_dictionary_home(d, hash);
    int64_t at = home;
    while (d->slots[at] != 0) at = dlrm_dictionary_after(d, at);
    d->slots[at] = slot_of(entry, distance(d, home, at), hash);
}

/* What stands behind the hole, up to the next empty slot, moves up where a search for it would come past the hole. */
void dlrm_dictionary_remove(dlrm_dictionary *d, int64_t key)
{
    const uint64_t hash = dlrm_dictionary_hash(key);
    int64_t hole = dlrm_dictionary_home(d, hash);
    const int64_t entry = dlrm_dictionary_reach(d, key, hash, &hole);
    DLRM_ASSERT(entry != 0);
    for (int64_t at = dlrm_dictionary_after(d, hole); d->slots[at] != 0; at = dlrm_dictionary_after(d, at)) {
        const int64_t far = far_of(d, at), nearer = distance(d, hole, at);
        if (far < nearer) continue;
        d->slots[hole] = slot_of(dlrm_dictionary_entry(d, at), far - nearer, d->slots[at]);
        hole = at;
    }
    d->slots[hole] = 0;
}
