/* One harness for every op of every backend. A family of cases covers some slots of the op table; each case makes its
 * inputs, runs the op on the harness's backend, and compares with a double-precision reference (ref.h), element by
 * element. The harness guards the memory: canaries around every buffer, NaN in outputs before the op, inputs that must not
 * change. Every case runs twice on every backend, and must give the same bits; and for any number of threads the
 * same ones, but where noted. A slot of the op table that no family covers is a failure.
 *
 * To add an op: a double reference in ref_*.c with its tolerance, a gradient check in cases_gradients.c if it has a
 * backward, and a family here, with a case for each branch that the implementations take. */
#pragma once
#include <stddef.h>

#include "backend/backend.h"

typedef struct harness harness;

typedef struct op_slot {
    const char *name;
    size_t at;
} op_slot;
#define SLOT(op)                                                                                                       \
    {                                                                                                                  \
        #op, offsetof(dlrm_backend_ops, op)                                                                            \
    }

typedef struct family {
    const char *name;
    op_slot slots[20];  /* that its cases cover; unused ones have no name */
    bool cut_by_threads; /* without `pinned`, the number of threads decides how the work is cut, and with it the bits */
    int n_cases;
    void (*run)(harness *h, int number, char *label, size_t bytes); /* label: what the case is, for messages */
} family;

/* cases_*.c */
extern const family linear_family, interact_family, loss_family, embedding_family, dense_update_family, memory_family,
    pinned_family;
/* References against central differences; the number of failures. */
int check_gradients(void);

dlrm_backend *h_backend(harness *h);
bool h_pinned(const harness *h);
/* Counts a failure and says where it happened. */
void h_fail(harness *h, const char *fmt, ...) DLRM_PRINTF(2, 3);

/* --- host memory of the case, freed at its end --- */
void *h_host(harness *h, int64_t n, size_t size);
double *h_doubles(harness *h, int64_t n);
double *h_widen(harness *h, const float *v, int64_t n);
typedef enum draw { SIGNED, POSITIVE, RELU, WIDE, INTEGERS } draw; /* RELU: half zeros; WIDE: many magnitudes, any sign */
float *h_draw(harness *h, int64_t n, draw kind);
int64_t h_integer(harness *h, int64_t below); /* [0, below) */

/* --- backend memory of the case: guarded, freed at its end --- */
void *h_input(harness *h, const char *name, const void *values, int64_t n, size_t size); /* checked to be unchanged */
float *h_inout(harness *h, const char *name, const float *values, int64_t n);
float *h_output(harness *h, const char *name, int64_t n); /* NaN */
const float *h_fetch(harness *h, const float *buffer);     /* of h_output or h_inout: a copy on the host */

/* Every element of the buffer within tol of ref (0: equal). A NaN passes only for a NaN. */
void h_compare(harness *h, const float *buffer, const double *ref, const double *tol);
void h_compare_doubles(harness *h, const char *name, const double *got, int64_t n, const double *ref, const double *tol);
