/* YAML text to tree. libyaml's events arrive one after another; finished nodes wait on a stack until the list or map
 * around them ends and takes its part of it. All nodes live in a pool of large blocks that is freed as a whole, so
 * aliases may share nodes. Conversions of scalars are in yaml_value.c. */
#include "base/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/files.h"
#include "base/mem.h"

enum { MAX_DEPTH = 64, MAX_ANCHORS = 1024, BLOCK_BYTES = 1 << 14 };

typedef struct block {
    struct block *next;
    size_t used, bytes;
    char data[];
} block;

typedef struct dlrm_yaml_pool {
    block *blocks;
} pool;

typedef struct frame { /* a list or map that is still open */
    dlrm_yaml *node;
    int64_t first; /* its children on the stack */
} frame;

typedef struct anchor {
    const char *name;
    dlrm_yaml *node;
} anchor;

typedef struct builder {
    pool *pool;
    const char *file;  /* of the nodes */
    const char *where; /* of messages */
    bool positions;    /* the text is a file's: nodes and messages have line and column */
    dlrm_yaml **stack;
    int64_t n, capacity;
    frame open[MAX_DEPTH];
    int depth, n_anchors;
    anchor anchors[MAX_ANCHORS];
} builder;

static dlrm_status take(pool *p, size_t bytes, void *out)
{
    bytes = (bytes + 7) / 8 * 8;
    block *b = p->blocks;
    if (!b || b->bytes - b->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        TRY(dlrm_alloc(1, sizeof *b + room, "YAML text", &b));
        b->bytes = room;
        b->next = p->blocks;
        p->blocks = b;
    }
    *(void **)out = b->data + b->used;
    b->used += bytes;
    return DLRM_OK;
}

static dlrm_status take_text(pool *p, const char *text, size_t length, char **out)
{
    TRY(take(p, length + 1, out));
    memcpy(*out, text, length);
    (*out)[length] = '\0';
    return DLRM_OK;
}

static dlrm_status fail_at(const builder *b, yaml_mark_t at, const char *what, const char *name)
{
    if (!b->positions) return FAIL(DLRM_E_INPUT, "%s: %s%s", b->where, what, name);
    return FAIL(DLRM_E_INPUT, "%s:%zu:%zu: %s%s", b->where, at.line + 1, at.column + 1, what, name);
}

static dlrm_status new_node(builder *b, dlrm_yaml_kind kind, yaml_mark_t at, dlrm_yaml **out)
{
    TRY(take(b->pool, sizeof **out, out));
    **out = (dlrm_yaml){.kind = kind, .file = b->file};
    if (b->positions) {
        (*out)->line = (int)at.line + 1;
        (*out)->column = (int)at.column + 1;
    }
    return DLRM_OK;
}

/* A finished node (or one whose children follow) takes its place in the list or map around it. */
static dlrm_status push(builder *b, dlrm_yaml *node, yaml_mark_t at)
{
    if (b->depth > 0) {
        frame *f = &b->open[b->depth - 1];
        if (f->node->kind == DLRM_YAML_MAP && (b->n - f->first) % 2 == 0 && node->kind != DLRM_YAML_SCALAR)
            return fail_at(b, at, "a key must be text, not a list or map", "");
    }
    if (b->n == b->capacity) {
        int64_t more = b->capacity ? 2 * b->capacity : 256;
        dlrm_yaml **stack;
        TRY(dlrm_alloc(more, sizeof *stack, "YAML nodes", &stack));
        if (b->n) memcpy(stack, b->stack, (size_t)b->n * sizeof *stack);
        dlrm_free(&b->stack);
        b->stack = stack;
        b->capacity = more;
    }
    b->stack[b->n++] = node;
    return DLRM_OK;
}

static dlrm_status set_anchor(builder *b, const yaml_char_t *name, dlrm_yaml *node, yaml_mark_t at)
{
    if (!name) return DLRM_OK;
    if (b->n_anchors == MAX_ANCHORS) return fail_at(b, at, "more than 1024 anchors", "");
    char *copy;
    TRY(take_text(b->pool, (const char *)name, strlen((const char *)name), &copy));
    b->anchors[b->n_anchors++] = (anchor){copy, node};
    return DLRM_OK;
}

