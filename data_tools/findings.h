/* What is wrong with rows. A reader that meets a bad value either fails with it, or, where somebody collects findings,
 * counts it by place and kind and goes on: then the value reads as 0. */
#pragma once
#include <stdint.h>

#include "base/status.h"

enum { DLRM_FINDINGS = 256 };

typedef struct dlrm_finding {
    const void *place; /* a file or feature: told apart by address */
    const char *kind;  /* told apart by address, too */
    int64_t count;
    char first[600]; /* the message of the first one */
} dlrm_finding;

typedef struct dlrm_findings {
    int n;
    int64_t all;
    dlrm_finding list[DLRM_FINDINGS]; /* the first so many (place, kind) pairs; `all` counts the others, too */
} dlrm_findings;

/* `to` NULL: fails with the message. */
dlrm_status dlrm_found(dlrm_findings *to, const void *place, const char *kind, const char *fmt, ...) DLRM_PRINTF(4, 5) DLRM_MUST_USE;
/* Prints them, one a line, with how many more there are of each. */
void dlrm_findings_print(const dlrm_findings *f);
