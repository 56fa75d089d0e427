/* The course of a training, counted in steps: where it ends, where it stands, and when it evaluates. */
#pragma once
#include "train/session.h"

/* Steps that the config asks for, counted from the start of the training, and evaluations on the rest of the way if nothing
 * stops them early. */
int64_t dlrm_course_steps(const dlrm_session *s);
int64_t dlrm_course_evaluations(const dlrm_session *s);
/* Batches read in all when this step is made, counted over epochs. */
int64_t dlrm_course_position(const dlrm_session *s, int64_t step);
/* Is an evaluation due after this step (from 1)? */
bool dlrm_course_evaluates(const dlrm_session *s, int64_t step);
