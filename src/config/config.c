/* A config document: the file, the overrides, and finding a key again for a message. */
#include "config/config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"

enum { MAX_BYTES = 4 << 20 }; /* of a config: 10^4 tables with a line each are 1 MB */

static dlrm_status override(dlrm_yaml_doc *doc, const char *argument)
{
    const char *equals = strchr(argument, '=');
    if (!equals || equals == argument)
        return FAIL(DLRM_E_INPUT, "command line: found \"%s\", expected key.path=value", argument);
    size_t length = (size_t)(equals - argument);
    char path[256];
    if (length >= sizeof path) return FAIL(DLRM_E_INPUT, "command line: the key \"%.60s...\" is unknown", argument);
    memcpy(path, argument, length);
    path[length] = '\0';
    return dlrm_yaml_override(doc, path, equals + 1);
}

/* From the document in out->doc, which an error clears. */
static dlrm_status finish(int n_overrides, char *const *overrides, dlrm_config *out)
{
    dlrm_status st = DLRM_OK;
    out->path = out->doc.root->file;
    if (out->doc.root->kind != DLRM_YAML_MAP)
        TRY_TO(fail, st,
               dlrm_yaml_fail(out->doc.root, "expected a map of config keys, such as train: {batch_size: 2048}"));
    for (int i = 0; i < n_overrides; i++) TRY_TO(fail, st, override(&out->doc, overrides[i]));
    TRY_TO(fail, st, dlrm_config_read(out, &dlrm_config_keys, out->doc.root, "", out));
    TRY_TO(fail, st, dlrm_config_check(out));
    return DLRM_OK;
fail:
    dlrm_config_clear(out);
    return st;
}

dlrm_status dlrm_config_load(const char *path, int n_overrides, char *const *overrides, dlrm_config *out)
{
    *out = (dlrm_config){0};
    TRY(dlrm_yaml_load(path, MAX_BYTES, &out->doc));
    return finish(n_overrides, overrides, out);
}

dlrm_status dlrm_config_load_plan(const char *path, int n_overrides, char *const *overrides, dlrm_config *out)
{
    *out = (dlrm_config){.for_plan = true};
    TRY(dlrm_yaml_load(path, MAX_BYTES, &out->doc));
    return finish(n_overrides, overrides, out);
}

dlrm_status dlrm_config_parse(const char *name, const char *text, size_t bytes, int n_overrides, char *const *overrides,
                              dlrm_config *out)
{
    *out = (dlrm_config){0};
    TRY(dlrm_yaml_parse(name, text, bytes, &out->doc));
    return finish(n_overrides, overrides, out);
}

void dlrm_config_clear(dlrm_config *cfg)
{
    dlrm_config_clear_values(cfg);
    dlrm_yaml_clear(&cfg->doc);
    *cfg = (dlrm_config){0};
}

dlrm_dtype dlrm_config_exchange_dtype(const dlrm_config *cfg)
{
    const dlrm_dtype p = cfg->train.precision;
    if (cfg->train.exchange_dtype != DLRM_DTYPE_AUTO) return cfg->train.exchange_dtype;
    return p == DLRM_BF16 || p == DLRM_FP16 ? p : DLRM_FP32;
}

/* The node at `path`, or the deepest one above it; the root if there is none. */
static const dlrm_yaml *deepest(const dlrm_config *cfg, const char *path)
{
    const dlrm_yaml *node = cfg->doc.root;
    while (*path) {
        char key[256];
        size_t length = strcspn(path, ".");
        const dlrm_yaml *child = NULL;
        if (length >= sizeof key) break;
        memcpy(key, path, length);
        key[length] = '\0';
        if (node->kind == DLRM_YAML_LIST) {
            long i = strtol(key, NULL, 10);
            if (i >= 0 && i < node->n) child = node->items[i];
        } else {
            child = dlrm_yaml_get(node, key);
        }
        if (!child) break;
        node = child;
        path += length + (path[length] == '.');
    }
    return node;
}

dlrm_status dlrm_config_fail(const dlrm_config *cfg, const char *key_path, const char *fmt, ...)
{
    char text[3500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const dlrm_yaml *node = deepest(cfg, key_path);
    if (node == cfg->doc.root) return FAIL(DLRM_E_INPUT, "%s: %s: %s", cfg->path, key_path, text);
    return dlrm_yaml_fail(node, "%s: %s", key_path, text);
}
