/* `dlrm_data synth`: made rows in Criteo's raw text or as split-binary, with labels of a planted model. */
#pragma once
#include "base/status.h"

dlrm_status dlrm_synth_main(int argc, char **argv) DLRM_MUST_USE;
