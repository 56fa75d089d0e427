#include "backend/cpu/gemm.h"

#include "base/status.h"

#if defined(DLRM_GEMM_ONEDNN)
#include <dnnl.h>
#include <omp.h>
#else
#include <cblas.h>
#endif

#if defined(DLRM_GEMM_ONEDNN)
const char *const dlrm_gemm_name = "oneDNN";
#elif defined(DLRM_GEMM_OPENBLAS)
const char *const dlrm_gemm_name = "OpenBLAS";
#else
const char *const dlrm_gemm_name = "CBLAS";
#endif

void dlrm_gemm_init(void)
{
#ifdef DLRM_GEMM_OPENBLAS
    openblas_set_num_threads(1); /* threads are ours, over pieces of the batch */
#endif
}

void dlrm_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
               int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m == 0 || n == 0) return;
    if (k == 0) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        return;
    }
#if defined(DLRM_GEMM_ONEDNN)
    dnnl_status_t st = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    DLRM_ASSERT(st == dnnl_success);
#else
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (int)m, (int)n,
                (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
#endif
}
