/* Data files: opening, exact reads, and finding them by name. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* For reading in order, from front to back, or not; raises the soft limit on open files where that is too low. */
dlrm_status dlrm_file_open(const char *path, bool in_order, int *fd) DLRM_MUST_USE;
void dlrm_file_close(int *fd); /* -1: not open */
/* Exactly so many bytes, which are added to *count. */
dlrm_status dlrm_file_read(const char *path, int fd, int64_t at, int64_t bytes, void *out,
                           int64_t *count) DLRM_MUST_USE;

typedef struct dlrm_names {
    int n;
    char **v;
} dlrm_names;

/* Names in a folder that end in `suffix`, without it, in natural order: day_2 before day_10. */
dlrm_status dlrm_names_list(const char *folder, const char *suffix, dlrm_names *out) DLRM_MUST_USE;
void dlrm_names_free(dlrm_names *names); /* copes with {0} */
