#include "checkpoint/same_run.h"

#include <stdio.h>
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

enum { TEXT_BYTES = 320 };

/* A value of a list's entry as a config has it; in a manifest that was written by hand it can be anything. */
static void value_text(const json_t *entry, size_t k, char out[TEXT_BYTES])
{
    const json_t *v = json_array_get(entry, k);
    if (json_is_string(v))
        snprintf(out, TEXT_BYTES, "%.300s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out, TEXT_BYTES, "%lld", (long long)json_integer_value(v));
    else
        snprintf(out, TEXT_BYTES, "missing");
}

/* The first of n values that two entries do not share; n: none. */
static size_t first_difference(const json_t *a, const json_t *b, size_t n)
{
    size_t k = 0;
    for (; k < n; k++) {
        const json_t *x = json_array_get(a, k), *y = json_array_get(b, k);
        if (x != y && !json_equal(x, y)) break; /* of an entry that ends here there is none */
    }
    return k;
}

static void capacity_text(const json_t *table, char out[TEXT_BYTES])
{
    const unsigned long long rows = (unsigned long long)json_integer_value(json_array_get(table, 1));
    snprintf(out, TEXT_BYTES, "%lld", (long long)(rows - 1)); /* row 0 is no key's */
}

static bool is_dynamic(const json_t *table)
{
    return json_array_size(table) > 3;
}

/* The first key of two tables that differs, or NULL. */
static const char *table_difference(const json_t *stored, const json_t *now, char before[TEXT_BYTES], char value[TEXT_BYTES])
{
    static const char *const keys[] = {"name", "rows", "dim", "evict", "admission"};
    enum { N = sizeof keys / sizeof *keys, ROWS = 1 };
    size_t k = first_difference(stored, now, N);
    if (k > 0 && is_dynamic(stored) != is_dynamic(now)) k = ROWS;
    if (k == N) return NULL;
    value_text(stored, k, before);
    value_text(now, k, value);
    if (k != ROWS) return keys[k];
    if (is_dynamic(stored) && is_dynamic(now)) {
        capacity_text(stored, before);
        capacity_text(now, value);
        return "capacity";
    }
    if (is_dynamic(stored)) snprintf(before, TEXT_BYTES, "dynamic");
    if (is_dynamic(now)) snprintf(value, TEXT_BYTES, "dynamic");
    return keys[ROWS];
}

static void hotness_text(const json_t *input, char out[TEXT_BYTES])
{
    const long long hotness = (long long)json_integer_value(json_array_get(input, 1));
    snprintf(out, TEXT_BYTES, json_is_true(json_array_get(input, 2)) ? "{max: %lld}" : "%lld", hotness);
}

/* The same of two features. */
static const char *input_difference(const json_t *stored, const json_t *now, char before[TEXT_BYTES], char value[TEXT_BYTES])
{
    static const char *const keys[] = {"table", "hotness", "hotness", "combiner"};
    enum { N = sizeof keys / sizeof *keys, COMBINER = 3 };
    size_t k = first_difference(stored, now, N);
    if (k == N) return NULL;
    if (k == 0) {
        value_text(stored, k, before);
        value_text(now, k, value);
    } else if (k == COMBINER) {
        snprintf(before, TEXT_BYTES, "%s", dlrm_combiner_text((dlrm_combiner)json_integer_value(json_array_get(stored, k))));
        snprintf(value, TEXT_BYTES, "%s", dlrm_combiner_text((dlrm_combiner)json_integer_value(json_array_get(now, k))));
    } else {
        hotness_text(stored, before);
        hotness_text(now, value);
    }
    return keys[k];
}

static const char *table_name(const dlrm_model_spec *spec, size_t i)
{
    return spec->tables[i].name;
}

static const char *input_name(const dlrm_model_spec *spec, size_t i)
{
    return spec->inputs[i].name;
}

/* The two lists of the model, which have no short text of their own among the config's keys. */
typedef struct model_list {
    const char *member, *key, *what;
    json_t *(*now)(const dlrm_model_spec *spec);
    const char *(*name)(const dlrm_model_spec *spec, size_t i);
    const char *(*difference)(const json_t *stored, const json_t *now, char before[TEXT_BYTES], char value[TEXT_BYTES]);
} model_list;

static const model_list model_lists[] = {{"tables", "model.tables", "table", tables_json, table_name, table_difference},
                                         {"inputs", "model.features", "feature", inputs_json, input_name, input_difference}};

/* Names the first entry that differs, its key and both values. */
static dlrm_status compare_list(const comparison *c, const model_list *list, const json_t *stored, const dlrm_model_spec *spec)
{
    char before[TEXT_BYTES], value[TEXT_BYTES];
    json_t *now = list->now(spec);
    if (!now) return FAIL(DLRM_E_RUNTIME, "no memory to compare the model with that of %s", c->from);
    const size_t was = json_array_size(stored), is = json_array_size(now);
    dlrm_status st = was == is ? DLRM_OK
                               : dlrm_config_fail(c->cfg, list->key, "has %zu %ss, but %s was made with %zu, and this cannot change", is, list->what,
                                                  c->from, was);
    for (size_t i = 0; i < is && st == DLRM_OK; i++) {
        const char *key = list->difference(json_array_get(stored, i), json_array_get(now, i), before, value);
        if (key)
            st = dlrm_config_fail(c->cfg, list->key, "%s of %s number %zu (%.200s) is %s, but %s was made with %s, and this cannot change", key,
                                  list->what, i, list->name(spec, i), value, c->from, before);
    }
    json_decref(now);
    return st;
}

/* How many training rows there are. Those of synthetic data follow from keys, which are compared as such. */
static dlrm_status compare_rows(const comparison *c, json_int_t stored, int64_t now)
{
    const char *format = json_string_value(json_object_get(c->stored, "data.format"));
    const bool made_up = c->cfg->data.format == DLRM_SYNTHETIC && format && !strcmp(format, dlrm_format_text(DLRM_SYNTHETIC));
    if (made_up || stored == now || is_allowed(c->cfg, "data.path")) return DLRM_OK;
    return dlrm_config_fail(c->cfg, "data.path", "has %lld training rows, but %s was made with %lld; to go on all the same: "
                            "checkpoint.allow_changed: [data.path]", (long long)now, c->from, (long long)stored);
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
    for (size_t i = 0; i < sizeof model_lists / sizeof *model_lists; i++)
        TRY(compare_list(&c, &model_lists[i], json_object_get(stored, model_lists[i].member), spec));
    return weights_only ? DLRM_OK : compare_rows(&c, json_integer_value(json_object_get(stored, "train_rows")), train_rows);
}
