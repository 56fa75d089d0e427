#include "train/work.h"

#include <stdio.h>

#include "base/tree.h"
#include "model/optimizer.h"
#include "train/course.h"
#include "train/id_exchange.h"

static int64_t own_samples(const dlrm_session *s, int64_t B, int rank)
{
    int64_t begin, own;
    dlrm_cut_samples(B, rank, s->ranks, s->cfg.train.deterministic, (int)s->cfg.train.deterministic_chunks, &begin, &own);
    return own;
}

/* Samples of the first n batches, counted over epochs; rank -1: of all ranks. */
static int64_t batch_samples(const dlrm_session *s, int64_t n, int rank)
{
    int64_t rows = dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT), per_epoch = dlrm_session_epoch_batches(s);
    int64_t full = own_samples(s, s->batch, rank), last = rows % s->batch;
    int64_t epoch = rank < 0 ? rows : full * (rows / s->batch) + (last ? own_samples(s, last, rank) : 0);
    return n / per_epoch * epoch + n % per_epoch * (rank < 0 ? s->batch : full);
}

/* Steps of this run. */
static int64_t run_steps(const dlrm_session *s)
{
    const int64_t steps = dlrm_course_steps(s) - s->first_step;
    return steps > 0 ? steps : 0;
}

/* Samples of this run: full epochs, then the steps left of the last one. */
static int64_t run_samples(const dlrm_session *s, int rank)
{
    return batch_samples(s, s->first_batch + run_steps(s), rank) - batch_samples(s, s->first_batch, rank);
}

/* Of a sample: inputs and labels of each batch in flight, and values and gradients of the rest. */
static int64_t activation_floats(const dlrm_model_spec *m)
{
    int64_t n = DLRM_STAGES * ((int64_t)m->dense_features + 1) + 2 * (int64_t)m->interaction_width;
    for (int l = 0; l < m->bottom.n; l++) n += 2 * (int64_t)m->bottom.v[l];
    for (int l = 0; l < m->top.n; l++) n += 2 * (int64_t)m->top.v[l];
    if (m->cross_layers > 0) n += (2 * m->cross_layers + 1) * (int64_t)m->interaction_width + 2 * m->cross_layers * (int64_t)m->cross_rank;
    return n;
}

/* Of an element of a vector that travels. */
static int64_t exchange_bytes(const dlrm_session *s)
{
    return (int64_t)dlrm_dtype_bytes(dlrm_config_exchange_dtype(&s->cfg));
}

/* What a reduction of gradients receives. */
static int64_t reduce_floats(const dlrm_reduce *r, int rank, int ranks)
{
    return r->first_node[ranks] * (r->segment[rank + 1] - r->segment[rank]);
}

/* Vectors and gradients of replicated tables, and their ids. */
static int64_t replicated_bytes(const dlrm_session *s, int rank, int64_t B, int64_t own, const dlrm_reduce *sums)
{
    const bool gathers = s->cfg.train.deterministic;
    int64_t d_width, n_values, ids = 0;
    dlrm_replicated_measure(&s->spec, &s->place, &s->cfg.optimizer.embedding, gathers, &d_width, &n_values);
    for (int j = 0; j < s->spec.n_inputs; j++)
        if (dlrm_placement_replicates(&s->place, j)) ids += s->spec.inputs[j].hotness;
    const int64_t vectors = own * s->place.replicated_width + (gathers ? B : own) * d_width;
    return vectors * exchange_bytes(s) + 4 * (n_values + reduce_floats(sums, rank, s->ranks)) + (gathers ? B : 2 * own) * ids * 2 * 8;
}

/* CPU ranks of one host write vectors where they are read; so do GPUs that can, which is not known before. A plan for machines like this
 * one takes it for the host of all. */
static bool writes_to_others(const dlrm_session *s)
{
    const bool planned = s->comm->ranks != s->ranks;
    return s->device < 0 && (planned ? !s->machine || !s->machine->name : dlrm_comm_local_ranks(s->comm) == s->ranks);
}

/* Vectors, and their gradients, where they are made and where they are read: the same place on one rank. */
static int64_t vector_elements(const dlrm_session *s, int rank, int64_t B, int64_t own)
{
    const int64_t made = B * s->place.width[rank], read = own * dlrm_placement_received(&s->place);
    if (s->ranks == 1) return 2 * made;
    return writes_to_others(s) ? made + read : 2 * (made + read);
}

