/* From model.tables, model.features and the data's description to tables and inputs; widths.c does the widths. */
#include "config/spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/spec_internal.h"

enum { LONGEST_NAME = 200 }; /* bytes; names become parts of tensor and file names */

static dlrm_status copy_list(const dlrm_int_list *from, dlrm_int_list *to)
{
    TRY(dlrm_alloc(from->n, sizeof *to->v, "layer widths", &to->v));
    to->n = from->n;
    if (from->n) memcpy(to->v, from->v, (size_t)from->n * sizeof *to->v);
    return DLRM_OK;
}

const char *dlrm_spec_path(dlrm_spec_build *b, const char *list, int i, const char *key)
{
    snprintf(b->path, sizeof b->path, "model.%s.%d%s%s", list, i, key[0] ? "." : "", key);
    return b->path;
}

/* --- tables --- */

static const char *bad_name(const char *name)
{
    if (strlen(name) > LONGEST_NAME) return "is longer than 200 bytes";
    for (const unsigned char *s = (const unsigned char *)name; *s; s++)
        if (*s <= ' ' || *s == 0x7f || *s == '/') return "has a space, a control character or a '/' in it";
    return name[0] ? NULL : "is empty";
}

/* capacity, evict and admission, and rows: dynamic, go together. */
static dlrm_status check_rows(dlrm_spec_build *b, int e)
{
    const dlrm_table_entry *entry = &b->cfg->model.tables[e];
    const bool dynamic = entry->rows == DLRM_DYNAMIC_ROWS;
    if (dynamic && entry->capacity == 0)
        return dlrm_config_fail(b->cfg, dlrm_spec_path(b, "tables", e, "capacity"),
                                "missing, but rows: dynamic needs it; expected the number of keys that have a row at a time");
    if (dynamic) return DLRM_OK;
    const char *key = entry->capacity ? "capacity" : entry->evict != DLRM_EVICT_NONE ? "evict" : entry->admission != 1 ? "admission" : NULL;
    if (!key) return DLRM_OK;
    return dlrm_config_fail(b->cfg, dlrm_spec_path(b, "tables", e, key), "is for a table with rows: dynamic, but rows is %lld",
                            (long long)entry->rows);
}

static dlrm_status expand_entry(dlrm_spec_build *b, int e)
{
    const dlrm_table_entry *entry = &b->cfg->model.tables[e];
    dlrm_model_spec *out = b->out;
    const char *bad = entry->name ? bad_name(entry->name) : NULL;
    if (bad)
        return dlrm_config_fail(b->cfg, dlrm_spec_path(b, "tables", e, "name"), "the name \"%.60s\" %s", entry->name,
                                bad);
    TRY(check_rows(b, e));
    for (int64_t k = 0; k == 0 || k < entry->count; k++) {
        int t = out->n_tables++;
        dlrm_table *table = &out->tables[t];
        b->entry[t] = e;
        table->rows = entry->rows;
        if (entry->rows == DLRM_DYNAMIC_ROWS) {
            table->rows = entry->capacity + 1;
            table->capacity = entry->capacity;
            table->evict = entry->evict;
            table->admission = (uint32_t)entry->admission;
            table->vocabulary = out->n_vocabularies++;
        }
        table->dim = dlrm_spec_dim(b->cfg, entry->dim, table->rows);
        if (!entry->name)
            TRY(dlrm_alloc_text(&table->name, "t%d", t));
        else if (entry->count)
            TRY(dlrm_alloc_text(&table->name, "%s_%lld", entry->name, (long long)k));
        else
            TRY(dlrm_alloc_text(&table->name, "%s", entry->name));
    }
    return DLRM_OK;
}