static dlrm_status on_alias(builder *b, const char *name, yaml_mark_t at)
{
    dlrm_yaml *node = NULL;
    for (int i = b->n_anchors - 1; i >= 0 && !node; i--) /* a name used twice means its last use */
        if (!strcmp(b->anchors[i].name, name)) node = b->anchors[i].node;
    if (!node) return fail_at(b, at, "no anchor before this alias is called &", name);
    for (int i = 0; i < b->depth; i++)
        if (b->open[i].node == node) return fail_at(b, at, "this alias stands inside the very node it names, &", name);
    return push(b, node, at);
}

static dlrm_status on_scalar(builder *b, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t length = e->data.scalar.length;
    dlrm_yaml *node;
    if (e->data.scalar.tag)
        return fail_at(b, e->start_mark, "tags are not supported: ", (const char *)e->data.scalar.tag);
    if (memchr(text, '\0', length)) return fail_at(b, e->start_mark, "text with a NUL character", "");
    TRY(new_node(b, DLRM_YAML_SCALAR, e->start_mark, &node));
    node->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    TRY(take_text(b->pool, text, length, &node->text));
    TRY(set_anchor(b, e->data.scalar.anchor, node, e->start_mark));
    return push(b, node, e->start_mark);
}

static dlrm_status on_open(builder *b, dlrm_yaml_kind kind, yaml_mark_t at, const yaml_char_t *name,
                           const yaml_char_t *tag)
{
    dlrm_yaml *node;
    if (tag) return fail_at(b, at, "tags are not supported: ", (const char *)tag);
    if (b->depth == MAX_DEPTH) return fail_at(b, at, "lists and maps are nested more than 64 deep", "");
    TRY(new_node(b, kind, at, &node));
    TRY(set_anchor(b, name, node, at));
    TRY(push(b, node, at));
    b->open[b->depth++] = (frame){node, b->n};
    return DLRM_OK;
}

static int before(const dlrm_yaml *a, const dlrm_yaml *b)
{
    return a->line != b->line ? (a->line < b->line ? -1 : 1) : (a->column > b->column) - (a->column < b->column);
}

static int by_text(const void *pa, const void *pb)
{
    const dlrm_yaml *a = *(dlrm_yaml *const *)pa, *b = *(dlrm_yaml *const *)pb;
    int c = strcmp(a->text, b->text);
    return c ? c : before(a, b);
}

/* The keys and indices that lead to the map which ends on the stack at `end`, and `key` in it. */
static void key_path(const builder *b, int64_t end, const dlrm_yaml *key, char *buf, size_t bytes)
{
    size_t n = 0;
    char text[80];
    buf[0] = '\0';
    for (int i = 0; i < b->depth && n < bytes; i++) {
        const frame *f = &b->open[i];
        int64_t next = i + 1 < b->depth ? b->open[i + 1].first : end;
        if (f->node->kind == DLRM_YAML_LIST)
            n += (size_t)snprintf(buf + n, bytes - n, "%lld.", (long long)(next - f->first - 1));
        else
            n += (size_t)snprintf(buf + n, bytes - n, "%s.", dlrm_yaml_describe(b->stack[next - 2], text, sizeof text));
    }
    if (n < bytes) snprintf(buf + n, bytes - n, "%s", dlrm_yaml_describe(key, text, sizeof text));
}

/* Sorted, since a hostile map may have 10^5 keys. Of several duplicates the first in the file is named. */
static dlrm_status check_duplicates(const builder *b, const dlrm_yaml *map)
{
    if (map->n < 2) return DLRM_OK;
    dlrm_yaml **sorted;
    const dlrm_yaml *first = NULL, *again = NULL;
    TRY(dlrm_alloc(map->n, sizeof *sorted, "YAML keys", &sorted));
    memcpy(sorted, map->keys, (size_t)map->n * sizeof *sorted);
    qsort(sorted, (size_t)map->n, sizeof *sorted, by_text);
    for (int i = 1; i < map->n; i++) {
        if (strcmp(sorted[i - 1]->text, sorted[i]->text) != 0 || (again && before(again, sorted[i]) <= 0)) continue;
        first = sorted[i - 1];
        again = sorted[i];
    }
    dlrm_free(&sorted);
    if (!again) return DLRM_OK;
    yaml_mark_t at = {.line = (size_t)again->line - 1, .column = (size_t)again->column - 1};
    char path[256], more[64] = "";
    key_path(b, b->n, again, path, sizeof path);
    if (b->positions) snprintf(more, sizeof more, ": duplicate key, set in line %d already", first->line);
    return fail_at(b, at, path, b->positions ? more : ": duplicate key");
}

