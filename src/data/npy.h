/* NumPy's files, as far as reading them in place needs: the header of an .npy array, and the members of an .npz
 * archive. What cannot be read in place is refused by name: big-endian values, Fortran order, objects, structured
 * types, and members that are compressed or encrypted. Parsing looks at untrusted bytes: every length is checked
 * against what is there, and no memory is taken for it. */
#pragma once
#include "config/feature_spec.h"

enum { DLRM_NPY_DIMS = 2 };

typedef struct dlrm_npy {
    dlrm_elem elem;
    int n_dims;                   /* 1 or 2 */
    int64_t shape[DLRM_NPY_DIMS]; /* rows, columns; one dimension: columns is 1 */
    int64_t at; /* the first value, in bytes from the array's begin (npy_parse) or the file's (open) */
} dlrm_npy;

/* `head`: the first bytes of an .npy array of `bytes` in all; n_head: how many of them are at hand, all or at least
 * DLRM_NPY_HEAD. Checks that the values are all there and nothing after them. `name` begins each message. */
enum { DLRM_NPY_HEAD = 4096 };
dlrm_status dlrm_npy_parse(const char *name, const void *head, int64_t n_head, int64_t bytes,
                           dlrm_npy *out) DLRM_MUST_USE;

/* An .npy file. fd stays open. */
dlrm_status dlrm_npy_open(const char *path, int fd, dlrm_npy *out) DLRM_MUST_USE;

/* Members "0.npy" … "<n-1>.npy" of the archive at `path`, in any order, and no others. */
dlrm_status dlrm_npz_open(const char *path, int fd, int n, dlrm_npy *out) DLRM_MUST_USE;
