/* --help and docs/config.md, from the key table. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/keys.h"

enum { WIDTH = 100, PATH_BYTES = 128 };

typedef void visitor(FILE *out, const char *path, const dlrm_key *key, const dlrm_key_table *table, void *state);

/* Every key in table order, by its full path; N stands for the index of a list's element. */
static void walk(const dlrm_key_table *t, const char *prefix, visitor *visit, FILE *out, void *state)
{
    for (int i = 0; i < t->n; i++) {
        const dlrm_key *key = &t->keys[i];
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s%s", prefix, key->path);
        visit(out, path, key, t, state);
        if (!key->sub) continue;
        strncat(path, key->type == DLRM_KEY_MAP ? "." : ".N.", sizeof path - strlen(path) - 1);
        walk(key->sub, path, visit, out, state);
    }
}

static const char *default_of(const dlrm_key *key)
{
    if (key->type == DLRM_KEY_SECTION) return "";
    if (!key->def || key->type == DLRM_KEY_MAP) return "required"; /* a map of keys some of which are */
    return key->def;
}

static void print_wrapped(FILE *out, const char *text)
{
    const int indent = 4;
    int column = 0;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (column && column + 1 + length > WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s%.*s", column ? 1 : indent, "", length, word);
        word += length + (word[length] == ' ');
    }
    fputc('\n', out);
}

/* --- --help --- */

/* Whether `topic` is the path, a section it is in, or its last names. */
static bool matches(const char *path, const char *topic)
{
    size_t n = strlen(topic);
    for (const char *p = path; n && p; p = strchr(p, '.'), p = p ? p + 1 : NULL)
        if (!strncmp(p, topic, n) && (p[n] == '\0' || p[n] == '.')) return true;
    return false;
}

typedef struct topic_state {
    const char *topic;
    bool found;
} topic_state;

static void print_help(FILE *out, const char *path, const dlrm_key *key, const dlrm_key_table *table, void *state)
{
    topic_state *s = state;
    char expected[400], text[1000], facts[600];
    if (!matches(path, s->topic)) return;
    s->found = true;
    dlrm_key_expected(key, expected, sizeof expected);
    dlrm_key_explain(key, table, text, sizeof text);
    fprintf(out, "%s\n", path);
    if (key->type != DLRM_KEY_SECTION) {
        bool unit = key->unit[0] && strcmp(key->unit, "1") != 0 && key->type != DLRM_KEY_TEXT;
        snprintf(facts, sizeof facts, "%s%s%s; %s%s", expected, unit ? "; unit: " : "", unit ? key->unit : "",
                 key->def ? "default: " : "", default_of(key));
        print_wrapped(out, facts);
    }
    print_wrapped(out, text);
}

static void print_topic_name(FILE *out, const char *path, const dlrm_key *key, const dlrm_key_table *table, void *state)
{
    (void)table;
    (void)state;
    if (!strchr(path, '.')) fprintf(out, "  %-12s %s\n", path, key->text);
}

bool dlrm_config_help(FILE *out, const char *topic)
{
    if (topic && !strcmp(topic, "markdown")) {
        dlrm_config_markdown(out);
        return true;
    }
    if (topic) {
        topic_state s = {topic, false};
        walk(&dlrm_config_keys, "", print_help, out, &s);
        return s.found;
    }
    fputs(
        "dlrm-train trains deep-learning recommendation models: embedding tables spread over the ranks, MLPs on all.\n"
        "\n"
        "  mpirun -n 8 dlrm-train CONFIG.yaml [key.path=value ...]   train, and evaluate as the config says\n"
        "  dlrm-train CONFIG.yaml --check                            check config and data, print model and placement\n"
        "  mpirun -n 8 dlrm-train CONFIG.yaml --eval                 evaluate the weights of checkpoint.init_from\n"
        "  mpirun -n 8 dlrm-train CONFIG.yaml --predict OUT.npy      one probability per row of the test split\n"
        "  dlrm-train --help [topic]                                 this, or the keys that belong to the topic\n"
        "  dlrm-train --version\n"
        "\n"
        "key.path=value sets any config key, the value written as in YAML: train.steps=100 'model.top_mlp=[64, 1]'.\n"
        "Elements of lists are counted from 0: model.tables.0.rows=1000.\n"
        "\n"
        "Topics: a section, a key (train.batch_size), part of one (batch_size), or markdown (all as docs/config.md).\n",
        out);
    walk(&dlrm_config_keys, "", print_topic_name, out, NULL);
    return true;
}

/* --- docs/config.md --- */

static void print_markdown(FILE *out, const char *path, const dlrm_key *key, const dlrm_key_table *table, void *state)
{
    bool *in_table = state;
    char expected[400], text[1000];
    if (key->type == DLRM_KEY_SECTION && !strchr(path, '.')) {
        fprintf(out, "\n## %s\n\n%s\n", path, key->text);
        *in_table = false;
        return;
    }
    if (!*in_table) fputs("\n| key | value | unit | default | meaning |\n| --- | --- | --- | --- | --- |\n", out);
    *in_table = true;
    dlrm_key_expected(key, expected, sizeof expected);
    dlrm_key_explain(key, table, text, sizeof text);
    bool unit = key->unit && strcmp(key->unit, "1") != 0 && key->type != DLRM_KEY_TEXT;
    fprintf(out, "| `%s` | %s | %s | %s | %s |\n", path, expected, unit ? key->unit : "", default_of(key), text);
}

void dlrm_config_markdown(FILE *out)
{
    bool in_table = false;
    fputs(
        "# Config keys\n"
        "\n"
        "Generated by `dlrm-train --help markdown`; do not edit.\n"
        "\n"
        "A config is one YAML file. `key.path=value` on the command line sets any key, the value written as in YAML;\n"
        "elements of lists are counted from 0 (`model.tables.0.rows=1000`; N below). null switches paths, thresholds\n"
        "and intervals off. Relative paths are from the working directory. Unknown and duplicate keys are errors.\n",
        out);
    walk(&dlrm_config_keys, "", print_markdown, out, &in_table);
}
