/* The planted model: rows in Criteo's shape whose labels follow a logistic model of the row itself. Its logit is a sum
 * of one weight per (column, id) and one term per count; only a column's most frequent ids have a weight other than 0,
 * so that the signal can be learned. Row r is a pure function of (seed, r). */
#pragma once
#include <stdint.h>

#include "base/status.h"
#include "criteo_line.h"

enum {
    DLRM_SYNTH_WEIGHTS = 1024,   /* ids of a column that have a weight */
    DLRM_SYNTH_QUANTILES = 4096, /* a count is one of so many quantiles of its distribution */
    DLRM_SYNTH_STEPS = 1 << 16,  /* probabilities are multiples of 1/65536: exact in float, and few enough to count */
};

typedef enum dlrm_synth_shape { DLRM_SYNTH_TERABYTE, DLRM_SYNTH_KAGGLE } dlrm_synth_shape;

typedef struct dlrm_synth_args {
    uint64_t seed;
    dlrm_synth_shape shape;
    int64_t rows; /* no column has more ids than rows */
    double scale; /* of the columns with more than 1000 ids */
    double alpha; /* of the ids' power law; 0: uniform */
    double positive_rate, auc;
} dlrm_synth_args;

typedef struct dlrm_synth_column {
    int64_t n;              /* ids 0 … n-1, the most frequent first */
    uint32_t missing_below; /* a uniform 32-bit number below it: missing */
    uint32_t salt;          /* of the text form's hash */
    double reach, power;    /* the power law's (n+1)^g - 1 and 1/g */
    float weight[DLRM_SYNTH_WEIGHTS], missing_weight;
} dlrm_synth_column;

typedef struct dlrm_synth_count {
    uint32_t missing_below;
    int32_t value[DLRM_SYNTH_QUANTILES];
    float term[DLRM_SYNTH_QUANTILES], missing_term;
} dlrm_synth_count;

typedef struct dlrm_synth_model {
    uint64_t seed, stream;
    double bias;
    dlrm_synth_column column[CRITEO_IDS];
    dlrm_synth_count count[CRITEO_DENSE];
} dlrm_synth_model;

dlrm_status dlrm_synth_model_open(const dlrm_synth_args *args, dlrm_synth_model **out) DLRM_MUST_USE;
void dlrm_synth_model_close(dlrm_synth_model **m);

/* out->ids are ids, not hashes. Returns the probability of label 1 in steps of 1/DLRM_SYNTH_STEPS, 1 … STEPS-1. */
uint32_t dlrm_synth_row(const dlrm_synth_model *m, int64_t row, dlrm_criteo_row *out);
/* The text form's hash of an id; different ids have different ones. */
uint32_t dlrm_synth_hash(const dlrm_synth_model *m, int column, uint32_t id);