/* MLP weights and their gradients, activations, vectors and sorted ids: beyond tables and optimizer state. */
static int64_t model_bytes(const dlrm_session *s, int rank, const dlrm_reduce *reduce, const dlrm_reduce *sums)
{
    const dlrm_model_spec *m = &s->spec;
    const int R = s->ranks;
    const int64_t B = dlrm_session_max_batch(s), own = own_samples(s, B, rank);
    const int64_t nodes = reduce->first_node[rank + 1] - reduce->first_node[rank];
    int64_t ids = 0, floats = m->mlp_elements * (1 + nodes) + own * activation_floats(m), vectors = vector_elements(s, rank, B, own);
    if (R > 1) {
        floats += reduce_floats(reduce, rank, R);
        if (nodes > 1) floats += m->mlp_elements * nodes;
    }
    for (int i = 0; i < s->place.n_parts; i++)
        if (s->place.slices[s->place.parts[i].slice].owner == rank)
            ids += m->inputs[s->place.parts[i].input].hotness;
    vectors += 2 * own * dlrm_embedding_joined_width(m, &s->place);
    const int64_t squares = 2 * B * dlrm_shared_rows_places(m, &s->place, &s->cfg.optimizer.embedding, rank) * (int64_t)sizeof(dlrm_squares);
    return squares + floats * 4 + vectors * exchange_bytes(s) + B * ids * 2 * 8 + dlrm_tables_room(m, &s->place, rank, B) +
           (s->place.replicated_tables ? replicated_bytes(s, rank, B, own, sums) : 0);
}

/* An evaluation's logits sorted as keys, and its different scores there and back (auc.h). */
static int64_t auc_bytes(const dlrm_session *s, int rank)
{
    const int64_t n = dlrm_session_scored_rows(s), whole = n / s->eval_batch;
    return (whole * own_samples(s, s->eval_batch, rank) + own_samples(s, n % s->eval_batch, rank)) * (8 + 24);
}

/* Of both splits: what is read in the whole run, the memory that it takes, and the ids that are sent. */
static dlrm_status reading(const dlrm_session *s, int rank, dlrm_work *w)
{
    int64_t epoch_bytes;
    const int64_t evaluations = dlrm_course_evaluations(s);
    dlrm_reader_args train = s->train_args, eval = s->eval_args;
    train.rank = eval.rank = rank;
    train.wanted = eval.wanted = s->wanted_by + (int64_t)rank * s->spec.n_inputs;
    double epochs = (double)run_samples(s, -1) / (double)dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT);
    TRY(dlrm_dataset_epoch_bytes(s->data, &train, &epoch_bytes));
    w->file_bytes = (int64_t)(epochs * (double)epoch_bytes);
    w->memory_bytes += dlrm_dataset_reader_memory(s->data, &train);
    if (evaluations > 0) {
        TRY(dlrm_dataset_epoch_bytes(s->data, &eval, &epoch_bytes));
        w->file_bytes += evaluations * epoch_bytes;
        w->memory_bytes += dlrm_dataset_reader_memory(s->data, &eval) + auc_bytes(s, rank);
    }
    if (!dlrm_dataset_exchanges(s->data)) return DLRM_OK;
    w->memory_bytes += dlrm_id_exchange_memory(&s->spec, &train) + (evaluations > 0 ? dlrm_id_exchange_memory(&s->spec, &eval) : 0);
    if (run_steps(s) > 0) w->sent_bytes += w->samples * dlrm_id_exchange_sample_bytes(&s->spec, &train) / run_steps(s);
    return DLRM_OK;
}

void dlrm_work_slice(const dlrm_config *cfg, const dlrm_slice *slice, int64_t *weights, int64_t *state)
{
    *weights = slice->rows * slice->columns * (int64_t)dlrm_dtype_bytes(cfg->train.embedding_dtype);
    *state = slice->rows * (dlrm_optimizer_rowwise(&cfg->optimizer.embedding) ? 1 : slice->columns) *
             dlrm_optimizer_states(&cfg->optimizer.embedding) * 4;
}

dlrm_status dlrm_work_of(const dlrm_session *s, int rank, dlrm_work *w)
{
    const dlrm_config *cfg = &s->cfg;
    const int R = s->ranks;
    const int64_t steps = run_steps(s), all = run_samples(s, -1), width = s->place.width[rank];
    int64_t d_width, n_values;
    dlrm_reduce reduce = {0}, sums = {0};
    dlrm_status st;
    *w = (dlrm_work){.tables = s->place.tables[rank], .inputs = s->place.inputs[rank], .tables_ms = 1e3 * s->place.seconds[rank],
                     .samples = run_samples(s, rank)};
    for (int k = 0; k < s->place.n_slices; k++) {
        const dlrm_slice *slice = &s->place.slices[k];
        if (slice->owner != rank && slice->owner != DLRM_EVERY_RANK) continue;
        int64_t weights, state;
        dlrm_work_slice(cfg, slice, &weights, &state);
        w->table_bytes += weights;
        w->state_bytes += state;
    }
    w->state_bytes += s->spec.mlp_elements * dlrm_optimizer_states(&cfg->optimizer.dense) * 4;
    dlrm_replicated_measure(&s->spec, &s->place, &cfg->optimizer.embedding, cfg->train.deterministic, &d_width, &n_values);
    TRY_TO(done, st, dlrm_reduce_layout(R, s->spec.mlp_elements, cfg->train.deterministic, (int)cfg->train.deterministic_chunks, &reduce));
    TRY_TO(done, st, dlrm_reduce_layout(R, n_values, false, 1, &sums));
    w->memory_bytes = w->table_bytes + w->state_bytes + model_bytes(s, rank, &reduce, &sums);
    if (R > 1 && steps > 0)
        w->sent_bytes = ((all - w->samples) * width + w->samples * (dlrm_placement_received(&s->place) - width)) * exchange_bytes(s) / steps +
                        dlrm_reduce_bytes(&reduce, rank, R) +
                        all * dlrm_shared_rows_places(&s->spec, &s->place, &cfg->optimizer.embedding, rank) * (int64_t)sizeof(dlrm_squares) / steps +
                        (n_values ? dlrm_reduce_bytes(&sums, rank, R) : w->samples * d_width * (R - 1) * exchange_bytes(s) / steps);
done:
    dlrm_reduce_close(&reduce);
    dlrm_reduce_close(&sums);
    return st == DLRM_OK ? reading(s, rank, w) : st;
}