static dlrm_status tables_from_config(dlrm_spec_build *b)
{
    const dlrm_config *cfg = b->cfg;
    int64_t total = 0;
    for (int e = 0; e < cfg->model.n_tables; e++) {
        total += cfg->model.tables[e].count ? cfg->model.tables[e].count : 1;
        if (total > DLRM_MAX_TABLES)
            return dlrm_config_fail(cfg, dlrm_spec_path(b, "tables", e, "count"),
                                    "the tables up to here are %lld, expected at most %d", (long long)total,
                                    DLRM_MAX_TABLES);
    }
    TRY(dlrm_alloc(total, sizeof *b->out->tables, "the list of tables", &b->out->tables));
    TRY(dlrm_alloc(total, sizeof *b->entry, "the list of tables", &b->entry));
    for (int e = 0; e < cfg->model.n_tables; e++) TRY(expand_entry(b, e));
    return DLRM_OK;
}

static dlrm_status tables_from_data(dlrm_spec_build *b)
{
    int n = b->data->n_categorical;
    if (n == 0)
        return dlrm_config_fail(b->cfg, "model.tables", "found from_dataset, but %s has no categorical features",
                                b->data->path);
    TRY(dlrm_alloc(n, sizeof *b->out->tables, "the list of tables", &b->out->tables));
    for (int t = 0; t < n; t++) {
        const dlrm_categorical *c = &b->data->categorical[t];
        size_t length = strlen(c->name);
        if (c->keys)
            return dlrm_config_fail(b->cfg, "model.tables", "found from_dataset, but the data's feature %s has keys (%s); expected a list of tables, "
                                    "of which this one has rows: dynamic and a capacity", c->name, c->where);
        if (length > 4 && !strcmp(c->name + length - 4, ".bin")) length -= 4;
        if (c->cardinality > DLRM_MAX_ROWS)
            return FAIL(DLRM_E_INPUT, "%s: feature %s has %lld ids, expected at most %lld, a table's rows", c->where, c->name,
                        (long long)c->cardinality, (long long)DLRM_MAX_ROWS);
        b->out->n_tables++;
        TRY(dlrm_alloc_text(&b->out->tables[t].name, "%.*s", (int)length, c->name));
        b->out->tables[t].rows = c->cardinality;
        b->out->tables[t].dim = dlrm_spec_dim(b->cfg, 0, c->cardinality);
        const char *bad = bad_name(b->out->tables[t].name);
        if (bad)
            return FAIL(DLRM_E_INPUT,
                        "%s: the feature's name \"%.60s\" %s and cannot name a table; list the tables in the config",
                        c->where, c->name, bad);
    }
    return DLRM_OK;
}

static int by_name(const void *pa, const void *pb)
{
    const dlrm_table *a = *(const dlrm_table *const *)pa, *b = *(const dlrm_table *const *)pb;
    int c = strcmp(a->name, b->name);
    return c ? c : (a > b) - (a < b);
}

static dlrm_status sort_names(dlrm_spec_build *b)
{
    int n = b->out->n_tables;
    TRY(dlrm_alloc(n, sizeof *b->sorted, "the list of tables", &b->sorted));
    for (int t = 0; t < n; t++) b->sorted[t] = &b->out->tables[t];
    qsort(b->sorted, (size_t)n, sizeof *b->sorted, by_name);
    for (int i = 1; i < n; i++) {
        if (strcmp(b->sorted[i - 1]->name, b->sorted[i]->name) != 0) continue;
        int first = (int)(b->sorted[i - 1] - b->out->tables), again = (int)(b->sorted[i] - b->out->tables);
        if (!b->entry)
            return FAIL(DLRM_E_INPUT, "%s: a second table would be called \"%s\", after the feature at %s",
                        b->data->categorical[again].where, b->sorted[i]->name, b->data->categorical[first].where);
        return dlrm_config_fail(b->cfg, dlrm_spec_path(b, "tables", b->entry[again], ""),
                                "a second table is called \"%s\" here, after that of model.tables.%d",
                                b->sorted[i]->name, b->entry[first]);
    }
    return DLRM_OK;
}

