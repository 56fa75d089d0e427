/* Host memory: checked, zeroed, 64-byte aligned, counted. Once a run is set up the main thread freezes allocation, and
 * an allocation inside a training step is then a bug that asserts. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of so many bytes or more have pages of their own, which come zeroed when first touched, and huge where the system has such. */
enum { DLRM_MEM_OWN_PAGES = 4 << 20 };

/* *(void **)out = zeroed memory for count elements of `size` bytes, aligned to 64; count 0 gives a valid pointer.
 * DLRM_E_RUNTIME names `what` and the bytes. */
dlrm_status dlrm_alloc(int64_t count, size_t size, const char *what, void *out) DLRM_MUST_USE;

/* Room for one more behind the n elements of a list, *(void **)list of dlrm_alloc or NULL: where they are *room already, the
 * list moves to twice the room, `first` elements to begin with. After an error all is as before. */
dlrm_status dlrm_grow(int64_t n, size_t size, int64_t first, const char *what, void *list, int64_t *room) DLRM_MUST_USE;

/* *out = the formatted text, in memory of dlrm_alloc. */
dlrm_status dlrm_alloc_text(char **out, const char *fmt, ...) DLRM_PRINTF(2, 3) DLRM_MUST_USE;

/* Frees *(void **)p and clears it; NULL is fine. Only for memory of dlrm_alloc. */
void dlrm_free(void *p);

/* Counts memory that came from elsewhere; bytes below 0: it is gone. */
void dlrm_mem_count(int64_t bytes);
int64_t dlrm_mem_live_bytes(void);
int64_t dlrm_mem_peak_bytes(void);
int64_t dlrm_mem_live_blocks(void);

/* While frozen, dlrm_alloc on this thread asserts. */
void dlrm_mem_freeze(bool frozen);

/* Peak resident memory of the process (VmHWM), bytes. */
int64_t dlrm_mem_peak_resident(void);
/* Bytes that the machine has left, or the control groups that the process is in where that is less; -1: unknown. */
int64_t dlrm_mem_available(void);
/* The groups' part of it. groups: as /proc/self/cgroup; root: as /sys/fs/cgroup. Pages of files that make room count as left.
 * INT64_MAX: no limit. */
int64_t dlrm_mem_groups_left(const char *groups, const char *root);

#ifdef __cplusplus
}
#endif
