/* Cases of embeddings: tables with all kinds of inputs, their batches and shards. */
#pragma once
#include "harness.h"

enum { MOST_TABLES = 5, MOST_INPUTS = 8, EMBEDDING_SHAPES = 19 };

typedef enum ids {
    UNIFORM,
    HOT_ROW,
    EDGES,
    FEW
} ids; /* HOT_ROW: all the same; EDGES: first and last; FEW: of 3 rows */

/* APART: each id of a bag is a vector of its own; MEAN_APART: a part of a mean, which is not divided. */
typedef enum pooling { SUM, MEAN, APART, MEAN_APART } pooling;

typedef struct embedding_case {
    int64_t B, max_batch;
    int n_tables, n_inputs;
    struct {
        int64_t rows;
        int dim;
    } tables[MOST_TABLES];
    struct {
        int table, hotness; /* of all a sample's vectors */
        bool variable;
        pooling pooling;
    } inputs[MOST_INPUTS];
    ids data;
    const char *why;
    bool partial; /* bags are parts of longer ones; every other mean is not to be divided by the lookup, and fp32 beside 16-bit vectors */
} embedding_case;

extern const embedding_case h_embedding_cases[EMBEDDING_SHAPES];

static inline int h_vectors_of(const embedding_case *c, int j)
{
    return c->inputs[j].pooling < APART ? 1 : c->inputs[j].hotness;
}

static inline bool h_is_mean(const embedding_case *c, int j)
{
    return c->inputs[j].pooling == MEAN || c->inputs[j].pooling == MEAN_APART;
}

/* Host memory for batches: one pinned block, handed out piece by piece. */
typedef struct arena {
    char *block;
    size_t bytes, used;
} arena;

/* Pins memory for so many batches. */
void h_arena_open(harness *h, const embedding_case *c, int batches, arena *a);

/* A batch on the host and, once fed, on the backend. */
typedef struct batch {
    int64_t b; /* own samples */
    float *dense, *labels, *to_labels;
    void *to_dense;
    dlrm_bags bags[MOST_INPUTS], on[MOST_INPUTS];
} batch;

void h_make_batch(harness *h, const embedding_case *c, arena *a, batch *x);
/* Takes the batch to the backend and sorts it; a copy of the bags for the reference is left in x->bags. */
void h_feed(harness *h, const embedding_case *c, dlrm_shard *shard, int slot, batch *x);
void h_keep_copy(harness *h, const embedding_case *c, batch *x, double **dense, double **labels);
/* The shard with the tables' weights and state on the backend; host copies in w, s. Of the narrow tables, some are
 * slices that begin within a whole one, and within four elements that share random bits. */
void h_make_shard(harness *h, const embedding_case *c, const dlrm_rule *rule, dlrm_dtype type, dlrm_dtype wire, dlrm_shard *shard,
                  float **w, float *(*s)[2]);
