/* The model, resolved: tables expanded and named, inputs (categorical features) in order with their table, hotness and
 * combiner, widths computed and checked. Made from the config and, for file formats, the data's description. */
#pragma once
#include "config/config.h"
#include "config/feature_spec.h"

typedef struct dlrm_table {
    char *name; /* unique; no white space, no '/', at most 200 bytes */
    int64_t rows; /* of a table with a vocabulary: capacity + 1 */
    int dim;
    int64_t capacity; /* keys; 0: no vocabulary, ids are rows */
    dlrm_evict evict;
    uint32_t admission;
    int vocabulary; /* its number among those that have one */
} dlrm_table;

typedef struct dlrm_input {
    int table;
    int hotness; /* ids per sample; the maximum where variable */
    bool variable;
    dlrm_combiner combiner;
    char *name; /* the data's feature name, or the table's (table.k for its k-th input where it has several) */
} dlrm_input;

/* Vectors that a sample has of an input, side by side. */
static inline int dlrm_input_vectors(const dlrm_input *in)
{
    return in->combiner == DLRM_UNPOOLED ? in->hotness : 1;
}

typedef struct dlrm_model_spec {
    int dense_features;
    dlrm_int_list bottom, top; /* layer output widths */
    dlrm_interaction interaction;
    int pool_stride, cross_layers, cross_rank; /* cross: 0 unless dcn */
    int n_tables, n_inputs; /* a table may have no input */
    int n_vocabularies;     /* tables that have one */
    dlrm_table *tables;
    dlrm_input *inputs;
    int bottom_width;      /* of vector 0: bottom output, else dense_features; 0 = no such vector */
    int vectors_width;     /* of all inputs' vectors */
    int interaction_width; /* input of the top MLP */
    int64_t table_elements, mlp_elements;
} dlrm_model_spec;

/* data: NULL for synthetic. Checks design rules on names, counts, hotness agreement between config and data, rows
 * against cardinalities, number of features, what is variable and unpooled, dot widths, dense_features against the data. An error leaves {0}. */
dlrm_status dlrm_model_spec_resolve(const dlrm_config *cfg, const dlrm_feature_spec *data,
                                    dlrm_model_spec *out) DLRM_MUST_USE;
void dlrm_model_spec_clear(dlrm_model_spec *spec); /* copes with {0} */

/* Are the input's ids keys, of a table whose rows are dynamic? */
static inline bool dlrm_input_has_keys(const dlrm_model_spec *spec, int input)
{
    return spec->tables[spec->inputs[input].table].capacity > 0;
}

/* Ids that a sample has of all inputs that look into the table, at most. */
static inline int64_t dlrm_table_hotness(const dlrm_model_spec *spec, int table)
{
    int64_t n = 0;
    for (int j = 0; j < spec->n_inputs; j++) n += spec->inputs[j].table == table ? spec->inputs[j].hotness : 0;
    return n;
}

/* The table that has vocabulary k. */
static inline int dlrm_vocabulary_table(const dlrm_model_spec *spec, int k)
{
    int t = 0;
    while (spec->tables[t].capacity == 0 || spec->tables[t].vocabulary != k) t++;
    return t;
}
