/* `dlrm_data multihot`: MLPerf's multi-hot data set from one-hot rows. */
#pragma once
#include "base/status.h"

enum { DLRM_MLPERF_FEATURES = 26, DLRM_MLPERF_IDS = 214 };
extern const int dlrm_mlperf_hotness[DLRM_MLPERF_FEATURES]; /* of DLRM-DCNv2's tables; DLRM_MLPERF_IDS in all */

dlrm_status dlrm_multihot_main(int argc, char **argv) DLRM_MUST_USE;
