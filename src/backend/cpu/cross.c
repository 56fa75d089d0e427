/* What of a cross layer is not linear. */
#include "backend/cpu/cpu.h"

enum { BLOCK = 4096 /* elements of a task */ };

DLRM_HOT static void forward(int64_t n, const float *restrict x0, const float *restrict z, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) y[i] = x0[i] * z[i] + x[i];
}

DLRM_HOT static void backward(int64_t n, const float *restrict x0, const float *restrict dy, float *restrict z,
                             float *restrict dx0, bool add, bool x_is_x0)
{
    for (int64_t i = 0; i < n; i++) {
        float g = z[i] * dy[i];
        if (add) g += dx0[i];
        dx0[i] = x_is_x0 ? g + dy[i] : g;
        z[i] = x0[i] * dy[i];
    }
}

static int64_t length(int64_t n, int64_t at)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

void cpu_cross_forward(dlrm_backend *be, const dlrm_cross_forward_args *a)
{
    const int64_t n = a->b * a->width;
#pragma omp parallel for num_threads(cpu_of(be)->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK)
        forward(length(n, at), (const float *)a->x0 + at, (const float *)a->z + at, (const float *)a->x + at, (float *)a->y + at);
}

void cpu_cross_backward(dlrm_backend *be, const dlrm_cross_backward_args *a)
{
    const int64_t n = a->b * a->width;
#pragma omp parallel for num_threads(cpu_of(be)->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK)
        backward(length(n, at), (const float *)a->x0 + at, (const float *)a->dy + at, (float *)a->z + at, (float *)a->dx0 + at,
                 a->add_dx0, a->x_is_x0);
}
