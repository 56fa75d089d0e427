/* feature_spec.yaml. channel_spec gives the roles and the order of the features, feature_spec their types, source_spec
 * the files: per split a list of chunks, each naming the features that its file holds; metadata.rows, which is ours, may
 * say how many rows a split has. Names are taken as they stand
 * (NVIDIA's own end in `.bin`), and keys that we do not know are passed over, since other programs keep theirs here. */
#include "config/feature_spec_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/yaml.h"

typedef enum channel { CATEGORICAL, NUMERICAL, LABEL, CHANNELS } channel;
static const char *const channel_name[CHANNELS] = {"categorical", "numerical", "label"};
static const char *const split_name[DLRM_SPLITS] = {"train", "test"};

typedef struct feature {
    const dlrm_yaml *name; /* its place in channel_spec */
    channel channel;
    int index;              /* in its channel */
    const dlrm_yaml *entry; /* in feature_spec */
} feature;

typedef struct parser {
    const char *folder;
    dlrm_feature_spec *out;
    const dlrm_yaml *channels[CHANNELS];
    feature *features; /* by name */
    int n_features;
} parser;

static int compare_features(const void *a, const void *b)
{
    return strcmp(((const feature *)a)->name->text, ((const feature *)b)->name->text);
}

static feature *find_feature(const parser *p, const dlrm_yaml *name)
{
    feature key = {.name = name};
    return bsearch(&key, p->features, (size_t)p->n_features, sizeof *p->features, compare_features);
}

static bool is_text(const dlrm_yaml *node)
{
    return node->kind == DLRM_YAML_SCALAR && *node->text;
}

/* What stands at a node, for messages: a text in quotes, else what it is. */
static const char *found(const dlrm_yaml *node)
{
    static _Thread_local char text[132];
    char plain[128];
    const char *quote = node->kind == DLRM_YAML_SCALAR && !dlrm_yaml_is_null(node) ? "\"" : "";
    snprintf(text, sizeof text, "%s%s%s", quote, dlrm_yaml_describe(node, plain, sizeof plain), quote);
    return text;
}

/* The value of `key` in `map`, which must be there and be of this kind. `path` is the map's own key path. */
static dlrm_status require(const dlrm_yaml *map, const char *path, const char *key, dlrm_yaml_kind kind,
                           const dlrm_yaml **out)
{
    static const char *const kinds[] = {"text", "a list", "a map"};
    const char *dot = *path ? "." : "";
    *out = dlrm_yaml_get(map, key);
    if (!*out) return dlrm_yaml_fail(map, "%s%s%s is missing; expected %s", path, dot, key, kinds[kind]);
    if ((*out)->kind != kind)
        return dlrm_yaml_fail(*out, "%s%s%s: found %s, expected %s", path, dot, key, found(*out), kinds[kind]);
    return DLRM_OK;
}

/* --- channel_spec --- */

static dlrm_status parse_channels(parser *p, const dlrm_yaml *root)
{
    const dlrm_yaml *spec;
    TRY(require(root, "", "channel_spec", DLRM_YAML_MAP, &spec));
    int64_t n = 0;
    for (channel c = 0; c < CHANNELS; c++) {
        TRY(require(spec, "channel_spec", channel_name[c], DLRM_YAML_LIST, &p->channels[c]));
        n += p->channels[c]->n;
    }
    if (p->channels[LABEL]->n != 1)
        return dlrm_yaml_fail(p->channels[LABEL], "channel_spec.label: found %d features, expected 1",
                              p->channels[LABEL]->n);
    if (n > DLRM_MAX_FEATURES)
        return dlrm_yaml_fail(spec, "channel_spec: found %lld features, expected at most %d", (long long)n,
                              DLRM_MAX_FEATURES);
    TRY(dlrm_alloc(n, sizeof *p->features, "the feature list", &p->features));
    for (channel c = 0; c < CHANNELS; c++)
        for (int i = 0; i < p->channels[c]->n; i++) {
            const dlrm_yaml *name = p->channels[c]->items[i];
            if (!is_text(name))
                return dlrm_yaml_fail(name, "channel_spec.%s: found %s, expected a feature's name", channel_name[c],
                                      found(name));
            p->features[p->n_features++] = (feature){name, c, i, NULL};
        }
    qsort(p->features, (size_t)p->n_features, sizeof *p->features, compare_features);
    for (int i = 1; i < p->n_features; i++)
        if (!compare_features(&p->features[i - 1], &p->features[i]))
            return dlrm_yaml_fail(p->features[i].name, "channel_spec: feature %s is listed twice",
                                  found(p->features[i].name));
    return DLRM_OK;
}

