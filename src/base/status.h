/* Errors. A function that can meet trouble from outside (a file, the config, memory, MPI) returns a dlrm_status and
 * leaves one message, complete enough to print as it is, in this thread's error slot. The codes are the program's
 * exit codes. Expected outcomes (end of data, no checkpoint yet) are out-parameters, never statuses. Bugs in our own
 * code are DLRM_ASSERTs, which stay on in release builds. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dlrm_status {
    DLRM_OK = 0,
    DLRM_E_INPUT = 1,   /* config, data, weights: the user's to mend */
    DLRM_E_USAGE = 2,   /* command line, launcher */
    DLRM_E_RUNTIME = 3, /* memory, MPI, disk */
} dlrm_status;

#define DLRM_MUST_USE __attribute__((warn_unused_result))
#define DLRM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Sets this thread's message and returns `code`. */
dlrm_status dlrm_fail(dlrm_status code, const char *fmt, ...) DLRM_PRINTF(2, 3);

/* This thread's last message; "" before the first. */
const char *dlrm_error_message(void);

/* One line on stderr, then abort(). */
__attribute__((noreturn)) void dlrm_assert_failed(const char *file, int line, const char *expr);

#define FAIL(code, ...) dlrm_fail(code, __VA_ARGS__)
#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        dlrm_status st_ = (expr);                                                                                      \
        if (st_ != DLRM_OK) return st_;                                                                                \
    } while (0)
#define TRY_TO(label, st, expr)                                                                                        \
    do {                                                                                                               \
        (st) = (expr);                                                                                                 \
        if ((st) != DLRM_OK) goto label;                                                                               \
    } while (0)
#define DLRM_ASSERT(expr) ((expr) ? (void)0 : dlrm_assert_failed(__FILE__, __LINE__, #expr))

#ifdef __cplusplus
}
#endif
