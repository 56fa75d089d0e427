/* Inside of the harness: guarded backend memory. */
#pragma once
#include "harness.h"

enum { GUARD = 64 /* bytes before and behind */, MOST_BUFFERS = 192, MOST_BLOCKS = 8192 };

typedef enum role { INPUT, INOUT, OUTPUT } role;
typedef enum element { F32, F64, BF16, F16, OTHER } element;

typedef struct buffer {
    const char *name;
    role role;
    element type;
    void *data;            /* the data follow the first guard */
    char *block;           /* with the guards; NULL: the backend's own memory (weights) */
    unsigned char *before; /* INPUT: as uploaded */
    int64_t rows, width, pitch;
    size_t bytes;
} buffer;

/* Configurations of one backend. Those of a group must agree in every bit. */
typedef struct subject {
    const char *name;
    dlrm_status (*open)(const dlrm_backend_args *, dlrm_backend *);
    dlrm_dtype precision;
    int threads;
    bool pinned;
    int group;
} subject;

struct harness {
    dlrm_backend be;
    const subject *subject;
    const family *family;
    char label[200];
    uint64_t seed, drawn; /* random numbers used by this case */
    int n_buffers, n_blocks;
    buffer buffers[MOST_BUFFERS];
    void *blocks[MOST_BLOCKS];
    float *weights;  /* the backend's; NULL: not open */
    uint64_t digest; /* of everything compared in this case */
    int failures, case_failures;
};

/* Opens the backend for the subject; ends the program where that fails. */
void h_open(harness *h);
void h_close(harness *h);
/* Checks what must not have changed, and frees the case's memory. */
void h_end_case(harness *h);
