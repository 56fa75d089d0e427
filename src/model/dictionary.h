/* From keys of 64 bits to the numbers of their entries: open addressing, linear probing, nothing left behind by a removal.
 * A slot holds an entry's number and a tag, bits of the key's hash, so that an entry is looked at where it is most likely
 * the right one: a key that is there costs one cache line of slots and one of entries, and both can be asked for ahead. And it says
 * how far it is from where a search for its key begins, so that a removal moves up what stands behind without looking at entries. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A key and what is known of it. */
typedef struct dlrm_entry {
    int64_t key;
    uint32_t count; /* occurrences, at most 2^32 - 1; 0: nobody's entry */
    uint32_t last;  /* batch that used it last, from 1 */
} dlrm_entry;

typedef struct dlrm_dictionary {
    const dlrm_entry *entries; /* the owner's; entry 0 is never in the dictionary */
    uint64_t *slots;           /* [n_slots]; 0: empty */
    int64_t n_slots;
} dlrm_dictionary;

/* A slot, from its high bits down: the entry's number; how many slots it lies behind its key's home (DLRM_FAR: so many or more);
 * the tag. */
enum { DLRM_TAG_BITS = 24, DLRM_FAR_BITS = 6, DLRM_FAR = (1 << DLRM_FAR_BITS) - 1 };

/* For at most `most` keys at a time. entries: borrowed. */
dlrm_status dlrm_dictionary_open(int64_t most, const dlrm_entry *entries, dlrm_dictionary *out) DLRM_MUST_USE;
void dlrm_dictionary_close(dlrm_dictionary *d); /* copes with {0} */
int64_t dlrm_dictionary_memory(int64_t most);

/* A one-to-one map of the key (two rounds of multiplying and folding), all bits of which count. */
static inline uint64_t dlrm_dictionary_hash(int64_t key)
{
    uint64_t h = (uint64_t)key;
    h = (h ^ h >> 32) * 0xE9846AF9B1A615DDu;
    h = (h ^ h >> 32) * 0xE9846AF9B1A615DDu;
    return h ^ h >> 28;
}

/* The slot at which the search for it begins. */
static inline int64_t dlrm_dictionary_home(const dlrm_dictionary *d, uint64_t hash)
{
    return (int64_t)((unsigned __int128)hash * (uint64_t)d->n_slots >> 64);
}

static inline int64_t dlrm_dictionary_after(const dlrm_dictionary *d, int64_t at)
{
    return at + 1 < d->n_slots ? at + 1 : 0;
}

/* Of what stands in the slot. */
static inline int64_t dlrm_dictionary_entry(const dlrm_dictionary *d, int64_t at)
{
    return (int64_t)(d->slots[at] >> (DLRM_FAR_BITS + DLRM_TAG_BITS));
}

/* From slot *at on, the entry of the first one with the hash's tag; *at is that slot. 0: an empty slot comes before. */
static inline int64_t dlrm_dictionary_probe(const dlrm_dictionary *d, uint64_t hash, int64_t *at)
{
    const uint64_t mask = ((uint64_t)1 << DLRM_TAG_BITS) - 1;
    while (d->slots[*at] != 0 && ((d->slots[*at] ^ hash) & mask) != 0) *at = dlrm_dictionary_after(d, *at);
    return dlrm_dictionary_entry(d, *at);
}

/* The same, to the key itself: goes on where the tag was right by chance. */
static inline int64_t dlrm_dictionary_reach(const dlrm_dictionary *d, int64_t key, uint64_t hash, int64_t *at)
{
    int64_t entry = dlrm_dictionary_probe(d, hash, at);
    while (entry != 0 && d->entries[entry].key != key) {
        *at = dlrm_dictionary_after(d, *at);
        entry = dlrm_dictionary_probe(d, hash, at);
    }
    return entry;
}

/* The key's entry; 0: it has none. */
static inline int64_t dlrm_dictionary_find(const dlrm_dictionary *d, int64_t key)
{
    const uint64_t hash = dlrm_dictionary_hash(key);
    int64_t at = dlrm_dictionary_home(d, hash);
    return dlrm_dictionary_reach(d, key, hash, &at);
}

/* The key, which has no entry, gets this one. */
void dlrm_dictionary_add(dlrm_dictionary *d, int64_t key, int64_t entry);
/* The key, which has an entry, is in no dictionary any more; its entry may be overwritten afterwards. */
void dlrm_dictionary_remove(dlrm_dictionary *d, int64_t key);
