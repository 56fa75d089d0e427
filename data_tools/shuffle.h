/* `dlrm_data shuffle`: the training rows of a folder in random order. */
#pragma once
#include "base/status.h"

dlrm_status dlrm_shuffle_main(int argc, char **argv) DLRM_MUST_USE;
