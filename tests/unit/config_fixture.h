/* For the tests of configs: a good one, the text of messages, and the check that all memory comes back. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "config/spec.h"

static const char good_config[] = "# synthetic\n"
                                  "model:\n"
                                  "  dense_features: 13\n"
                                  "  embedding_dim: 16\n"
                                  "  bottom_mlp: [64, 16]\n"
                                  "  interaction: dot\n"
                                  "  top_mlp: [32, 1]\n"
                                  "  tables:\n"
                                  "    - {name: C1, rows: 1000}\n"
                                  "    - {count: 2, rows: 100}\n"
                                  "optimizer:\n"
                                  "  dense: {name: sgd, learning_rate: 24.0}\n"
                                  "  embedding: {name: adagrad, learning_rate: 1e-2}\n"
                                  "train: {batch_size: 64}\n"
                                  "data: {format: synthetic}\n";

static inline int no_blocks_left(void **state)
{
    (void)state;
    if (dlrm_mem_live_blocks() == 0) return 0;
    print_error("%lld blocks were not freed\n", (long long)dlrm_mem_live_blocks());
    return -1;
}

/* Parses the good config with overrides, separated by '\n' in one text. */
static inline dlrm_status parse_with(const char *overrides, dlrm_config *cfg)
{
    static char text[4096]; /* cfg keeps nothing of it */
    char *list[32];
    int n = 0;
    snprintf(text, sizeof text, "%s", overrides);
    for (char *save, *o = strtok_r(text, "\n", &save); o; o = strtok_r(NULL, "\n", &save)) list[n++] = o;
    return dlrm_config_parse("good.yaml", good_config, strlen(good_config), n, list, cfg);
}

static inline void assert_message(dlrm_status st, const char *expected)
{
    if (st != DLRM_E_INPUT || strcmp(dlrm_error_message(), expected) != 0)
        fail_msg("status %d, message\n  %s\nexpected\n  %s", st, dlrm_error_message(), expected);
}

static inline void assert_refused_with(const char *overrides, const char *expected)
{
    dlrm_config cfg;
    assert_message(parse_with(overrides, &cfg), expected);
    assert_null(cfg.doc.root);
}

static inline void assert_taken(dlrm_status st)
{
    if (st != DLRM_OK) fail_msg("status %d: %s", st, dlrm_error_message());
}
