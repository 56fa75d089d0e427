/* The options by which every sub-command is told what files do not say themselves. */
#pragma once
#include "options.h"
#include "row_source.h"

#define DLRM_HINT_OPTIONS(h)                                                                                                        \
    {"from-dense", DLRM_OPT_CHOICE, &(h).form, "KIND", "how the input's dense values were made: counts, log1, log3 or floats",      \
     .choices = dlrm_form_names},                                                                                                   \
    {"dense-features", DLRM_OPT_INT, &(h).n_dense, "N", "headerless records: dense values of a row (default 13)", .min = 0,         \
     .max = 1 << 20},                                                                                                               \
    {"cardinalities", DLRM_OPT_TEXT, &(h).cardinalities, "LIST", "headerless records: ids of each feature", .min = 0},              \
    {"key-bits", DLRM_OPT_CHOICE, &(h).key_width, "N", "hugectr_norm: 32 or 64 (default: found by trying)", .choices = dlrm_key_widths}
/* Where a sub-command has no --hotness of its own. */
#define DLRM_HOTNESS_OPTION(h) \
    {"hotness", DLRM_OPT_TEXT, &(h).hotness, "LIST", "headerless records: ids a row of each feature, as 3,1,2", .min = 0}
