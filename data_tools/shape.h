/* Rows of any format on their way from one to another: what a row consists of, and room for a stretch of rows. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "config/records_spec.h"

typedef struct dlrm_feature {
    char name[201]; /* as long as a table's in a config */
    int64_t cardinality; /* ids are 0 … cardinality-1; at most 2^32 */
    int hotness;         /* ids of a row; the most where it varies */
    bool variable;
    bool keys;           /* of 64 bits: each is two ids side by side, its low half and its high one. Hotness and lengths count halves */
    int64_t first; /* its first one among a row's ids */
} dlrm_feature;

typedef struct dlrm_shape {
    int n_dense;
    dlrm_dense_form form;
    int n_features;
    dlrm_feature *features;
    int64_t n_ids; /* of a row: all hotness together */
    bool variable; /* some feature is */
} dlrm_shape;

/* n features called cat_0 …, of one id a row; cardinalities are 0 until somebody sets them. */
dlrm_status dlrm_shape_open(int n_dense, int n_features, dlrm_shape *out) DLRM_MUST_USE;
dlrm_status dlrm_shape_copy(const dlrm_shape *from, dlrm_shape *out) DLRM_MUST_USE;
void dlrm_shape_clear(dlrm_shape *s);  /* copes with {0} */
int64_t dlrm_shape_values(const dlrm_shape *s); /* ids and keys of a row, at most */
/* DLRM_E_INPUT where a feature has keys, "which `what`". */
dlrm_status dlrm_shape_refuse_keys(const dlrm_shape *s, const char *what) DLRM_MUST_USE;
void dlrm_shape_settle(dlrm_shape *s); /* `first`, n_ids and variable follow from the features' hotness */

/* Rows [first, first+n) of a split. */
typedef struct dlrm_stretch {
    int64_t capacity, first, n;
    uint8_t *labels;   /* [n] */
    void *dense;       /* [n][n_dense] of 4 bytes: int32 or float32, as the form says */
    uint32_t *ids;     /* feature f: from ids[capacity * features[f].first] on [n][hotness]; places beyond a bag's end are 0 */
    int32_t *lengths;  /* feature f: from lengths[capacity * f] on [n]; NULL where no feature varies */
    uint32_t *scratch; /* [capacity * the largest hotness]: room of whoever holds the stretch */
} dlrm_stretch;

dlrm_status dlrm_stretch_open(const dlrm_shape *s, int64_t capacity, dlrm_stretch *out) DLRM_MUST_USE;
void dlrm_stretch_close(dlrm_stretch *b);
int64_t dlrm_stretch_row_bytes(const dlrm_shape *s); /* memory of one row in it */
static inline uint32_t *dlrm_stretch_ids(const dlrm_stretch *b, const dlrm_shape *s, int feature)
{
    return b->ids + b->capacity * s->features[feature].first;
}

/* One row as one piece of memory, to be moved about as a whole: label, dense values, ids, lengths. */
int64_t dlrm_packed_bytes(const dlrm_shape *s);
void dlrm_pack_row(const dlrm_shape *s, const dlrm_stretch *b, int64_t i, void *out);
void dlrm_unpack_row(const dlrm_shape *s, const void *packed, dlrm_stretch *b, int64_t i);

/* "3,2,1" → up to `most` integers in [1, max]; errors name --`option`. */
dlrm_status dlrm_parse_list(const char *option, const char *text, int64_t max, int most, int64_t *out, int *n) DLRM_MUST_USE;
