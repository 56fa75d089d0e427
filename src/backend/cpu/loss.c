/* Binary cross entropy and its gradient. */
#include "backend/cpu/cpu.h"

#include <math.h>

static double leaf_loss(const dlrm_loss_args *a, int leaf)
{
    double sum = 0;
    for (int64_t i = a->cut->at[leaf]; i < a->cut->at[leaf + 1]; i++) {
        double z = a->logits[i], y = a->labels[i], e = exp(-fabs(z)); /* e in (0, 1]: nothing overflows */
        sum += (z > 0 ? z : 0) - z * y + log1p(e);
        if (a->d_logits) a->d_logits[i] = (float)(((z >= 0 ? 1 : e) / (1 + e) - y) * a->scale);
    }
    return sum;
}

static double subtree_loss(const dlrm_loss_args *a, int leaf, int level)
{
    if (level == 0) return leaf_loss(a, leaf);
    double left = subtree_loss(a, leaf, level - 1);
    return left + subtree_loss(a, leaf + (1 << (level - 1)), level - 1);
}

void cpu_loss(dlrm_backend *be, const dlrm_loss_args *a)
{
    (void)be; /* about 20 ns a sample: not worth threads */
    for (int i = 0; i < a->cut->n_nodes; i++) a->loss[i] = subtree_loss(a, a->cut->node[i].leaf, a->cut->node[i].level);
}
