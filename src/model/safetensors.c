/* One safetensors file: 8 bytes of header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}
 * with an optional "__metadata__", then the tensors' bytes, which must fill the rest of the file without gap or
 * overlap. Nothing in the file is trusted: whoever gets past dlrm_st_open has entries that lie inside the file and
 * whose shape, type and byte range agree. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "base/mem.h"
#include "model/tensors_impl.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weights are little-endian and read without swapping");


static void from_f32(const void *from, int64_t n, float *out)
{
    memcpy(out, from, (size_t)n * sizeof *out);
}

static void from_f64(const void *from, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)((const double *)from)[i];
}

static void from_f16(const void *from, int64_t n, float *out)
{
    dlrm_widen(DLRM_FP16, from, n, out);
}

static void from_bf16(const void *from, int64_t n, float *out)
{
    dlrm_widen(DLRM_BF16, from, n, out);
}

static const dlrm_st_dtype dtypes[] = {
    {"F64", 64, from_f64}, {"F32", 32, from_f32}, {"BF16", 16, from_bf16}, {"F16", 16, from_f16}, {"BOOL", 8, NULL},
    {"U8", 8, NULL},       {"I8", 8, NULL},       {"U16", 16, NULL},       {"I16", 16, NULL},     {"U32", 32, NULL},
    {"I32", 32, NULL},     {"U64", 64, NULL},     {"I64", 64, NULL},       {"C64", 64, NULL},     {"F8_E4M3", 8, NULL},
    {"F8_E5M2", 8, NULL},  {"F8_E8M0", 8, NULL},  {"F6_E2M3", 6, NULL},    {"F6_E3M2", 6, NULL},  {"F4", 4, NULL},
};

const char *dlrm_st_shape_text(const json_t *shape, char *buf, size_t bytes)
{
    size_t used = 1, i;
    const json_t *dim;
    snprintf(buf, bytes, "[");
    json_array_foreach(shape, i, dim)
    {
        int n = snprintf(buf + used, bytes - used, "%s%lld", i ? ", " : "", (long long)json_integer_value(dim));
        if ((used += (size_t)n) >= bytes - 4) {
            snprintf(buf + bytes - 5, 5, "…");
            return buf;
        }
    }
    snprintf(buf + used, bytes - used, "]");
    return buf;
}

dlrm_status dlrm_st_pread(int fd, const char *path, int64_t at, int64_t bytes, void *out)
{
    enum { MOST = 1 << 30 };
    while (bytes > 0) {
        ssize_t got = pread(fd, out, (size_t)(bytes < MOST ? bytes : MOST), at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return FAIL(DLRM_E_RUNTIME, "%s: cannot read at byte %lld: %s", path, (long long)at, strerror(errno));
        if (got == 0)
            return FAIL(DLRM_E_INPUT, "%s: ends at byte %lld, %lld bytes early: has it been changed?", path,
                        (long long)at, (long long)bytes);
        out = (char *)out + got;
        at += got;
        bytes -= got;
    }
    return DLRM_OK;
}

/* Opens a regular file. (Not blocking: a FIFO of this name is refused, not waited for.) */
static dlrm_status open_file(const char *path, int *fd, int64_t *bytes)
{
    struct stat s;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &s) != 0) return FAIL(DLRM_E_INPUT, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode)) return FAIL(DLRM_E_INPUT, "%s: not a regular file", path);
    *bytes = s.st_size;
    return DLRM_OK;
}

/* Bytes [at, at+bytes) of the file as JSON, which must be an object. */
static dlrm_status read_json(int fd, const char *path, int64_t at, int64_t bytes, json_t **out)
{
    char *text = NULL;
    json_error_t error;
    dlrm_status st;
    TRY(dlrm_alloc(bytes + 1, 1, "a JSON text of the weights", &text));
    TRY_TO(done, st, dlrm_st_pread(fd, path, at, bytes, text));
    *out = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*out)
        st = FAIL(DLRM_E_INPUT, "%s: JSON error at byte %lld: %s", path, (long long)at + error.position, error.text);
    else if (!json_is_object(*out)) {
        st = FAIL(DLRM_E_INPUT, "%s: byte %lld: a JSON object is expected, found '%.1s'", path, (long long)at, text);
        json_decref(*out);
        *out = NULL;
    }
done:
    dlrm_free(&text);
    return st;
}