/* --- feature_spec --- */

static dlrm_status parse_dtype(const feature *f, unsigned allowed, const char *expected, dlrm_elem *out)
{
    const dlrm_yaml *node = dlrm_yaml_get(f->entry, "dtype");
    const char *name = f->name->text;
    if (!node) return dlrm_yaml_fail(f->entry, "feature_spec.%s.dtype is missing; expected %s", name, expected);
    if (node->kind == DLRM_YAML_SCALAR)
        for (dlrm_elem e = DLRM_BOOL; e <= DLRM_FLOAT32; e++)
            if (allowed >> e & 1 && !strcmp(node->text, dlrm_elem_text(e))) {
                *out = e;
                return DLRM_OK;
            }
    return dlrm_yaml_fail(node, "feature_spec.%s.dtype: found %s, expected %s", name, found(node), expected);
}

static dlrm_status parse_count(const feature *f, const dlrm_yaml *node, const char *key, int64_t max, int64_t *out)
{
    if (!dlrm_yaml_int(node, out) || *out < 1 || *out > max)
        return dlrm_yaml_fail(node, "feature_spec.%s.%s: found %s, expected an integer from 1 to %lld", f->name->text,
                              key, found(node), (long long)max);
    return DLRM_OK;
}

static dlrm_status parse_categorical(const feature *f, dlrm_categorical *out)
{
    const char *name = f->name->text;
    TRY(dlrm_alloc_text(&out->name, "%s", name));
    char *where;
    TRY(dlrm_alloc_text(&where, "%s:%d:%d", f->entry->file, f->entry->line, f->entry->column));
    out->where = where;
    TRY(parse_dtype(f, 1 << DLRM_INT8 | 1 << DLRM_INT16 | 1 << DLRM_INT32 | 1 << DLRM_INT64,
                    "int8, int16, int32 or int64", &out->dtype));
    const dlrm_yaml *cardinality = dlrm_yaml_get(f->entry, "cardinality"), *keys = dlrm_yaml_get(f->entry, "keys");
    if (keys && !dlrm_yaml_bool(keys, &out->keys))
        return dlrm_yaml_fail(keys, "feature_spec.%s.keys: found %s, expected true or false", name, found(keys));
    out->cardinality = 1;
    if (!cardinality && !out->keys)
        return dlrm_yaml_fail(f->entry, "feature_spec.%s.cardinality is missing; expected the number of its ids", name);
    if (cardinality) TRY(parse_count(f, cardinality, "cardinality", DLRM_MAX_ROWS, &out->cardinality));

    const dlrm_yaml *fixed = dlrm_yaml_get(f->entry, "hotness"), *max = dlrm_yaml_get(f->entry, "max_hotness");
    if (fixed && max)
        return dlrm_yaml_fail(max, "feature_spec.%s: found both hotness and max_hotness, expected one of them", name);
    int64_t hotness = 1;
    if (fixed) TRY(parse_count(f, fixed, "hotness", DLRM_MAX_HOTNESS, &hotness));
    if (max) TRY(parse_count(f, max, "max_hotness", DLRM_MAX_HOTNESS, &hotness));
    out->hotness = (int)hotness;
    out->has_hotness = fixed || max;
    out->variable = max;
    return DLRM_OK;
}

static dlrm_status parse_numerical(const feature *f, const feature **first, dlrm_feature_spec *out)
{
    dlrm_elem dtype;
    TRY(parse_dtype(f, 1 << DLRM_FLOAT16 | 1 << DLRM_FLOAT32, "float16 or float32", &dtype));
    if (*first && dtype != out->dense_dtype)
        return dlrm_yaml_fail(f->entry,
                              "feature_spec.%s.dtype: found \"%s\", expected %s, as %s has: all numerical features "
                              "are in one file",
                              f->name->text, dlrm_elem_text(dtype), dlrm_elem_text(out->dense_dtype),
                              (*first)->name->text);
    out->dense_dtype = dtype;
    *first = f;
    return DLRM_OK;
}

