/* The file that log.jsonl names: a file, which a fresh run replaces and a resumed one appends to, a pipe that somebody reads, a
 * device, or what the process has open already, as /dev/stdout or /dev/fd/N, which it goes on with and never replaces. A file that
 * is no log stays as it is. Training is worth more than its log, which ends where it cannot be written. */
#pragma once
#include <jansson.h>

#include "config/config.h"

typedef struct dlrm_jsonl {
    int fd; /* -1: none, or it has ended */
    const char *path;
} dlrm_jsonl;

/* DLRM_E_INPUT where it cannot be created, is a file that does not begin as a log, a pipe that nobody reads, open for reading alone, or a disk itself. log.jsonl: null opens none. */
dlrm_status dlrm_jsonl_open(const dlrm_config *cfg, bool append, dlrm_jsonl *out) DLRM_MUST_USE;
void dlrm_jsonl_write(dlrm_jsonl *l, json_t *event); /* one line; takes the event */
void dlrm_jsonl_close(dlrm_jsonl *l);
