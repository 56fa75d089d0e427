/* Text of a feature_spec.yaml. Whatever comes in, there is a complete description whose files lie in the folder, or one
 * message with a position, and no memory is left. */
#include <string.h>

#include "base/mem.h"
#include "config/feature_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    DLRM_ASSERT(path && !strncmp(path, "data/", 5) && !strstr(path, "/../"));
    size_t n = strlen(path);
    DLRM_ASSERT(n > 5 && path[5] != '/' && strcmp(path + n - 3, "/.."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlrm_feature_spec s;
    dlrm_status st = dlrm_feature_spec_parse_yaml("data", "spec.yaml", (const char *)data, size, &s);
    DLRM_ASSERT(st == DLRM_OK || (st == DLRM_E_INPUT && !strncmp(dlrm_error_message(), "spec.yaml:", 10)));
    DLRM_ASSERT(st != DLRM_OK || s.split[DLRM_TRAIN_SPLIT].present);
    for (int k = 0; k < DLRM_SPLITS; k++) {
        const dlrm_split_files *split = &s.split[k];
        if (!split->present) continue;
        check_path(split->label);
        if (s.n_dense) check_path(split->dense);
        for (int j = 0; j < s.n_categorical; j++) {
            const dlrm_categorical *c = &s.categorical[j];
            DLRM_ASSERT(c->name && c->where && c->cardinality > 0 && c->hotness > 0);
            check_path(split->ids[j]);
            if (c->variable || split->offsets[j]) check_path(split->offsets[j]);
        }
    }
    dlrm_feature_spec_clear(&s);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
