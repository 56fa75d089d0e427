/* Text of a model_size.json: a description whose types hold its ids, or one message, and no memory is left. */
#include <string.h>

#include "base/mem.h"
#include "config/feature_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlrm_feature_spec s;
    dlrm_status st = dlrm_feature_spec_parse_sizes("data", "sizes.json", (const char *)data, size, &s);
    DLRM_ASSERT(st == DLRM_OK || (st == DLRM_E_INPUT && !strncmp(dlrm_error_message(), "sizes.json:", 11)));
    for (int j = 0; j < s.n_categorical; j++) {
        const dlrm_categorical *c = &s.categorical[j];
        int64_t largest = ((int64_t)1 << (8 * dlrm_elem_size(c->dtype) - 1)) - 1;
        DLRM_ASSERT(c->name && c->where && c->cardinality > 0 && c->cardinality < largest);
        DLRM_ASSERT(s.split[DLRM_TRAIN_SPLIT].ids[j] && s.split[DLRM_TEST_SPLIT].ids[j]);
    }
    dlrm_feature_spec_clear(&s);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
