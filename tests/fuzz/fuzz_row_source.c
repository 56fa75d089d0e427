/* Bytes of a data file, of whatever format they look like and of each one they are said to be: refused with a message, or rows
 * that can all be read and whose values are in their bounds. No memory is left. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "row_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(const dlrm_shape *shape, const dlrm_stretch *rows)
{
    for (int64_t i = 0; i < rows->n; i++) DLRM_ASSERT(rows->labels[i] <= 1);
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_feature *one = &shape->features[f];
        const uint32_t *ids = dlrm_stretch_ids(rows, shape, f);
        for (int64_t i = 0; i < rows->n * one->hotness; i++) DLRM_ASSERT(one->cardinality == 0 || ids[i] < one->cardinality);
        for (int64_t i = 0; rows->lengths && i < rows->n; i++) {
            int32_t length = rows->lengths[rows->capacity * f + i];
            DLRM_ASSERT(!one->variable || (length >= 0 && length <= one->hotness));
        }
    }
}

static void read_as(const char *path, int format, dlrm_findings *findings)
{
    dlrm_source_hints hints = {.format = format, .form = -1, .n_dense = -1};
    dlrm_row_source *from;
    dlrm_stretch rows = {0};
    dlrm_status st = dlrm_source_open(path, &hints, findings, &from);
    if (st == DLRM_OK && from->shape.n_ids + from->shape.n_dense < 1 << 16) {
        st = dlrm_stretch_open(&from->shape, 7, &rows);
        for (int64_t row = 0; st == DLRM_OK && row < from->rows[DLRM_TRAIN]; row += rows.n) {
            int64_t left = from->rows[DLRM_TRAIN] - row;
            st = from->read(from, DLRM_TRAIN, row, left < 7 ? left : 7, &rows);
            if (st == DLRM_OK) check_rows(&from->shape, &rows);
        }
    }
    DLRM_ASSERT(st == DLRM_OK || *dlrm_error_message());
    dlrm_stretch_close(&rows);
    dlrm_source_close(&from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    static dlrm_findings findings;
    int fd = memfd_create("rows", 0);
    DLRM_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    findings = (dlrm_findings){0};
    read_as(path, -1, NULL);
    read_as(path, DLRM_FORMAT_MLPERF_BIN, &findings);
    read_as(path, DLRM_FORMAT_HUGECTR_RAW, NULL);
    read_as(path, DLRM_FORMAT_HUGECTR_NORM, NULL);
    close(fd);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
