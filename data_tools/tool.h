/* What the sub-commands of dlrm_data share: threads whose errors reach the caller, files whose errors name them, and
 * progress. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { DLRM_PATH_MAX = 4096 };

int dlrm_tool_cores(void); /* that this process may use */

int64_t dlrm_tool_free_memory(void); /* half of what is free: the default of --memory */

double dlrm_tool_cpu_seconds(void); /* that this process has used, all threads, user and system */

/* Runs job(shared, thread, stop) on `threads` threads and waits. The first failure's message becomes this thread's
 * and sets *stop, which jobs look at between pieces of work. */
typedef dlrm_status (*dlrm_tool_job)(void *shared, int thread, const atomic_bool *stop);
dlrm_status dlrm_tool_run(int threads, dlrm_tool_job job, void *shared) DLRM_MUST_USE;

/* At least so many bytes at *(void **)block, of dlrm_alloc, whose values are not kept; *room: how many there are. */
dlrm_status dlrm_tool_room(int64_t bytes, const char *what, void *block, int64_t *room) DLRM_MUST_USE;

/* printf into out[DLRM_PATH_MAX]; DLRM_E_INPUT where it does not fit. */
dlrm_status dlrm_tool_path(char *out, const char *fmt, ...) DLRM_PRINTF(2, 3) DLRM_MUST_USE;
dlrm_status dlrm_tool_make_folder(const char *path) DLRM_MUST_USE;
dlrm_status dlrm_tool_remove_tree(const char *path) DLRM_MUST_USE;
dlrm_status dlrm_tool_create(const char *path, int *fd) DLRM_MUST_USE; /* for reading and writing */
dlrm_status dlrm_tool_pwrite(int fd, const void *data, size_t bytes, int64_t offset, const char *path) DLRM_MUST_USE;
dlrm_status dlrm_tool_pread(int fd, void *data, size_t bytes, int64_t offset, const char *path) DLRM_MUST_USE;
/* Writes through to the disk and closes; *fd becomes -1. */
dlrm_status dlrm_tool_close(int *fd, const char *path) DLRM_MUST_USE;
/* A whole small text file. */
dlrm_status dlrm_tool_write_text(const char *path, const char *text) DLRM_MUST_USE;

/* At most a few times a second on a terminal, each ten seconds elsewhere: "what: 12.3 % (4.5 of 36.6 GB, 410 MB/s)".
 * Any thread. begin resets the clock. */
void dlrm_tool_progress_begin(void);
void dlrm_tool_progress(const char *what, int64_t done_bytes, int64_t total_bytes);