static dlrm_status parse_features(parser *p, const dlrm_yaml *root)
{
    const dlrm_yaml *spec;
    TRY(require(root, "", "feature_spec", DLRM_YAML_MAP, &spec));
    for (int i = 0; i < spec->n; i++) {
        feature *f = find_feature(p, spec->keys[i]);
        if (f) f->entry = spec->items[i];
    }
    dlrm_feature_spec *out = p->out;
    const feature *first_numerical = NULL;
    for (int i = 0; i < p->n_features; i++) {
        const feature *f = &p->features[i];
        if (!f->entry)
            return dlrm_yaml_fail(f->name, "channel_spec.%s: feature %s has no entry in feature_spec",
                                  channel_name[f->channel], found(f->name));
        if (f->entry->kind != DLRM_YAML_MAP)
            return dlrm_yaml_fail(f->entry, "feature_spec.%s: found %s, expected a map", f->name->text,
                                  found(f->entry));
        if (f->channel == CATEGORICAL) TRY(parse_categorical(f, &out->categorical[f->index]));
        if (f->channel == NUMERICAL) TRY(parse_numerical(f, &first_numerical, out));
        if (f->channel == LABEL)
            TRY(parse_dtype(f, 1 << DLRM_BOOL | 1 << DLRM_INT8 | 1 << DLRM_INT32 | 1 << DLRM_FLOAT32,
                            "bool, int8, int32 or float32", &out->label_dtype));
    }
    return DLRM_OK;
}

/* --- source_spec --- */

/* Joins a name from the description to the folder, unless it points elsewhere: a data folder stands for itself. */
static dlrm_status join(const parser *p, const dlrm_yaml *name, const char *path, char **out)
{
    if (!is_text(name)) return dlrm_yaml_fail(name, "%s.files: found %s, expected a file name", path, found(name));
    bool leaves = *name->text == '/';
    for (const char *s = name->text; s && !leaves; s = strchr(s, '/')) {
        s += *s == '/';
        leaves = !strncmp(s, "..", 2) && (s[2] == '/' || !s[2]);
    }
    if (leaves)
        return dlrm_yaml_fail(name, "%s.files: found %s, expected a path inside the folder %s", path, found(name),
                              p->folder);
    return dlrm_alloc_text(out, "%s/%s", p->folder, name->text);
}

static dlrm_status same_names(const dlrm_yaml *chunk, const dlrm_yaml *want, const char *path)
{
    if (chunk->n != want->n)
        return dlrm_yaml_fail(chunk,
                              "%s.features: found %d names, expected the %d of channel_spec.numerical in their "
                              "order",
                              path, chunk->n, want->n);
    for (int i = 0; i < chunk->n; i++)
        if (!is_text(chunk->items[i]) || strcmp(chunk->items[i]->text, want->items[i]->text))
            return dlrm_yaml_fail(chunk->items[i],
                                  "%s.features: found %s at place %d, expected %s as in "
                                  "channel_spec.numerical",
                                  path, found(chunk->items[i]), i, want->items[i]->text);
    return DLRM_OK;
}

static char **file_of(const dlrm_split_files *split, channel c, int index)
{
    return c == CATEGORICAL ? &split->ids[index] : c == NUMERICAL ? (char **)&split->dense : (char **)&split->label;
}

