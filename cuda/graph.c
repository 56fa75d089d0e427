/* Training steps as CUDA graphs. The first steps of a slot run op by op, which also loads all kernels and makes all plans;
 * the second one in a row with the same B is captured, on the compute queue and what forks off it (the queue beside), and
 * from then on such steps are one launch. A step with another B, as an epoch's short last batch has, runs op by op.
 *
 * What differs between steps is in device memory, stored there before the launch: rates and the step's number in
 * cuda_impl.step; the loss goes to a fixed place and is copied from there to where the step wants it. Kernels' tables
 * (cuda_constant) that a graph reads are kept for good.
 *
 * Times of phases: events in a graph cost time, so one step of TIMED_EVERY runs a second graph that has them, and stands
 * for the others. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda_internal.h"

enum { STEP_LAPS = 32, TIMED_EVERY = 16 };

typedef struct step_graph {
    cudaGraphExec_t exec; /* NULL: not recorded */
    int loss_nodes;       /* doubles of the loss */
    int n_laps;
    dlrm_phase phase[STEP_LAPS];
    bool unread; /* laps of its last run */
} step_graph;

typedef struct slot_graphs {
    int64_t B;      /* of its graphs; 0: it has none */
    int64_t before; /* B of its last step that ran op by op; 0: none did */
    step_graph plain, timed;
    cudaEvent_t lap[STEP_LAPS]; /* of `timed` */
    cudaEvent_t end;            /* of its last run; what is in a graph counts as recorded by the run before until it has run */
} slot_graphs;

struct cuda_steps {
    bool enabled, inside; /* inside: between step_begin and step_end */
    dlrm_step now;
    slot_graphs slots[DLRM_STAGES];
    slot_graphs *slot; /* whose graph the step runs */
    step_graph *graph; /* NULL: it runs op by op */
    double *loss;      /* device: [DLRM_MAX_NODES] */
    cudaEvent_t ahead; /* of what had been enqueued before the recording began */
    int64_t ran, timed; /* graphs; of these, with times read */
    double seconds[DLRM_PHASES];
};

dlrm_status cuda_steps_open(dlrm_backend *be)
{
    cuda_impl *c = cuda_of(be);
    const char *set = getenv("DLRM_CUDA_GRAPHS"); /* 0: for comparisons, and to look for a fault op by op */
    TRY(dlrm_alloc(1, sizeof *c->steps, "training steps", &c->steps));
    cuda_steps *s = c->steps;
    s->enabled = !set || strcmp(set, "0") != 0;
    TRY(cuda_alloc(be, DLRM_MAX_NODES, sizeof *s->loss, "a step's loss", &s->loss));
    cudaError_t code = cudaEventCreateWithFlags(&s->ahead, cudaEventDisableTiming);
    for (int k = 0; k < DLRM_STAGES && code == cudaSuccess; k++) {
        code = cudaEventCreateWithFlags(&s->slots[k].end, cudaEventDisableTiming);
        for (int i = 0; i < STEP_LAPS && code == cudaSuccess; i++) code = cudaEventCreate(&s->slots[k].lap[i]);
    }
    return code == cudaSuccess ? DLRM_OK : FAIL(DLRM_E_RUNTIME, "GPU %d: %s", c->device, cudaGetErrorString(code));
}

void cuda_steps_forget(cuda_impl *c)
{
    cuda_steps *s = c->steps;
    if (!s) return;
    DLRM_ASSERT(!c->recording);
    for (int i = 0; i < CONSTANTS; i++) c->compute.constants[i].kept = c->beside.constants[i].kept = false;
    for (int k = 0; k < DLRM_STAGES; k++) {
        slot_graphs *slot = &s->slots[k];
        step_graph *graphs[] = {&slot->plain, &slot->timed};
        slot->B = slot->before = 0;
        for (int i = 0; i < 2; i++) {
            if (!graphs[i]->exec) continue;
            cuda_must(c, cudaStreamSynchronize(c->compute.stream), "a step");
            cuda_must(c, cudaGraphExecDestroy(graphs[i]->exec), "a step");
            *graphs[i] = (step_graph){0};
        }
    }
}

void cuda_steps_close(dlrm_backend *be)
{
    cuda_impl *c = cuda_of(be);
    cuda_steps *s = c->steps;
    if (!s) return;
    cuda_release(be, &s->loss);
    cuda_steps_forget(c);
    if (s->ahead) cudaEventDestroy(s->ahead);
    for (int k = 0; k < DLRM_STAGES; k++) {
        if (s->slots[k].end) cudaEventDestroy(s->slots[k].end);
        for (int i = 0; i < STEP_LAPS; i++)
            if (s->slots[k].lap[i]) cudaEventDestroy(s->slots[k].lap[i]);
    }
    dlrm_free(&c->steps);
}

/* --- what a step's ops are given --- */

static void store(const cuda_impl *c, void *to, const void *from, size_t bytes)
{
    cuda_must(c, dlrm_cuda_store(to, from, bytes, c->compute.stream), "a step's settings");
}

void cuda_use_dense(const cuda_impl *c, const dlrm_rule *rule)
{
    const cuda_steps *s = c->steps;
    DLRM_ASSERT(!s->inside || memcmp(rule, &s->now.dense, sizeof *rule) == 0);
    if (!s->inside) store(c, &c->step->dense, rule, sizeof *rule);
}

