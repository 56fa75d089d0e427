/* For the tests of data: a folder of files written by the test, a model and a config made by hand, messages. */
#pragma once
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/dataset.h"

static char data_folder[64];
static int64_t blocks_before;

static inline const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", data_folder, name);
    return path;
}

static inline void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* Every test starts in a new folder and must give back all memory. */
static inline int open_folder(void **state)
{
    (void)state;
    snprintf(data_folder, sizeof data_folder, "/tmp/dlrm-test-data-XXXXXX");
    if (!mkdtemp(data_folder)) return -1;
    blocks_before = dlrm_mem_live_blocks();
    return mkdir(in_folder("train"), 0777) || mkdir(in_folder("test"), 0777);
}

static inline int remove_folder(void **state)
{
    (void)state;
    if (dlrm_mem_live_blocks() != blocks_before) {
        print_error("%lld blocks were not freed\n", (long long)(dlrm_mem_live_blocks() - blocks_before));
        return -1;
    }
    return nftw(data_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("message '%s' has no '%s'", text, part);
}

#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        if ((expr) != DLRM_OK) fail_msg("%s: %s", #expr, dlrm_error_message());                                        \
    } while (0)

#define assert_refused(expr, part)                                                                                     \
    do {                                                                                                               \
        assert_int_equal(expr, DLRM_E_INPUT);                                                                          \
        assert_has(dlrm_error_message(), part);                                                                        \
    } while (0)
