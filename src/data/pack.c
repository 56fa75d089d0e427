#include "data/pack.h"

#include <string.h>

#include "base/mem.h"

int dlrm_pack_width(int64_t rows)
{
    int width = 1;
    while (width < 4 && (rows - 1) >> 8 * width) width++;
    return width;
}

#define NARROW(type)                                               \
    for (int64_t i = 0; i < n; i++) {                              \
        type v = (type)ids[i];                                     \
        memcpy((char *)out + i * (int64_t)sizeof v, &v, sizeof v); \
    }
#define WIDEN(type)                                                     \
    for (int64_t i = 0; i < n; i++) {                                   \
        type v;                                                         \
        memcpy(&v, (const char *)in + i * (int64_t)sizeof v, sizeof v); \
        ids[i] = v;                                                     \
    }

void dlrm_pack_ids(const uint32_t *restrict ids, int64_t n, int width, void *restrict out)
{
    unsigned char *to = out;
    switch (width) {
    case 1:
        NARROW(uint8_t)
        break;
    case 2:
        NARROW(uint16_t)
        break;
    case 3:
        for (int64_t i = 0; i < n - 1; i++, to += 3) memcpy(to, &ids[i], 4); /* the next one covers the fourth byte */
        if (n > 0) memcpy(to, &ids[n - 1], 3);
        break;
    default:
        memcpy(out, ids, (size_t)n * sizeof *ids);
    }
}

void dlrm_unpack_ids(const void *restrict in, int64_t n, int width, uint32_t *restrict ids)
{
    const unsigned char *from = in;
    switch (width) {
    case 1:
        WIDEN(uint8_t)
        break;
    case 2:
        WIDEN(uint16_t)
        break;
    case 3:
        for (int64_t i = 0; i < n - 1; i++, from += 3) {
            memcpy(&ids[i], from, 4);
            ids[i] &= 0xFFFFFF;
        }
        if (n > 0) ids[n - 1] = (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16;
        break;
    default:
        memcpy(ids, in, (size_t)n * sizeof *ids);
    }
}

dlrm_pack_args dlrm_pack_args_of(const dlrm_model_spec *spec, const dlrm_reader_args *a)
{
    return (dlrm_pack_args){
        .spec = spec, .ranks = a->ranks, .rank = a->rank, .wanted_by = a->wanted_by, .own_only = a->own_only};
}

static int input_width(const dlrm_model_spec *spec, int j)
{
    return dlrm_input_has_keys(spec, j) ? (int)sizeof(int64_t) : dlrm_pack_width(spec->tables[spec->inputs[j].table].rows);
}

static int64_t input_bytes(const dlrm_model_spec *spec, int j)
{
    return (int64_t)spec->inputs[j].hotness * input_width(spec, j);
}

/* Is input j in the block for rank r: among all ranks' ids, or (`own`) among those that a rank keeps to itself? */
static bool in_block(const dlrm_pack_args *a, int r, int j, bool own)
{
    const bool keeps = a->own_only && a->own_only[j];
    return a->wanted_by[(int64_t)r * a->spec->n_inputs + j] && keeps == own && (!own || r == a->rank);
}

static dlrm_status make_items(const dlrm_pack_args *a, dlrm_pack *p)
{
    const int J = a->spec->n_inputs;
    int64_t at = 0;
    int n = 0;
    TRY(dlrm_alloc(p->n_items, sizeof *p->items, "the exchange of ids", &p->items));
    TRY(dlrm_alloc(a->ranks + 1, sizeof *p->rank_at, "the exchange of ids", &p->rank_at));
    for (int r = 0; r < a->ranks; r++) {
        for (int k = 0; k < 2 * J; k++) {
            const int j = k % J;
            if (!in_block(a, r, j, k >= J)) continue;
            p->items[n++] = (dlrm_pack_item){.rank = r,
                                             .input = j,
                                             .width = input_width(a->spec, j),
                                             .at = at};
            at += input_bytes(a->spec, j);
            if (r == a->rank && k < J) p->received += input_bytes(a->spec, j);
        }
        p->rank_at[r + 1] = at;
    }
    return DLRM_OK;
}

dlrm_status dlrm_pack_open(const dlrm_pack_args *a, dlrm_pack *p)
{
    const int J = a->spec->n_inputs;
    *p = (dlrm_pack){.ranks = a->ranks, .rank = a->rank};
    for (int r = 0; r < a->ranks; r++)
        for (int j = 0; j < J; j++) p->n_items += in_block(a, r, j, false) || in_block(a, r, j, true);
    TRY(make_items(a, p));
    TRY(dlrm_alloc(p->n_items, sizeof *p->of_input, "the exchange of ids", &p->of_input));
    TRY(dlrm_alloc(J + 1, sizeof *p->input_at, "the exchange of ids", &p->input_at));
    for (int j = 0, k = 0; j < J; j++) {
        for (int i = 0; i < p->n_items; i++)
            if (p->items[i].input == j) p->of_input[k++] = i;
        p->input_at[j + 1] = k;
    }
    return DLRM_OK;
}

void dlrm_pack_close(dlrm_pack *p)
{
    dlrm_free(&p->items);
    dlrm_free(&p->rank_at);
    dlrm_free(&p->of_input);
    dlrm_free(&p->input_at);
}

int64_t dlrm_pack_sample_bytes(const dlrm_pack_args *a, int first, int end)
{
    int64_t bytes = 0;
    for (int r = first; r < end; r++)
        for (int j = 0; j < a->spec->n_inputs; j++)
            if (in_block(a, r, j, false) || in_block(a, r, j, true)) bytes += input_bytes(a->spec, j);
    return bytes;
}
