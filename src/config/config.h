/* The settings of a run, from one YAML file and `key.path=value` overrides. Every key stands once in the table of
 * keys.c (path, type, unit, range, default, text), which drives parsing, validation, --help and docs/config.md.
 * Strings belong to the config (they live in its YAML tree); NULL = null (off). */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/kinds.h"
#include "base/status.h"
#include "base/yaml.h"

typedef enum dlrm_device { DLRM_DEVICE_AUTO, DLRM_DEVICE_CPU, DLRM_DEVICE_CUDA } dlrm_device;
typedef enum dlrm_combiner { DLRM_SUM, DLRM_MEAN, DLRM_UNPOOLED } dlrm_combiner;
typedef enum dlrm_evict { DLRM_EVICT_NONE, DLRM_EVICT_LRU, DLRM_EVICT_LFU } dlrm_evict;
enum { DLRM_DYNAMIC_ROWS = -1 /* rows: dynamic */ };
typedef enum dlrm_strategy {
    DLRM_STRATEGY_AUTO,
    DLRM_BASIC,
    DLRM_MEMORY_BALANCED,
    DLRM_MEMORY_OPTIMIZED
} dlrm_strategy;
typedef enum dlrm_format { DLRM_SPLIT_BINARY, DLRM_MLPERF_BIN, DLRM_NPY, DLRM_HUGECTR_RAW, DLRM_SYNTHETIC } dlrm_format;
typedef enum dlrm_index_check { DLRM_INDEX_ERROR, DLRM_INDEX_CLAMP, DLRM_INDEX_MODULO } dlrm_index_check;
typedef enum dlrm_test_part { DLRM_TEST_ALL, DLRM_TEST_FIRST_HALF, DLRM_TEST_SECOND_HALF } dlrm_test_part;
typedef enum dlrm_dense_type { DLRM_DENSE_AUTO, DLRM_DENSE_INT32, DLRM_DENSE_FLOAT32 } dlrm_dense_type;

typedef struct dlrm_optimizer_config {
    dlrm_optimizer_name name;
    double learning_rate, momentum, initial_accumulator, epsilon, beta1, beta2; /* defaults of `name` filled in */
} dlrm_optimizer_config;

typedef struct dlrm_schedule_config {
    int64_t warmup_steps, decay_start_step, decay_steps;
    double decay_power, min_learning_rate;
} dlrm_schedule_config;

typedef struct dlrm_int_list {
    int n;
    int *v;
} dlrm_int_list;

typedef struct dlrm_text_list {
    int n;
    const char **v;
} dlrm_text_list;

/* Ids per sample as written: {0}: not given; max > 0: variable, up to that many; else one feature per element. */
typedef struct dlrm_hotness {
    dlrm_int_list fixed;
    int max;
} dlrm_hotness;

enum { DLRM_DIM_AUTO = -1, DLRM_FROM_DATASET = -1 }; /* values of a width, and of model.dense_features */

/* One entry of model.tables as written, before counts and lists are expanded (spec.h does that). */
typedef struct dlrm_table_entry {
    const char *name; /* NULL: t<index> */
    int64_t count;    /* 0: not given, so one */
    int64_t rows;      /* or DLRM_DYNAMIC_ROWS, and these: */
    int64_t capacity;  /* 0: not given */
    dlrm_evict evict;
    int64_t admission;
    int64_t dim; /* 0: embedding_dim; or DLRM_DIM_AUTO */
    dlrm_combiner combiner;
    dlrm_hotness hotness;
} dlrm_table_entry;

/* One entry of model.features. */
typedef struct dlrm_feature_entry {
    const char *table;
    dlrm_hotness hotness; /* at most one element */
    int combiner;         /* a dlrm_combiner; -1: its table's */
} dlrm_feature_entry;

