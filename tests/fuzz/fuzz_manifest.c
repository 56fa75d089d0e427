/* Bytes of a checkpoint's manifest, given a checksum that fits: refused with one message that names the file, or a manifest whose
 * numbers are in range and whose files have the names that they must have, and whose config is compared with a run's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/manifest.h"
#include "checkpoint/same_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config_text[] =
    "model: {dense_features: 3, embedding_dim: 4, bottom_mlp: [8, 4], interaction: dot, top_mlp: [1], tables: [{name: a, rows: 5}, {rows: 7}]}\n"
    "optimizer: {dense: {name: sgd, learning_rate: 1}, embedding: {name: adagrad, learning_rate: 1}}\n"
    "train: {batch_size: 16}\ndata: {format: synthetic}\n";

static void check(const dlrm_manifest *m)
{
    const dlrm_train_state *p = &m->progress;
    dlrm_config cfg;
    dlrm_model_spec spec;
    DLRM_ASSERT(m->serial >= 0 && m->ranks >= 1 && m->ranks <= DLRM_MAX_CHECKPOINT_RANKS && json_is_object(m->run));
    DLRM_ASSERT(p->step >= 0 && p->updates >= 0 && p->epoch >= 0 && p->row >= 0 && p->losses >= 0);
    for (int r = 0; r < m->ranks; r++) DLRM_ASSERT(m->files[r].bytes >= 0);
    DLRM_ASSERT(dlrm_config_parse("config", config_text, sizeof config_text - 1, 0, NULL, &cfg) == DLRM_OK);
    DLRM_ASSERT(dlrm_model_spec_resolve(&cfg, NULL, &spec) == DLRM_OK);
    for (int weights_only = 0; weights_only < 2; weights_only++) {
        dlrm_status st = dlrm_run_check(m->run, "ckpt", &cfg, &spec, 160, weights_only);
        DLRM_ASSERT(st == DLRM_OK || st == DLRM_E_INPUT);
    }
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&cfg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *body = malloc(size + 3), *text = NULL;
    dlrm_manifest m;
    if (!body) abort();
    memcpy(body, data, size);
    while (size > 0 && (body[size - 1] == '\n' || body[size - 1] == '\0')) size--;
    if (size < 2 || memcmp(body + size - 2, "\"}", 2) != 0) {
        memcpy(body + size, "\"}", 2);
        size += 2;
    }
    body[size] = '\0';
    if (strlen(body) == size) {
        dlrm_manifest_sign(body, &text);
        if (dlrm_manifest_parse("manifest.json", text, (int64_t)strlen(text), &m) == DLRM_OK)
            check(&m);
        else
            DLRM_ASSERT(!strncmp(dlrm_error_message(), "manifest.json: ", 15));
        dlrm_manifest_clear(&m);
    }
    free(text);
    free(body);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
