/* The header is a Python literal that NumPy alone writes: {'descr': '<f4', 'fortran_order': False, 'shape': (N, 13), }. */
#include "data/npy.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct cursor {
    const char *name, *at, *end; /* name: for messages */
} cursor;

static dlrm_status malformed(const cursor *c, const char *expected)
{
    char found[25];
    int n = 0;
    for (; n < 24 && c->at + n < c->end; n++) found[n] = c->at[n] >= ' ' && c->at[n] < 0x7f ? c->at[n] : '?';
    found[n] = '\0';
    return FAIL(DLRM_E_INPUT, "%s: the array's header has \"%s\" where %s was expected", c->name, found, expected);
}

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n')) c->at++;
}

static bool take(cursor *c, const char *text)
{
    skip_blanks(c);
    size_t n = strlen(text);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n)) return false;
    c->at += n;
    return true;
}

/* 'text', at most bytes-1 long. */
static dlrm_status take_text(cursor *c, char *out, size_t bytes)
{
    skip_blanks(c);
    const char *from = c->at + 1, *to = from;
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"')) return malformed(c, "a quoted text");
    while (to < c->end && *to != *c->at) to++;
    if (to == c->end || (size_t)(to - from) >= bytes) return malformed(c, "a short quoted text");
    memcpy(out, from, (size_t)(to - from));
    out[to - from] = '\0';
    c->at = to + 1;
    return DLRM_OK;
}

static dlrm_status take_dtype(cursor *c, dlrm_npy *out)
{
    static const struct {
        const char *descr;
        dlrm_elem elem;
    } known[] = {{"|b1", DLRM_BOOL},  {"|i1", DLRM_INT8},    {"<i2", DLRM_INT16},  {"<i4", DLRM_INT32},
                 {"<i8", DLRM_INT64}, {"<f2", DLRM_FLOAT16}, {"<f4", DLRM_FLOAT32}};
    char descr[16];
    skip_blanks(c);
    if (c->at < c->end && *c->at == '[')
        return FAIL(DLRM_E_INPUT, "%s: found an array of a structured type, expected plain numbers", c->name);
    TRY(take_text(c, descr, sizeof descr));
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(descr, known[k].descr)) continue;
        out->elem = known[k].elem;
        return DLRM_OK;
    }
    if (descr[0] == '>')
        return FAIL(DLRM_E_INPUT, "%s: found big-endian values ('%s'), expected little-endian ones", c->name, descr);
    if (descr[0] && descr[1] == 'O')
        return FAIL(DLRM_E_INPUT, "%s: found an array of Python objects ('%s'), expected plain numbers", c->name,
                    descr);
    return FAIL(DLRM_E_INPUT, "%s: found dtype '%s', expected one of bool, int8, int16, int32, int64, float16, float32",
                c->name, descr);
}

static dlrm_status take_size(cursor *c, int64_t *out)
{
    skip_blanks(c);
    if (c->at >= c->end || *c->at < '0' || *c->at > '9') return malformed(c, "a size");
    for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *c->at - '0', out))
            return malformed(c, "a size below 2^63");
    return DLRM_OK;
}

static dlrm_status take_shape(cursor *c, dlrm_npy *out)
{
    if (!take(c, "(")) return malformed(c, "a shape");
    out->shape[1] = 1;
    for (out->n_dims = 0; !take(c, ")");) {
        if (out->n_dims == DLRM_NPY_DIMS)
            return FAIL(DLRM_E_INPUT, "%s: found an array of more than %d dimensions", c->name, DLRM_NPY_DIMS);
        TRY(take_size(c, &out->shape[out->n_dims++]));
        if (take(c, ",")) continue;
        if (!take(c, ")")) return malformed(c, "a comma or a parenthesis");
        break;
    }
    if (out->n_dims == 0) return FAIL(DLRM_E_INPUT, "%s: found a single value, expected an array of rows", c->name);
    return DLRM_OK;
}

