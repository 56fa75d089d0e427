/* Bytes of a records.yaml: refused with one message that names the file, or a shape within its bounds; no memory is left. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "records_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dlrm_record_files files;
    dlrm_shape shape;
    dlrm_status st = dlrm_records_parse("folder", "records.yaml", (const char *)data, size, &files, &shape);
    if (st != DLRM_OK) {
        DLRM_ASSERT(st == DLRM_E_INPUT && strncmp(dlrm_error_message(), "records.yaml", 12) == 0);
    } else {
        int64_t ids = 0;
        for (int f = 0; f < shape.n_features; f++) {
            const dlrm_feature *one = &shape.features[f];
            DLRM_ASSERT(one->hotness >= 1 && one->cardinality >= 1 && one->first == ids && strlen(one->name) < sizeof one->name);
            ids += one->hotness;
        }
        DLRM_ASSERT(ids == shape.n_ids && !shape.variable && (*files.path[DLRM_TRAIN] || *files.path[DLRM_TEST]));
    }
    dlrm_shape_clear(&shape);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
