/* dlrm-train: command line, MPI, and the exit code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "train/evaluate.h"
#include "train/plan.h"
#include "train/trainer.h"
#include "train/work.h"

typedef enum mode { TRAIN, CHECK, PLAN, EVAL, PREDICT } mode;

typedef struct command {
    mode mode;
    const char *config, *predict_to, *cluster;
    int ranks; /* to plan for */
    int n_overrides;
    char **overrides; /* [argc] */
} command;

static void usage(FILE *out)
{
    fputs("usage: mpirun -n RANKS dlrm-train CONFIG.yaml [key.path=value ...]       train\n"
          "       dlrm-train CONFIG.yaml --check                                   validate config and data; show model, placement, work\n"
          "       dlrm-train CONFIG.yaml --plan RANKS [--cluster MACHINE.yaml]     placement, memory, traffic and predicted step time on so many\n"
          "                                                                        ranks; needs neither them nor GPUs\n"
          "       mpirun -n RANKS dlrm-train CONFIG.yaml --eval                    evaluate a checkpoint, or checkpoint.init_from\n"
          "       mpirun -n RANKS dlrm-train CONFIG.yaml --predict OUT.npy         one probability per row of the test split, or of its\n"
          "                                                                        first eval.max_samples\n"
          "       dlrm-train --help [topic] | --version\n",
          out);
}

/* --help and --version need no MPI. Returns true if that was all; *code: the exit code. */
static bool answer(int argc, char **argv, int *code)
{
    *code = 0;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("dlrm-train " DLRM_VERSION);
        return true;
    }
    if (argc < 2 || argc > 3 || (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0)) return false;
    const char *topic = argc > 2 ? argv[2] : NULL;
    if (topic && strcmp(topic, "markdown") == 0) {
        dlrm_config_markdown(stdout);
        return true;
    }
    if (!topic) usage(stdout);
    if (!dlrm_config_help(stdout, topic)) {
        fprintf(stderr, "dlrm-train: --help: no topic \"%s\"\n", topic);
        *code = DLRM_E_USAGE;
    }
    return true;
}

/* What was asked for is no success where nobody could read it. */
static dlrm_status check_said(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return DLRM_OK;
    return FAIL(DLRM_E_RUNTIME, "stdout: could not be written in full");
}

static dlrm_status set_mode(command *c, mode m, const char *option)
{
    if (c->mode != TRAIN) return FAIL(DLRM_E_USAGE, "%s: only one of --check, --plan, --eval and --predict can be given", option);
    c->mode = m;
    return DLRM_OK;
}

static dlrm_status parse_ranks(command *c, const char *text)
{
    char *end;
    const long n = text ? strtol(text, &end, 10) : 0;
    if (!text || !*text || *end || n < 1 || n > DLRM_MOST_PLANNED)
        return FAIL(DLRM_E_USAGE, "--plan: found %s%s%s, expected a number of ranks from 1 to %d after it", text ? "\"" : "", text ? text : "nothing",
                    text ? "\"" : "", DLRM_MOST_PLANNED);
    c->ranks = (int)n;
    return DLRM_OK;
}

static dlrm_status parse(int argc, char **argv, command *c)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--check") == 0) {
            TRY(set_mode(c, CHECK, argv[i]));
        } else if (strcmp(argv[i], "--eval") == 0) {
            TRY(set_mode(c, EVAL, argv[i]));
        } else if (strcmp(argv[i], "--plan") == 0) {
            TRY(set_mode(c, PLAN, argv[i]));
            TRY(parse_ranks(c, argv[++i])); /* argv ends with NULL */
        } else if (strcmp(argv[i], "--cluster") == 0) {
            if (i + 1 == argc) return FAIL(DLRM_E_USAGE, "--cluster: expected a file name after it");
            c->cluster = argv[++i];
        } else if (strcmp(argv[i], "--predict") == 0) {
            TRY(set_mode(c, PREDICT, argv[i]));
            if (i + 1 == argc) return FAIL(DLRM_E_USAGE, "--predict: expected a file name after it");
            c->predict_to = argv[++i];
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0) {
            return FAIL(DLRM_E_USAGE, "%s: is given alone, or --help with one topic", argv[i]);
        } else if (argv[i][0] == '-') {
            return FAIL(DLRM_E_USAGE, "unknown option %s; see dlrm-train --help", argv[i]);
        } else if (strchr(argv[i], '=')) {
            c->overrides[c->n_overrides++] = argv[i];
        } else if (c->config) {
            return FAIL(DLRM_E_USAGE, "two config files, %s and %s; a setting is given as key.path=value", c->config, argv[i]);
        } else {
            c->config = argv[i];
        }
    }
    if (c->cluster && c->mode != PLAN) return FAIL(DLRM_E_USAGE, "--cluster: only --plan takes it");
    return c->config ? DLRM_OK : FAIL(DLRM_E_USAGE, "no config file; see dlrm-train --help");
}