typedef struct dlrm_config {
    const char *path; /* of the file */
    dlrm_yaml_doc doc;
    bool for_plan; /* values stand for another machine and build */
    dlrm_device device;
    struct {
        int64_t dense_features, embedding_dim; /* or DLRM_FROM_DATASET, DLRM_DIM_AUTO */
        dlrm_int_list bottom_mlp, top_mlp;
        dlrm_interaction interaction;
        int64_t cross_layers, cross_rank, pool_stride;
        bool tables_from_dataset;
        int n_tables, n_features; /* n_features 0: the order of tables */
        dlrm_table_entry *tables;
        dlrm_feature_entry *features;
    } model;
    struct {
        dlrm_optimizer_config dense, embedding;
        dlrm_schedule_config schedule;
    } optimizer;
    struct {
        int64_t batch_size;
        int64_t epochs, steps; /* 0: not limited by it; resolved: at least one is set */
        dlrm_dtype precision, embedding_dtype, exchange_dtype;
        bool deterministic;
        int64_t deterministic_chunks, seed;
    } train;
    struct {
        dlrm_strategy strategy;
        int64_t data_parallel_threshold, row_slice_threshold, column_slice_threshold; /* elements; -1: off */
        int64_t device_embedding_elements;                                            /* -1: no limit */
        bool host_cache;
        double timeout_s;
    } parallel;
    struct {
        dlrm_format format;
        const char *path;
        bool shuffle;
        dlrm_index_check index_check;
        const char *train_files, *test_files; /* row formats: patterns, or NULL */
        dlrm_test_part test_part;             /* row formats */
        dlrm_dense_type dense_type;           /* of records */
        struct {
            double alpha;
            int64_t batches;
            bool dense_lognormal; /* else uniform [0, 100) */
            bool labels_planted;  /* else coin flips */
        } synthetic;
    } data;
    struct {
        int64_t every_steps; /* 0: off */
        bool every_epoch;
        int64_t batch_size;  /* resolved: train.batch_size where null */
        int64_t max_samples; /* 0: all */
        double target_auc;   /* 0: off */
    } eval;
    struct {
        const char *path;
        int64_t every_steps;
        double every_minutes;
        int64_t keep;
        const char *resume; /* "auto", "never" or a path */
        dlrm_text_list allow_changed; /* keys that may differ from a checkpoint's */
        const char *init_from, *export_to, *name_map;
    } checkpoint;
    struct {
        int64_t every_steps; /* 0: off */
        const char *jsonl;
        int progress; /* -1 auto, 0 off, 1 on */
        const char *tensorboard, *mlperf;
    } log;
} dlrm_config;

/* Reads, overrides (argument texts `key.path=value`, the value parsed as YAML), fills defaults, checks types, ranges,
 * required keys and everything that can be known without the data. Errors: DLRM_E_INPUT with
 * `FILE:LINE:COLUMN: key.path: …`, the value found, what was expected; an unknown key names the nearest valid one.
 * After an error *out is {0}. */
dlrm_status dlrm_config_load(const char *path, int n_overrides, char *const *overrides, dlrm_config *out) DLRM_MUST_USE;
/* For a plan: also takes what only a build with CUDA could compute with. */
dlrm_status dlrm_config_load_plan(const char *path, int n_overrides, char *const *overrides, dlrm_config *out) DLRM_MUST_USE;
/* The same from text; `name` stands for the file. */
dlrm_status dlrm_config_parse(const char *name, const char *text, size_t bytes, int n_overrides, char *const *overrides,
                              dlrm_config *out) DLRM_MUST_USE;
void dlrm_config_clear(dlrm_config *cfg); /* copes with {0} */
/* What vectors travel as: train.exchange_dtype, where auto is what activations are. */
dlrm_dtype dlrm_config_exchange_dtype(const dlrm_config *cfg);

/* Full key of a config value and its position (or that of the list or map it belongs in, where it was not written) for
 * a message: DLRM_E_INPUT "FILE:LINE:COLUMN: key.path: …", "FILE: key.path: …" where nothing of it is in the file,
 * "command line: key.path: …" for an override. */
dlrm_status dlrm_config_fail(const dlrm_config *cfg, const char *key_path, const char *fmt, ...) DLRM_PRINTF(3, 4);

/* Every key that has one value, with its value as text (defaults included, tables and features not), in the key table's
 * order. */
typedef void dlrm_config_visitor(void *ctx, const char *path, const char *value);
void dlrm_config_each(const dlrm_config *cfg, dlrm_config_visitor *visit, void *ctx);
/* Is this key the section, or below it? */
bool dlrm_key_is_within(const char *path, const char *section);

/* --help [topic]: what topics there are (NULL), the keys below `topic` ("model", "optimizer.schedule", …) or those
 * called so ("batch_size"). false: no such topic. */
bool dlrm_config_help(FILE *out, const char *topic);
/* docs/config.md, generated. */
void dlrm_config_markdown(FILE *out);
/* The names used in YAML, for logs: "dot", "memory_balanced", … */
const char *dlrm_interaction_text(dlrm_interaction v);
const char *dlrm_combiner_text(dlrm_combiner v);
const char *dlrm_strategy_text(dlrm_strategy v);
const char *dlrm_evict_text(dlrm_evict v);
const char *dlrm_optimizer_text(dlrm_optimizer_name v);
const char *dlrm_format_text(dlrm_format v);
const char *dlrm_dtype_text(dlrm_dtype v);
