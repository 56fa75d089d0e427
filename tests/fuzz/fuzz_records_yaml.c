/* Bytes of a records.yaml: refused with one message that names the file, or a description within its bounds; no memory is left. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "config/records_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlrm_records_spec r;
    dlrm_status st = dlrm_records_spec_parse("records.yaml", (const char *)data, size, &r);
    if (st != DLRM_OK) {
        DLRM_ASSERT(st == DLRM_E_INPUT && strncmp(dlrm_error_message(), "records.yaml", 12) == 0);
    } else {
        for (int f = 0; f < r.features.n_categorical; f++) {
            const dlrm_categorical *one = &r.features.categorical[f];
            DLRM_ASSERT(one->hotness >= 1 && one->cardinality >= 1 && one->name && one->where && !one->variable);
        }
        DLRM_ASSERT(r.features.n_dense >= 0 && (r.file[0] || r.file[1]) && r.form < DLRM_FORMS);
        dlrm_records_spec_clear(&r);
    }
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
