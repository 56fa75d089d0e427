#include "text_input.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "criteo_line.h"

enum { PACKED = 1 << 17 /* bytes of gzip read at a time */ };

typedef struct text_file {
    const char *path;
    dev_t device;
    ino_t inode;
    int64_t size;
    pthread_mutex_t lock;
    bool opened, ended, gzip, open_ended;
    int fd;
    /* The start of a line whose end was not in the last chunk. */
    char *rest;
    int64_t rest_bytes;
    int64_t lines;
    bool between_members; /* gzip: nothing of the next member has been read yet */
    unsigned char *packed;
    z_stream z;
} text_file;

struct dlrm_text_input {
    int n;
    text_file *file;
    atomic_int n_opened; /* files [0, n_opened) have been started */
    atomic_llong bytes_read, bytes;
};

static void close_file(text_file *f)
{
    if (!f->opened) return;
    if (f->gzip) inflateEnd(&f->z);
    close(f->fd);
    dlrm_free(&f->rest);
    dlrm_free(&f->packed);
    f->opened = false;
}

/* An earlier file that is this very one, under whatever name: its rows would count twice. NULL: none. */
static const char *same_file(const dlrm_text_input *in, const struct stat *s)
{
    for (int i = 0; i < in->n; i++)
        if (in->file[i].device == s->st_dev && in->file[i].inode == s->st_ino) return in->file[i].path;
    return NULL;
}

dlrm_status dlrm_text_open(int n_files, char *const *paths, dlrm_text_input **out)
{
    dlrm_status st;
    dlrm_text_input *in;
    *out = NULL;
    TRY(dlrm_alloc(1, sizeof *in, "input files", &in));
    TRY_TO(fail, st, dlrm_alloc(n_files, sizeof *in->file, "input files", &in->file));
    for (int i = 0; i < n_files; i++) {
        struct stat s;
        const char *path = paths[i], *same;
        st = DLRM_E_INPUT;
        if (stat(path, &s) != 0 || access(path, R_OK) != 0)
            FAIL(st, "%s: %s", path, strerror(errno));
        else if (!S_ISREG(s.st_mode))
            FAIL(st, "%s: not a regular file", path);
        else if (s.st_size == 0)
            FAIL(st, "%s: the file is empty (0 bytes)", path);
        else if ((same = same_file(in, &s)))
            FAIL(st, "%s: the same file as %s; give it once", path, same);
        else
            st = DLRM_OK;
        if (st != DLRM_OK) goto fail;
        in->file[i] =
            (text_file){.path = path, .device = s.st_dev, .inode = s.st_ino, .size = s.st_size, .fd = -1};
        pthread_mutex_init(&in->file[i].lock, NULL);
        in->n = i + 1;
    }
    *out = in;
    return DLRM_OK;
fail:
    dlrm_text_close(&in);
    return st;
}

void dlrm_text_close(dlrm_text_input **input)
{
    dlrm_text_input *in = *input;
    if (!in) return;
    for (int i = 0; i < in->n; i++) {
        close_file(&in->file[i]);
        pthread_mutex_destroy(&in->file[i].lock);
    }
    dlrm_free(&in->file);
    dlrm_free(input);
}

dlrm_status dlrm_text_chunk_alloc(dlrm_text_chunk *c)
{
    return dlrm_alloc(DLRM_TEXT_CHUNK + 1, 1, "a chunk of text", &c->text);
}

