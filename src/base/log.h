/* Human output. Rank 0 speaks on stdout; warnings go to stderr, from rank 0 too unless said otherwise. */
#pragma once
#include <stdbool.h>

#include "base/status.h"

void dlrm_log_init(int rank); /* before it, this process counts as rank 0 */
void dlrm_info(const char *fmt, ...) DLRM_PRINTF(1, 2);  /* a line on stdout, rank 0 only */
void dlrm_warn(const char *fmt, ...) DLRM_PRINTF(1, 2);  /* "dlrm-train: warning: …" on stderr, rank 0 only */
/* Prints `text` as one line, in one write, on stderr, from whatever rank calls. */
void dlrm_error_line(const char *text);

/* A progress bar line that the next dlrm_info replaces; only when stdout is a terminal. */
void dlrm_progress(const char *fmt, ...) DLRM_PRINTF(1, 2);
bool dlrm_log_is_terminal(void); /* does what this rank prints end up on a terminal? */

double dlrm_now(void);        /* monotonic seconds */
double dlrm_now_since_1970(void); /* seconds, as the system's clock has them */
