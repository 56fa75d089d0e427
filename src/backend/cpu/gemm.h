/* Single-threaded row-major matrix product, by the library the build was given (meson option `gemm`). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* C[m,n] = op(A)[m,k] op(B)[k,n] + beta C; op(A) = A^T (stored [k,m]) where trans_a, likewise B (stored [n,k]).
 * lda, ldb, ldc: elements between rows as stored. m, n or k may be 0. */
void dlrm_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
               int64_t ldb, float beta, float *c, int64_t ldc);
/* Once per process, before the first product. */
void dlrm_gemm_init(void);
extern const char *const dlrm_gemm_name;
