/* YAML as a tree that remembers where everything stood. Built on libyaml; anchors and aliases are resolved (an alias
 * is the very same node, so a document with aliases is a DAG and costs no copies: who walks it bounds his own work).
 * Duplicate keys, several documents, tags, an alias to an enclosing node, nesting beyond 64 levels, more than 1024
 * anchors and files beyond the given size are errors. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlrm_yaml_kind { DLRM_YAML_SCALAR, DLRM_YAML_LIST, DLRM_YAML_MAP } dlrm_yaml_kind;

typedef struct dlrm_yaml {
    dlrm_yaml_kind kind;
    const char *file;         /* as given by the user; an override's nodes have "command line" */
    int line, column;         /* from 1; 0 in nodes that stood in no file */
    bool quoted;              /* scalar: '…' or "…" (or a block of text), so always text */
    char *text;               /* scalar */
    int n;                    /* list, map: number of items */
    struct dlrm_yaml **items; /* list: [n]; map: the values */
    struct dlrm_yaml **keys;  /* map: [n], scalars, in file order */
} dlrm_yaml;

typedef struct dlrm_yaml_doc {
    dlrm_yaml *root;
    struct dlrm_yaml_pool *pool; /* owns every node */
} dlrm_yaml_doc;

/* An empty document gives an empty map. Errors are DLRM_E_INPUT, "FILE:LINE:COLUMN: what is wrong", and *out is {0}. */
dlrm_status dlrm_yaml_load(const char *path, int64_t max_bytes, dlrm_yaml_doc *out) DLRM_MUST_USE;
/* Parses `text`; `name` stands for the file in messages. */
dlrm_status dlrm_yaml_parse(const char *name, const char *text, size_t bytes, dlrm_yaml_doc *out) DLRM_MUST_USE;
/* Sets the value at `path` (keys and list indices joined by dots) to `text`, parsed as YAML, for `key.path=value` on
 * the command line. Missing maps are made; list elements must exist. Shared nodes are copied first, so that an alias
 * elsewhere keeps its value. Errors: "command line: PATH: …". */
dlrm_status dlrm_yaml_override(dlrm_yaml_doc *doc, const char *path, const char *text) DLRM_MUST_USE;
void dlrm_yaml_clear(dlrm_yaml_doc *doc); /* copes with {0} */

/* A map's value, or NULL. */
dlrm_yaml *dlrm_yaml_get(const dlrm_yaml *map, const char *key);
/* Plain (unquoted) scalar null, Null, NULL, ~ or empty. */
bool dlrm_yaml_is_null(const dlrm_yaml *node);
/* Whole-scalar conversions; false where the text is not one. Integers: decimal digits with an optional sign, or a
 * float text whose value is integral and below 2^53 (64e3). Floats: decimal, .inf and .nan refused.
 * Booleans: true false (any of YAML 1.2's spellings). */
bool dlrm_yaml_int(const dlrm_yaml *node, int64_t *out);
bool dlrm_yaml_float(const dlrm_yaml *node, double *out);
bool dlrm_yaml_bool(const dlrm_yaml *node, bool *out);
/* "FILE:LINE:COLUMN: " + message, as DLRM_E_INPUT. */
dlrm_status dlrm_yaml_fail(const dlrm_yaml *node, const char *fmt, ...) DLRM_PRINTF(2, 3);
/* "map", "list", "null", "true" or the text itself cut to 60 characters, unprintable ones as '?': what was found, for
 * messages. */
const char *dlrm_yaml_describe(const dlrm_yaml *node, char *buf, size_t bytes);
