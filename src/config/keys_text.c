/* The key table in words: what may stand where, and what an unknown key was probably meant to be. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/keys.h"

static void append(char *buf, size_t bytes, const char *fmt, ...) DLRM_PRINTF(3, 4);
static void append(char *buf, size_t bytes, const char *fmt, ...)
{
    size_t n = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + n, bytes - n, fmt, ap);
    va_end(ap);
}

const dlrm_key *dlrm_key_find(const dlrm_key_table *t, const char *path)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->keys[i].path, path)) return &t->keys[i];
    return NULL;
}

static void append_takers(char *buf, size_t bytes, const dlrm_key_table *t, unsigned mask)
{
    const char *comma = "";
    for (const dlrm_key_name *v = t->keys[0].names; v->name; v++) {
        if (!(mask >> v->value & 1)) continue;
        append(buf, bytes, "%s%s", comma, v->name);
        comma = ", ";
    }
}

unsigned dlrm_key_takers(const dlrm_key_table *t, const char *path, char *buf, size_t bytes)
{
    unsigned all = 0;
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->keys[i].path, path)) all |= t->keys[i].takers;
    buf[0] = '\0';
    append_takers(buf, bytes, t, all);
    return all;
}

static void append_names(char *buf, size_t bytes, const dlrm_key_name *names)
{
    for (const dlrm_key_name *v = names; v->name; v++) append(buf, bytes, "%s%s", v == names ? "" : ", ", v->name);
}

void dlrm_key_expected(const dlrm_key *key, char *buf, size_t bytes)
{
    buf[0] = '\0';
    switch (key->type) {
    case DLRM_KEY_INT:
        append(buf, bytes, "an integer from %.0f to %.0f", key->min, key->max);
        for (const dlrm_key_name *v = key->names; v && v->name; v++) append(buf, bytes, ", %s%s", v[1].name || key->nullable ? "" : "or ", v->name);
        break;
    case DLRM_KEY_FLOAT:
        append(buf, bytes, "a number from %.9g to %.9g", key->min, key->max);
        break;
    case DLRM_KEY_BOOL:
        append(buf, bytes, "true or false");
        break;
    case DLRM_KEY_TEXT:
        if (key->names) append_names(buf, bytes, key->names);
        append(buf, bytes, "%s%s", key->names ? " or " : "", key->unit);
        break;
    case DLRM_KEY_TEXTS:
        append(buf, bytes, "a list of at most %d %s", DLRM_MAX_TEXTS, key->unit);
        break;
    case DLRM_KEY_NAME:
        append(buf, bytes, "one of ");
        append_names(buf, bytes, key->names);
        break;
    case DLRM_KEY_WIDTHS:
        append(buf, bytes, "a list of at most %d integers from %.0f to %.0f", DLRM_MAX_LAYERS, key->min, key->max);
        break;
    case DLRM_KEY_HOTNESS:
        append(buf, bytes, "an integer from %.0f to %.0f, or {max: such an integer}", key->min, key->max);
        break;
    case DLRM_KEY_HOTNESS_LIST:
        append(buf, bytes, "an integer from %.0f to %.0f, a list of such, or {max: such an integer}", key->min,
               key->max);
        break;
    case DLRM_KEY_TABLES:
        append(buf, bytes, "a list of 1 to %d maps, or from_dataset", DLRM_MAX_TABLES);
        break;
    case DLRM_KEY_FEATURES:
        append(buf, bytes, "a list of 1 to %d maps or names of tables", DLRM_MAX_TABLES);
        break;
    case DLRM_KEY_SECTION:
    case DLRM_KEY_MAP:
        append(buf, bytes, "a map");
        break;
    }
    if (key->nullable) append(buf, bytes, ", or null");
}

void dlrm_key_explain(const dlrm_key *key, const dlrm_key_table *t, char *buf, size_t bytes)
{
    buf[0] = '\0';
    append(buf, bytes, "%s", key->text);
    if (key->takers) {
        append(buf, bytes, " Only with ");
        append_takers(buf, bytes, t, key->takers);
        append(buf, bytes, ".");
    }
    for (const dlrm_key_name *v = key->names; v && v->name; v++) { /* names that stand together share a bracket */
        bool more = v[1].name && v[1].missing == v->missing, first = v == key->names || v[-1].missing != v->missing;
        if (v->missing) append(buf, bytes, "%s%s", first ? " [" : ", ", v->name);
        if (v->missing && !more) append(buf, bytes, ": %s]", v->missing);
    }
}

int dlrm_key_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t na = strnlen(a, LONGEST + 1), nb = strnlen(b, LONGEST + 1);
    if (na > LONGEST || nb > LONGEST) return 99;
    int d[LONGEST + 1][LONGEST + 1]; /* d[i][j]: between the first i characters of a and the first j of b */
    for (size_t i = 0; i <= na; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= nb; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++)
        for (size_t j = 1; j <= nb; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[na][nb];
}

/* The part of `path` after the section, if it is a key directly in it; else NULL. */
static const char *member(const char *path, const char *section)
{
    size_t n = strlen(section);
    const char *name = n ? path + n + 1 : path;
    if (n && (strncmp(path, section, n) != 0 || path[n] != '.')) return NULL;
    return strchr(name, '.') ? NULL : name;
}

void dlrm_key_suggest(const dlrm_key_table *t, const char *prefix, const char *section, const char *key, char *buf,
                      size_t bytes)
{
    const char *nearest = NULL;
    size_t length = strnlen(key, 40);
    int least = length < 5 ? 1 : (int)(length + 1) / 3; /* edits that still look like a slip */
    buf[0] = '\0';
    for (int i = 0; i < t->n; i++) {
        const char *name = member(t->keys[i].path, section);
        int d = name ? dlrm_key_distance(key, name) : 99;
        if (d > least || (nearest && d == least)) continue;
        least = d;
        nearest = t->keys[i].path;
    }
    for (int i = 0; i < t->n && !nearest; i++) { /* right name, wrong section */
        const char *dot = strrchr(t->keys[i].path, '.');
        if (dot && !strcmp(dot + 1, key)) nearest = t->keys[i].path;
    }
    if (nearest) {
        append(buf, bytes, "did you mean %s%s%s?", prefix, prefix[0] ? "." : "", nearest);
        return;
    }
    append(buf, bytes, "expected one of ");
    for (int i = 0, n = 0; i < t->n; i++) {
        const char *name = member(t->keys[i].path, section);
        if (name && (i == 0 || strcmp(t->keys[i].path, t->keys[i - 1].path) != 0))
            append(buf, bytes, "%s%s", n++ ? ", " : "", name);
    }
}
