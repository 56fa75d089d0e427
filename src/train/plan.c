#include "train/plan.h"

#include <stdio.h>

#include "base/tree.h"
#include "model/optimizer.h"
#include "train/memory.h"
#include "train/work.h"

/* FLOP of a sample, forward and backward: a product of i inputs and o outputs is 2io, three times; the first layer has no input gradient. */
static double sample_flop(const dlrm_model_spec *m)
{
    const double vectors = 1 + m->n_inputs;
    double flop = 0;
    const dlrm_int_list *stacks[] = {&m->bottom, &m->top};
    for (int k = 0; k < 2; k++) {
        double in = k == 0 ? m->dense_features : m->interaction_width;
        for (int l = 0; l < stacks[k]->n; l++) {
            flop += (k == 0 && l == 0 ? 4 : 6) * in * stacks[k]->v[l];
            in = stacks[k]->v[l];
        }
    }
    if (m->interaction == DLRM_DOT) flop += 3 * vectors * vectors * m->bottom_width;
    return flop + 12.0 * m->cross_layers * m->cross_rank * m->interaction_width;
}

/* Elements of a sample that the interaction moves: dot reads vectors, and in the backward pass reads and writes them. */
static double sample_moves(const dlrm_model_spec *m)
{
    const double all = (double)m->vectors_width + m->bottom_width;
    return m->interaction == DLRM_DOT ? 3 * all + 2.0 * m->interaction_width : 4.0 * m->interaction_width;
}

typedef struct dense_times {
    double compute, sums; /* seconds: MLPs, interaction and the update of their weights; exchange of their gradients' sums */
} dense_times;

static dense_times dense_of(const dlrm_session *s, int rank)
{
    const dlrm_model_spec *m = &s->spec;
    const bool gpu = s->device >= 0;
    dlrm_placement_work w;
    int64_t begin, own;
    const double weights = (double)m->mlp_elements, kept = 4.0 * (4 + 2 * dlrm_optimizer_states(&s->cfg.optimizer.dense));
    dlrm_machine_rates(s->machine, gpu, &w);
    dlrm_cut_samples(s->batch, rank, s->ranks, s->cfg.train.deterministic, (int)s->cfg.train.deterministic_chunks, &begin, &own);
    const double act = s->cfg.train.precision == DLRM_BF16 || s->cfg.train.precision == DLRM_FP16 ? 2 : 4;
    return (dense_times){.compute = (double)own * sample_flop(m) / dlrm_machine_flops(s->machine, gpu, s->cfg.train.precision) +
                                    ((double)own * sample_moves(m) * act + weights * kept) / w.memory_rate,
                         .sums = 2 * 4 * weights * (s->ranks - 1) / s->ranks / w.network_rate};
}

static const char *machine_text(const dlrm_session *s, char *buf, size_t bytes)
{
    if (s->machine->name)
        snprintf(buf, bytes, "as %.200s says", s->machine->name);
    else
        snprintf(buf, bytes, "%s", s->device >= 0 ? "with an H200 each" : "with a core each");
    return buf;
}

/* Of tables and optimizer state, where they lie on GPUs. */
static dlrm_status print_memory(const dlrm_session *s)
{
    printf("memory of tables and optimizer state, MiB\n%6s %12s %12s %12s\n", "rank", "on the GPU", "its cache", "host");
    for (int p = 0; p < s->ranks; p++) {
        dlrm_work w;
        int64_t home, cache;
        TRY(dlrm_work_of(s, p, &w));
        TRY(dlrm_memory_home(s, p, &home, &cache));
        printf("%6d %12.2f %12.2f %12.2f\n", p, (double)(w.table_bytes + w.state_bytes - home + cache) / (1 << 20), (double)cache / (1 << 20),
               (double)home / (1 << 20));
    }
    return DLRM_OK;
}

dlrm_status dlrm_plan_print(const dlrm_session *s)
{
    double tables = 0, dense = 0, sums = 0;
    char text[260];
    TRY(dlrm_work_print(s));
    if (s->device >= 0) TRY(print_memory(s));
    printf("predicted, ms of a step, for ranks %s\n%6s %12s %12s %12s\n", machine_text(s, text, sizeof text), "rank", "tables", "MLPs", "MLPs' sums");
    for (int p = 0; p < s->ranks; p++) {
        const dense_times d = dense_of(s, p);
        printf("%6d %12.3f %12.3f %12.3f\n", p, 1e3 * s->place.seconds[p], 1e3 * d.compute, 1e3 * d.sums);
        tables = s->place.seconds[p] > tables ? s->place.seconds[p] : tables;
        dense = d.compute > dense ? d.compute : dense;
        sums = d.sums;
    }
    const double step = tables + dense + sums;
    printf("step       %.3f ms: the slowest rank's tables %.3f, MLPs and interaction %.3f, their sums %.3f, one after the other; %.6g samples/s\n",
           1e3 * step, 1e3 * tables, 1e3 * dense, 1e3 * sums, (double)s->batch / step);
    return DLRM_OK;
}
