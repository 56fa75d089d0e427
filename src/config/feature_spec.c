/* The description of a split-binary folder: finding it, Merlin's model_size.json, memory. */
#include "config/feature_spec_internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { MAX_BYTES = 64 << 20 }; /* of a description; the widest known one takes 10 kB */

static const struct {
    const char *text;
    size_t size;
} elems[] = {
    [DLRM_BOOL] = {"bool", 1},       [DLRM_INT8] = {"int8", 1},   [DLRM_INT16] = {"int16", 2},
    [DLRM_INT32] = {"int32", 4},     [DLRM_INT64] = {"int64", 8}, [DLRM_FLOAT16] = {"float16", 2},
    [DLRM_FLOAT32] = {"float32", 4},
};

size_t dlrm_elem_size(dlrm_elem e)
{
    return elems[e].size;
}

const char *dlrm_elem_text(dlrm_elem e)
{
    return elems[e].text;
}

dlrm_status dlrm_feature_spec_make(const char *path, int n_categorical, dlrm_feature_spec *out)
{
    TRY(dlrm_alloc_text(&out->path, "%s", path));
    TRY(dlrm_alloc(n_categorical, sizeof *out->categorical, "the categorical features", &out->categorical));
    for (int s = 0; s < DLRM_SPLITS; s++) {
        TRY(dlrm_alloc(n_categorical, sizeof(char *), "the file names", &out->split[s].ids));
        TRY(dlrm_alloc(n_categorical, sizeof(char *), "the file names", &out->split[s].offsets));
    }
    out->n_categorical = n_categorical;
    return DLRM_OK;
}

void dlrm_feature_spec_clear(dlrm_feature_spec *spec)
{
    for (int j = 0; j < spec->n_categorical; j++) {
        dlrm_free(&spec->categorical[j].name);
        dlrm_free(&spec->categorical[j].where);
    }
    for (int s = 0; s < DLRM_SPLITS; s++) {
        dlrm_split_files *split = &spec->split[s];
        for (int j = 0; j < spec->n_categorical; j++) {
            dlrm_free(&split->ids[j]);
            dlrm_free(&split->offsets[j]);
        }
        dlrm_free(&split->label);
        dlrm_free(&split->dense);
        dlrm_free(&split->ids);
        dlrm_free(&split->offsets);
    }
    dlrm_free(&spec->categorical);
    dlrm_free(&spec->path);
    *spec = (dlrm_feature_spec){0};
}

/* --- model_size.json: {"_c14": largest id, …} in the order of the features, whatever the keys; the file names are
 * fixed, and a type follows from the cardinality by the rule that the writers use, with a strict comparison. --- */

static const char *const split_folder[DLRM_SPLITS] = {"train", "test"};

static dlrm_status parse_sizes(const char *folder, json_t *root, dlrm_feature_spec *out)
{
    const char *key;
    json_t *value;
    int j = 0;
    json_object_foreach(root, key, value)
    {
        dlrm_categorical *c = &out->categorical[j];
        json_int_t largest = json_integer_value(value);
        if (!json_is_integer(value) || largest < 0 || largest >= INT32_MAX - 1) {
            char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            dlrm_status st = FAIL(DLRM_E_INPUT, "%s: %s: found %.60s, expected the largest id, from 0 to %d", out->path,
                                  key, text ? text : "?", INT32_MAX - 2);
            free(text);
            return st;
        }
        c->cardinality = largest + 1;
        c->dtype = c->cardinality < INT8_MAX ? DLRM_INT8 : c->cardinality < INT16_MAX ? DLRM_INT16 : DLRM_INT32;
        c->hotness = 1;
        char *where;
        TRY(dlrm_alloc_text(&c->name, "cat_%d", j));
        TRY(dlrm_alloc_text(&where, "%s: %s", out->path, key));
        c->where = where;
        for (int s = 0; s < DLRM_SPLITS; s++)
            TRY(dlrm_alloc_text(&out->split[s].ids[j], "%s/%s/cat_%d.bin", folder, split_folder[s], j));
        j++;
    }
    for (int s = 0; s < DLRM_SPLITS; s++) {
        TRY(dlrm_alloc_text(&out->split[s].label, "%s/%s/label.bin", folder, split_folder[s]));
        TRY(dlrm_alloc_text(&out->split[s].dense, "%s/%s/numerical.bin", folder, split_folder[s]));
        out->split[s].present = true;
    }
    out->label_dtype = DLRM_BOOL;
    out->dense_dtype = DLRM_FLOAT16;
    return DLRM_OK;
}