static void describe_model(const dlrm_session *s)
{
    const dlrm_model_spec *m = &s->spec;
    char layers[2][600] = {"none", "none"};
    const dlrm_int_list *stacks[2] = {&m->bottom, &m->top};
    for (int k = 0; k < 2; k++)
        for (int l = 0, at = 0; l < stacks[k]->n && at < (int)sizeof layers[k] - 12; l++)
            at += snprintf(layers[k] + at, sizeof layers[k] - (size_t)at, "%s%d", l ? "-" : "", stacks[k]->v[l]);
    printf("model      %d dense features, bottom MLP %s, %s interaction (width %d", m->dense_features, layers[0],
           dlrm_interaction_text(m->interaction), m->interaction_width);
    if (m->cross_layers > 0) printf(", %d cross layers of rank %d", m->cross_layers, m->cross_rank);
    printf("), top MLP %s\n", layers[1]);
    printf("           %d tables, %d inputs, %lld embedding parameters (%.2f GiB), %lld MLP parameters\n", m->n_tables, m->n_inputs,
           (long long)m->table_elements, (double)m->table_elements * (double)dlrm_dtype_bytes(s->cfg.train.embedding_dtype) / (1 << 30), (long long)m->mlp_elements);
    printf("training   %lld rows, batch %lld, %lld steps, %s / %s, %s\n", (long long)dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT),
           (long long)s->batch, (long long)dlrm_course_steps(s), dlrm_optimizer_text(s->cfg.optimizer.dense.name),
           dlrm_optimizer_text(s->cfg.optimizer.embedding.name), s->cfg.train.deterministic ? "deterministic" : "default order of sums");
    if (s->from.folder[0]) printf("resumes    %s, at step %lld\n", s->from.folder, (long long)s->first_step);
    if (dlrm_session_has_test(s))
        printf("evaluation %lld rows, batch %lld, %lld times\n", (long long)dlrm_session_scored_rows(s),
               (long long)s->eval_batch, (long long)dlrm_course_evaluations(s));
    else
        printf("evaluation none: the data has no test split\n");
    printf("placement  %s, %d rank%s\n", dlrm_strategy_text(s->cfg.parallel.strategy), s->ranks, s->ranks > 1 ? "s" : "");
}

dlrm_status dlrm_work_print(const dlrm_session *s)
{
    if (s->comm->rank != 0) return DLRM_OK;
    describe_model(s);
    printf("%6s %7s %7s %12s %12s %12s %14s %14s %14s\n", "rank", "tables", "inputs", "table MiB", "state MiB", "memory MiB",
           "samples", "file MiB read", "KiB sent/step");
    for (int p = 0; p < s->ranks; p++) {
        dlrm_work w;
        TRY(dlrm_work_of(s, p, &w));
        printf("%6d %7d %7d %12.2f %12.2f %12.2f %14lld %14.2f %14.2f\n", p, w.tables, w.inputs, (double)w.table_bytes / (1 << 20),
               (double)w.state_bytes / (1 << 20), (double)w.memory_bytes / (1 << 20), (long long)w.samples,
               (double)w.file_bytes / (1 << 20), (double)w.sent_bytes / 1024);
    }
    for (int t = 0; t < s->spec.n_tables; t++) {
        const dlrm_table *table = &s->spec.tables[t];
        char where[80];
        printf("table %-20s %14lld rows x %-5d %s", table->name, (long long)table->rows, table->dim,
               dlrm_placement_text(&s->place, t, where, sizeof where));
        if (table->capacity > 0) /* wherever thresholds would put a table of this size */
            printf(", dynamic: keys get rows as they appear (evict %s, admission %u), neither replicated nor cut by rows", dlrm_evict_text(table->evict),
                   table->admission);
        printf("\n");
    }
    return DLRM_OK;
}
