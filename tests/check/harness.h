/* One harness for every op of every backend. A family of cases covers some members of the op table; each case makes its
 * inputs, runs the op on the harness's backend, and compares with a double-precision reference (ref.h), element by
 * element. The harness guards the memory: canaries around every buffer, NaN in outputs before the op, inputs that must
 * not change, padding of rows that must stay 0. Every case runs twice on every backend, and must give the same bits;
 * and for any number of threads the same ones, but where noted. A member of the op table that no family covers is a
 * failure.
 *
 * Values are drawn as the backend can hold them, so that the reference sees what the op sees. Arrays of the cases and
 * the references are dense; the harness adds and removes the backend's padding.
 *
 * To add an op: a double reference in ref_*.c with its tolerance, a gradient check in cases_gradients.c if it has a
 * backward, and a family here, with a case for each branch that the implementations take. */
#pragma once
#include <stddef.h>

#include "backend/backend.h"

typedef struct harness harness;

enum { H_BATCH = 1 << 16, H_DENSE = 5 }; /* largest batch of a case, and the dense features of its batches */

typedef struct op_slot {
    const char *name;
    size_t at;
} op_slot;
#define SLOT(op)                            \
    {                                       \
#op, offsetof(dlrm_backend_ops, op) \
    }

typedef struct family {
    const char *name;
    op_slot slots[16];   /* that its cases cover; unused ones have no name */
    bool cut_by_threads; /* without `pinned`, the number of threads decides how the work is cut, and with it the bits */
    int n_cases;
    void (*run)(harness *h, int number, char *label, size_t bytes); /* label: what the case is, for messages */
} family;

/* cases_*.c */
extern const family linear_family, cross_family, interact_family, loss_family, embedding_family, rows_family, join_family, dense_update_family, memory_family,
    home_family, pinned_family, step_family, scale_family;
/* References against central differences; the number of failures. */
int check_gradients(void);

dlrm_backend *h_backend(harness *h);
bool h_pinned(const harness *h);
/* Relative rounding of a product's operands on their way into the matrix unit, both together: `weights` if one of them
 * is a weight (rounded to the activations' type), else of activations alone. */
double h_operand_rounding(const harness *h, bool weights);
/* The same of vectors of another type, which may be rounded to the activations'. */
double h_vector_rounding(const harness *h, dlrm_dtype type);
/* Counts a failure and says where it happened. */
void h_fail(harness *h, const char *fmt, ...) DLRM_PRINTF(2, 3);

/* --- host memory of the case, freed at its end --- */
void *h_host(harness *h, int64_t n, size_t size);
double *h_doubles(harness *h, int64_t n);
double *h_widen(harness *h, const float *v, int64_t n);
typedef enum draw {
    SIGNED,
    POSITIVE,
    RELU,
    WIDE,
    INTEGERS
} draw; /* RELU: half zeros; WIDE: many magnitudes, any sign */
float *h_draw(harness *h, int64_t n, draw kind);
float *h_draw_act(harness *h, int64_t n, draw kind); /* rounded to the activations' type */
float *h_draw_as(harness *h, dlrm_dtype type, int64_t n, draw kind); /* rounded to this one */
int64_t h_integer(harness *h, int64_t below);        /* [0, below) */

/* --- backend memory of the case: guarded, freed at its end --- */
void *h_input(harness *h, const char *name, const void *values, int64_t n, size_t size); /* checked to be unchanged */
float *h_inout(harness *h, const char *name, const float *values, int64_t n);
void *h_inout_as(harness *h, const char *name, dlrm_dtype type, const float *values, int64_t n);
float *h_output(harness *h, const char *name, int64_t n); /* NaN */
double *h_output_doubles(harness *h, const char *name, int64_t n);
/* Rows of activations; logits are fp32: h_input, h_output. */
void *h_act_input(harness *h, const char *name, const float *values, int64_t rows, int64_t width);
void *h_act_inout(harness *h, const char *name, const float *values, int64_t rows, int64_t width);
void *h_act_output(harness *h, const char *name, int64_t rows, int64_t width);
/* n values of a type, without padding. */
void *h_input_as(harness *h, const char *name, dlrm_dtype type, const float *values, int64_t n);
void *h_output_as(harness *h, const char *name, dlrm_dtype type, int64_t n);
/* The backend's array of MLP weights, all of it: n elements. Once in a case. */
float *h_weights(harness *h, const float *values, int64_t n);
/* Layers in that array, padded; not to be changed. Instead of h_weights. */
typedef struct layer {
    int64_t out, in;
    const float *w, *bias;       /* host: [out, in], [out] */
    const float *at_w, *at_bias; /* filled in: on the backend */
} layer;
void h_layers(harness *h, layer *layers, int n);

/* Every element of an output or inout buffer within tol of ref (0: equal); a type narrower than fp32 has its own
 * rounding besides. A NaN passes only for a NaN. */
void h_compare(harness *h, const void *buffer, const double *ref, const double *tol);
/* The same, each element from low to high, whatever their order. */
void h_compare_between(harness *h, const void *buffer, const double *low, const double *high);
/* A table of a type narrower than fp32 after an update in this step: rows not touched as they were, the others rounded by
 * the random bits of their elements. */
void h_compare_rounded(harness *h, dlrm_dtype type, const dlrm_table_shard *table, uint64_t step, const int64_t *touched,
                       const double *ref, const double *tol);
/* A copy of the buffer on the host. */
double *h_fetch(harness *h, const void *buffer);
