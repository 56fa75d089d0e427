#include "sort64.h"

enum { SMALL = 48 }; /* below it, insertion sort is faster than 256 counters */

static void insertion_sort(uint64_t *v, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t x = v[i];
        int64_t j = i;
        for (; j > 0 && v[j - 1] > x; j--) v[j] = v[j - 1];
        v[j] = x;
    }
}

static void sort_by_byte(uint64_t *v, int64_t n, int shift)
{
    if (n < SMALL) {
        insertion_sort(v, n);
        return;
    }
    int64_t next[256], end[256], count[256] = {0};
    for (int64_t i = 0; i < n; i++) count[v[i] >> shift & 255]++;
    int64_t at = 0;
    for (int b = 0; b < 256; b++) {
        next[b] = at;
        end[b] = at += count[b];
    }
    for (int b = 0; b < 256; b++) {
        while (next[b] < end[b]) { /* carries each word to its place until one that belongs here comes back */
            uint64_t x = v[next[b]];
            for (int d = (int)(x >> shift & 255); d != b; d = (int)(x >> shift & 255)) {
                uint64_t other = v[next[d]];
                v[next[d]++] = x;
                x = other;
            }
            v[next[b]++] = x;
        }
    }
    if (shift == 0) return;
    for (int b = 0; b < 256; b++)
        if (count[b] > 1) sort_by_byte(v + end[b] - count[b], count[b], shift - 8);
}

void dlrm_sort64(uint64_t *v, int64_t n)
{
    sort_by_byte(v, n, 56);
}

/* The word sorted has 32 bits of the key and its number; keys that are equal in these bits are put right afterwards. */
void dlrm_sort_keys(const uint64_t *key, int bits, int64_t n, uint64_t *word, uint32_t *order)
{
    for (int64_t i = 0; i < n; i++) word[i] = (key[i] << bits >> 32) << 32 | (uint64_t)i;
    dlrm_sort64(word, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)word[i];
        int64_t j = i;
        for (; j > 0 && word[j - 1] >> 32 == word[i] >> 32 && key[order[j - 1]] > key[at]; j--) order[j] = order[j - 1];
        order[j] = at;
    }
}
