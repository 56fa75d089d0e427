/* Inside of the readers and writers of weights and checkpoints: what a safetensors file holds, and the map from its names to ours. */
#pragma once
#include <jansson.h>

#include "base/yaml.h"
#include "model/tensors.h"

enum { DLRM_NAME_BYTES = sizeof((dlrm_tensor_info *)0)->name };

typedef struct dlrm_st_dtype {
    const char *name;
    int bits;                                                  /* of an element */
    void (*to_float)(const void *from, int64_t n, float *out); /* NULL: not a type that weights may have */
} dlrm_st_dtype;

typedef struct dlrm_st_file {
    char *path;
    int fd;         /* -1: not open */
    json_t *header; /* owns the names and shapes of its entries */
} dlrm_st_file;

typedef struct dlrm_st_entry {
    const char *key; /* name in the file */
    const dlrm_st_dtype *dtype;
    const json_t *shape; /* array of integers, none negative */
    int64_t elements, bytes;
    int64_t at; /* of its first byte, from the file's start */
    const dlrm_st_file *file;
    const char *name;      /* ours */
    char *mapped;          /* owned; NULL: name is key */
    const dlrm_yaml *rule; /* of the name map; NULL: none matched */
    bool required;
} dlrm_st_entry;

/* Opens the file and checks its header in full. *entries: a new array (dlrm_alloc) in the order of their bytes, name =
 * key. On an error nothing is left to free but f, by dlrm_st_close. */
dlrm_status dlrm_st_open(const char *path, dlrm_st_file *f, dlrm_st_entry **entries, int64_t *n) DLRM_MUST_USE;
void dlrm_st_close(dlrm_st_file *f);
/* Reads exactly `bytes` at `at`. */
dlrm_status dlrm_st_pread(int fd, const char *path, int64_t at, int64_t bytes, void *out) DLRM_MUST_USE;
/* The whole of a JSON file of at most 100 MB. */
dlrm_status dlrm_st_load_json(const char *path, json_t **out) DLRM_MUST_USE;
/* "[3, 4]", cut where the buffer ends. */
const char *dlrm_st_shape_text(const json_t *shape, char *buf, size_t bytes);

/* fp32, bf16, fp16 and integers as safetensors calls them. */
const char *dlrm_st_dtype_name(dlrm_dtype dtype);
/* A tensor's member of a header that is being written, as JSON text with a comma before it; [from, to): its bytes after
 * the header. Returns the text's length, below DLRM_ST_ENTRY_BYTES; 0: the name is not UTF-8. */
enum { DLRM_ST_MAX_HEADER = 100 * 1000 * 1000 /* the format's own limit */ };
enum { DLRM_ST_ENTRY_BYTES = 6 * DLRM_NAME_BYTES + 300 /* every byte of a name escaped */ };
size_t dlrm_st_header_entry(const dlrm_tensor_info *t, const char *dtype, int64_t from, int64_t to, char *buf, size_t bytes);

/* checkpoint.name_map. A document {0} maps nothing. */
dlrm_status dlrm_name_map_load(const char *path, dlrm_yaml_doc *out) DLRM_MUST_USE;
/* *rule: the entry that fits `key` (its value node), or NULL; then `out` holds our name. An exact entry wins over
 * patterns; two fitting patterns are an error. */
dlrm_status dlrm_name_map_apply(const dlrm_yaml_doc *map, const char *file, const char *key, char out[DLRM_NAME_BYTES],
                                const dlrm_yaml **rule) DLRM_MUST_USE;
