/* The file that log.mlperf names: a training in the lines that MLPerf's tools read, `:::MLLOG {…}`, of a key, its value and the time.
 * Rank 0 writes; the others' calls do nothing. Epochs count from 1; an evaluation's epoch_num is how many have passed, as a fraction.
 * What a program cannot know of a submission (division, organisation, platform, whether caches were cleared) is not in it. */
#pragma once
#include "train/jsonl.h"
#include "train/session.h"

typedef struct dlrm_mlperf {
    const dlrm_session *s;
    dlrm_jsonl log; /* closed on ranks other than 0, and where nothing is trained */
    bool running, in_epoch;
} dlrm_mlperf;

/* As dlrm_jsonl_open. */
dlrm_status dlrm_mlperf_open(const dlrm_session *s, bool append, dlrm_mlperf *out) DLRM_MUST_USE;
/* How long the session took to open, the begin of the run, its settings. data_at: when the reader of training rows was started, in
 * seconds since 1970. */
void dlrm_mlperf_run_start(dlrm_mlperf *m, double data_at);
/* Before and after each step, from 1. */
void dlrm_mlperf_step_start(dlrm_mlperf *m, int64_t step);
void dlrm_mlperf_step_stop(dlrm_mlperf *m, int64_t step);
void dlrm_mlperf_eval_start(dlrm_mlperf *m, int64_t step);
/* What the log's step and eval events tell. The event stays the caller's. */
void dlrm_mlperf_write(dlrm_mlperf *m, const json_t *event);
/* success: the run came to eval.target_auc, or, where there is none, to its end. Of several calls the first counts. */
void dlrm_mlperf_run_stop(dlrm_mlperf *m, int64_t step, bool success);
void dlrm_mlperf_close(dlrm_mlperf *m);
