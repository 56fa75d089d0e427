/* For the tests of weights files: what they hold. */
#pragma once
#include "folder_fixture.h"
#include "model/tensors.h"

static inline void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
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
