#include "model/pick.h"

#include <omp.h>

#include "base/int64.h"

enum { CHUNKS = 64, CHUNK_SAMPLES = 1024 /* at least */ };

/* row_step as a factor of 64 bits that divides any id (Lemire, Kaser and Kurz, 2019). */
typedef struct picker {
    const dlrm_pick *p;
    const dlrm_ids *from;
    uint64_t reciprocal;
} picker;

static inline bool is_mine(const picker *k, uint32_t id, uint32_t *row)
{
    *row = (uint32_t)((unsigned __int128)k->reciprocal * id >> 64);
    return id - *row * k->p->row_step == k->p->first_row;
}

static int64_t first_id(const picker *k, int64_t sample)
{
    return k->from->offsets ? k->from->offsets[sample] : sample * k->p->hotness;
}

static int64_t count_rows(const picker *k, int64_t begin, int64_t end)
{
    int64_t n = 0;
    uint32_t row;
    const int64_t last = first_id(k, end);
    for (int64_t i = first_id(k, begin); i < last; i++) n += is_mine(k, k->from->ids[i], &row);
    return n;
}

/* Of samples [begin, end), whose rows are numbers [n, most) of all. Writes without asking whether an id is one of them, as that would be
 * guessed wrong every other time; what is no row is written over by the next. */
static void pick_samples(const picker *k, int64_t begin, int64_t end, int64_t n, int64_t most, uint32_t *ids, int64_t *offsets)
{
    const int vectors = k->p->vectors;
    for (int64_t s = begin; s < end; s++) {
        int64_t at = first_id(k, s);
        const int64_t bag_end = first_id(k, s + 1);
        for (int v = 0; v < vectors; v++) {
            const int64_t stop = vectors > 1 && at < bag_end ? at + 1 : bag_end;
            offsets[s * vectors + v] = n;
            for (; at < stop && n < most; at++) {
                uint32_t row;
                const bool mine = is_mine(k, k->from->ids[at], &row);
                ids[n] = row;
                n += mine;
            }
            at = stop;
        }
    }
}

int64_t dlrm_pick_rows(const dlrm_pick *p, const dlrm_ids *from, uint32_t *ids, int64_t *offsets)
{
    const picker k = {p, from, UINT64_MAX / p->row_step + 1};
    const int64_t samples = from->samples;
    const int chunks = omp_get_max_threads() == 1 ? 1 : (int)dlrm_min64(CHUNKS, samples / CHUNK_SAMPLES + 1);
    int64_t at[CHUNKS + 1] = {0};
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int c = 0; c < chunks; c++) at[c + 1] = count_rows(&k, samples * c / chunks, samples * (c + 1) / chunks);
    for (int c = 0; c < chunks; c++) at[c + 1] += at[c];
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int c = 0; c < chunks; c++) pick_samples(&k, samples * c / chunks, samples * (c + 1) / chunks, at[c], at[c + 1], ids, offsets);
    offsets[samples * p->vectors] = at[chunks];
    return at[chunks];
}
