/* `dlrm_data info` and `verify`: what files hold, of a sample of rows or of all. */
#pragma once
#include <stdint.h>

#include "base/status.h"

dlrm_status dlrm_info_main(int argc, char **argv) DLRM_MUST_USE;
dlrm_status dlrm_verify_main(int argc, char **argv) DLRM_MUST_USE;

/* The same of a text file; lines: at most so many from its beginning, 0: all. *problems: malformed lines and the like. */
dlrm_status dlrm_info_text(const char *path, int64_t lines, int64_t *problems) DLRM_MUST_USE;
