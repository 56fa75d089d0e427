/* From YAML nodes to the fields of the config, row by row of the key table. Defaults take the same way as what is
 * written, as small YAML scalars of their own. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/config_internal.h"

enum { PATH_BYTES = 256, LONGEST_TEXT = 3800 /* of a folder: names of files in it come behind, and PATH_MAX is 4096 */ };

static dlrm_status fail_value(const dlrm_key *key, const dlrm_yaml *node, const char *path)
{
    char found[80], expected[400];
    dlrm_key_expected(key, expected, sizeof expected);
    if (key->type == DLRM_KEY_TEXT && node->kind == DLRM_YAML_SCALAR && strlen(node->text) > LONGEST_TEXT)
        return dlrm_yaml_fail(node, "%s: found %zu bytes, expected %s; at most %d bytes", path, strlen(node->text), expected, LONGEST_TEXT);
    return dlrm_yaml_fail(node, "%s: found \"%s\", expected %s", path, dlrm_yaml_describe(node, found, sizeof found),
                          expected);
}

static void join(char *out, const char *prefix, const char *key)
{
    snprintf(out, PATH_BYTES, "%s%s%s", prefix, prefix[0] ? "." : "", key);
}

/* A width or hotness: an integer within the key's range. */
static bool read_small(const dlrm_key *key, const dlrm_yaml *node, int *out)
{
    int64_t v;
    if (!dlrm_yaml_int(node, &v) || v < key->min || v > key->max) return false;
    *out = (int)v;
    return true;
}

static dlrm_status read_list(const dlrm_key *key, const dlrm_yaml *node, const char *path, int longest,
                             dlrm_int_list *out)
{
    if (node->kind != DLRM_YAML_LIST || node->n > longest) return fail_value(key, node, path);
    TRY(dlrm_alloc(node->n, sizeof *out->v, path, &out->v));
    out->n = node->n;
    for (int i = 0; i < node->n; i++)
        if (!read_small(key, node->items[i], &out->v[i])) {
            char found[80];
            return dlrm_yaml_fail(node->items[i], "%s.%d: found \"%s\", expected an integer from %.0f to %.0f", path, i,
                                  dlrm_yaml_describe(node->items[i], found, sizeof found), key->min, key->max);
        }
    return DLRM_OK;
}

static dlrm_status read_texts(const dlrm_key *key, const dlrm_yaml *node, const char *path, dlrm_text_list *out)
{
    if (dlrm_yaml_is_null(node) && key->nullable) return DLRM_OK;
    if (node->kind != DLRM_YAML_LIST || node->n > DLRM_MAX_TEXTS) return fail_value(key, node, path);
    TRY(dlrm_alloc(node->n, sizeof *out->v, path, &out->v));
    for (int i = 0; i < node->n; i++) {
        if (node->items[i]->kind != DLRM_YAML_SCALAR || dlrm_yaml_is_null(node->items[i])) return fail_value(key, node, path);
        out->v[out->n++] = node->items[i]->text;
    }
    return DLRM_OK;
}

static dlrm_status read_hotness(const dlrm_key *key, const dlrm_yaml *node, const char *path, dlrm_hotness *out)
{
    if (dlrm_yaml_is_null(node)) return DLRM_OK;
    if (node->kind == DLRM_YAML_MAP) {
        const dlrm_yaml *max = dlrm_yaml_get(node, "max");
        return max && node->n == 1 && read_small(key, max, &out->max) ? DLRM_OK : fail_value(key, node, path);
    }
    if (node->kind == DLRM_YAML_LIST && node->n > 0 && key->type == DLRM_KEY_HOTNESS_LIST)
        return read_list(key, node, path, DLRM_MAX_TABLES, &out->fixed);
    TRY(dlrm_alloc(1, sizeof *out->fixed.v, path, &out->fixed.v));
    out->fixed.n = 1;
    return read_small(key, node, out->fixed.v) ? DLRM_OK : fail_value(key, node, path);
}