dlrm_status dlrm_st_load_json(const char *path, json_t **out)
{
    int fd;
    int64_t bytes;
    *out = NULL;
    dlrm_status st = open_file(path, &fd, &bytes);
    if (st == DLRM_OK && bytes > DLRM_ST_MAX_HEADER)
        st = FAIL(DLRM_E_INPUT, "%s: %lld bytes, more than %d", path, (long long)bytes, DLRM_ST_MAX_HEADER);
    if (st == DLRM_OK) st = read_json(fd, path, 0, bytes, out);
    if (fd >= 0) close(fd);
    return st;
}

/* The product of the shape's dimensions and from it the bytes; both checked. */
static dlrm_status measure(const char *path, dlrm_st_entry *e)
{
    size_t i;
    const json_t *dim;
    int64_t bits;
    char text[200];
    e->elements = 1;
    json_array_foreach(e->shape, i, dim)
    {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return FAIL(DLRM_E_INPUT, "%s: tensor '%s': dimension %zu of its shape is not an integer of at least 0",
                        path, e->key, i);
        if (__builtin_mul_overflow(e->elements, json_integer_value(dim), &e->elements))
            return FAIL(DLRM_E_INPUT, "%s: tensor '%s': shape %s overflows", path, e->key,
                        dlrm_st_shape_text(e->shape, text, sizeof text));
    }
    if (__builtin_mul_overflow(e->elements, e->dtype->bits, &bits) || bits % 8)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s': shape %s of %s is no whole number of bytes below 2^60", path,
                    e->key, dlrm_st_shape_text(e->shape, text, sizeof text), e->dtype->name);
    e->bytes = bits / 8;
    return DLRM_OK;
}

/* One member of the header. `room`: bytes that follow the header. */
static dlrm_status parse_entry(const char *path, int64_t data_at, int64_t room, const json_t *value, dlrm_st_entry *e)
{
    char text[200];
    if (strlen(e->key) >= DLRM_NAME_BYTES)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%.60s…': a name of %zu bytes, more than %d", path, e->key,
                    strlen(e->key), DLRM_NAME_BYTES - 1);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype) return FAIL(DLRM_E_INPUT, "%s: tensor '%s': no text 'dtype' in its header entry", path, e->key);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && !e->dtype; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) e->dtype = &dtypes[i];
    if (!e->dtype) return FAIL(DLRM_E_INPUT, "%s: tensor '%s': unknown dtype '%.20s'", path, e->key, dtype);

    e->shape = json_object_get(value, "shape");
    if (!json_is_array(e->shape))
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s': no list 'shape' in its header entry", path, e->key);
    TRY(measure(path, e));

    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(end))
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s': 'data_offsets' is not a list of two integers", path, e->key);
    int64_t from = json_integer_value(first), to = json_integer_value(end);
    if (from < 0 || to < from || to > room)
        return FAIL(DLRM_E_INPUT, "%s: tensor '%s': bytes [%lld, %lld) are outside the %lld bytes of data", path,
                    e->key, (long long)from, (long long)to, (long long)room);
    if (to - from != e->bytes)
        return FAIL(DLRM_E_INPUT,
                    "%s: tensor '%s': shape %s of %s takes %lld bytes, but data_offsets [%lld, %lld] span %lld", path,
                    e->key, dlrm_st_shape_text(e->shape, text, sizeof text), e->dtype->name, (long long)e->bytes,
                    (long long)from, (long long)to, (long long)(to - from));
    e->at = data_at + from;
    return DLRM_OK;
}

static int by_place(const void *a, const void *b)
{
    const dlrm_st_entry *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors first */
}

/* The entries, in the order of their bytes, fill [data_at, file_bytes). */
static dlrm_status check_cover(const char *path, const dlrm_st_entry *e, int64_t n, int64_t data_at, int64_t file_bytes)
{
    int64_t at = data_at;
    for (int64_t i = 0; i < n; at = e[i].at + e[i].bytes, i++) {
        if (e[i].at < at)
            return FAIL(DLRM_E_INPUT, "%s: tensors '%s' and '%s' overlap at byte %lld", path, e[i - 1].key, e[i].key,
                        (long long)e[i].at);
        if (e[i].at > at)
            return FAIL(DLRM_E_INPUT, "%s: bytes [%lld, %lld) before tensor '%s' belong to no tensor", path,
                        (long long)at, (long long)e[i].at, e[i].key);
    }
    if (at != file_bytes)
        return FAIL(DLRM_E_INPUT, "%s: the file has %lld bytes, its header describes %lld", path, (long long)file_bytes,
                    (long long)at);
    return DLRM_OK;
}

