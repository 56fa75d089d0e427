/* A config's values as texts, by the key table: what is compared when a run goes on from a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/keys.h"

enum { PATH_BYTES = 256, VALUE_BYTES = 4200 };

/* The value of a key in the struct at `base`; false: its type has no short text. */
static bool text_of(const dlrm_key *key, const void *base, char *buf, size_t bytes)
{
    const void *v = (const char *)base + key->offset;
    int n = 0, which;
    switch (key->type) {
    case DLRM_KEY_INT:
        snprintf(buf, bytes, "%lld", (long long)*(const int64_t *)v);
        for (const dlrm_key_name *name = key->names; name && name->name; name++)
            if (name->value == *(const int64_t *)v) snprintf(buf, bytes, "%s", name->name);
        return true;
    case DLRM_KEY_FLOAT:
        for (int digits = 6; digits <= 17 && (n == 0 || strtod(buf, NULL) != *(const double *)v); digits++)
            n = snprintf(buf, bytes, "%.*g", digits, *(const double *)v); /* as few as say it exactly */
        return true;
    case DLRM_KEY_BOOL:
        snprintf(buf, bytes, "%s", *(const bool *)v ? "true" : "false");
        return true;
    case DLRM_KEY_TEXT:
        snprintf(buf, bytes, "%s", *(const char *const *)v ? *(const char *const *)v : "null");
        return true;
    case DLRM_KEY_NAME:
        which = key->size == sizeof(bool) ? *(const bool *)v : *(const int *)v;
        snprintf(buf, bytes, "%d", which);
        for (const dlrm_key_name *name = key->names; name->name; name++)
            if (name->value == which) snprintf(buf, bytes, "%s", name->name);
        return true;
    case DLRM_KEY_WIDTHS:
        n = snprintf(buf, bytes, "[");
        for (int i = 0; i < ((const dlrm_int_list *)v)->n; i++)
            n += snprintf(buf + n, bytes - (size_t)n, "%s%d", i ? ", " : "", ((const dlrm_int_list *)v)->v[i]);
        snprintf(buf + n, bytes - (size_t)n, "]");
        return true;
    default:
        return false;
    }
}

static void each(const dlrm_key_table *t, const char *prefix, const void *base, dlrm_config_visitor *visit, void *ctx)
{
    for (int i = 0; i < t->n; i++) {
        const dlrm_key *key = &t->keys[i];
        char path[PATH_BYTES], value[VALUE_BYTES];
        snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "." : "", key->path);
        if (key->takers && !(key->takers >> *(const int *)((const char *)base + t->keys[0].offset) & 1)) continue;
        if (key->type == DLRM_KEY_MAP)
            each(key->sub, path, (const char *)base + key->offset, visit, ctx);
        else if (text_of(key, base, value, sizeof value))
            visit(ctx, path, value);
    }
}

void dlrm_config_each(const dlrm_config *cfg, dlrm_config_visitor *visit, void *ctx)
{
    each(&dlrm_config_keys, "", cfg, visit, ctx);
}

bool dlrm_key_is_within(const char *path, const char *section)
{
    size_t n = strlen(section);
    return !strncmp(path, section, n) && (path[n] == '\0' || path[n] == '.');
}
