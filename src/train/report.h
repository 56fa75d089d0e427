/* What a run says: lines and a progress bar on stdout, events to log.jsonl, log.tensorboard and log.mlperf (docs/log.md). Rank 0
 * writes; the functions marked so are collective. */
#pragma once
#include "checkpoint/save.h"
#include "train/evaluate.h"
#include "train/mlperf.h"
#include "train/work.h"

typedef struct dlrm_report dlrm_report;

/* Collective. Opens the log file and writes the start event and its lines, and, in a run that goes on from a checkpoint, the
 * resume event. append: keep what the file has (such a run's log continues; --eval must not cost the log of the training). */
dlrm_status dlrm_report_open(dlrm_session *s, bool append, dlrm_report **out) DLRM_MUST_USE;
void dlrm_report_close(dlrm_report **r);
/* For what MLPerf's lines tell and events do not. */
dlrm_mlperf *dlrm_report_mlperf(dlrm_report *r);

/* After each training step: how long it took, of that waiting for data, ids clamped. Allocates nothing. */
void dlrm_report_step(dlrm_report *r, int64_t step, int64_t samples, double seconds, double wait_seconds);
/* A loss that the next line's mean counts. */
void dlrm_report_loss(dlrm_report *r, double loss);
/* The losses that the next line's mean counts so far: to be saved, and to be set where a run goes on. */
void dlrm_report_losses(const dlrm_report *r, double *sum, int64_t *n);
void dlrm_report_set_losses(dlrm_report *r, double sum, int64_t n);
/* Collective, also the next. Step line and event: the window since the last one. */
void dlrm_report_line(dlrm_report *r, int64_t step, int64_t steps, double loss, double rate, double embedding_rate);
void dlrm_report_evaluation(dlrm_report *r, int64_t step, const dlrm_evaluation *e);
void dlrm_report_checkpoint(dlrm_report *r, const dlrm_save_result *c);
/* Collective. Closing summary and end event. file_bytes: read by this rank. */
dlrm_status dlrm_report_end(dlrm_report *r, const char *why, int64_t file_bytes, int64_t clamped) DLRM_MUST_USE;
