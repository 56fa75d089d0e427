/* Scalars of a YAML tree as numbers, booleans and messages. Numbers are read by our own rules and not by YAML 1.1's,
 * for which 1e-7 is text and 010 is eight. */
#include "base/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dlrm_yaml *dlrm_yaml_get(const dlrm_yaml *map, const char *key)
{
    if (map->kind != DLRM_YAML_MAP) return NULL;
    for (int i = 0; i < map->n; i++)
        if (!strcmp(map->keys[i]->text, key)) return map->items[i];
    return NULL;
}

static bool is_one_of(const dlrm_yaml *node, const char *const *words, int n)
{
    if (node->kind != DLRM_YAML_SCALAR || node->quoted) return false;
    for (int i = 0; i < n; i++)
        if (!strcmp(node->text, words[i])) return true;
    return false;
}

bool dlrm_yaml_is_null(const dlrm_yaml *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    return is_one_of(node, words, 5);
}

bool dlrm_yaml_bool(const dlrm_yaml *node, bool *out)
{
    static const char *const yes[] = {"true", "True", "TRUE"}, *const no[] = {"false", "False", "FALSE"};
    *out = is_one_of(node, yes, 3);
    return *out || is_one_of(node, no, 3);
}

static const char *skip_digits(const char *s, int *digits)
{
    for (; isdigit((unsigned char)*s); s++) ++*digits;
    return s;
}

/* [-+] digits [. digits] [e [-+] digits], with a digit before or after the point; *integer: neither point nor exponent. */
static bool is_decimal(const char *s, bool *integer)
{
    int digits = 0, exponent = 0;
    if (*s == '-' || *s == '+') s++;
    s = skip_digits(s, &digits);
    *integer = *s == '\0';
    if (*s == '.') s = skip_digits(s + 1, &digits);
    if (digits == 0) return false;
    if (*s != 'e' && *s != 'E') return *s == '\0';
    s++;
    if (*s == '-' || *s == '+') s++;
    s = skip_digits(s, &exponent);
    return exponent > 0 && *s == '\0';
}

bool dlrm_yaml_float(const dlrm_yaml *node, double *out)
{
    bool integer;
    if (node->kind != DLRM_YAML_SCALAR || node->quoted || !is_decimal(node->text, &integer)) return false;
    *out = strtod(node->text, NULL);
    return isfinite(*out);
}

bool dlrm_yaml_int(const dlrm_yaml *node, int64_t *out)
{
    bool integer;
    double d;
    if (node->kind != DLRM_YAML_SCALAR || node->quoted || !is_decimal(node->text, &integer)) return false;
    if (integer) {
        errno = 0;
        *out = strtoll(node->text, NULL, 10);
        return errno == 0;
    }
    if (!dlrm_yaml_float(node, &d) || fabs(d) >= 0x1p53 || d != floor(d)) return false;
    *out = (int64_t)d;
    return true;
}

dlrm_status dlrm_yaml_fail(const dlrm_yaml *node, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (node->line == 0) return FAIL(DLRM_E_INPUT, "%s: %s", node->file, text);
    return FAIL(DLRM_E_INPUT, "%s:%d:%d: %s", node->file, node->line, node->column, text);
}

const char *dlrm_yaml_describe(const dlrm_yaml *node, char *buf, size_t bytes)
{
    if (node->kind != DLRM_YAML_SCALAR || dlrm_yaml_is_null(node)) {
        snprintf(buf, bytes, "%s",
                 node->kind == DLRM_YAML_MAP    ? "map"
                 : node->kind == DLRM_YAML_LIST ? "list"
                                                : "null");
        return buf;
    }
    size_t n = 0;
    int characters = 0;
    for (const char *s = node->text; *s; s++) {
        bool continues = ((unsigned char)*s & 0xC0) == 0x80; /* of a UTF-8 character */
        if (!continues && ++characters > 60) break;
        if (n + 1 >= bytes) {
            while (n > 0 && ((unsigned char)buf[n - 1] & 0xC0) == 0x80) n--; /* no half character at the end */
            if (n > 0 && ((unsigned char)buf[n - 1] & 0xC0) == 0xC0) n--;
            break;
        }
        buf[n++] = (unsigned char)*s < ' ' || *s == 0x7f ? '?' : *s;
    }
    buf[n] = '\0';
    return buf;
}
