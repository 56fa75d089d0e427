#include "model/dictionary.h"

#include "base/mem.h"

/* Two slots of three are taken at most: a key that is not there is known as such after 5 slots on average. */
static int64_t slots_for(int64_t most)
{
    return most + (most + 1) / 2 + 1;
}

dlrm_status dlrm_dictionary_open(int64_t most, const dlrm_entry *entries, dlrm_dictionary *d)
{
    DLRM_ASSERT(most < (int64_t)1 << (64 - DLRM_TAG_BITS));
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

void dlrm_dictionary_add(dlrm_dictionary *d, int64_t key, int64_t entry)
{
    const uint64_t hash = dlrm_dictionary_hash(key);
    int64_t at = dlrm_dictionary_home(d, hash);
    while (d->slots[at] != 0) at = dlrm_dictionary_after(d, at);
    d->slots[at] = (uint64_t)entry << DLRM_TAG_BITS | (hash & (((uint64_t)1 << DLRM_TAG_BITS) - 1));
}

/* What stands behind the hole, up to the next empty slot, moves up where a search for it would come past the hole. */
void dlrm_dictionary_remove(dlrm_dictionary *d, int64_t key)
{
    const uint64_t hash = dlrm_dictionary_hash(key);
    int64_t hole = dlrm_dictionary_home(d, hash);
    const int64_t entry = dlrm_dictionary_reach(d, key, hash, &hole);
    DLRM_ASSERT(entry != 0);
    for (int64_t at = dlrm_dictionary_after(d, hole); d->slots[at] != 0; at = dlrm_dictionary_after(d, at)) {
        const int64_t home = dlrm_dictionary_home(d, dlrm_dictionary_hash(d->entries[d->slots[at] >> DLRM_TAG_BITS].key));
        const bool past = hole <= at ? home <= hole || home > at : home <= hole && home > at;
        if (!past) continue;
        d->slots[hole] = d->slots[at];
        hole = at;
    }
    d->slots[hole] = 0;
}
