#include "config/records_spec.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/yaml.h"
#include "config/feature_spec_internal.h"

const char *const dlrm_form_names[DLRM_FORMS + 1] = {"counts", "log1", "log3", "floats", NULL};
const char *const dlrm_record_split_names[DLRM_RECORD_FILES] = {"train", "test", "validation"};
const char dlrm_records_description[] = "records.yaml";

enum { MAX_BYTES = 64 << 20 };

static dlrm_status need(const dlrm_yaml *map, const char *key, dlrm_yaml_kind kind, const dlrm_yaml **out)
{
    static const char *const kinds[] = {"text", "a list", "a map"};
    *out = map->kind == DLRM_YAML_MAP ? dlrm_yaml_get(map, key) : NULL;
    if (!*out) return dlrm_yaml_fail(map, "%s is missing; expected %s", key, kinds[kind]);
    if ((*out)->kind != kind) return dlrm_yaml_fail(*out, "%s: expected %s", key, kinds[kind]);
    return DLRM_OK;
}

static dlrm_status need_int(const dlrm_yaml *map, const char *key, int64_t min, int64_t max, int64_t *out)
{
    const dlrm_yaml *node;
    char found[64];
    TRY(need(map, key, DLRM_YAML_SCALAR, &node));
    if (!dlrm_yaml_int(node, out) || *out < min || *out > max)
        return dlrm_yaml_fail(node, "%s: found %s, expected an integer from %lld to %lld", key,
                              dlrm_yaml_describe(node, found, sizeof found), (long long)min, (long long)max);
    return DLRM_OK;
}

static dlrm_status need_choice(const dlrm_yaml *map, const char *key, const char *const *names, int *out)
{
    const dlrm_yaml *node;
    char found[64], expected[128] = "";
    TRY(need(map, key, DLRM_YAML_SCALAR, &node));
    for (*out = 0; names[*out]; ++*out) {
        if (strcmp(names[*out], node->text) == 0) return DLRM_OK;
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", *out ? ", " : "", names[*out]);
    }
    return dlrm_yaml_fail(node, "%s: found %s, expected one of %s", key, dlrm_yaml_describe(node, found, sizeof found), expected);
}

static dlrm_status take_files(const dlrm_yaml *root, dlrm_records_spec *r)
{
    const dlrm_yaml *map, *entry, *name;
    TRY(need(root, "files", DLRM_YAML_MAP, &map));
    for (int s = 0; s < DLRM_RECORD_FILES; s++) {
        if (!dlrm_yaml_get(map, dlrm_record_split_names[s])) continue;
        TRY(need(map, dlrm_record_split_names[s], DLRM_YAML_MAP, &entry));
        TRY(need(entry, "name", DLRM_YAML_SCALAR, &name));
        if (!*name->text || strchr(name->text, '/')) return dlrm_yaml_fail(name, "name: expected the name of a file of this folder");
        TRY(dlrm_alloc_text(&r->file[s], "%s", name->text));
        if (dlrm_yaml_get(entry, "rows")) TRY(need_int(entry, "rows", 1, (int64_t)1 << 50, &r->rows[s]));
    }
    if (!r->file[0] && !r->file[1]) return dlrm_yaml_fail(map, "files: neither train nor test");
    return DLRM_OK;
}

static dlrm_status take_tables(const dlrm_yaml *tables, dlrm_feature_spec *out)
{
    const dlrm_yaml *name;
    int64_t hotness;
    for (int f = 0; f < out->n_categorical; f++) {
        const dlrm_yaml *table = tables->items[f];
        dlrm_categorical *to = &out->categorical[f];
        if (table->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(table, "expected a map with name, rows and hotness");
        TRY(need(table, "name", DLRM_YAML_SCALAR, &name));
        TRY(need_int(table, "rows", 1, DLRM_MAX_ROWS, &to->cardinality));
        TRY(need_int(table, "hotness", 1, DLRM_MAX_HOTNESS, &hotness));
        char *where;
        TRY(dlrm_alloc_text(&to->name, "%s", name->text));
        TRY(dlrm_alloc_text(&where, "%s:%d:%d", table->file, table->line, table->column));
        to->where = where;
        to->dtype = DLRM_INT32;
        to->hotness = (int)hotness;
        to->has_hotness = true;
    }
    return DLRM_OK;
}

static dlrm_status take(const char *path, const dlrm_yaml *root, dlrm_records_spec *r)
{
    static const char *const formats[] = {"mlperf_bin", "hugectr_raw", NULL};
    const dlrm_yaml *tables;
    int64_t n_dense;
    int format, form;
    if (root->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(root, "expected a map");
    TRY(need_choice(root, "format", formats, &format));
    r->hugectr_raw = format == 1;
    TRY(need_int(root, "dense_features", 0, DLRM_MAX_FEATURES, &n_dense));
    TRY(need_choice(root, "dense", dlrm_form_names, &form));
    r->form = (dlrm_dense_form)form;
    TRY(take_files(root, r));
    TRY(need(root, "tables", DLRM_YAML_LIST, &tables));
    TRY(dlrm_feature_spec_make(path, tables->n, &r->features));
    r->features.n_dense = (int)n_dense;
    return take_tables(tables, &r->features);
}

static dlrm_status take_document(const char *path, dlrm_yaml_doc *doc, dlrm_records_spec *out)
{
    dlrm_status st = take(path, doc->root, out);
    dlrm_yaml_clear(doc);
    if (st != DLRM_OK) dlrm_records_spec_clear(out);
    return st;
}

dlrm_status dlrm_records_spec_parse(const char *path, const char *text, size_t bytes, dlrm_records_spec *out)
{
    dlrm_yaml_doc doc;
    *out = (dlrm_records_spec){0};
    TRY(dlrm_yaml_parse(path, text, bytes, &doc));
    return take_document(path, &doc, out);
}

dlrm_status dlrm_records_spec_load(const char *folder, dlrm_records_spec *out)
{
    char *path;
    int64_t bytes;
    dlrm_yaml_doc doc;
    *out = (dlrm_records_spec){0};
    TRY(dlrm_alloc_text(&path, "%s/%s", folder, dlrm_records_description));
    dlrm_status st = dlrm_feature_file_bytes(path, &bytes); /* a pipe would be waited for */
    if (st == DLRM_OK) st = dlrm_yaml_load(path, MAX_BYTES, &doc);
    if (st == DLRM_OK) st = take_document(path, &doc, out);
    dlrm_free(&path);
    return st;
}

void dlrm_records_spec_clear(dlrm_records_spec *r)
{
    for (int s = 0; s < DLRM_RECORD_FILES; s++) dlrm_free(&r->file[s]);
    dlrm_feature_spec_clear(&r->features);
    *r = (dlrm_records_spec){0};
}
