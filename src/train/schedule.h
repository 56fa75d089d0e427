/* The learning rate of a step. Pure arithmetic: every rank computes the same rate. */
#pragma once
#include <stdint.h>

#include "config/config.h"

/* Rate of step `step` (from 1) for base rate `base`: linear warm-up, hold, polynomial decay, hold. Zero steps of
 * warm-up or decay switch that phase off. */
double dlrm_schedule_rate(const dlrm_schedule_config *s, double base, int64_t step);
