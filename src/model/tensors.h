/* Weights in files: safetensors, read and written by tensor name and element range, in bounded memory, no collectives.
 * Names: bottom.0.weight [out,in], bottom.0.bias, top.N.…, table.<name>.weight [rows, dim]; of a table with a
 * vocabulary table.<name>.keys [rows] and .counts [rows], integers. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/kinds.h"
#include "base/status.h"

typedef struct dlrm_tensor_info {
    char name[320]; /* a table's of 200 bytes, with all that is put before and after it */
    int n_dims;
    int64_t dims[4];
    dlrm_dtype dtype; /* of an export: fp32, bf16, fp16 or an integer's */
} dlrm_tensor_info;

/* --- reading: checkpoint.init_from --- */
typedef struct dlrm_tensors dlrm_tensors;
/* `path`: a .safetensors file, or a folder whose *.safetensors files (in the order of the index file, where there is
 * one) hold the tensors together. `name_map`: NULL, or a YAML map `name in the file: our name` with one `*` allowed on
 * both sides. Headers are checked in full: length, JSON, dtypes, shapes against byte ranges, overlaps, file size,
 * a name twice. In the map an exact name wins over patterns; two patterns that fit one name, and two tensors that get
 * one name, are errors. DLRM_E_INPUT names file and tensor. */
dlrm_status dlrm_tensors_open(const char *path, const char *name_map, dlrm_tensors **out) DLRM_MUST_USE;
void dlrm_tensors_close(dlrm_tensors **t);
/* Checks that the tensor is there with this shape and has a float dtype or, where an integer's is wanted, just that; error names the name searched, where, and what
 * was found. */
dlrm_status dlrm_tensors_require(dlrm_tensors *t, const dlrm_tensor_info *want) DLRM_MUST_USE;
/* Elements [first, first+n) in row-major order, converted from F64, F32, BF16 or F16. The tensor has been required. */
dlrm_status dlrm_tensors_read(dlrm_tensors *t, const char *name, int64_t first, int64_t n, float *out) DLRM_MUST_USE;
/* The same of a tensor of integers, as they are in the file. */
dlrm_status dlrm_tensors_read_integers(dlrm_tensors *t, const char *name, int64_t first, int64_t n, void *out) DLRM_MUST_USE;
/* Names never required, joined, for one warning; "" if none. Caller's buffer. */
void dlrm_tensors_unused(const dlrm_tensors *t, char *buf, size_t bytes);

/* --- writing: checkpoint.export --- every rank makes the same plan; rank 0 begins and commits, any rank writes. */
typedef struct dlrm_export dlrm_export;
/* Lays the tensors out in files of at most max_file_bytes (a tensor larger than that has a file of its own):
 * one file -> model.safetensors, more -> model-0000N-of-0000M.safetensors and model.safetensors.index.json. */
dlrm_status dlrm_export_plan(const char *folder, int n, const dlrm_tensor_info *tensors, int64_t max_file_bytes,
                             dlrm_export **out) DLRM_MUST_USE;
/* One rank, at any time (say, before training): makes the folder if missing; can it be written, is there room? */
dlrm_status dlrm_export_check(const dlrm_export *e) DLRM_MUST_USE;
dlrm_status dlrm_export_begin(dlrm_export *e) DLRM_MUST_USE; /* rank 0: checks, then temporary files with headers */
/* Elements [first, first+n) of tensor number `tensor` of the plan, row-major, in its dtype. After a barrier behind begin. */
dlrm_status dlrm_export_write(dlrm_export *e, int tensor, int64_t first, int64_t n, const void *values) DLRM_MUST_USE;
dlrm_status dlrm_export_flush(dlrm_export *e) DLRM_MUST_USE; /* every rank, after its writes: fsync */
dlrm_status dlrm_export_commit(dlrm_export *e)
    DLRM_MUST_USE; /* rank 0, after all: rename in place, remove the older export's files */
void dlrm_export_close(dlrm_export **e);
