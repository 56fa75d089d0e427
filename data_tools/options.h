/* Command-line options of a sub-command: one table drives parsing, range checks and --help. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlrm_option_kind {
    DLRM_OPT_FLAG,   /* bool * */
    DLRM_OPT_TEXT,   /* const char ** */
    DLRM_OPT_INT,    /* int64_t *, in [min, max] */
    DLRM_OPT_SIZE,   /* int64_t *, bytes: a number with K, M, G or T (powers of 1024) */
    DLRM_OPT_FLOAT,  /* double *, in [min, max] */
    DLRM_OPT_CHOICE, /* int *: index into choices */
} dlrm_option_kind;

typedef struct dlrm_option {
    const char *name; /* without the dashes */
    dlrm_option_kind kind;
    void *value;
    const char *argument; /* its name in --help */
    const char *help;
    double min, max;
    const char *const *choices; /* NULL-terminated */
} dlrm_option;

typedef struct dlrm_usage {
    const char *command;  /* "convert" */
    const char *synopsis; /* what follows the command's name */
    const char *text;     /* paragraphs after the synopsis */
    const dlrm_option *options;
    int n_options;
} dlrm_usage;

/* Moves the positional arguments to argv[0 … *n_positional-1]. *help: --help was met (its text is printed). Errors are
 * DLRM_E_USAGE and name option, value and what was expected. */
dlrm_status dlrm_options_parse(const dlrm_usage *usage, int argc, char **argv, int *n_positional,
                               bool *help) DLRM_MUST_USE;
