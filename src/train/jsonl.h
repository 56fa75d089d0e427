/* The file of lines with a JSON object each that log.jsonl or log.mlperf names: a file, which a fresh run replaces and a resumed one appends to, a pipe that somebody reads, a
 * device, or what the process has open already, as /dev/stdout or /dev/fd/N, which it goes on with and never replaces. A file that
 * is no log stays as it is. Training is worth more than its log, which ends where it cannot be written. */
#pragma once
#include <jansson.h>

#include "config/config.h"

typedef struct dlrm_jsonl_kind {
    const char *key;    /* of the config, which names the file */
    const char *before; /* the object, in each line */
    const char *first;  /* bytes of each such file */
    const char *words;  /* what it is a log of */
} dlrm_jsonl_kind;

typedef struct dlrm_jsonl {
    int fd; /* -1: none, or it has ended */
    const dlrm_jsonl_kind *kind;
    const char *path;
    bool replaces; /* what the file has, at the first line: a run that is refused costs no log */
    bool shared; /* it was open before, and what else is written through its descriptor goes between the lines */
} dlrm_jsonl;

/* DLRM_E_INPUT where it cannot be created, is a file that does not begin as such a log, a pipe that nobody reads, open for reading
 * alone, or a disk itself. path: NULL opens none; borrowed, as the kind. */
dlrm_status dlrm_jsonl_open(const dlrm_config *cfg, const dlrm_jsonl_kind *kind, const char *path, bool append, dlrm_jsonl *out) DLRM_MUST_USE;
/* Two files of a run are one, and would overwrite each other: DLRM_E_INPUT at the second one's key. */
dlrm_status dlrm_jsonl_check_apart(const dlrm_config *cfg, const dlrm_jsonl *first, const dlrm_jsonl *second) DLRM_MUST_USE;
void dlrm_jsonl_write(dlrm_jsonl *l, json_t *event); /* one line; takes the event */
void dlrm_jsonl_close(dlrm_jsonl *l);
