#include "shape.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

dlrm_status dlrm_shape_open(int n_dense, int n_features, dlrm_shape *out)
{
    *out = (dlrm_shape){.n_dense = n_dense, .n_features = n_features};
    TRY(dlrm_alloc(n_features, sizeof *out->features, "the features", &out->features));
    for (int f = 0; f < n_features; f++) {
        snprintf(out->features[f].name, sizeof out->features[f].name, "cat_%d", f);
        out->features[f].hotness = 1;
    }
    dlrm_shape_settle(out);
    return DLRM_OK;
}

dlrm_status dlrm_shape_copy(const dlrm_shape *from, dlrm_shape *out)
{
    *out = *from;
    out->features = NULL;
    TRY(dlrm_alloc(from->n_features, sizeof *out->features, "the features", &out->features));
    memcpy(out->features, from->features, (size_t)from->n_features * sizeof *out->features);
    return DLRM_OK;
}

void dlrm_shape_clear(dlrm_shape *s)
{
    dlrm_free(&s->features);
}

int64_t dlrm_shape_values(const dlrm_shape *s)
{
    int64_t n = 0;
    for (int f = 0; f < s->n_features; f++) n += s->features[f].hotness / (s->features[f].keys ? 2 : 1);
    return n;
}

dlrm_status dlrm_shape_refuse_keys(const dlrm_shape *s, const char *what)
{
    for (int f = 0; f < s->n_features; f++)
        if (s->features[f].keys)
            return FAIL(DLRM_E_INPUT, "feature %s: keys of 64 bits, which %s; split_binary has them", s->features[f].name, what);
    return DLRM_OK;
}

void dlrm_shape_settle(dlrm_shape *s)
{
    s->n_ids = 0;
    s->variable = false;
    for (int f = 0; f < s->n_features; f++) {
        s->features[f].first = s->n_ids;
        s->n_ids += s->features[f].hotness;
        s->variable |= s->features[f].variable;
    }
}

static int64_t widest(const dlrm_shape *s)
{
    int64_t most = s->n_dense > 1 ? s->n_dense : 1;
    for (int f = 0; f < s->n_features; f++)
        if (s->features[f].hotness > most) most = s->features[f].hotness;
    return most;
}

int64_t dlrm_stretch_row_bytes(const dlrm_shape *s)
{
    return 1 + 4 * (s->n_dense + s->n_ids + (s->variable ? s->n_features : 0) + widest(s));
}

dlrm_status dlrm_stretch_open(const dlrm_shape *s, int64_t capacity, dlrm_stretch *out)
{
    dlrm_status st;
    *out = (dlrm_stretch){.capacity = capacity};
    TRY_TO(fail, st, dlrm_alloc(capacity, 1, "rows", &out->labels));
    TRY_TO(fail, st, dlrm_alloc(capacity * s->n_dense, 4, "rows", &out->dense));
    TRY_TO(fail, st, dlrm_alloc(capacity * s->n_ids, 4, "rows", &out->ids));
    TRY_TO(fail, st, dlrm_alloc(capacity * widest(s), 4, "rows", &out->scratch));
    if (s->variable) TRY_TO(fail, st, dlrm_alloc(capacity * s->n_features, 4, "rows", &out->lengths));
    return DLRM_OK;
fail:
    dlrm_stretch_close(out);
    return st;
}

void dlrm_stretch_close(dlrm_stretch *b)
{
    dlrm_free(&b->labels);
    dlrm_free(&b->dense);
    dlrm_free(&b->ids);
    dlrm_free(&b->lengths);
    dlrm_free(&b->scratch);
}

int64_t dlrm_packed_bytes(const dlrm_shape *s)
{
    return 4 * (1 + s->n_dense + s->n_ids + (s->variable ? s->n_features : 0));
}

void dlrm_pack_row(const dlrm_shape *s, const dlrm_stretch *b, int64_t i, void *out)
{
    uint32_t *to = out;
    *to++ = b->labels[i];
    memcpy(to, (const char *)b->dense + i * s->n_dense * 4, (size_t)s->n_dense * 4);
    to += s->n_dense;
    for (int f = 0; f < s->n_features; f++) {
        int hotness = s->features[f].hotness;
        memcpy(to, dlrm_stretch_ids(b, s, f) + i * hotness, (size_t)hotness * 4);
        to += hotness;
    }
    for (int f = 0; s->variable && f < s->n_features; f++) *to++ = (uint32_t)b->lengths[b->capacity * f + i];
}

void dlrm_unpack_row(const dlrm_shape *s, const void *packed, dlrm_stretch *b, int64_t i)
{
    const uint32_t *from = packed;
    b->labels[i] = (uint8_t)*from++;
    memcpy((char *)b->dense + i * s->n_dense * 4, from, (size_t)s->n_dense * 4);
    from += s->n_dense;
    for (int f = 0; f < s->n_features; f++) {
        int hotness = s->features[f].hotness;
        memcpy(dlrm_stretch_ids(b, s, f) + i * hotness, from, (size_t)hotness * 4);
        from += hotness;
    }
    for (int f = 0; s->variable && f < s->n_features; f++) b->lengths[b->capacity * f + i] = (int32_t)*from++;
}

dlrm_status dlrm_parse_list(const char *option, const char *text, int64_t max, int most, int64_t *out, int *n)
{
    const char *at = text;
    for (*n = 0;;) {
        char *end;
        long long v = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : (end = NULL, 0);
        if (!end || (*end && *end != ',') || v < 1 || v > max)
            return FAIL(DLRM_E_USAGE, "--%s: \"%.60s\" at place %d, expected integers from 1 to %lld with commas between them", option, at,
                        *n, (long long)max);
        if (*n == most) return FAIL(DLRM_E_USAGE, "--%s: more than %d values", option, most);
        out[(*n)++] = v;
        if (!*end) return DLRM_OK;
        at = end + 1;
    }
}
