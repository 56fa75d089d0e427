#include "checkpoint/same_run.h"

#include <stdlib.h>
#include <string.h>

static const char *const free_keys[] = {"device", "parallel", "eval", "checkpoint", "log", "train.steps", "train.epochs", "data.path",
                                        "model.embedding_dim" /* the tables' own widths count */, NULL};
static const char *const fixed_keys[] = {"model", "optimizer.dense.name", "optimizer.embedding.name", "train.embedding_dtype", NULL};

static bool is_among(const char *path, const char *const *keys)
{
    while (*keys && !dlrm_key_is_within(path, *keys)) keys++;
    return *keys != NULL;
}

static bool is_allowed(const dlrm_config *cfg, const char *path)
{
    for (int i = 0; i < cfg->checkpoint.allow_changed.n; i++)
        if (dlrm_key_is_within(path, cfg->checkpoint.allow_changed.v[i])) return true;
    return false;
}

/* Puts the value into *container, or ends that and sets it to NULL: no memory. */
static void add(json_t **container, const char *key, json_t *value)
{
    const int failed = key ? json_object_set_new(*container, key, value) : json_array_append_new(*container, value);
    if (!failed) return;
    json_decref(*container);
    *container = NULL;
}

static void add_value(void *ctx, const char *path, const char *value)
{
    add(ctx, path, json_string(value));
}

static json_t *tables_json(const dlrm_model_spec *spec)
{
    json_t *list = json_array();
    for (int t = 0; t < spec->n_tables; t++) {
        const dlrm_table *table = &spec->tables[t];
        add(&list, NULL, table->capacity > 0 ? json_pack("[s,I,i,s,I]", table->name, (json_int_t)table->rows, table->dim, dlrm_evict_text(table->evict),
                                                         (json_int_t)table->admission)
                                             : json_pack("[s,I,i]", table->name, (json_int_t)table->rows, table->dim));
    }
    return list;
}

static json_t *inputs_json(const dlrm_model_spec *spec)
{
    json_t *list = json_array();
    for (int j = 0; j < spec->n_inputs; j++) {
        const dlrm_input *in = &spec->inputs[j];
        add(&list, NULL, json_pack("[s,i,b,i]", spec->tables[in->table].name, in->hotness, (int)in->variable, (int)in->combiner));
    }
    return list;
}

json_t *dlrm_run_json(const dlrm_config *cfg, const dlrm_model_spec *spec, int64_t train_rows)
{
    json_t *config = json_object(), *run = json_object();
    dlrm_config_each(cfg, add_value, &config);
    add(&run, "config", config);
    add(&run, "tables", tables_json(spec));
    add(&run, "inputs", inputs_json(spec));
    add(&run, "train_rows", json_integer((json_int_t)train_rows));
    return run;
}

/* --- comparison --- */

typedef struct comparison {
    const json_t *stored;
    const dlrm_config *cfg;
    const char *from;
    bool weights_only;
    dlrm_status status;
} comparison;

static void compare(void *ctx, const char *path, const char *value)
{
    comparison *c = ctx;
    const char *before = json_string_value(json_object_get(c->stored, path));
    const bool fixed = is_among(path, fixed_keys);
    /* A key that the checkpoint does not have is younger than it. */
    if (c->status != DLRM_OK || !before || !strcmp(before, value) || is_among(path, free_keys) || (c->weights_only && !fixed)) return;
    if (fixed)
        c->status = dlrm_config_fail(c->cfg, path, "is %s, but %s was made with %s, and this cannot change", value, c->from, before);
    else if (!is_allowed(c->cfg, path))
        c->status = dlrm_config_fail(c->cfg, path, "is %s, but %s was made with %s; to go on all the same: checkpoint.allow_changed: [%s]",
                                     value, c->from, before, path);
}

/* Lists of tables or inputs; names the first that differs. */
static dlrm_status compare_lists(const dlrm_config *cfg, const char *from, const char *path, const json_t *stored, json_t *now)
{
    const size_t n = json_array_size(stored), m = json_array_size(now);
    dlrm_status st = DLRM_OK;
    for (size_t i = 0; i < (n > m ? n : m) && st == DLRM_OK; i++) {
        const json_t *a = json_array_get(stored, i), *b = json_array_get(now, i);
        if (a && b && json_equal(a, b)) continue;
        char *before = a ? json_dumps(a, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        char *value = b ? json_dumps(b, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        st = dlrm_config_fail(cfg, path, "number %zu is %.300s, but %.300s in %s, and this cannot change", i, value ? value : "missing",
                              before ? before : "missing", from);
        free(before);
        free(value);
    }
    return st;
}

dlrm_status dlrm_run_check(const json_t *stored, const char *from, const dlrm_config *cfg, const dlrm_model_spec *spec, int64_t train_rows,
                           bool weights_only)
{
    comparison c = {.stored = json_object_get(stored, "config"), .cfg = cfg, .from = from, .weights_only = weights_only};
    for (int i = 0; i < cfg->checkpoint.allow_changed.n; i++)
        if (is_among(cfg->checkpoint.allow_changed.v[i], fixed_keys))
            return dlrm_config_fail(cfg, "checkpoint.allow_changed", "%s cannot change", cfg->checkpoint.allow_changed.v[i]);
    if (!json_is_object(c.stored)) return FAIL(DLRM_E_INPUT, "%s: the manifest has no config", from);
    dlrm_config_each(cfg, compare, &c);
    TRY(c.status);
    json_t *tables = tables_json(spec), *inputs = inputs_json(spec);
    dlrm_status st = tables && inputs ? DLRM_OK : FAIL(DLRM_E_RUNTIME, "no memory to compare the model with that of %s", from);
    if (st == DLRM_OK) st = compare_lists(cfg, from, "model.tables", json_object_get(stored, "tables"), tables);
    if (st == DLRM_OK) st = compare_lists(cfg, from, "model.features", json_object_get(stored, "inputs"), inputs);
    json_decref(tables);
    json_decref(inputs);
    const json_int_t rows = json_integer_value(json_object_get(stored, "train_rows"));
    if (st == DLRM_OK && !weights_only && rows != train_rows && !is_allowed(cfg, "data.path"))
        st = dlrm_config_fail(cfg, "data.path", "has %lld training rows, but %s was made with %lld; to go on all the same: "
                              "checkpoint.allow_changed: [data.path]", (long long)train_rows, from, (long long)rows);
    return st;
}
