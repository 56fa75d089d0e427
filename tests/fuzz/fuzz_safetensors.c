/* Bytes of a safetensors file: refused with one message that names the file, or entries that lie inside it, fit their
 * shapes, can be read and converted from end to end; and no memory is left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/tensors_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(const dlrm_st_entry *e, int64_t data_at, int64_t file_bytes)
{
    int64_t elements = 1;
    for (size_t i = 0; i < json_array_size(e->shape); i++) elements *= json_integer_value(json_array_get(e->shape, i));
    DLRM_ASSERT(elements == e->elements && e->elements * e->dtype->bits == e->bytes * 8);
    DLRM_ASSERT(e->at >= data_at && e->bytes <= file_bytes - e->at && strlen(e->key) < DLRM_NAME_BYTES);
}

/* The header's entries, from the inside. */
static dlrm_status check_header(const char *path, const uint8_t *data, int64_t size)
{
    dlrm_st_file file;
    dlrm_st_entry *entries;
    int64_t n, sum = 0, data_at = 8;
    dlrm_status st = dlrm_st_open(path, &file, &entries, &n);
    if (st == DLRM_OK) {
        uint64_t header;
        memcpy(&header, data, sizeof header);
        data_at += (int64_t)header;
        for (int64_t i = 0; i < n; i++, sum += entries[i - 1].bytes) check_entry(&entries[i], data_at, size);
        DLRM_ASSERT(data_at + sum == size);
    }
    dlrm_free(&entries);
    dlrm_st_close(&file);
    return st;
}

/* The seeds' tensors, by name, as a user of the reader does. */
static void read_tensors(dlrm_tensors *t)
{
    static const dlrm_tensor_info wanted[] = {{"w", 2, {2, 3}, DLRM_FP32}, {"b", 1, {2}, DLRM_FP32}, {"top.0.bias", 1, {1}, DLRM_FP32}};
    char unused[300];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        float v[6];
        const int64_t n = i == 0 ? 6 : wanted[i].dims[0];
        if (dlrm_tensors_require(t, &wanted[i]) != DLRM_OK) continue;
        DLRM_ASSERT(dlrm_tensors_read(t, wanted[i].name, 0, n, v) == DLRM_OK);
        DLRM_ASSERT(dlrm_tensors_read(t, wanted[i].name, n, 0, v) == DLRM_OK);
    }
    dlrm_tensors_unused(t, unused, sizeof unused);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    dlrm_tensors *t;
    int fd = memfd_create("weights", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    dlrm_status inside = check_header(path, data, (int64_t)size), outside = dlrm_tensors_open(path, NULL, &t);
    DLRM_ASSERT(inside == outside);
    if (outside == DLRM_OK)
        read_tensors(t);
    else
        DLRM_ASSERT(outside == DLRM_E_INPUT && !strncmp(dlrm_error_message(), path, strlen(path)));
    dlrm_tensors_close(&t);
    close(fd);
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