void cuda_use_embedding(const cuda_impl *c, const dlrm_rule *rule, uint64_t number)
{
    const cuda_steps *s = c->steps;
    DLRM_ASSERT(!s->inside || (number == s->now.number && memcmp(rule, &s->now.embedding, sizeof *rule) == 0));
    if (s->inside) return;
    store(c, &c->step->embedding, rule, sizeof *rule);
    store(c, &c->step->step, &number, sizeof number);
}

double *cuda_loss_place(const cuda_impl *c, double *loss, int nodes)
{
    cuda_steps *s = c->steps;
    if (!c->recording) return loss;
    DLRM_ASSERT(loss == s->now.loss && nodes <= DLRM_MAX_NODES);
    s->graph->loss_nodes = nodes;
    return s->loss;
}

void cuda_upload_aside(const cuda_impl *c, void *to, const void *from_host, size_t bytes)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda_must(c, cudaThreadExchangeStreamCaptureMode(&mode), "upload");
    cuda_must(c, cudaEventSynchronize(c->steps->ahead), "upload"); /* which may read what was there */
    cuda_must(c, cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, c->feed.stream), "upload");
    cuda_must(c, cudaStreamSynchronize(c->feed.stream), "upload");
    cuda_must(c, cudaThreadExchangeStreamCaptureMode(&mode), "upload");
}

/* --- times --- */

void cuda_recorded_lap(const cuda_impl *c, dlrm_phase phase)
{
    const cuda_steps *s = c->steps;
    step_graph *g = s->graph;
    if (g != &s->slot->timed) return;
    DLRM_ASSERT(g->n_laps < STEP_LAPS);
    g->phase[g->n_laps] = phase;
    cuda_must(c, cudaEventRecordWithFlags(s->slot->lap[g->n_laps++], c->compute.stream, cudaEventRecordExternal), "an event");
}

/* Books the times of a slot's last timed step; waits for its end if need be. */
static void read_times(const cuda_impl *c, slot_graphs *slot)
{
    cuda_steps *s = c->steps;
    step_graph *g = &slot->timed;
    if (!g->unread) return;
    g->unread = false;
    cuda_must(c, cudaEventSynchronize(slot->end), "a step");
    for (int i = 1; i < g->n_laps; i++) {
        float ms = 0;
        cuda_must(c, cudaEventElapsedTime(&ms, slot->lap[i - 1], slot->lap[i]), "timing");
        if (g->phase[i] != DLRM_PHASES) s->seconds[g->phase[i]] += 1e-3 * ms;
    }
    s->timed++;
}

void cuda_recorded_laps(const cuda_impl *c, double *seconds)
{
    cuda_steps *s = c->steps;
    for (int k = 0; k < DLRM_STAGES; k++) read_times(c, &s->slots[k]);
    for (int p = 0; p < DLRM_PHASES && s->timed > 0; p++) seconds[p] += s->seconds[p] * (double)s->ran / (double)s->timed;
}

/* --- steps --- */

static void store_settings(const cuda_impl *c, const dlrm_step *step)
{
    const dlrm_cuda_step settings = {.dense = step->dense, .embedding = step->embedding, .seed = c->seed, .step = step->number};
    store(c, c->step, &settings, offsetof(dlrm_cuda_step, loss_scale));
}

dlrm_step_mode cuda_step_begin(dlrm_backend *be, const dlrm_step *step)
{
    cuda_impl *c = cuda_of(be);
    cuda_steps *s = c->steps;
    slot_graphs *slot = &s->slots[step->slot];
    DLRM_ASSERT(!s->inside);
    s->inside = true;
    s->now = *step;
    s->graph = NULL;
    s->slot = slot;
    store_settings(c, step);
    if (!s->enabled || (slot->B ? slot->B : slot->before) != step->B) {
        slot->before = step->B;
        return DLRM_STEP_RUN;
    }
    slot->B = step->B;
    s->graph = s->ran++ % TIMED_EVERY == 0 ? &slot->timed : &slot->plain;
    if (s->graph == &slot->timed) read_times(c, slot);
    if (s->graph->exec) return DLRM_STEP_REPLAY;
    cuda_must(c, cudaEventRecord(s->ahead, c->compute.stream), "an event");
    cuda_must(c, cudaStreamBeginCapture(c->compute.stream, cudaStreamCaptureModeThreadLocal), "recording a step");
    c->recording = true;
    return DLRM_STEP_RECORD;
}

static void end_recording(cuda_impl *c, step_graph *g)
{
    cudaGraph_t graph;
    c->recording = false;
    cuda_must(c, cudaStreamEndCapture(c->compute.stream, &graph), "recording a step");
    cuda_must(c, cudaGraphInstantiateWithFlags(&g->exec, graph, cudaGraphInstantiateFlagUseNodePriority), "recording a step");
    cuda_must(c, cudaGraphDestroy(graph), "recording a step");
}

void cuda_step_end(dlrm_backend *be)
{
    cuda_impl *c = cuda_of(be);
    cuda_steps *s = c->steps;
    step_graph *g = s->graph;
    DLRM_ASSERT(s->inside);
    s->inside = false;
    if (!g) return;
    if (c->recording) end_recording(c, g);
    cuda_must(c, cudaGraphLaunch(g->exec, c->compute.stream), "a step");
    if (g->loss_nodes > 0)
        cuda_must(c, cudaMemcpyAsync(s->now.loss, s->loss, (size_t)g->loss_nodes * sizeof *s->loss, cudaMemcpyDeviceToDevice, c->compute.stream),
                  "a loss");
    g->unread = g->n_laps > 1;
    if (g->unread) cuda_must(c, cudaEventRecord(s->slot->end, c->compute.stream), "an event");
}
