/* Vectors put together from parts, and their gradients taken apart again. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/half.h"
#include "base/hot.h"

enum { BLOCK = 256 /* columns at a time */ };

DLRM_HOT static void add_block(float *to, const float *part, int n)
{
    for (int d = 0; d < n; d++) to[d] += part[d];
}

DLRM_HOT static void scale_block(float *to, float by, int n)
{
    for (int d = 0; d < n; d++) to[d] *= by;
}

/* Columns [begin, end) of a vector, at most BLOCK; a column's first part is taken as it is. */
static void join_block(const dlrm_join_args *a, const dlrm_join_vector *v, int64_t s, int begin, int end)
{
    const int64_t bytes = (int64_t)dlrm_dtype_bytes(a->wire);
    float sum[BLOCK], part[BLOCK];
    int done = begin; /* columns up to here have their first part */
    for (int i = v->first_part; i < v->first_part + v->n_parts; i++) {
        const dlrm_join_part *p = &a->parts[i];
        const int from = p->column > begin ? p->column : begin, to = p->column + p->width < end ? p->column + p->width : end;
        if (from >= to) continue;
        const bool first = from >= done;
        const dlrm_dtype type = p->exact ? DLRM_FP32 : a->wire;
        const char *data = (const char *)p->data + s * p->stride * bytes;
        dlrm_widen(type, data + (from - p->column) * (int64_t)dlrm_dtype_bytes(type), to - from, first ? sum + from - begin : part);
        if (first)
            done = to;
        else
            add_block(sum + from - begin, part, to - from);
    }
    const int64_t n = v->whole ? v->whole[s + 1] - v->whole[s] : 1;
    if (n > 1) scale_block(sum, 1.0f / (float)n, end - begin);
    dlrm_narrow(a->wire, sum, end - begin, (char *)a->joined + (s * a->width + begin) * bytes);
}

void cpu_join_forward(dlrm_backend *be, const dlrm_join_args *a)
{
#pragma omp parallel for schedule(static) num_threads(cpu_of(be)->threads)
    for (int64_t s = 0; s < a->b; s++)
        for (int k = 0; k < a->n_vectors; k++) {
            const dlrm_join_vector *v = &a->vectors[k];
            const int end = v->column + v->width;
            for (int c = v->column; c < end; c += BLOCK) join_block(a, v, s, c, c + BLOCK < end ? c + BLOCK : end);
        }
}

void cpu_join_backward(dlrm_backend *be, const dlrm_join_args *a)
{
    const int64_t bytes = (int64_t)dlrm_dtype_bytes(a->wire);
#pragma omp parallel for schedule(static) num_threads(cpu_of(be)->threads)
    for (int64_t s = 0; s < a->b; s++)
        for (int i = 0; i < a->n_parts; i++) {
            const dlrm_join_part *p = &a->parts[i];
            memcpy((char *)p->grad + s * p->grad_stride * bytes, (const char *)a->d_joined + (s * a->width + p->column) * bytes,
                   (size_t)(p->width * bytes));
        }
}