static dlrm_status need_test_and_weights(const dlrm_session *s, const char *option)
{
    if (!dlrm_session_has_test(s)) return FAIL(DLRM_E_INPUT, "%s: %s has no test split", option, s->cfg.data.path);
    if (!s->cfg.checkpoint.init_from && !s->from.folder[0])
        return FAIL(DLRM_E_INPUT, "%s: there is no checkpoint to resume, and checkpoint.init_from is not set: there are no weights to evaluate",
                    option);
    return DLRM_OK;
}

static dlrm_status plan(const command *c, dlrm_comm *comm)
{
    dlrm_machine machine = {0};
    dlrm_session s;
    if (comm->ranks > 1)
        return FAIL(DLRM_E_USAGE, "--plan: found %d ranks, expected one process: it is arithmetic for the number of ranks after it", comm->ranks);
    if (c->cluster) TRY(dlrm_machine_load(c->cluster, &machine));
    dlrm_status st = dlrm_session_open_plan(c->config, c->n_overrides, c->overrides, comm, c->ranks, &machine, &s);
    if (st == DLRM_OK) st = dlrm_plan_print(&s);
    if (st == DLRM_OK) st = check_said();
    dlrm_session_close(&s);
    return st;
}

/* *code: the exit code of a run that ended without an error. */
static dlrm_status run(const command *c, dlrm_comm *comm, int *code)
{
    const dlrm_purpose purpose = c->mode == CHECK ? DLRM_TO_CHECK : c->mode == TRAIN ? DLRM_TO_TRAIN : DLRM_TO_SCORE;
    dlrm_session s;
    dlrm_status st;
    *code = 0;
    if (c->mode == PLAN) return plan(c, comm);
    TRY_TO(done, st, dlrm_session_open(c->config, c->n_overrides, c->overrides, comm, purpose, &s));
    if (c->mode == CHECK) {
        TRY_TO(done, st, dlrm_work_print(&s));
        st = dlrm_comm_agree(comm, comm->rank == 0 ? check_said() : DLRM_OK);
        goto done;
    }
    if (purpose == DLRM_TO_SCORE) TRY_TO(done, st, need_test_and_weights(&s, c->mode == EVAL ? "--eval" : "--predict"));
    TRY_TO(done, st, dlrm_session_open_model(&s));
    st = c->mode == TRAIN ? dlrm_train(&s, code) : c->mode == EVAL ? dlrm_train_eval_only(&s) : dlrm_predict(&s, c->predict_to);
done:
    dlrm_session_close(&s);
    return st;
}

int main(int argc, char **argv)
{
    int code;
    command c = {0};
    dlrm_comm comm;
    dlrm_status st;
    dlrm_files_hold_standard();
    if (answer(argc, argv, &code)) {
        st = check_said();
        if (st != DLRM_OK) fprintf(stderr, "dlrm-train: %s\n", dlrm_error_message());
        return st == DLRM_OK ? code : (int)st;
    }
    st = dlrm_comm_open(&argc, &argv, &comm);
    if (st == DLRM_OK) {
        c.overrides = calloc((size_t)argc, sizeof *c.overrides);
        st = c.overrides ? parse(argc, argv, &c) : FAIL(DLRM_E_RUNTIME, "out of memory");
        if (st == DLRM_OK) st = run(&c, &comm, &code);
        free(c.overrides);
    }
    /* Every rank has the same status: the message is said once. One on input starts with the place, FILE:LINE:COLUMN. */
    if (st != DLRM_OK && comm.rank == 0) {
        char text[4200];
        snprintf(text, sizeof text, "%s%s", st == DLRM_E_INPUT ? "" : "dlrm-train: ", dlrm_error_message());
        dlrm_error_line(text);
    }
    dlrm_comm_close(&comm);
    return st == DLRM_OK ? code : (int)st;
}