dlrm_status dlrm_feature_spec_parse_sizes(const char *folder, const char *path, const char *text, size_t bytes,
                                          dlrm_feature_spec *out)
{
    *out = (dlrm_feature_spec){0};
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) return FAIL(DLRM_E_INPUT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    dlrm_status st;
    size_t n = json_object_size(root);
    if (!json_is_object(root) || n == 0 || n > DLRM_MAX_FEATURES)
        TRY_TO(end, st,
               FAIL(DLRM_E_INPUT,
                    "%s: expected an object with the largest id of each categorical feature, 1 to "
                    "%d of them",
                    path, DLRM_MAX_FEATURES));
    TRY_TO(end, st, dlrm_feature_spec_make(path, (int)n, out));
    st = parse_sizes(folder, root, out);
end:
    json_decref(root);
    if (st != DLRM_OK) dlrm_feature_spec_clear(out);
    return st;
}

/* --- finding and reading the description --- */

static dlrm_status read_text(const char *path, char **text, size_t *bytes)
{
    int64_t size;
    TRY(dlrm_feature_file_bytes(path, &size));
    if (size > MAX_BYTES)
        return FAIL(DLRM_E_INPUT, "%s: %lld bytes, expected at most %d", path, (long long)size, MAX_BYTES);
    FILE *f = fopen(path, "rb");
    if (!f) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    dlrm_status st;
    TRY_TO(end, st, dlrm_alloc(size + 1, 1, "the data's description", text));
    *bytes = fread(*text, 1, (size_t)size, f);
    if (ferror(f)) st = FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
end:
    fclose(f);
    return st;
}

static dlrm_status load_yaml(const char *folder, const char *path, dlrm_feature_spec *out)
{
    char *text = NULL;
    size_t bytes;
    dlrm_status st = read_text(path, &text, &bytes);
    if (st == DLRM_OK) st = dlrm_feature_spec_parse_yaml(folder, path, text, bytes, out);
    dlrm_free(&text);
    return st;
}

static dlrm_status load_sizes(const char *folder, const char *path, dlrm_feature_spec *out)
{
    char *text = NULL, *test = NULL;
    size_t bytes;
    dlrm_status st = read_text(path, &text, &bytes);
    if (st == DLRM_OK) st = dlrm_feature_spec_parse_sizes(folder, path, text, bytes, out);
    if (st == DLRM_OK) st = dlrm_feature_count_dense(out);
    if (st == DLRM_OK) st = dlrm_alloc_text(&test, "%s/%s", folder, split_folder[DLRM_TEST_SPLIT]);
    if (st == DLRM_OK) out->split[DLRM_TEST_SPLIT].present = access(test, F_OK) == 0;
    dlrm_free(&text);
    dlrm_free(&test);
    if (st != DLRM_OK) dlrm_feature_spec_clear(out);
    return st;
}

dlrm_status dlrm_feature_spec_load(const char *folder, dlrm_feature_spec *out)
{
    *out = (dlrm_feature_spec){0};
    char *yaml = NULL, *sizes = NULL;
    struct stat s;
    dlrm_status st;
    TRY_TO(end, st, dlrm_alloc_text(&yaml, "%s/feature_spec.yaml", folder));
    TRY_TO(end, st, dlrm_alloc_text(&sizes, "%s/model_size.json", folder));
    if (access(yaml, F_OK) == 0)
        st = load_yaml(folder, yaml, out);
    else if (access(sizes, F_OK) == 0)
        st = load_sizes(folder, sizes, out);
    else if (stat(folder, &s) != 0)
        st = FAIL(DLRM_E_INPUT, "%s: %s", folder, strerror(errno));
    else if (!S_ISDIR(s.st_mode))
        st = FAIL(DLRM_E_INPUT, "%s: found a file, expected a folder of data, as `dlrm_data convert` makes it", folder);
    else if (access(folder, X_OK) != 0)
        st = FAIL(DLRM_E_INPUT, "%s: cannot look into this folder: %s", folder, strerror(errno));
    else
        st = FAIL(DLRM_E_INPUT, "%s: found neither feature_spec.yaml nor model_size.json in this folder; `dlrm_data convert` makes "
                  "a folder of data out of Criteo's text files, docs/own-data.md out of arrays", folder);
end:
    dlrm_free(&yaml);
    dlrm_free(&sizes);
    return st;
}