/* A scalar of the key's type into *out; false where it is not one. Names: *which is the one. */
static bool read_scalar(const dlrm_key *key, const dlrm_yaml *node, void *out, const dlrm_key_name **which)
{
    int64_t i;
    double d;
    if (dlrm_yaml_is_null(node)) {
        if (!key->nullable) return false;
        if (key->type == DLRM_KEY_INT) *(int64_t *)out = (int64_t)key->off;
        if (key->type == DLRM_KEY_FLOAT) *(double *)out = key->off;
        if (key->type == DLRM_KEY_NAME) *(int *)out = (int)key->off;
        if (key->type == DLRM_KEY_TEXT) *(const char **)out = NULL;
        return true;
    }
    if (node->kind != DLRM_YAML_SCALAR) return false;
    switch (key->type) {
    case DLRM_KEY_INT:
        for (const dlrm_key_name *v = key->names; v && v->name; v++) {
            if (strcmp(v->name, node->text) != 0) continue;
            *(int64_t *)out = v->value;
            return true;
        }
        if (!dlrm_yaml_int(node, &i) || i < key->min || i > key->max) return false;
        *(int64_t *)out = i;
        return true;
    case DLRM_KEY_FLOAT:
        if (!dlrm_yaml_float(node, &d) || d < key->min || d > key->max) return false;
        *(double *)out = d;
        return true;
    case DLRM_KEY_BOOL:
        return dlrm_yaml_bool(node, out);
    case DLRM_KEY_TEXT:
        *(const char **)out = node->text;
        return node->text[0] != '\0' && strlen(node->text) <= LONGEST_TEXT;
    case DLRM_KEY_NAME:
        for (const dlrm_key_name *v = key->names; v->name; v++) {
            if (strcmp(v->name, node->text) != 0) continue;
            if (key->size == sizeof(bool))
                *(bool *)out = v->value;
            else
                *(int *)out = v->value;
            *which = v;
            return true;
        }
        return false;
    default:
        return false;
    }
}

static dlrm_yaml default_node(const dlrm_key *key)
{
    return (dlrm_yaml){.kind = DLRM_YAML_SCALAR, .file = "default", .text = (char *)key->def};
}

/* A name that this build lacks. A plan is for any build. */
static dlrm_status check_built(const dlrm_config *cfg, const dlrm_yaml *node, const char *path, const dlrm_key_name *which)
{
    if (!which || !which->missing || cfg->for_plan) return DLRM_OK;
    return dlrm_yaml_fail(node, "%s: found \"%s\": %s", path, which->name, which->missing);
}

/* --- lists of maps --- */

static dlrm_status read_tables(dlrm_config *cfg, const dlrm_key *key, const dlrm_yaml *node, const char *path)
{
    int64_t hotness_entries = 0;
    if (node->kind == DLRM_YAML_SCALAR && !strcmp(node->text, "from_dataset")) {
        cfg->model.tables_from_dataset = true;
        return DLRM_OK;
    }
    if (node->kind != DLRM_YAML_LIST || node->n == 0 || node->n > DLRM_MAX_TABLES) return fail_value(key, node, path);
    TRY(dlrm_alloc(node->n, sizeof *cfg->model.tables, path, &cfg->model.tables));
    cfg->model.n_tables = node->n;
    for (int i = 0; i < node->n; i++) {
        char entry[PATH_BYTES];
        snprintf(entry, sizeof entry, "%s.%d", path, i);
        TRY(dlrm_config_read(cfg, key->sub, node->items[i], entry, &cfg->model.tables[i]));
        hotness_entries += cfg->model.tables[i].hotness.fixed.n; /* an alias may repeat a long list cheaply */
        if (hotness_entries > DLRM_MAX_TABLES)
            return dlrm_yaml_fail(node->items[i], "%s: the tables up to here list more than %d features", entry,
                                  DLRM_MAX_TABLES);
    }
    return DLRM_OK;
}

static dlrm_status read_features(dlrm_config *cfg, const dlrm_key *key, const dlrm_yaml *node, const char *path)
{
    if (dlrm_yaml_is_null(node)) return DLRM_OK;
    if (node->kind != DLRM_YAML_LIST || node->n == 0 || node->n > DLRM_MAX_TABLES) return fail_value(key, node, path);
    TRY(dlrm_alloc(node->n, sizeof *cfg->model.features, path, &cfg->model.features));
    cfg->model.n_features = node->n;
    for (int i = 0; i < node->n; i++) {
        const dlrm_yaml *item = node->items[i];
        dlrm_yaml name = {.kind = DLRM_YAML_SCALAR, .text = "table"}, *keys[] = {&name}, *items[] = {node->items[i]};
        dlrm_yaml map = {DLRM_YAML_MAP, item->file, item->line, item->column, .n = 1, .items = items, .keys = keys};
        char entry[PATH_BYTES];
        snprintf(entry, sizeof entry, "%s.%d", path, i);
        if (item->kind == DLRM_YAML_SCALAR) item = &map; /* C1 is short for {table: C1} */
        TRY(dlrm_config_read(cfg, key->sub, item, entry, &cfg->model.features[i]));
    }
    return DLRM_OK;
}

/* --- maps --- */