static dlrm_status take_header(cursor *c, dlrm_npy *out)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    bool fortran = false;
    if (!take(c, "{")) return malformed(c, "a brace");
    while (!take(c, "}")) {
        char key[24];
        TRY(take_text(c, key, sizeof key));
        if (!take(c, ":")) return malformed(c, "a colon");
        int bit = !strcmp(key, "descr")           ? DESCR
                  : !strcmp(key, "fortran_order") ? ORDER
                  : !strcmp(key, "shape")         ? SHAPE
                                                  : 0;
        if (!bit || seen & bit)
            return FAIL(DLRM_E_INPUT, "%s: the array's header has %s '%s'", c->name,
                        bit ? "a second" : "an unknown key", key);
        seen |= bit;
        if (bit == DESCR) TRY(take_dtype(c, out));
        if (bit == SHAPE) TRY(take_shape(c, out));
        if (bit == ORDER) {
            fortran = take(c, "True");
            if (!fortran && !take(c, "False")) return malformed(c, "True or False");
        }
        if (take(c, ",")) continue;
        if (!take(c, "}")) return malformed(c, "a comma or a brace");
        break;
    }
    skip_blanks(c);
    if (c->at < c->end) return malformed(c, "the end");
    if (seen != (DESCR | ORDER | SHAPE))
        return FAIL(DLRM_E_INPUT, "%s: the array's header lacks descr, fortran_order or shape", c->name);
    if (fortran && out->shape[0] > 1 && out->shape[1] > 1)
        return FAIL(DLRM_E_INPUT,
                    "%s: found Fortran order (column by column), expected C order: save numpy.ascontiguousarray of it",
                    c->name);
    return DLRM_OK;
}

dlrm_status dlrm_npy_parse(const char *name, const void *head, int64_t n_head, int64_t bytes, dlrm_npy *out)
{
    const unsigned char *h = head;
    *out = (dlrm_npy){0};
    if (n_head < 10 || memcmp(h, "\x93NUMPY", 6))
        return FAIL(DLRM_E_INPUT, "%s: is no .npy array: it does not begin with NumPy's mark", name);
    bool wide = h[6] != 1;
    if (h[6] < 1 || h[6] > 3)
        return FAIL(DLRM_E_INPUT, "%s: found .npy version %d.%d, expected 1.0, 2.0 or 3.0", name, h[6], h[7]);
    int64_t begin = wide ? 12 : 10;
    if (n_head < begin) return FAIL(DLRM_E_INPUT, "%s: the file ends within the array's header", name);
    int64_t length = h[8] | h[9] << 8;
    if (wide) length |= (int64_t)h[10] << 16 | (int64_t)h[11] << 24;
    if (begin + length > n_head)
        return n_head == bytes
                   ? FAIL(DLRM_E_INPUT, "%s: the file ends within the array's header", name)
                   : FAIL(DLRM_E_INPUT, "%s: the array's header is longer than %lld bytes", name, (long long)n_head);
    cursor c = {.name = name, .at = (const char *)h + begin, .end = (const char *)h + begin + length};
    TRY(take_header(&c, out));
    out->at = begin + length;
    int64_t row, all;
    if (__builtin_mul_overflow(out->shape[1], (int64_t)dlrm_elem_size(out->elem), &row) ||
        __builtin_mul_overflow(row, out->shape[0], &all) || __builtin_add_overflow(all, out->at, &all) || all != bytes)
        return FAIL(DLRM_E_INPUT,
                    "%s: found %lld bytes of values, which are not the %lld x %lld of %s that its header says: the "
                    "file is cut off or not an .npy array alone",
                    name, (long long)(bytes - out->at), (long long)out->shape[0], (long long)out->shape[1],
                    dlrm_elem_text(out->elem));
    return DLRM_OK;
}

dlrm_status dlrm_npy_open(const char *path, int fd, dlrm_npy *out)
{
    char head[DLRM_NPY_HEAD];
    struct stat st;
    if (fstat(fd, &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0) return FAIL(DLRM_E_INPUT, "%s: reading at byte 0: %s", path, strerror(errno));
    return dlrm_npy_parse(path, head, n, st.st_size, out);
}
