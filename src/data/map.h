/* A file as memory, for reading it in order: no copy of the page cache. A file that becomes shorter, or a disk that fails, is a
 * fault in the middle of a loop then (SIGBUS). It ends the use that it happened in, and whoever wanted the bytes can read
 * them instead, which says what is wrong. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct dlrm_map {
    const char *base; /* NULL: there is no map */
    int64_t bytes;
    int64_t from, to; /* bytes whose pages may be in memory of this process */
} dlrm_map;

/* Leaves no map where there cannot be one (an empty file, no address space left). */
void dlrm_map_open(int fd, dlrm_map *out);
void dlrm_map_close(dlrm_map *m); /* copes with {0} */

/* use(ctx) looks at bytes [at, at+bytes) of the file, fd, from base + at on. False: they are not all there; `use` may have been
 * left anywhere, so it takes no locks and no memory. */
bool dlrm_map_use(dlrm_map *m, int fd, int64_t at, int64_t bytes, void (*use)(void *ctx), void *ctx);
