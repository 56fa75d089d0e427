/* Headers of .npy arrays and .npz archives: an even first byte and an array, or an odd one and an archive of as many
 * members as half of it says. What is accepted lies within the file. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 127 };

static void check(const dlrm_npy *a, int64_t bytes)
{
    DLRM_ASSERT(a->n_dims >= 1 && a->n_dims <= DLRM_NPY_DIMS && a->shape[0] >= 0 && a->shape[1] >= 0 && a->at >= 0 &&
                a->at <= bytes);
    __int128 values = (__int128)a->shape[0] * a->shape[1] * (int64_t)dlrm_elem_size(a->elem);
    DLRM_ASSERT(values <= bytes - a->at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    dlrm_npy arrays[MOST];
    if (fd < 0) fd = memfd_create("fuzz_npy", 0);
    if (size < 1) return 0;
    int members = data[0] / 2;
    bool archive = data[0] & 1;
    DLRM_ASSERT(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data + 1, size - 1, 0) == (ssize_t)(size - 1));
    dlrm_status st = archive ? dlrm_npz_open("a file", fd, members, arrays) : dlrm_npy_open("a file", fd, arrays);
    if (st == DLRM_OK)
        for (int j = 0; j < (archive ? members : 1); j++) check(&arrays[j], (int64_t)size - 1);
    else
        DLRM_ASSERT(st == DLRM_E_INPUT && !strncmp(dlrm_error_message(), "a file: ", 8));
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
