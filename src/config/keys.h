/* The table of all config keys: what each is called, where its value goes, what it may be, and what it means. Parsing
 * (config.c), --help and docs/config.md (help.c) only walk this table; a new key is a new row. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DLRM_MAX_LAYERS = 128, DLRM_MAX_TEXTS = 256, DLRM_MAX_TABLES = 1 << 20 /* tables, features and hotness entries alike */ };

typedef enum dlrm_key_type {
    DLRM_KEY_SECTION,      /* a map whose keys are rows of the same table */
    DLRM_KEY_INT,          /* int64_t, or one of `names`, which stands for its value */
    DLRM_KEY_FLOAT,        /* double */
    DLRM_KEY_BOOL,         /* bool */
    DLRM_KEY_TEXT,         /* const char * */
    DLRM_KEY_TEXTS,        /* dlrm_text_list, may be empty */
    DLRM_KEY_NAME,         /* one of `names`, its value in an int or bool */
    DLRM_KEY_WIDTHS,       /* dlrm_int_list, may be empty */
    DLRM_KEY_HOTNESS,      /* dlrm_hotness: an integer or {max: integer} */
    DLRM_KEY_HOTNESS_LIST, /* the same, or a list of integers */
    DLRM_KEY_MAP,          /* a map described by `sub` */
    DLRM_KEY_TABLES,       /* model.tables: a list of maps, or from_dataset */
    DLRM_KEY_FEATURES,     /* model.features: a list of maps or table names */
} dlrm_key_type;

typedef struct dlrm_key_name {
    const char *name; /* NULL ends a list */
    int value;
    const char *missing; /* NULL: works in this build; else what to tell who asks for it */
} dlrm_key_name;

typedef struct dlrm_key {
    const char *path; /* within its table; the rows of a section follow it */
    dlrm_key_type type;
    size_t offset, size; /* of the value in the table's struct */
    const char *def;     /* the default as YAML text; NULL: required */
    bool nullable;       /* null is allowed; an INT or FLOAT is then `off` */
    double off, min, max;
    const char *unit;
    const dlrm_key_name *names; /* NAME: all there are. INT, TEXT: words with a meaning of their own; an INT is then their value */
    unsigned takers;            /* 0, or the values (a bit each) of the table's first key that this row belongs to */
    const struct dlrm_key_table *sub; /* MAP, TABLES, FEATURES: their keys */
    const char *text;
} dlrm_key;

typedef struct dlrm_key_table {
    const dlrm_key *keys;
    int n;
} dlrm_key_table;

extern const dlrm_key_table dlrm_config_keys;

/* The row of this path, whatever its takers; NULL: no such key. */
const dlrm_key *dlrm_key_find(const dlrm_key_table *t, const char *path);
/* The values of the table's first key that take the key `path`, a bit each, and in words: "adagrad, adam". */
unsigned dlrm_key_takers(const dlrm_key_table *t, const char *path, char *buf, size_t bytes);
/* What may stand there, for messages and help: "an integer from 1 to 65536, or null". */
void dlrm_key_expected(const dlrm_key *key, char *buf, size_t bytes);
/* The key's text and, after it, whom it belongs to and what this build lacks of it. */
void dlrm_key_explain(const dlrm_key *key, const dlrm_key_table *t, char *buf, size_t bytes);
/* For a key that is not in the table below `section` ("": the root): the valid key that was probably meant, or else the
 * list of valid ones, as the end of a message. `prefix`: where the table's own root is ("", "optimizer.dense"). */
void dlrm_key_suggest(const dlrm_key_table *t, const char *prefix, const char *section, const char *key, char *buf,
                      size_t bytes);
/* Edits (insert, remove, replace, swap neighbours) between two words; 99 if either is longer than 63. */
int dlrm_key_distance(const char *a, const char *b);
