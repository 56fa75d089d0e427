/* dlrm_data: one program, a sub-command per job. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/files.h"
#include "convert.h"
#include "info.h"
#include "multihot.h"
#include "shuffle.h"
#include "synth.h"

static const struct command {
    const char *name, *summary;
    dlrm_status (*run)(int argc, char **argv);
} commands[] = {
    {"info", "what a folder or file holds: format, rows, features, problems", dlrm_info_main},
    {"verify", "every row and value of a folder or file checked", dlrm_verify_main},
    {"convert", "rows from one format to another; Criteo's text to ids", dlrm_convert_main},
    {"shuffle", "the training rows of a folder in random order", dlrm_shuffle_main},
    {"multihot", "MLPerf's multi-hot rows from one-hot ones", dlrm_multihot_main},
    {"synth", "rows in Criteo's shape with labels of a planted model", dlrm_synth_main},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out)
{
    fprintf(out, "usage: dlrm_data COMMAND [arguments]\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n'dlrm_data COMMAND --help' explains one; 'dlrm_data --version' names this release.\n");
}

int main(int argc, char **argv)
{
    dlrm_files_hold_standard();
    if (argc < 2) {
        usage(stderr);
        return DLRM_E_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        usage(stdout);
        return DLRM_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dlrm_data %s\n", DLRM_VERSION);
        return DLRM_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, argv[1]) != 0) continue;
        dlrm_status st = commands[i].run(argc - 2, argv + 2);
        if (st != DLRM_OK) fprintf(stderr, "dlrm_data: %s\n", dlrm_error_message());
        return st;
    }
    fprintf(stderr, "dlrm_data: unknown command %s; 'dlrm_data --help' lists them\n", argv[1]);
    return DLRM_E_USAGE;
}
