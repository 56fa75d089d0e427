/* Files and folders that must be on the disk when a call returns. Messages start with the path. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* First thing in main: a process may be started with stdin, stdout or stderr closed, and the next files to be opened, or MPI's own,
 * would have their numbers and be written into. Afterwards they are there, and fail as before. */
void dlrm_files_hold_standard(void);
/* What something of this mode (struct stat) is, for messages: "file", "folder", "pipe", "device", "socket". */
const char *dlrm_file_kind(mode_t mode);
/* Does a file lie there that begins in another way, as far as it goes? Neither an empty one nor what is no file. */
bool dlrm_file_begins_otherwise(const char *path, const void *start, size_t bytes);
/* Opens a file to be read. Nothing else: a pipe would be waited for. *bytes, unless NULL: its size. DLRM_E_INPUT. */
dlrm_status dlrm_file_open_regular(const char *path, int *fd, int64_t *bytes) DLRM_MUST_USE;
/* Writes all of it, however often the system stops short. */
dlrm_status dlrm_file_write_at(int fd, const char *path, int64_t at, int64_t bytes, const void *data) DLRM_MUST_USE;
/* Brings it to the disk, closes *fd and sets it to -1, also where that fails. */
dlrm_status dlrm_file_sync_and_close(int *fd, const char *path) DLRM_MUST_USE;
/* A new file (an error where there is one) with this text, on the disk. */
dlrm_status dlrm_file_write_new(const char *path, const void *data, int64_t bytes) DLRM_MUST_USE;

/* The path without symbolic links and relative parts, as far as it is there; the rest as it stands. */
void dlrm_path_resolve(const char *path, char out[PATH_MAX]);
/* Makes the folder and what is missing above it; DLRM_E_INPUT where it cannot be made, is none, or cannot be written. */
dlrm_status dlrm_folder_make(const char *path) DLRM_MUST_USE;
/* Brings the names in it to the disk. */
dlrm_status dlrm_folder_sync(const char *path) DLRM_MUST_USE;
/* Is there room for so many bytes more? DLRM_E_RUNTIME says how much there is. */
dlrm_status dlrm_folder_check_space(const char *path, double bytes) DLRM_MUST_USE;
