#include "model/translate.h"

enum { CHUNK = 4096 /* keys that a thread looks up at a time */, FEWEST = 4 /* threads with which it pays (docs/benchmarks.md) */ };

static int64_t keys_of(const dlrm_translation_job *job)
{
    int64_t keys = 0;
    for (int i = 0; i < job->n; i++) keys += job->inputs[i].count;
    return keys;
}

/* Has a table more than a thread's share? */
static bool uneven(int n, const dlrm_translation_job *jobs, int threads)
{
    int64_t all = 0, most = 0;
    for (int k = 0; k < n; k++) {
        const int64_t keys = keys_of(&jobs[k]);
        all += keys;
        most = keys > most ? keys : most;
    }
    return most > CHUNK && most > (all + threads - 1) / threads;
}

/* By all threads of the team, each some chunks. */
static void look_up(dlrm_translation_job *job)
{
    for (int i = 0; i < job->n; i++) {
        const dlrm_translation *t = &job->inputs[i];
#pragma omp for schedule(dynamic) nowait
        for (int64_t at = 0; at < t->count; at += CHUNK) {
            const int64_t n = t->count - at < CHUNK ? t->count - at : CHUNK;
            const int64_t missing = dlrm_vocabulary_look_up(job->vocabulary, t->keys + at, n, t->rows + at);
#pragma omp atomic
            job->missing += missing;
        }
    }
}

static void count(const dlrm_translation_job *job, int parts)
{
#pragma omp for schedule(dynamic) nowait
    for (int part = 0; part < parts; part++)
        for (int i = 0; i < job->n; i++) dlrm_vocabulary_use(job->vocabulary, job->inputs[i].rows, job->inputs[i].count, part, parts);
}

static void translate_cut(int n, dlrm_translation_job *jobs, bool learn, int threads)
{
    for (int k = 0; k < n; k++) {
        jobs[k].missing = 0;
        if (learn && jobs[k].n > 0) dlrm_vocabulary_begin(jobs[k].vocabulary);
    }
#pragma omp parallel num_threads(threads)
    {
        for (int k = 0; k < n; k++) look_up(&jobs[k]);
#pragma omp barrier
        for (int k = 0; learn && k < n; k++) count(&jobs[k], threads);
#pragma omp barrier
#pragma omp for schedule(dynamic)
        for (int k = 0; k < n; k++)
            if (jobs[k].n > 0)
                (learn ? dlrm_vocabulary_meet : dlrm_vocabulary_unknown)(jobs[k].vocabulary, jobs[k].n, jobs[k].inputs, jobs[k].missing);
    }
}

void dlrm_translate(int n, dlrm_translation_job *jobs, bool learn, int threads)
{
    if (threads >= FEWEST && uneven(n, jobs, threads)) {
        translate_cut(n, jobs, learn, threads);
        return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int k = 0; k < n; k++)
        if (jobs[k].n > 0) (learn ? dlrm_vocabulary_learn : dlrm_vocabulary_translate)(jobs[k].vocabulary, jobs[k].n, jobs[k].inputs);
}