/* The length that the file starts with, checked against the file's own. */
static dlrm_status header_bytes(const dlrm_st_file *f, int64_t file_bytes, int64_t *out)
{
    uint64_t n;
    if (file_bytes < 8)
        return FAIL(DLRM_E_INPUT, "%s: %lld bytes; a safetensors file starts with 8 bytes of header length", f->path,
                    (long long)file_bytes);
    TRY(dlrm_st_pread(f->fd, f->path, 0, 8, &n));
    if (n > DLRM_ST_MAX_HEADER)
        return FAIL(
            DLRM_E_INPUT,
            "%s: not a safetensors file: its first 8 bytes would be a header length of %llu bytes, more than %d",
            f->path, (unsigned long long)n, DLRM_ST_MAX_HEADER);
    if ((int64_t)n > file_bytes - 8)
        return FAIL(DLRM_E_INPUT, "%s: a header of %llu bytes does not fit a file of %lld bytes: cut off?", f->path,
                    (unsigned long long)n, (long long)file_bytes);
    *out = (int64_t)n;
    return DLRM_OK;
}

static dlrm_status check_metadata(const char *path, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return FAIL(DLRM_E_INPUT, "%s: '__metadata__' is not a map of texts", path);
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) return FAIL(DLRM_E_INPUT, "%s: '__metadata__': '%.60s' is not a text", path, key);
    }
    return DLRM_OK;
}

dlrm_status dlrm_st_open(const char *path, dlrm_st_file *f, dlrm_st_entry **entries, int64_t *n)
{
    int64_t file_bytes, length = 0;
    const char *key;
    json_t *value;
    dlrm_st_entry *e = NULL;
    dlrm_status st;
    *f = (dlrm_st_file){.fd = -1};
    *entries = NULL;
    *n = 0;
    TRY(dlrm_alloc((int64_t)strlen(path) + 1, 1, "a path", &f->path));
    strcpy(f->path, path);
    TRY(open_file(path, &f->fd, &file_bytes));
    TRY(header_bytes(f, file_bytes, &length));
    TRY(read_json(f->fd, path, 8, length, &f->header));

    TRY(dlrm_alloc((int64_t)json_object_size(f->header), sizeof *e, "the list of tensors", &e));
    json_object_foreach(f->header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            TRY_TO(fail, st, check_metadata(path, value));
            continue;
        }
        e[*n] = (dlrm_st_entry){.key = key, .name = key, .file = f};
        TRY_TO(fail, st, parse_entry(path, 8 + length, file_bytes - 8 - length, value, &e[*n]));
        ++*n;
    }
    qsort(e, (size_t)*n, sizeof *e, by_place);
    TRY_TO(fail, st, check_cover(path, e, *n, 8 + length, file_bytes));
    *entries = e;
    return DLRM_OK;
fail:
    dlrm_free(&e);
    *n = 0;
    return st;
}

void dlrm_st_close(dlrm_st_file *f)
{
    if (f->path && f->fd >= 0) close(f->fd); /* without a path it was never opened: {0} */
    json_decref(f->header);
    dlrm_free(&f->path);
    *f = (dlrm_st_file){.fd = -1};
}

const char *dlrm_st_dtype_name(dlrm_dtype dtype)
{
    switch (dtype) {
    case DLRM_BF16: return "BF16";
    case DLRM_FP16: return "F16";
    case DLRM_I64: return "I64";
    case DLRM_U32: return "U32";
    default: return "F32";
    }
}

size_t dlrm_st_header_entry(const dlrm_tensor_info *t, const char *dtype, int64_t from, int64_t to, char *buf, size_t bytes)
{
    json_t *name = json_string(t->name);
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    if (!quoted) return 0;
    size_t used = (size_t)snprintf(buf, bytes, ",%s:{\"dtype\":\"%s\",\"shape\":[", quoted, dtype);
    free(quoted);
    for (int i = 0; i < t->n_dims; i++)
        used += (size_t)snprintf(buf + used, bytes - used, "%s%lld", i ? "," : "", (long long)t->dims[i]);
    used += (size_t)snprintf(buf + used, bytes - used, "],\"data_offsets\":[%lld,%lld]}", (long long)from, (long long)to);
    DLRM_ASSERT(used < bytes);
    return used;
}
