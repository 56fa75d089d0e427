/* The name map: names in a weights file to ours. `emb_l.*.weight: table.t*.weight` maps every name that starts with
 * "emb_l." and ends with ".weight"; what the star stands for goes into our name. */
#include <string.h>

#include "model/tensors_impl.h"

enum { MAX_MAP_BYTES = 1 << 20 };

static int stars(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '*';
    return n;
}

dlrm_status dlrm_name_map_load(const char *path, dlrm_yaml_doc *out)
{
    char found[80];
    TRY(dlrm_yaml_load(path, MAX_MAP_BYTES, out));
    if (out->root->kind != DLRM_YAML_MAP)
        return dlrm_yaml_fail(out->root, "a map `name in the file: our name` is expected, found %s",
                              dlrm_yaml_describe(out->root, found, sizeof found));
    for (int i = 0; i < out->root->n; i++) {
        const dlrm_yaml *key = out->root->keys[i], *value = out->root->items[i];
        if (value->kind != DLRM_YAML_SCALAR || dlrm_yaml_is_null(value))
            return dlrm_yaml_fail(value, "%s: our name is expected, found %s", key->text,
                                  dlrm_yaml_describe(value, found, sizeof found));
        if (stars(key->text) > 1 || stars(key->text) != stars(value->text))
            return dlrm_yaml_fail(key, "'%s: %s': at most one * is possible, and then on both sides", key->text,
                                  value->text);
    }
    return DLRM_OK;
}

/* Does `key` fit the pattern? Then *text, *n is what its star stands for. */
static bool fits(const char *pattern, const char *key, const char **text, size_t *n)
{
    size_t before = strcspn(pattern, "*"), after = strlen(pattern) - before - 1, length = strlen(key);
    if (length < before + after || memcmp(pattern, key, before) != 0 ||
        memcmp(pattern + before + 1, key + length - after, after) != 0)
        return false;
    *text = key + before;
    *n = length - before - after;
    return true;
}

dlrm_status dlrm_name_map_apply(const dlrm_yaml_doc *map, const char *file, const char *key, char out[DLRM_NAME_BYTES],
                                const dlrm_yaml **rule)
{
    const char *text = "";
    size_t text_bytes = 0;
    const dlrm_yaml *pattern = NULL;
    *rule = NULL;
    if (!map->root) return DLRM_OK;
    if (!strchr(key, '*')) *rule = dlrm_yaml_get(map->root, key);
    for (int i = 0; i < map->root->n && (!*rule || pattern); i++) {
        const dlrm_yaml *candidate = map->root->keys[i];
        const char *t;
        size_t n;
        if (!stars(candidate->text) || !fits(candidate->text, key, &t, &n)) continue;
        if (pattern)
            return dlrm_yaml_fail(candidate, "'%s' fits tensor '%s' of %s, but so does '%s' of line %d",
                                  candidate->text, key, file, pattern->text, pattern->line);
        pattern = candidate;
        *rule = map->root->items[i];
        text = t;
        text_bytes = n;
    }
    if (!*rule) return DLRM_OK;

    const char *ours = (*rule)->text;
    size_t before = strcspn(ours, "*"), total = strlen(ours) + (pattern ? text_bytes - 1 : 0);
    if (total >= DLRM_NAME_BYTES)
        return dlrm_yaml_fail(*rule, "tensor '%s' of %s would get a name of %zu bytes, more than %d", key, file, total,
                              DLRM_NAME_BYTES - 1);
    memcpy(out, ours, before);
    memcpy(out + before, text, text_bytes);
    strcpy(out + before + text_bytes, ours + before + (pattern ? 1 : 0));
    return DLRM_OK;
}
