#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const dlrm_usage *u)
{
    printf("usage: dlrm_data %s %s\n\n%s\n\noptions:\n", u->command, u->synopsis, u->text);
    for (int i = 0; i < u->n_options; i++) {
        const dlrm_option *o = &u->options[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", o->name, o->argument ? o->argument : "");
        printf("  %-22s %s\n", left, o->help);
    }
    printf("  %-22s %s\n", "--help", "this text");
}

static dlrm_status bad_value(const dlrm_option *o, const char *text, const char *expected)
{
    return FAIL(DLRM_E_USAGE, "--%s: %s, expected %s", o->name, *text ? text : "an empty value", expected);
}

static dlrm_status parse_int(const dlrm_option *o, const char *text)
{
    char expected[96], *end;
    snprintf(expected, sizeof expected, "an integer from %.0f to %.0f", o->min, o->max);
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || isspace((unsigned char)*text) || (double)v < o->min || (double)v > o->max)
        return bad_value(o, text, expected);
    *(int64_t *)o->value = v;
    return DLRM_OK;
}

static dlrm_status parse_float(const dlrm_option *o, const char *text)
{
    char expected[96], *end;
    snprintf(expected, sizeof expected, "a number from %g to %g", o->min, o->max);
    double v = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(v) || v < o->min || v > o->max)
        return bad_value(o, text, expected);
    *(double *)o->value = v;
    return DLRM_OK;
}

static dlrm_status parse_size(const dlrm_option *o, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    double v = strtod(text, &end);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        v = ldexp(v, 10 * (int)(unit - units + 1));
        end++;
    }
    if (end == text || *end || !isdigit((unsigned char)*text) || !(v >= 1 && v < 0x1p62))
        return bad_value(o, text, "a number of bytes such as 512M, 4G or 0.5T");
    *(int64_t *)o->value = (int64_t)v;
    return DLRM_OK;
}

static dlrm_status parse_choice(const dlrm_option *o, const char *text)
{
    char expected[160] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *(int *)o->value = i;
            return DLRM_OK;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", i ? " or " : "", o->choices[i]);
    }
    return bad_value(o, text, expected);
}

static dlrm_status set_value(const dlrm_option *o, const char *text)
{
    switch (o->kind) {
    case DLRM_OPT_INT:
        return parse_int(o, text);
    case DLRM_OPT_SIZE:
        return parse_size(o, text);
    case DLRM_OPT_FLOAT:
        return parse_float(o, text);
    case DLRM_OPT_CHOICE:
        return parse_choice(o, text);
    case DLRM_OPT_FLAG:
        *(bool *)o->value = true;
        return DLRM_OK;
    case DLRM_OPT_TEXT:
        break;
    }
    if (!*text) return bad_value(o, text, "some text");
    *(const char **)o->value = text;
    return DLRM_OK;
}

static const dlrm_option *find(const dlrm_usage *u, const char *name, size_t bytes)
{
    for (int i = 0; i < u->n_options; i++)
        if (strlen(u->options[i].name) == bytes && strncmp(u->options[i].name, name, bytes) == 0) return &u->options[i];
    return NULL;
}

dlrm_status dlrm_options_parse(const dlrm_usage *u, int argc, char **argv, int *n_positional, bool *help)
{
    int kept = 0;
    bool only_positional = false;
    *help = false;
    for (int i = 0; i < argc; i++) {
        if (only_positional || strncmp(argv[i], "--", 2) != 0) {
            if (!only_positional && argv[i][0] == '-' && argv[i][1])
                return FAIL(DLRM_E_USAGE, "unknown option %s; 'dlrm_data %s --help' lists them", argv[i], u->command);
            argv[kept++] = argv[i];
            continue;
        }
        const char *name = argv[i] + 2, *equals = strchr(name, '=');
        if (!*name) {
            only_positional = true;
            continue;
        }
        if (strcmp(name, "help") == 0) {
            print_help(u);
            *help = true;
            return DLRM_OK;
        }
        const dlrm_option *o = find(u, name, equals ? (size_t)(equals - name) : strlen(name));
        if (!o) return FAIL(DLRM_E_USAGE, "unknown option %s; 'dlrm_data %s --help' lists them", argv[i], u->command);
        const char *text = "";
        if (o->kind == DLRM_OPT_FLAG) {
            if (equals) return FAIL(DLRM_E_USAGE, "--%s takes no value", o->name);
        } else if (equals) {
            text = equals + 1;
        } else if (++i < argc) {
            text = argv[i];
        } else {
            return FAIL(DLRM_E_USAGE, "--%s needs a value: %s", o->name, o->help);
        }
        TRY(set_value(o, text));
    }
    *n_positional = kept;
    return DLRM_OK;
}