static dlrm_status read_some(dlrm_text_input *in, text_file *f, void *out, int64_t bytes, int64_t *got)
{
    ssize_t n;
    do n = read(f->fd, out, (size_t)bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot read: %s", f->path, strerror(errno));
    in->bytes_read += n;
    *got = n;
    return DLRM_OK;
}

static dlrm_status open_file(text_file *f)
{
    unsigned char magic[2] = {0, 0};
    TRY(dlrm_alloc(DLRM_TEXT_CHUNK, 1, "a text file's buffer", &f->rest));
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 || pread(f->fd, magic, sizeof magic, 0) < 0) {
        dlrm_free(&f->rest);
        if (f->fd >= 0) close(f->fd);
        return FAIL(DLRM_E_INPUT, "%s: %s", f->path, strerror(errno));
    }
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    f->opened = true;
    f->gzip = false;
    if (magic[0] != 0x1F || magic[1] != 0x8B) return DLRM_OK;
    TRY(dlrm_alloc(PACKED, 1, "a gzip file's buffer", &f->packed));
    memset(&f->z, 0, sizeof f->z);
    if (inflateInit2(&f->z, 16 + MAX_WBITS) != Z_OK) return FAIL(DLRM_E_RUNTIME, "%s: zlib does not start", f->path);
    f->gzip = f->between_members = true;
    return DLRM_OK;
}

/* A gzip file may be several members, one after the other. */
static dlrm_status inflate_some(dlrm_text_input *in, text_file *f, char *out, int64_t bytes, int64_t *got)
{
    z_stream *z = &f->z;
    z->next_out = (unsigned char *)out;
    z->avail_out = (unsigned)bytes;
    while (z->avail_out > 0) {
        if (z->avail_in == 0) {
            int64_t n = 0;
            TRY(read_some(in, f, f->packed, PACKED, &n));
            if (n == 0 && f->between_members) break;
            if (n == 0)
                return FAIL(DLRM_E_INPUT,
                            "%s: the compressed data end early, after line %lld; is the download cut off?", f->path,
                            (long long)f->lines);
            z->next_in = f->packed;
            z->avail_in = (unsigned)n;
        }
        f->between_members = false;
        int r = inflate(z, Z_NO_FLUSH);
        if (r == Z_STREAM_END) {
            f->between_members = true;
            inflateReset(z);
        } else if (r != Z_OK && r != Z_BUF_ERROR) {
            return FAIL(DLRM_E_INPUT, "%s: the compressed data are damaged near line %lld: %s", f->path,
                        (long long)f->lines, z->msg ? z->msg : "zlib refuses them");
        }
    }
    *got = bytes - z->avail_out;
    return DLRM_OK;
}

static dlrm_status fill(dlrm_text_input *in, text_file *f, char *out, int64_t bytes, int64_t *got)
{
    if (f->gzip) return inflate_some(in, f, out, bytes, got);
    *got = 0;
    while (*got < bytes) {
        int64_t n = 0;
        TRY(read_some(in, f, out + *got, bytes - *got, &n));
        if (n == 0) break;
        *got += n;
    }
    return DLRM_OK;
}

/* The chunk is full, without an end of line: keeps one byte more than a line may have, and what follows its end. */
static dlrm_status skip_long_line(dlrm_text_input *in, text_file *f, dlrm_text_chunk *c)
{
    char *rest = c->text + CRITEO_MAX_LINE + 1;
    int64_t room = DLRM_TEXT_CHUNK - (CRITEO_MAX_LINE + 1), got;
    for (;;) {
        TRY(fill(in, f, rest, room, &got));
        char *end = memchr(rest, '\n', (size_t)got);
        if (end || got < room) {
            int64_t kept = end ? rest + got - end : 0;
            if (end) memmove(rest, end, (size_t)kept);
            c->bytes = CRITEO_MAX_LINE + 1 + kept;
            f->ended = got < room;
            return DLRM_OK;
        }
    }
}

static int64_t count_lines(const char *text, int64_t bytes)
{
    int64_t n = 0;
    for (int64_t at = 0; at < bytes;) { /* in pieces whose counts fit a byte each, so that this becomes vector code */
        int64_t stop = bytes - at > 4096 ? at + 4096 : bytes;
        unsigned part = 0;
        for (; at < stop; at++) part += text[at] == '\n';
        n += part;
    }
    return n;
}

