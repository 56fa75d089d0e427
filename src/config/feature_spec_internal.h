/* Shared by the two descriptions of a split-binary folder and the check of its files. */
#pragma once
#include "base/kinds.h"
#include "config/feature_spec.h"

enum { DLRM_MAX_FEATURES = 1 << 20, DLRM_MAX_HOTNESS = 1 << 20 };

/* Room for the categorical features and each split's file names. */
dlrm_status dlrm_feature_spec_make(const char *path, int n_categorical, dlrm_feature_spec *out) DLRM_MUST_USE;
/* A regular file's size; anything else is an error that names it. */
dlrm_status dlrm_feature_file_bytes(const char *path, int64_t *bytes) DLRM_MUST_USE;
/* The number of fp16 columns in numerical.bin, from its size and that of label.bin; without the file there are none. */
dlrm_status dlrm_feature_count_dense(dlrm_feature_spec *spec) DLRM_MUST_USE;
