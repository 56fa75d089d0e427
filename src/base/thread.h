/* Threads beside the main one. */
#pragma once
#include <pthread.h>

#include "base/status.h"

/* Starts work(ctx) in a thread of its own. Signals are the main thread's: this one is sent none but SIGBUS, which a file that has
 * become shorter causes where it is read (data/map.h). what: "reads ahead", say, for the message. */
dlrm_status dlrm_thread_start(pthread_t *thread, void *(*work)(void *), void *ctx, const char *what) DLRM_MUST_USE;
