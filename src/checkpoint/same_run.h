/* Is this the training that the checkpoint was taken from? Keys are of three kinds:
 *   fixed    the model, the optimizers' names, the tables' dtype: what the pieces are; they cannot change
 *   matter   everything else that the result depends on (learning rates, schedule, batch size, seed, data, …): refused
 *            where they differ, unless named in checkpoint.allow_changed
 *   free     device, parallel.*, eval.*, checkpoint.*, log.*, train.steps, train.epochs, data.path: where and how long
 * Data in files are compared by their number of training rows, under the name data.path; of synthetic data the settings are
 * compared, which are keys that matter. */
#pragma once
#include <jansson.h>

#include "config/spec.h"

/* What is stored: {"config": {key: value}, "tables": […], "inputs": […], "train_rows": n}. NULL: no memory. */
json_t *dlrm_run_json(const dlrm_config *cfg, const dlrm_model_spec *spec, int64_t train_rows);

/* DLRM_E_INPUT names the first key that differs and both values. from: the checkpoint's folder. weights_only: for evaluation,
 * where only fixed keys count. */
dlrm_status dlrm_run_check(const json_t *stored, const char *from, const dlrm_config *cfg, const dlrm_model_spec *spec, int64_t train_rows,
                           bool weights_only) DLRM_MUST_USE;
