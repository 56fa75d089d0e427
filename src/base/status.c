#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[4096];

dlrm_status dlrm_fail(dlrm_status code, const char *fmt, ...)
{
    char text[sizeof message]; /* the arguments may be the old message */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, sizeof message);
    return code;
}

const char *dlrm_error_message(void)
{
    return message;
}

void dlrm_assert_failed(const char *file, int line, const char *expr)
{
    fprintf(stderr, "dlrm-train: bug at %s:%d: %s does not hold\n", file, line, expr);
    fflush(NULL);
    abort();
}
