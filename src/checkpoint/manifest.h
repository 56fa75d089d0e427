/* A checkpoint's manifest.json, written last: how far the training had come, with which config and data, and the size and
 * checksums of every file. Its own checksum ends it, so a checkpoint with any byte changed is known as such. */
#pragma once
#include <jansson.h>

#include "checkpoint/piece_file.h"

#define DLRM_MANIFEST_NAME "manifest.json"
/* Beyond it, which no run comes to, there is none left for the next checkpoint. */
#define DLRM_MOST_SERIAL (INT64_C(1) << 59)

/* Where the training stands between two steps: all of its state that is no tensor. */
typedef struct dlrm_train_state {
    int64_t step;         /* steps made */
    int64_t updates;      /* optimizer updates made or skipped: numbers random bits; Adam's t is this less skipped_steps */
    int64_t epoch, row;   /* of the next batch: epochs before it, its first row */
    double loss_scale;    /* of the next step; 0: losses are not scaled, */
    int64_t good_steps, skipped_steps; /* and these are 0: steps since it changed, steps skipped so far */
    double loss_sum;      /* of the log's open window, */
    int64_t losses;       /* and how many */
    bool evaluated;       /* the evaluation that was due after this step has been made */
    double auc;           /* of the latest evaluation; NaN: none yet */
} dlrm_train_state;

typedef struct dlrm_manifest {
    int64_t serial;       /* grows with every checkpoint of a folder: the newest has the largest */
    dlrm_train_state progress;
    int ranks;            /* that wrote it: one file each */
    dlrm_piece_file_facts *files; /* [ranks] */
    json_t *run;          /* what has to be the same for a training to go on: same_run.h */
} dlrm_manifest;

/* rank_00003.safetensors */
enum { DLRM_RANK_FILE_BYTES = 32, DLRM_MAX_CHECKPOINT_RANKS = 100000 };
void dlrm_rank_file_name(int rank, char out[DLRM_RANK_FILE_BYTES]);

/* Is there room for it in a manifest that can be read again? DLRM_E_INPUT. */
dlrm_status dlrm_manifest_check_room(const json_t *run) DLRM_MUST_USE;
/* The text of the file; free() it. NULL: no memory. */
char *dlrm_manifest_text(const dlrm_manifest *m);
/* The second part of that, for tests: a JSON map whose last member is a text, with its checksum put at the end; free() it. */
void dlrm_manifest_sign(const char *body, char **out);
/* Reads FOLDER/manifest.json. DLRM_E_INPUT names the file and what is wrong. */
dlrm_status dlrm_manifest_load(const char *folder, dlrm_manifest *out) DLRM_MUST_USE;
/* The same from bytes; `path` stands for the file. */
dlrm_status dlrm_manifest_parse(const char *path, const char *text, int64_t bytes, dlrm_manifest *out) DLRM_MUST_USE;
void dlrm_manifest_clear(dlrm_manifest *m); /* copes with {0} */