static dlrm_status on_close(builder *b)
{
    frame f = b->open[--b->depth];
    dlrm_yaml *node = f.node;
    bool map = node->kind == DLRM_YAML_MAP;
    node->n = (int)((b->n - f.first) / (map ? 2 : 1));
    size_t bytes = (size_t)node->n * sizeof(dlrm_yaml *);
    TRY(take(b->pool, bytes, &node->items));
    if (map) {
        TRY(take(b->pool, bytes, &node->keys));
        for (int i = 0; i < node->n; i++) {
            node->keys[i] = b->stack[f.first + 2 * i];
            node->items[i] = b->stack[f.first + 2 * i + 1];
        }
    } else if (bytes) {
        memcpy(node->items, b->stack + f.first, bytes);
    }
    b->n = f.first;
    return map ? check_duplicates(b, node) : DLRM_OK; /* the map itself is the last one left on the stack */
}

/* libyaml's account of a syntax error. Its reader (bad UTF-8) knows a byte offset only. */
static dlrm_status syntax_error(const builder *b, const yaml_parser_t *p, const char *text, size_t bytes)
{
    yaml_mark_t at = p->problem_mark;
    char more[200] = "";
    if (p->error == YAML_MEMORY_ERROR) return FAIL(DLRM_E_RUNTIME, "%s: out of memory while reading YAML", b->where);
    if (p->error == YAML_READER_ERROR) {
        at = (yaml_mark_t){0};
        for (size_t i = 0; i < p->problem_offset && i < bytes; i++) {
            at.column = text[i] == '\n' ? 0 : at.column + 1;
            at.line += text[i] == '\n';
        }
        snprintf(more, sizeof more, " (byte 0x%02X)", (unsigned)p->problem_value);
    } else if (p->context) {
        snprintf(more, sizeof more, " (%s in line %zu)", p->context, p->context_mark.line + 1);
    }
    char problem[400];
    snprintf(problem, sizeof problem, "not YAML: %s", p->problem ? p->problem : "unknown trouble");
    return fail_at(b, at, problem, b->positions || p->error == YAML_READER_ERROR ? more : "");
}

static dlrm_status on_event(builder *b, const yaml_event_t *e, int *documents)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*documents > 1) return fail_at(b, e->start_mark, "a second document begins; one is expected", "");
        return DLRM_OK;
    case YAML_ALIAS_EVENT:
        return on_alias(b, (const char *)e->data.alias.anchor, e->start_mark);
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, DLRM_YAML_LIST, e->start_mark, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, DLRM_YAML_MAP, e->start_mark, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_close(b);
    default:
        return DLRM_OK;
    }
}

