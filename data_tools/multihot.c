#include "multihot.h"

const int dlrm_mlperf_hotness[DLRM_MLPERF_FEATURES] = {3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};