/* --- inputs --- */

static void set_hotness(dlrm_input *in, const dlrm_hotness *h, int k)
{
    in->variable = h->max > 0;
    in->hotness = h->max > 0 ? h->max : h->fixed.n > k ? h->fixed.v[k] : 0;
}

static dlrm_status inputs_in_table_order(dlrm_spec_build *b)
{
    dlrm_model_spec *out = b->out;
    int64_t total = 0;
    for (int t = 0; t < out->n_tables; t++) {
        int n = b->entry ? b->cfg->model.tables[b->entry[t]].hotness.fixed.n : 1;
        total += n ? n : 1;
        if (total > DLRM_MAX_TABLES)
            return dlrm_config_fail(b->cfg, dlrm_spec_path(b, "tables", b->entry[t], "hotness"),
                                    "the features up to here are %lld, expected at most %d", (long long)total,
                                    DLRM_MAX_TABLES);
    }
    TRY(dlrm_alloc(total, sizeof *out->inputs, "the list of inputs", &out->inputs));
    for (int t = 0; t < out->n_tables; t++) {
        const dlrm_table_entry *entry = b->entry ? &b->cfg->model.tables[b->entry[t]] : NULL;
        for (int k = 0; k == 0 || (entry && k < entry->hotness.fixed.n); k++) {
            dlrm_input *in = &out->inputs[out->n_inputs++];
            in->table = t;
            if (!entry) continue;
            in->combiner = entry->combiner;
            set_hotness(in, &entry->hotness, k);
        }
    }
    return DLRM_OK;
}