static dlrm_status parse_chunk(const parser *p, const dlrm_yaml *chunk, const char *path, dlrm_split_files *split)
{
    const dlrm_yaml *type, *names, *files;
    if (chunk->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(chunk, "%s: found %s, expected a map", path, found(chunk));
    TRY(require(chunk, path, "type", DLRM_YAML_SCALAR, &type));
    if (strcmp(type->text, "split_binary"))
        return dlrm_yaml_fail(type, "%s.type: found %s, expected split_binary", path, found(type));
    TRY(require(chunk, path, "features", DLRM_YAML_LIST, &names));
    TRY(require(chunk, path, "files", DLRM_YAML_LIST, &files));
    if (names->n == 0) return dlrm_yaml_fail(names, "%s.features: found an empty list, expected names", path);

    const dlrm_yaml *name = names->items[0];
    const feature *f = is_text(name) ? find_feature(p, name) : NULL;
    if (!f) return dlrm_yaml_fail(name, "%s.features: found %s, expected a feature of channel_spec", path, found(name));
    char **file = file_of(split, f->channel, f->index);
    if (*file)
        return dlrm_yaml_fail(name, "%s.features: found %s in a second chunk, expected it in one", path, found(name));
    if (f->channel == NUMERICAL)
        TRY(same_names(names, p->channels[NUMERICAL], path));
    else if (names->n != 1)
        return dlrm_yaml_fail(names, "%s.features: found %d names, expected 1, for %s is a %s feature", path, names->n,
                              f->name->text, channel_name[f->channel]);

    /* Where the spec is silent on hotness, an offsets file may stand here and the config say the maximum. */
    const dlrm_categorical *c = f->channel == CATEGORICAL ? &p->out->categorical[f->index] : NULL;
    bool may_vary = c && (c->variable || !c->has_hotness), may_be_fixed = !c || !c->variable;
    if (files->n == 2 ? !may_vary : files->n != 1 || !may_be_fixed)
        return dlrm_yaml_fail(files, "%s.files: found %d files, expected %s", path, files->n,
                              may_be_fixed ? "1" : "2, ids and offsets, for max_hotness is given");
    TRY(join(p, files->items[0], path, file));
    return files->n == 2 ? join(p, files->items[1], path, &split->offsets[f->index]) : DLRM_OK;
}

static dlrm_status parse_split(const parser *p, const dlrm_yaml *chunks, int which)
{
    char path[64];
    dlrm_split_files *split = &p->out->split[which];
    if (chunks->kind != DLRM_YAML_LIST)
        return dlrm_yaml_fail(chunks, "source_spec.%s: found %s, expected a list of chunks", split_name[which],
                              found(chunks));
    for (int i = 0; i < chunks->n; i++) {
        snprintf(path, sizeof path, "source_spec.%s.%d", split_name[which], i);
        TRY(parse_chunk(p, chunks->items[i], path, split));
    }
    for (channel c = 0; c < CHANNELS; c++)
        for (int i = 0; i < p->channels[c]->n; i++)
            if (!*file_of(split, c, i))
                return dlrm_yaml_fail(chunks, "source_spec.%s: no chunk has the feature %s", split_name[which],
                                      p->channels[c]->items[i]->text);
    split->present = true;
    return DLRM_OK;
}

static dlrm_status parse_sources(const parser *p, const dlrm_yaml *root)
{
    const dlrm_yaml *spec = dlrm_yaml_get(root, "source_spec");
    if (!spec || dlrm_yaml_is_null(spec))
        return dlrm_yaml_fail(spec ? spec : root,
                              "source_spec is %s: this describes no files; expected train (and "
                              "test), each a list of chunks",
                              spec ? "null" : "missing");
    if (spec->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(spec, "source_spec: found %s, expected a map", found(spec));
    const dlrm_yaml *train, *test = dlrm_yaml_get(spec, "test");
    TRY(require(spec, "source_spec", "train", DLRM_YAML_LIST, &train));
    TRY(parse_split(p, train, DLRM_TRAIN_SPLIT));
    return test && !dlrm_yaml_is_null(test) ? parse_split(p, test, DLRM_TEST_SPLIT) : DLRM_OK;
}

/* Other programs keep what they like in metadata, but `rows` is taken by its word. */
static dlrm_status parse_rows(const parser *p, const dlrm_yaml *root)
{
    const dlrm_yaml *metadata = dlrm_yaml_get(root, "metadata");
    const dlrm_yaml *rows = metadata && metadata->kind == DLRM_YAML_MAP ? dlrm_yaml_get(metadata, "rows") : NULL;
    if (!rows) return DLRM_OK;
    if (rows->kind != DLRM_YAML_MAP)
        return dlrm_yaml_fail(rows, "metadata.rows: found %s, expected a map, such as {train: 1000, test: 10}", found(rows));
    for (int s = 0; s < DLRM_SPLITS; s++) {
        const dlrm_yaml *n = dlrm_yaml_get(rows, split_name[s]);
        int64_t *told = &p->out->split[s].told_rows;
        if (n && (!dlrm_yaml_int(n, told) || *told < 1))
            return dlrm_yaml_fail(n, "metadata.rows.%s: found %s, expected an integer from 1", split_name[s], found(n));
        if (n && !p->out->split[s].present)
            return dlrm_yaml_fail(n, "metadata.rows.%s: found %s, but source_spec has no %s split", split_name[s], found(n), split_name[s]);
    }
    return DLRM_OK;
}

static dlrm_status parse_root(parser *p, const char *path, const dlrm_yaml *root)
{
    if (root->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(root, "found %s, expected a map", found(root));
    TRY(parse_channels(p, root));
    TRY(dlrm_feature_spec_make(path, p->channels[CATEGORICAL]->n, p->out));
    p->out->n_dense = p->channels[NUMERICAL]->n;
    TRY(parse_features(p, root));
    TRY(parse_sources(p, root));
    return parse_rows(p, root);
}

dlrm_status dlrm_feature_spec_parse_yaml(const char *folder, const char *path, const char *text, size_t bytes,
                                         dlrm_feature_spec *out)
{
    parser p = {.folder = folder, .out = out};
    dlrm_yaml_doc doc;
    *out = (dlrm_feature_spec){0};
    TRY(dlrm_yaml_parse(path, text, bytes, &doc));
    dlrm_status st = parse_root(&p, path, doc.root);
    dlrm_free(&p.features);
    dlrm_yaml_clear(&doc);
    if (st != DLRM_OK) dlrm_feature_spec_clear(out);
    return st;
}
