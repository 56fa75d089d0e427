#include "comm/shared.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* Where a rank's block is to be found: an open file of that process. */
typedef struct offer {
    int64_t pid, fd, bytes, device, inode;
} offer;

static void close_fd(int fd)
{
    if (fd >= 0) close(fd);
}

/* 0, or not where a limit of files' sizes (ulimit -f) forbids it: by the error, not by the signal. */
static int set_size(int fd, int64_t bytes)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGXFSZ, &ignore, &before);
    const int failed = ftruncate(fd, bytes);
    sigaction(SIGXFSZ, &before, NULL);
    return failed;
}

/* A file without a name, in memory. fd -1: there is none. */
static offer make_block(int64_t bytes)
{
    struct stat s;
    int fd = memfd_create("dlrm", MFD_CLOEXEC);
    if (fd >= 0 && (set_size(fd, bytes) != 0 || fstat(fd, &s) != 0)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) return (offer){.fd = -1};
    return (offer){.pid = getpid(), .fd = fd, .bytes = bytes, .device = (int64_t)s.st_dev, .inode = (int64_t)s.st_ino};
}

/* NULL where that rank's process cannot be reached, or another one has its number here. */
static void *map_block(const offer *o)
{
    char path[80];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)o->pid, (long long)o->fd);
    int fd = o->fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *p = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &s) == 0 && (int64_t)s.st_dev == o->device && (int64_t)s.st_ino == o->inode && s.st_size == o->bytes)
        p = mmap(NULL, (size_t)o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close_fd(fd);
    if (p != MAP_FAILED) madvise(p, (size_t)o->bytes, MADV_HUGEPAGE); /* a wish; most systems have none for shared memory */
    return p == MAP_FAILED ? NULL : p;
}

static dlrm_status open_lists(const dlrm_comm *c, dlrm_shared *s, offer **offers)
{
    *s = (dlrm_shared){.rank = c->rank, .ranks = c->ranks};
    TRY(dlrm_alloc(c->ranks, sizeof *s->blocks, "shared memory", &s->blocks));
    TRY(dlrm_alloc(c->ranks, sizeof *s->bytes, "shared memory", &s->bytes));
    return dlrm_alloc(c->ranks, sizeof **offers, "shared memory", offers);
}

dlrm_status dlrm_shared_open(dlrm_comm *c, int64_t bytes, dlrm_shared *s)
{
    offer *offers = NULL;
    dlrm_status st;
    TRY_TO(done, st, dlrm_comm_agree(c, open_lists(c, s, &offers)));
    offer mine = make_block(bytes > 0 ? bytes : 1);
    int64_t failed = dlrm_comm_local_ranks(c) != c->ranks || mine.fd < 0;
    dlrm_comm_allgather(c, &mine, sizeof mine, offers);
    for (int p = 0; p < c->ranks && !failed; p++) {
        s->blocks[p] = map_block(&offers[p]);
        s->bytes[p] = offers[p].bytes;
        failed = !s->blocks[p];
    }
    dlrm_comm_sum_i64(c, &failed, 1); /* all are mapped, and their files no longer needed */
    close_fd((int)mine.fd);
    if (s->blocks[c->rank]) dlrm_mem_count(s->bytes[c->rank]);
    if (failed) dlrm_shared_close(s);
done:
    dlrm_free(&offers);
    return st;
}

void dlrm_shared_close(dlrm_shared *s)
{
    if (s->blocks && s->blocks[s->rank]) dlrm_mem_count(-s->bytes[s->rank]);
    for (int p = 0; s->blocks && p < s->ranks; p++)
        if (s->blocks[p]) munmap(s->blocks[p], (size_t)s->bytes[p]);
    dlrm_free(&s->blocks);
    dlrm_free(&s->bytes);
}
