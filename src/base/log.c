#include "base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int my_rank;
static bool bar_shown;

void dlrm_log_init(int rank)
{
    my_rank = rank;
}

/* Open MPI gives each rank a terminal of its own, whatever its own output goes to: not the controlling one, and then the
 * launcher's output counts. */
bool dlrm_log_is_terminal(void)
{
    if (!isatty(STDOUT_FILENO)) return false;
    if (tcgetpgrp(STDOUT_FILENO) >= 0) return true;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)getppid());
    int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool terminal = isatty(fd);
    close(fd);
    return terminal;
}

static void clear_bar(void)
{
    if (bar_shown) fputs("\r\033[K", stdout);
    bar_shown = false;
}

/* In the place of the bar. */
static void say(const char *fmt, va_list ap, const char *end)
{
    clear_bar();
    vfprintf(stdout, fmt, ap);
    fputs(end, stdout);
    fflush(stdout);
}

void dlrm_info(const char *fmt, ...)
{
    va_list ap;
    if (my_rank != 0) return;
    va_start(ap, fmt);
    say(fmt, ap, "\n");
    va_end(ap);
}

void dlrm_progress(const char *fmt, ...)
{
    va_list ap;
    if (my_rank != 0) return;
    va_start(ap, fmt);
    say(fmt, ap, "");
    va_end(ap);
    bar_shown = true;
}

void dlrm_error_line(const char *text)
{
    char line[4400];
    int n = snprintf(line, sizeof line, "%s\n", text);
    if (n > (int)sizeof line - 1) n = (int)sizeof line - 1;
    clear_bar();
    fflush(stdout);
    if (write(STDERR_FILENO, line, (size_t)n) != n) return; /* nowhere left to complain */
}

void dlrm_warn(const char *fmt, ...)
{
    if (my_rank != 0) return;
    char text[4200];
    int n = snprintf(text, sizeof text, "dlrm-train: warning: ");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    dlrm_error_line(text);
}

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double dlrm_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double dlrm_now_since_1970(void)
{
    return read_clock(CLOCK_REALTIME);
}
