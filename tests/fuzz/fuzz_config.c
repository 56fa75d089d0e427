/* Config text into the parser, the key table and the model's expansion. What follows a NUL byte, up to the next, is an
 * override as on the command line. Whatever comes in, there is a config or one message, and no memory is left. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_OVERRIDES = 16, MOST_TABLES = 1 << 12 };

/* A handful of bytes may ask for a million tables, which is allowed but slow to try each time. */
static bool few_tables(const dlrm_config *cfg)
{
    int64_t tables = 0;
    for (int i = 0; i < cfg->model.n_tables; i++)
        tables += (cfg->model.tables[i].count + 1) * (cfg->model.tables[i].hotness.fixed.n + 1);
    return tables <= MOST_TABLES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *overrides[MOST_OVERRIDES], *text = malloc(size + 1);
    int n = 0;
    DLRM_ASSERT(text);
    memcpy(text, data, size);
    text[size] = '\0';
    size_t length = strlen(text);
    for (size_t at = length + 1; at < size && n < MOST_OVERRIDES; at += strlen(text + at) + 1)
        overrides[n++] = text + at;

    dlrm_config cfg;
    dlrm_model_spec spec = {0};
    dlrm_status st = dlrm_config_parse("config.yaml", text, length, n, overrides, &cfg);
    if (st == DLRM_OK && cfg.data.format == DLRM_SYNTHETIC && few_tables(&cfg))
        st = dlrm_model_spec_resolve(&cfg, NULL, &spec);
    DLRM_ASSERT(st == DLRM_OK || (st == DLRM_E_INPUT && strchr(dlrm_error_message(), ':')));
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&cfg);
    free(text);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