/* *out NULL: there was no document, only white space and comments. */
static dlrm_status build(builder *b, const char *text, size_t bytes, dlrm_yaml **out)
{
    yaml_parser_t parser;
    yaml_event_t event;
    dlrm_status st = DLRM_OK;
    int documents = 0;
    *out = NULL;
    if (!yaml_parser_initialize(&parser))
        return FAIL(DLRM_E_RUNTIME, "%s: out of memory for the YAML parser", b->where);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    for (bool more = true; more && st == DLRM_OK;) {
        if (!yaml_parser_parse(&parser, &event)) {
            st = syntax_error(b, &parser, text, bytes);
            break;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        st = on_event(b, &event, &documents);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (st == DLRM_OK && b->n) *out = b->stack[0];
    dlrm_free(&b->stack);
    return st;
}

dlrm_status dlrm_yaml_parse(const char *name, const char *text, size_t bytes, dlrm_yaml_doc *out)
{
    dlrm_status st;
    char *file;
    builder b = {.positions = true};
    *out = (dlrm_yaml_doc){0};
    TRY_TO(fail, st, dlrm_alloc(1, sizeof *out->pool, "YAML pool", &out->pool));
    TRY_TO(fail, st, take_text(out->pool, name, strlen(name), &file));
    b.pool = out->pool;
    b.file = b.where = file;
    TRY_TO(fail, st, build(&b, text, bytes, &out->root));
    if (!out->root || dlrm_yaml_is_null(out->root))
        TRY_TO(fail, st, new_node(&b, DLRM_YAML_MAP, (yaml_mark_t){0}, &out->root));
    return DLRM_OK;
fail:
    dlrm_yaml_clear(out);
    return st;
}

dlrm_status dlrm_yaml_load(const char *path, int64_t max_bytes, dlrm_yaml_doc *out)
{
    *out = (dlrm_yaml_doc){0};
    char *text = NULL;
    dlrm_status st = DLRM_OK;
    int fd;
    TRY(dlrm_file_open_regular(path, &fd, NULL));
    FILE *f = fdopen(fd, "rb");
    DLRM_ASSERT(f);
    TRY_TO(done, st, dlrm_alloc(max_bytes + 1, 1, "a YAML file", &text));
    size_t bytes = fread(text, 1, (size_t)max_bytes + 1, f);
    if (ferror(f))
        st = FAIL(DLRM_E_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    else if (bytes > (size_t)max_bytes)
        st = FAIL(DLRM_E_INPUT, "%s: larger than %lld bytes, too large for a YAML file here", path,
                  (long long)max_bytes);
    else
        st = dlrm_yaml_parse(path, text, bytes, out);
done:
    dlrm_free(&text);
    fclose(f);
    return st;
}

void dlrm_yaml_clear(dlrm_yaml_doc *doc)
{
    if (doc->pool) {
        for (block *b = doc->pool->blocks, *next; b; b = next) {
            next = b->next;
            dlrm_free(&b);
        }
        dlrm_free(&doc->pool);
    }
    *doc = (dlrm_yaml_doc){0};
}

/* A list or map of its own with the same children (plus room for one more), to be changed without touching aliases. */
static dlrm_status copy_node(pool *p, const dlrm_yaml *from, dlrm_yaml **out)
{
    size_t bytes = (size_t)from->n * sizeof(dlrm_yaml *), room = bytes + sizeof(dlrm_yaml *);
    TRY(take(p, sizeof **out, out));
    **out = *from;
    TRY(take(p, room, &(*out)->items));
    if (bytes) memcpy((*out)->items, from->items, bytes);
    if (from->kind != DLRM_YAML_MAP) return DLRM_OK;
    TRY(take(p, room, &(*out)->keys));
    if (bytes) memcpy((*out)->keys, from->keys, bytes);
    return DLRM_OK;
}

/* The place of `key` in *container, which is replaced by a copy; a new key is appended to a map. */
static dlrm_status place_of(builder *b, dlrm_yaml **container, const char *key, size_t length, dlrm_yaml ***place)
{
    dlrm_yaml *c = *container;
    int i = 0;
    if (c->kind == DLRM_YAML_SCALAR) /* a value or null gives way to a map */
        TRY(new_node(b, DLRM_YAML_MAP, (yaml_mark_t){0}, &c));
    TRY(copy_node(b->pool, c, &c));
    *container = c;
    if (c->kind == DLRM_YAML_LIST) {
        char *end;
        errno = 0;
        long at = strtol(key, &end, 10);
        if (key[0] < '0' || key[0] > '9' || end != key + length || errno || at >= c->n)
            return FAIL(DLRM_E_INPUT, "%s: \"%.*s\" is no element of the list of %d, counted from 0", b->where,
                        (int)length, key, c->n);
        i = (int)at;
    } else {
        while (i < c->n && (strlen(c->keys[i]->text) != length || memcmp(c->keys[i]->text, key, length) != 0)) i++;
    }
    if (i == c->n) {
        TRY(new_node(b, DLRM_YAML_SCALAR, (yaml_mark_t){0}, &c->keys[i]));
        TRY(take_text(b->pool, key, length, &c->keys[i]->text));
        TRY(new_node(b, DLRM_YAML_SCALAR, (yaml_mark_t){0}, &c->items[i]));
        TRY(take_text(b->pool, "", 0, &c->items[i]->text));
        c->n++;
    }
    *place = &c->items[i];
    return DLRM_OK;
}

dlrm_status dlrm_yaml_override(dlrm_yaml_doc *doc, const char *path, const char *text)
{
    char where[400];
    builder b = {.pool = doc->pool, .file = "command line", .where = where};
    dlrm_yaml *value, **place = &doc->root;
    snprintf(where, sizeof where, "command line: %s", path);
    TRY(build(&b, text, strlen(text), &value));
    if (!value) {
        TRY(new_node(&b, DLRM_YAML_SCALAR, (yaml_mark_t){0}, &value));
        TRY(take_text(b.pool, "", 0, &value->text));
    }
    int depth = 0;
    for (const char *key = path;;) {
        size_t length = strcspn(key, ".");
        if (length == 0) return FAIL(DLRM_E_INPUT, "%s: there is nothing between two dots, or at an end", where);
        if (++depth > MAX_DEPTH) return FAIL(DLRM_E_INPUT, "%s: more than 64 levels", where);
        TRY(place_of(&b, place, key, length, &place));
        if (key[length] == '\0') break;
        key += length + 1;
    }
    *place = value;
    return DLRM_OK;
}