/* The caller holds the file's lock. */
static dlrm_status read_chunk(dlrm_text_input *in, text_file *f, dlrm_text_chunk *c)
{
    if (!f->opened) TRY(open_file(f));
    int64_t got, room = DLRM_TEXT_CHUNK - f->rest_bytes;
    memcpy(c->text, f->rest, (size_t)f->rest_bytes);
    TRY(fill(in, f, c->text + f->rest_bytes, room, &got));
    c->bytes = f->rest_bytes + got;
    f->rest_bytes = 0;
    f->ended = got < room;
    if (!f->ended && !memchr(c->text, '\n', (size_t)c->bytes)) TRY(skip_long_line(in, f, c));
    if (f->ended) {
        f->open_ended = c->bytes > 0 && c->text[c->bytes - 1] != '\n';
        if (f->open_ended) c->text[c->bytes++] = '\n';
    } else {
        int64_t whole = (char *)memrchr(c->text, '\n', (size_t)c->bytes) + 1 - c->text;
        f->rest_bytes = c->bytes - whole;
        memcpy(f->rest, c->text + whole, (size_t)f->rest_bytes);
        c->bytes = whole;
    }
    c->first_line = f->lines;
    c->n_lines = count_lines(c->text, c->bytes);
    f->lines += c->n_lines;
    in->bytes += c->bytes;
    if (f->ended) close_file(f);
    return DLRM_OK;
}

dlrm_status dlrm_text_next(dlrm_text_input *in, dlrm_text_chunk *c, bool *more)
{
    /* The first started file that nobody is reading; else a new one; else wait for one that is being read. */
    *more = true;
    for (;;) {
        int opened = in->n_opened, waiting_for = -1;
        for (int i = 0; i < opened; i++) {
            text_file *f = &in->file[i];
            if (pthread_mutex_trylock(&f->lock) != 0) {
                if (waiting_for < 0) waiting_for = i;
                continue;
            }
            bool had = !f->ended;
            dlrm_status st = had ? read_chunk(in, f, c) : DLRM_OK;
            pthread_mutex_unlock(&f->lock);
            c->file = i;
            if (st != DLRM_OK || (had && c->bytes > 0)) return st;
        }
        if (opened < in->n) {
            atomic_compare_exchange_strong(&in->n_opened, &opened, opened + 1);
        } else if (waiting_for >= 0) {
            pthread_mutex_lock(&in->file[waiting_for].lock);
            pthread_mutex_unlock(&in->file[waiting_for].lock);
        } else {
            *more = false;
            return DLRM_OK;
        }
    }
}

void dlrm_text_rewind(dlrm_text_input *in)
{
    for (int i = 0; i < in->n; i++) {
        text_file *f = &in->file[i];
        close_file(f);
        f->ended = f->open_ended = false;
        f->rest_bytes = f->lines = 0;
    }
    in->n_opened = 0;
    in->bytes = in->bytes_read = 0;
}

int64_t dlrm_text_file_bytes(const dlrm_text_input *in)
{
    int64_t n = 0;
    for (int i = 0; i < in->n; i++) n += in->file[i].size;
    return n;
}

/* Criteo's lines have 200 to 260 bytes, and gzip packs them to a third or a quarter. */
int64_t dlrm_text_rows_guess(const dlrm_text_input *in)
{
    int64_t n = 0;
    for (int i = 0; i < in->n; i++) n += in->file[i].size / 32 + 1;
    return n;
}

int64_t dlrm_text_bytes_read(const dlrm_text_input *in)
{
    return in->bytes_read;
}

int64_t dlrm_text_bytes(const dlrm_text_input *in)
{
    return in->bytes;
}

int64_t dlrm_text_lines(const dlrm_text_input *in, int file)
{
    return in->file[file].lines;
}

bool dlrm_text_open_ended(const dlrm_text_input *in, int file)
{
    return in->file[file].open_ended;
}
