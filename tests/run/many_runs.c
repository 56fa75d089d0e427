/* Trainings one after the other in one process, for tests that need many small ones: starting ranks takes longer than they do.
 *
 *   mpirun -n N many_runs CONFIG LIST      LIST: a line for each training, of settings key.path=value
 *
 * Ends at the first that fails, with its message and exit code. */
#include <stdio.h>
#include <string.h>

#include "train/trainer.h"

enum { SETTINGS = 32 };

static dlrm_status train(const char *config, char *line, dlrm_comm *comm)
{
    char *settings[SETTINGS], *rest = NULL;
    int n = 0, code = 0;
    dlrm_session s;
    dlrm_status st;
    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        DLRM_ASSERT(n < SETTINGS);
        settings[n++] = word;
    }
    TRY_TO(done, st, dlrm_session_open(config, n, settings, comm, DLRM_TO_TRAIN, &s));
    TRY_TO(done, st, dlrm_session_open_model(&s));
    st = dlrm_train(&s, &code);
    if (st == DLRM_OK && code != 0) st = FAIL(DLRM_E_RUNTIME, "ended with %d", code);
done:
    dlrm_session_close(&s);
    return st;
}

int main(int argc, char **argv)
{
    dlrm_comm comm;
    char line[4096], copy[4096];
    dlrm_status st = dlrm_comm_open(&argc, &argv, &comm);
    FILE *list = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (st == DLRM_OK && !list) st = FAIL(DLRM_E_USAGE, "expected a config and a list that can be read");
    while (st == DLRM_OK && fgets(line, sizeof line, list)) {
        snprintf(copy, sizeof copy, "%s", line);
        st = train(argv[1], copy, &comm);
        if (st != DLRM_OK && comm.rank == 0) fprintf(stderr, "%s%s\n", line, dlrm_error_message());
    }
    if (list) fclose(list);
    dlrm_comm_close(&comm);
    return (int)st;
}
