/* Bytes of a checkpoint's file of pieces, with a manifest that fits: refused with one message that names the file, or pieces that
 * cover their tensors once and are read, as cut in other ways, without a step outside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/stored.h"
#include "checkpoint/sum.h"
#include "model/tensors_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a manifest would say of the file. */
static dlrm_piece_file_facts facts_of(const char *path, const uint8_t *data, size_t size)
{
    dlrm_piece_file_facts facts = {.bytes = (int64_t)size};
    dlrm_st_file file;
    dlrm_st_entry *entries;
    int64_t n;
    uint64_t length = 0;
    if (size >= 8) memcpy(&length, data, sizeof length);
    if (size >= 8 && length <= size - 8) facts.header_sum = dlrm_sum(data, 8 + length);
    if (dlrm_st_open(path, &file, &entries, &n) == DLRM_OK)
        for (int64_t i = 0; i < n; i++)
            if (!strcmp(entries[i].key, "checksums")) facts.sums_sum = dlrm_sum(data + entries[i].at, (size_t)entries[i].bytes);
    dlrm_free(&entries);
    dlrm_st_close(&file);
    return facts;
}

/* The seeds' tensors, whole and in parts. */
static void read_tensors(dlrm_stored *s)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
        dlrm_dtype dtype;
    } tensors[] = {{"t", 13, 5, DLRM_FP32}, {"one", 3, 1, DLRM_FP32}, {"h", 7, 3, DLRM_BF16}, {"t.m", 13, 5, DLRM_FP32}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        for (int cut = 0; cut < 4; cut++) {
            const int64_t rows = tensors[i].rows, columns = tensors[i].columns;
            dlrm_piece p = {.whole = {.dtype = tensors[i].dtype}, .whole_rows = rows, .whole_columns = columns,
                            .part = {.row_step = 1, .rows = rows, .columns = columns}};
            float out[13 * 5];
            snprintf(p.whole.name, sizeof p.whole.name, "%s", tensors[i].name);
            if (cut == 1) p.part = (dlrm_part){.first_row = 1, .row_step = 2, .rows = rows / 2, .columns = columns};
            if (cut == 2) p.part = (dlrm_part){.first_row = rows - 2, .row_step = 1, .rows = 2, .columns = columns};
            if (cut == 3) p.part = (dlrm_part){.row_step = 1, .rows = rows, .first_column = columns - 1, .columns = 1};
            if (dlrm_stored_require(s, "ckpt", &p) != DLRM_OK) continue;
            dlrm_status st = dlrm_stored_read(s, &p, 0, p.part.rows, out);
            DLRM_ASSERT(st == DLRM_OK || st == DLRM_E_INPUT);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    dlrm_stored *s;
    int fd = memfd_create("pieces", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const dlrm_stored_file file = {path, facts_of(path, data, size)};
    dlrm_status st = dlrm_stored_open(1, &file, &s);
    if (st == DLRM_OK)
        read_tensors(s);
    else
        DLRM_ASSERT(st == DLRM_E_INPUT && !strncmp(dlrm_error_message(), path, strlen(path)));
    dlrm_stored_close(&s);
    close(fd);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