static dlrm_status check_known(const dlrm_key_table *t, const dlrm_yaml *map, const char *prefix, const char *section)
{
    for (int i = 0; i < map->n; i++) {
        const char *name = map->keys[i]->text;
        char within[PATH_BYTES], path[PATH_BYTES], why[600], found[80];
        join(within, section, name);
        join(path, prefix, within);
        const dlrm_key *key = strchr(name, '.') ? NULL : dlrm_key_find(t, within);
        if (!key) {
            dlrm_key_suggest(t, prefix, section, name, why, sizeof why);
            join(within, section, dlrm_yaml_describe(map->keys[i], found, sizeof found));
            join(path, prefix, within);
            return dlrm_yaml_fail(map->keys[i], "%s: unknown key; %s", path, why);
        }
        if (key->type != DLRM_KEY_SECTION || dlrm_yaml_is_null(map->items[i])) continue;
        if (map->items[i]->kind != DLRM_YAML_MAP) return fail_value(key, map->items[i], path);
        TRY(check_known(t, map->items[i], prefix, within));
    }
    return DLRM_OK;
}

/* The value of a dotted path, NULL where it was not written. */
static const dlrm_yaml *find(const dlrm_yaml *map, const char *path)
{
    const char *dot;
    while (map && (dot = strchr(path, '.'))) {
        char section[PATH_BYTES];
        snprintf(section, sizeof section, "%.*s", (int)(dot - path), path);
        map = dlrm_yaml_get(map, section);
        path = dot + 1;
    }
    return map ? dlrm_yaml_get(map, path) : NULL;
}

static dlrm_status fail_required(const dlrm_config *cfg, const dlrm_key *key, const char *path)
{
    char expected[400];
    dlrm_key_expected(key, expected, sizeof expected);
    return dlrm_config_fail(cfg, path, "missing, expected %s", expected);
}

static dlrm_status read_key(dlrm_config *cfg, const dlrm_key *key, const dlrm_yaml *node, const char *path, void *out)
{
    const dlrm_key_name *which = NULL;
    switch (key->type) {
    case DLRM_KEY_SECTION:
        return DLRM_OK; /* its keys have rows of their own */
    case DLRM_KEY_WIDTHS:
        return read_list(key, node, path, DLRM_MAX_LAYERS, out);
    case DLRM_KEY_TEXTS:
        return read_texts(key, node, path, out);
    case DLRM_KEY_HOTNESS:
    case DLRM_KEY_HOTNESS_LIST:
        return read_hotness(key, node, path, out);
    case DLRM_KEY_MAP:
        return dlrm_config_read(cfg, key->sub, node, path, out);
    case DLRM_KEY_TABLES:
        return read_tables(cfg, key, node, path);
    case DLRM_KEY_FEATURES:
        return read_features(cfg, key, node, path);
    default:
        if (!read_scalar(key, node, out, &which)) return fail_value(key, node, path);
        return check_built(cfg, node, path, which);
    }
}

dlrm_status dlrm_config_read(dlrm_config *cfg, const dlrm_key_table *t, const dlrm_yaml *map, const char *prefix,
                             void *base)
{
    static const dlrm_yaml empty = {.kind = DLRM_YAML_MAP};
    if (dlrm_yaml_is_null(map)) map = &empty;
    if (map->kind != DLRM_YAML_MAP) {
        char found[80];
        return dlrm_yaml_fail(map, "%s: found \"%s\", expected a map", prefix,
                              dlrm_yaml_describe(map, found, sizeof found));
    }
    TRY(check_known(t, map, prefix, ""));
    for (int i = 0; i < t->n; i++) {
        const dlrm_key *key = &t->keys[i];
        const dlrm_yaml *node = find(map, key->path), def = default_node(key);
        char path[PATH_BYTES], takers[100];
        join(path, prefix, key->path);
        if (key->takers) { /* the first row, a name, has been read */
            int name = *(int *)((char *)base + t->keys[0].offset);
            unsigned all = dlrm_key_takers(t, key->path, takers, sizeof takers);
            if (node && !(all >> name & 1))
                return dlrm_config_fail(cfg, path, "does not belong to %s, only to %s", dlrm_optimizer_text(name),
                                        takers);
            if (!(key->takers >> name & 1)) continue;
        }
        if (!node && !key->def) return fail_required(cfg, key, path);
        TRY(read_key(cfg, key, node ? node : &def, path, (char *)base + key->offset));
    }
    return DLRM_OK;
}

void dlrm_config_clear_values(dlrm_config *cfg)
{
    for (int i = 0; i < cfg->model.n_tables; i++) dlrm_free(&cfg->model.tables[i].hotness.fixed.v);
    for (int i = 0; i < cfg->model.n_features; i++) dlrm_free(&cfg->model.features[i].hotness.fixed.v);
    dlrm_free(&cfg->model.tables);
    dlrm_free(&cfg->model.features);
    dlrm_free(&cfg->checkpoint.allow_changed.v);
    dlrm_free(&cfg->model.bottom_mlp.v);
    dlrm_free(&cfg->model.top_mlp.v);
}