static int find_table(const dlrm_spec_build *b, const char *name)
{
    int low = 0, high = b->out->n_tables - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2, c = strcmp(name, b->sorted[middle]->name);
        if (c == 0) return (int)(b->sorted[middle] - b->out->tables);
        if (c < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

static dlrm_status fail_table(dlrm_spec_build *b, int f, const char *name)
{
    const char *nearest = b->out->tables[0].name;
    int least = dlrm_key_distance(name, nearest);
    for (int t = 1; t < b->out->n_tables; t++) {
        int d = dlrm_key_distance(name, b->out->tables[t].name);
        if (d >= least) continue;
        least = d;
        nearest = b->out->tables[t].name;
    }
    return dlrm_config_fail(b->cfg, dlrm_spec_path(b, "features", f, "table"),
                            "found \"%.60s\", expected the name of one of the %d tables; the nearest is %s", name,
                            b->out->n_tables, nearest);
}

static dlrm_status inputs_from_features(dlrm_spec_build *b)
{
    const dlrm_config *cfg = b->cfg;
    for (int e = 0; e < cfg->model.n_tables; e++)
        if (cfg->model.tables[e].hotness.fixed.n > 1)
            return dlrm_config_fail(cfg, dlrm_spec_path(b, "tables", e, "hotness"),
                                    "a list of features cannot stand here together with model.features");
    TRY(dlrm_alloc(cfg->model.n_features, sizeof *b->out->inputs, "the list of inputs", &b->out->inputs));
    for (int f = 0; f < cfg->model.n_features; f++) {
        const dlrm_feature_entry *feature = &cfg->model.features[f];
        dlrm_input *in = &b->out->inputs[b->out->n_inputs++];
        in->table = find_table(b, feature->table);
        if (in->table < 0) return fail_table(b, f, feature->table);
        const dlrm_table_entry *entry = b->entry ? &cfg->model.tables[b->entry[in->table]] : NULL;
        bool own = feature->hotness.max || feature->hotness.fixed.n;
        if (own || entry) set_hotness(in, own ? &feature->hotness : &entry->hotness, 0);
        in->combiner = feature->combiner >= 0 ? (dlrm_combiner)feature->combiner : entry ? entry->combiner : DLRM_SUM;
    }
    return DLRM_OK;
}

/* An unpooled input's width must be the same in all samples. */
static dlrm_status check_unpooled(dlrm_spec_build *b)
{
    const dlrm_config *cfg = b->cfg;
    for (int j = 0; j < b->out->n_inputs; j++) {
        const dlrm_input *in = &b->out->inputs[j];
        if (in->combiner != DLRM_UNPOOLED || !in->variable) continue;
        const bool own = cfg->model.n_features && cfg->model.features[j].combiner >= 0;
        const char *path = own ? dlrm_spec_path(b, "features", j, "combiner") : dlrm_spec_path(b, "tables", b->entry[in->table], "combiner");
        return dlrm_config_fail(cfg, path,
                                "found none, but feature %s has a variable number of ids, up to %d; expected sum or mean, or a "
                                "fixed hotness",
                                in->name, in->hotness);
    }
    return DLRM_OK;
}

/* The place of an input's hotness in the config. */
static const char *hotness_path(dlrm_spec_build *b, int j)
{
    if (b->cfg->model.n_features &&
        (b->cfg->model.features[j].hotness.max || b->cfg->model.features[j].hotness.fixed.n))
        return dlrm_spec_path(b, "features", j, "hotness");
    return dlrm_spec_path(b, "tables", b->entry[b->out->inputs[j].table], "hotness");
}

static const char *hotness_text(int hotness, bool variable, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "%s%d", variable ? "up to " : "", hotness);
    return buf;
}

static bool has_offsets(const dlrm_feature_spec *data, int j)
{
    for (int s = 0; s < DLRM_SPLITS; s++)
        if (data->split[s].present && data->split[s].offsets[j]) return true;
    return false;
}

/* Hotness may stand in the config, in the data's description, or in both, which then agree. */
static dlrm_status bind_hotness(dlrm_spec_build *b, int j)
{
    dlrm_input *in = &b->out->inputs[j];
    const dlrm_categorical *c = &b->data->categorical[j];
    char found[40], expected[40];
    if (in->hotness == 0) {
        in->hotness = c->hotness;
        in->variable = c->variable;
        return DLRM_OK;
    }
    if (c->has_hotness && (in->hotness != c->hotness || in->variable != c->variable))
        return dlrm_config_fail(b->cfg, hotness_path(b, j),
                                "found %s ids per sample, but the data's feature %s has %s (%s)",
                                hotness_text(in->hotness, in->variable, found, sizeof found), c->name,
                                hotness_text(c->hotness, c->variable, expected, sizeof expected), c->where);
    if (in->variable && !has_offsets(b->data, j))
        return dlrm_config_fail(b->cfg, hotness_path(b, j),
                                "found {max: %d}, but the data has no offsets file for its feature %s (%s)",
                                in->hotness, c->name, c->where);
    return DLRM_OK;
}

static dlrm_status bind_data(dlrm_spec_build *b)
{
    const dlrm_feature_spec *data = b->data;
    const dlrm_model_spec *out = b->out;
    if (out->dense_features != data->n_dense)
        return dlrm_config_fail(b->cfg, "model.dense_features", "found %d, but %s has %d numerical features",
                                out->dense_features, data->path, data->n_dense);
    if (out->bottom.n > 0 && out->dense_features == 0)
        return dlrm_config_fail(b->cfg, "model.bottom_mlp", "found %d layers, expected [], since %s has no numerical features",
                                out->bottom.n, data->path);
    if (out->n_inputs != data->n_categorical)
        return dlrm_config_fail(b->cfg, b->cfg->model.n_features ? "model.features" : "model.tables",
                                "found %d features in all, but %s has %d categorical ones", out->n_inputs, data->path,
                                data->n_categorical);
    for (int j = 0; j < out->n_inputs; j++) {
        const dlrm_table *table = &out->tables[out->inputs[j].table];
        const dlrm_categorical *c = &data->categorical[j];
        TRY(bind_hotness(b, j));
        if (table->capacity > 0 || (!c->keys && table->rows >= c->cardinality)) continue;
        const char *path = b->entry ? dlrm_spec_path(b, "tables", b->entry[out->inputs[j].table], "rows")
                                    : dlrm_spec_path(b, "features", j, "table");
        if (c->keys)
            return dlrm_config_fail(b->cfg, path, "table \"%s\" has %lld rows, but the data's feature %s has keys (%s); expected dynamic, with a capacity",
                                    table->name, (long long)table->rows, c->name, c->where);
        return dlrm_config_fail(b->cfg, path, "table \"%s\" has %lld rows, but the data's feature %s needs %lld (%s)",
                                table->name, (long long)table->rows, c->name, (long long)c->cardinality, c->where);
    }
    return DLRM_OK;
}

static dlrm_status name_inputs(dlrm_spec_build *b)
{
    int *of_table, *k;
    dlrm_status st = DLRM_OK;
    TRY(dlrm_alloc(b->out->n_tables, 2 * sizeof *of_table, "the names of inputs", &of_table));
    k = of_table + b->out->n_tables;
    for (int j = 0; j < b->out->n_inputs; j++) of_table[b->out->inputs[j].table]++;
    for (int j = 0; j < b->out->n_inputs && st == DLRM_OK; j++) {
        dlrm_input *in = &b->out->inputs[j];
        const char *table = b->out->tables[in->table].name;
        if (b->data)
            st = dlrm_alloc_text(&in->name, "%s", b->data->categorical[j].name);
        else if (of_table[in->table] > 1)
            st = dlrm_alloc_text(&in->name, "%s.%d", table, k[in->table]++);
        else
            st = dlrm_alloc_text(&in->name, "%s", table);
        if (in->hotness == 0) in->hotness = 1;
    }
    dlrm_free(&of_table);
    return st;
}

dlrm_status dlrm_model_spec_resolve(const dlrm_config *cfg, const dlrm_feature_spec *data, dlrm_model_spec *out)
{
    dlrm_status st;
    dlrm_spec_build b = {.cfg = cfg, .data = data, .out = out};
    *out = (dlrm_model_spec){
        .dense_features = cfg->model.dense_features == DLRM_FROM_DATASET ? data->n_dense : (int)cfg->model.dense_features,
        .interaction = cfg->model.interaction,
        .pool_stride = (int)cfg->model.pool_stride,
        .cross_layers = (int)cfg->model.cross_layers,
        .cross_rank = (int)cfg->model.cross_rank,
    };
    TRY_TO(end, st, copy_list(&cfg->model.bottom_mlp, &out->bottom));
    TRY_TO(end, st, copy_list(&cfg->model.top_mlp, &out->top));
    TRY_TO(end, st, cfg->model.tables_from_dataset ? tables_from_data(&b) : tables_from_config(&b));
    TRY_TO(end, st, sort_names(&b));
    TRY_TO(end, st, cfg->model.n_features ? inputs_from_features(&b) : inputs_in_table_order(&b));
    if (data) TRY_TO(end, st, bind_data(&b));
    TRY_TO(end, st, name_inputs(&b));
    TRY_TO(end, st, check_unpooled(&b));
    st = dlrm_spec_widths(&b);
end:
    dlrm_free(&b.entry);
    dlrm_free(&b.sorted);
    if (st != DLRM_OK) dlrm_model_spec_clear(out);
    return st;
}

void dlrm_model_spec_clear(dlrm_model_spec *spec)
{
    for (int t = 0; t < spec->n_tables; t++) dlrm_free(&spec->tables[t].name);
    for (int j = 0; j < spec->n_inputs; j++) dlrm_free(&spec->inputs[j].name);
    dlrm_free(&spec->tables);
    dlrm_free(&spec->inputs);
    dlrm_free(&spec->bottom.v);
    dlrm_free(&spec->top.v);
    *spec = (dlrm_model_spec){0};
}
