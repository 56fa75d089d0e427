/* Shared by the tests of weights files: a folder of their own, and files in it. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/tensors.h"

static char folder[64];

static inline const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void write_bytes(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static inline void assert_message(const char *part)
{
    if (!strstr(dlrm_error_message(), part)) fail_msg("message '%s' has no '%s'", dlrm_error_message(), part);
}

static inline dlrm_tensor_info info(const char *name, int n_dims, int64_t d0, int64_t d1)
{
    dlrm_tensor_info t = {.n_dims = n_dims, .dims = {d0, d1}};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

static inline void require(dlrm_tensors *t, const char *name, int n_dims, int64_t d0, int64_t d1)
{
    dlrm_tensor_info want = info(name, n_dims, d0, d1);
    if (dlrm_tensors_require(t, &want) != DLRM_OK) fail_msg("%s", dlrm_error_message());
}

static inline dlrm_tensors *open_ok(const char *path, const char *map)
{
    dlrm_tensors *t;
    if (dlrm_tensors_open(path, map, &t) != DLRM_OK) fail_msg("%s", dlrm_error_message());
    return t;
}

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_tensors.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
