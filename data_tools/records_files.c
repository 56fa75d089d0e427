#include "records_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/yaml.h"

const char dlrm_records_description[] = "records.yaml";

const char *dlrm_record_file_name(int split)
{
    static const char *const names[] = {"train_data.bin", "test_data.bin", "val_data.bin"};
    return names[split];
}

/* --- folders of others --- */

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static bool is_split(const char *name, const char *split)
{
    char usual[32], data[32];
    snprintf(usual, sizeof usual, "%s.bin", split);
    snprintf(data, sizeof data, "%s_data.bin", split);
    return strcmp(name, data) == 0 || strcmp(name, usual) == 0 || (ends_in(name, usual) && name[strlen(name) - strlen(usual) - 1] == '_');
}

bool dlrm_record_files_find(const char *path, dlrm_format format, dlrm_record_files *out)
{
    struct stat st;
    *out = (dlrm_record_files){.format = format};
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        snprintf(out->path[DLRM_TRAIN], DLRM_PATH_MAX, "%s", path);
        return true;
    }
    DIR *dir = opendir(path);
    if (!dir) return false;
    char found[DLRM_OUT_SPLITS][DLRM_PATH_MAX] = {"", "", ""};
    static const char *const names[] = {"train", "test", "val"};
    for (struct dirent *e; (e = readdir(dir));)
        for (int i = 0; i < DLRM_OUT_SPLITS; i++)
            if (is_split(e->d_name, names[i])) snprintf(found[i], DLRM_PATH_MAX, "%s/%s", path, e->d_name);
    closedir(dir);
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) memcpy(out->path[i], found[i], DLRM_PATH_MAX);
    return *out->path[DLRM_TRAIN] || *out->path[DLRM_TEST];
}

/* --- the description --- */

/* As a double-quoted text of YAML. */
static void write_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < ' ')
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

dlrm_status dlrm_records_describe(const char *folder, dlrm_format format, const dlrm_shape *shape, const int64_t rows[DLRM_OUT_SPLITS])
{
    char path[DLRM_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return FAIL(DLRM_E_RUNTIME, "cannot allocate memory for %s", dlrm_records_description);
    fprintf(out, "format: %s\ndense_features: %d\ndense: %s\nfiles:\n", dlrm_format_names[format], shape->n_dense,
            dlrm_form_names[shape->form]);
    for (int s = 0; s < DLRM_OUT_SPLITS; s++)
        if (rows[s] > 0)
            fprintf(out, "  %s: {name: %s, rows: %lld}\n", dlrm_out_split_names[s], dlrm_record_file_name(s), (long long)rows[s]);
    fprintf(out, "tables: # as model.tables of a config\n");
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_feature *feature = &shape->features[f];
        fputs("- {name: ", out);
        write_quoted(out, feature->name);
        fprintf(out, ", rows: %lld, hotness: %d}\n", (long long)feature->cardinality, feature->hotness);
    }
    fclose(out);
    dlrm_status st = dlrm_tool_path(path, "%s/%s", folder, dlrm_records_description);
    if (st == DLRM_OK) st = dlrm_tool_write_text(path, text);
    free(text);
    return st;
}

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

static dlrm_status load_files(const char *folder, const dlrm_yaml *root, dlrm_record_files *files)
{
    const dlrm_yaml *map, *entry, *name;
    TRY(need(root, "files", DLRM_YAML_MAP, &map));
    for (int s = 0; s < DLRM_OUT_SPLITS; s++) {
        if (!dlrm_yaml_get(map, dlrm_out_split_names[s])) continue;
        TRY(need(map, dlrm_out_split_names[s], DLRM_YAML_MAP, &entry));
        TRY(need(entry, "name", DLRM_YAML_SCALAR, &name));
        if (!*name->text || strchr(name->text, '/')) return dlrm_yaml_fail(name, "name: expected the name of a file of this folder");
        TRY(dlrm_tool_path(files->path[s], "%s/%s", folder, name->text));
        if (dlrm_yaml_get(entry, "rows")) TRY(need_int(entry, "rows", 1, (int64_t)1 << 50, &files->rows[s]));
    }
    if (!*files->path[DLRM_TRAIN] && !*files->path[DLRM_TEST]) return dlrm_yaml_fail(map, "files: neither train nor test");
    return DLRM_OK;
}

static dlrm_status load_tables(const dlrm_yaml *tables, dlrm_shape *shape)
{
    const dlrm_yaml *name;
    int64_t hotness;
    for (int f = 0; f < shape->n_features; f++) {
        dlrm_feature *to = &shape->features[f];
        if (tables->items[f]->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(tables->items[f], "expected a map with name, rows and hotness");
        TRY(need(tables->items[f], "name", DLRM_YAML_SCALAR, &name));
        TRY(need_int(tables->items[f], "rows", 1, (int64_t)1 << 32, &to->cardinality));
        TRY(need_int(tables->items[f], "hotness", 1, 1 << 20, &hotness));
        snprintf(to->name, sizeof to->name, "%s", name->text);
        to->hotness = (int)hotness;
    }
    dlrm_shape_settle(shape);
    return DLRM_OK;
}

static dlrm_status load(const char *folder, const dlrm_yaml *root, dlrm_record_files *files, dlrm_shape *shape)
{
    const dlrm_yaml *tables;
    int64_t n_dense;
    int format, form;
    if (root->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(root, "expected a map");
    TRY(need_choice(root, "format", dlrm_format_names, &format));
    if (format != DLRM_FORMAT_MLPERF_BIN && format != DLRM_FORMAT_HUGECTR_RAW)
        return dlrm_yaml_fail(root, "format: found %s, expected mlperf_bin or hugectr_raw", dlrm_format_names[format]);
    files->format = (dlrm_format)format;
    TRY(need_int(root, "dense_features", 0, 1 << 20, &n_dense));
    TRY(need_choice(root, "dense", dlrm_form_names, &form));
    TRY(load_files(folder, root, files));
    TRY(need(root, "tables", DLRM_YAML_LIST, &tables));
    TRY(dlrm_shape_open((int)n_dense, tables->n, shape));
    shape->form = (dlrm_dense_form)form;
    return load_tables(tables, shape);
}

dlrm_status dlrm_records_parse(const char *folder, const char *path, const char *text, size_t bytes, dlrm_record_files *files,
                               dlrm_shape *shape)
{
    dlrm_yaml_doc doc;
    *files = (dlrm_record_files){0};
    *shape = (dlrm_shape){0};
    TRY(dlrm_yaml_parse(path, text, bytes, &doc));
    dlrm_status st = load(folder, doc.root, files, shape);
    dlrm_yaml_clear(&doc);
    return st;
}

dlrm_status dlrm_records_load(const char *folder, dlrm_record_files *files, dlrm_shape *shape)
{
    char path[DLRM_PATH_MAX];
    dlrm_yaml_doc doc;
    *files = (dlrm_record_files){0};
    *shape = (dlrm_shape){0};
    TRY(dlrm_tool_path(path, "%s/%s", folder, dlrm_records_description));
    TRY(dlrm_yaml_load(path, 64 << 20, &doc));
    dlrm_status st = load(folder, doc.root, files, shape);
    dlrm_yaml_clear(&doc);
    return st;
}
