/* The zip around the arrays of an .npz: its central directory says where each member's local header is, and the local
 * header where the payload begins. Sizes and offsets that do not fit 32 bits stand in an extra field (zip64). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/npy.h"

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MOST_TEXT = 0xFFFF, /* a comment, a name, an extra field */
};
static const uint32_t end_mark = 0x06054b50, locator_mark = 0x07064b50, end64_mark = 0x06064b50,
                      entry_mark = 0x02014b50, local_mark = 0x04034b50;

typedef struct zip {
    const char *path;
    int fd;
    int64_t bytes;                /* of the file */
    int64_t directory, n_entries; /* where the central directory is */
} zip;

typedef struct member {
    char name[32]; /* "" if longer: no member of ours */
    int flags, method;
    int64_t stored, at; /* bytes of the payload; the local header */
    int64_t entry_bytes;
} member;

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int k = 0; k < bytes; k++) v |= (uint64_t)p[k] << 8 * k;
    return v;
}

/* Exactly so many bytes, which must lie in the file. */
static dlrm_status read_bytes(const zip *z, int64_t at, int64_t n, void *out)
{
    if (at < 0 || n > z->bytes || at > z->bytes - n)
        return FAIL(DLRM_E_INPUT, "%s: the archive speaks of byte %lld, but the file has %lld", z->path, (long long)at,
                    (long long)z->bytes);
    for (int64_t done = 0; done < n;) {
        ssize_t got = pread(z->fd, (char *)out + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return FAIL(DLRM_E_INPUT, "%s: reading at byte %lld: %s", z->path, (long long)(at + done),
                        got ? strerror(errno) : "the file ends");
        done += got;
    }
    return DLRM_OK;
}

/* The 64-bit end record, which a locator before the usual one points to, where that has no room. */
static dlrm_status find_end64(zip *z, int64_t end)
{
    unsigned char b[END64_BYTES];
    TRY(read_bytes(z, end - LOCATOR_BYTES, LOCATOR_BYTES, b));
    if (get(b, 4) != locator_mark) return FAIL(DLRM_E_INPUT, "%s: the archive's end record points nowhere", z->path);
    TRY(read_bytes(z, (int64_t)get(b + 8, 8), END64_BYTES, b));
    if (get(b, 4) != end64_mark) return FAIL(DLRM_E_INPUT, "%s: the archive's end record points nowhere", z->path);
    z->n_entries = (int64_t)get(b + 32, 8);
    z->directory = (int64_t)get(b + 48, 8);
    return DLRM_OK;
}

/* The end record stands last, before a comment that NumPy does not write; it is looked for from the end. */
static dlrm_status find_directory(zip *z)
{
    static _Thread_local unsigned char tail[END_BYTES + MOST_TEXT];
    int64_t n = z->bytes < (int64_t)sizeof tail ? z->bytes : (int64_t)sizeof tail, k = n - END_BYTES;
    TRY(read_bytes(z, z->bytes - n, n, tail));
    while (k >= 0 && (get(tail + k, 4) != end_mark || (int64_t)get(tail + k + 20, 2) != n - END_BYTES - k)) k--;
    if (k < 0)
        return FAIL(DLRM_E_INPUT, "%s: is no .npz archive, or one that is cut off: its end record is missing", z->path);
    z->n_entries = (int64_t)get(tail + k + 10, 2);
    z->directory = (int64_t)get(tail + k + 16, 4);
    if (z->n_entries == 0xFFFF || z->directory == 0xFFFFFFFF) return find_end64(z, z->bytes - n + k);
    return DLRM_OK;
}

static void wide_value(const unsigned char **at, const unsigned char *end, int64_t *v)
{
    if (*v != 0xFFFFFFFF || end - *at < 8) return;
    *v = (int64_t)get(*at, 8);
    *at += 8;
}

static dlrm_status read_entry(const zip *z, int64_t at, member *m)
{
    static _Thread_local unsigned char extra[MOST_TEXT];
    unsigned char b[ENTRY_BYTES];
    TRY(read_bytes(z, at, ENTRY_BYTES, b));
    if (get(b, 4) != entry_mark)
        return FAIL(DLRM_E_INPUT, "%s: byte %lld: no entry of the archive's directory", z->path, (long long)at);
    int64_t name = (int64_t)get(b + 28, 2), extras = (int64_t)get(b + 30, 2), size = (int64_t)get(b + 24, 4);
    *m = (member){.flags = (int)get(b + 8, 2),
                  .method = (int)get(b + 10, 2),
                  .stored = (int64_t)get(b + 20, 4),
                  .at = (int64_t)get(b + 42, 4),
                  .entry_bytes = ENTRY_BYTES + name + extras + (int64_t)get(b + 32, 2)};
    if (name < (int64_t)sizeof m->name) TRY(read_bytes(z, at + ENTRY_BYTES, name, m->name));
    for (char *c = m->name; *c; c++)
        if (*c < ' ' || *c == 0x7f) *c = '?'; /* it may come into a message */
    TRY(read_bytes(z, at + ENTRY_BYTES + name, extras, extra));
    for (const unsigned char *p = extra, *end = extra + extras; end - p >= 4;) {
        const unsigned char *field = p + 4, *next = field + get(p + 2, 2);
        if (next > end) break;
        if (get(p, 2) == 1) { /* in this order, those that have no room */
            wide_value(&field, next, &size);
            wide_value(&field, next, &m->stored);
            wide_value(&field, next, &m->at);
        }
        p = next;
    }
    return DLRM_OK;
}

static dlrm_status open_member(const zip *z, const member *m, dlrm_npy *out)
{
    unsigned char b[LOCAL_BYTES], head[DLRM_NPY_HEAD];
    char name[4200];
    snprintf(name, sizeof name, "%s: member %s", z->path, m->name);
    if (m->flags & 1) return FAIL(DLRM_E_INPUT, "%s: is encrypted", name);
    if (m->method != 0)
        return FAIL(DLRM_E_INPUT,
                    "%s: is compressed (method %d), expected it stored as it is: numpy.savez, not savez_compressed",
                    name, m->method);
    TRY(read_bytes(z, m->at, LOCAL_BYTES, b));
    if (get(b, 4) != local_mark) return FAIL(DLRM_E_INPUT, "%s: no member begins at byte %lld", name, (long long)m->at);
    int64_t at = m->at + LOCAL_BYTES + (int64_t)get(b + 26, 2) + (int64_t)get(b + 28, 2);
    int64_t n = m->stored < DLRM_NPY_HEAD ? m->stored : DLRM_NPY_HEAD;
    if (m->stored < 0 || at > z->bytes || m->stored > z->bytes - at)
        return FAIL(DLRM_E_INPUT, "%s: found %lld bytes from byte %lld on, which are beyond the file's %lld", name,
                    (long long)m->stored, (long long)at, (long long)z->bytes);
    TRY(read_bytes(z, at, n, head));
    TRY(dlrm_npy_parse(name, head, n, m->stored, out));
    out->at += at;
    return DLRM_OK;
}

/* "17.npy": 17; -1: not such a name. */
static int member_number(const char *name)
{
    int k = 0, digits = 0;
    for (; name[digits] >= '0' && name[digits] <= '9' && digits < 8; digits++) k = 10 * k + name[digits] - '0';
    bool plain = digits > 0 && (digits == 1 || name[0] != '0') && !strcmp(name + digits, ".npy");
    return plain ? k : -1;
}

dlrm_status dlrm_npz_open(const char *path, int fd, int n, dlrm_npy *out)
{
    zip z = {.path = path, .fd = fd};
    struct stat st;
    if (fstat(fd, &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    z.bytes = st.st_size;
    TRY(find_directory(&z));
    if (z.n_entries != n)
        return FAIL(DLRM_E_INPUT, "%s: found %lld members, expected %d, one for each feature: 0.npy to %d.npy", path,
                    (long long)z.n_entries, n, n - 1);
    for (int j = 0; j < n; j++) out[j].n_dims = 0;
    int64_t at = z.directory;
    for (int k = 0; k < n; k++) {
        member m;
        TRY(read_entry(&z, at, &m));
        at += m.entry_bytes;
        int j = member_number(m.name);
        if (j < 0 || j >= n || out[j].n_dims > 0)
            return FAIL(DLRM_E_INPUT, "%s: found %s member \"%s\", expected 0.npy to %d.npy, once each", path,
                        j >= 0 && j < n ? "a second" : "a", m.name[0] ? m.name : "with a long name", n - 1);
        TRY(open_member(&z, &m, &out[j]));
    }
    return DLRM_OK;
}
