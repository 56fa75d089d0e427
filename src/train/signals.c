#include "train/signals.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int caught[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
enum { N_CAUGHT = sizeof caught / sizeof *caught };

static const int ignored[] = {SIGPIPE, SIGXFSZ}; /* the write that failed says so */
enum { N_IGNORED = sizeof ignored / sizeof *ignored };

static struct sigaction before[N_CAUGHT], ignored_before[N_IGNORED];
static stack_t stack_before;
static volatile sig_atomic_t seen;
static volatile time_t seen_at; /* written once, before `seen` */

static time_t seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static void note(int number)
{
    if (seen && (number != seen || seconds() - seen_at > 1)) _exit(128 + number);
    if (seen) return;
    seen_at = seconds();
    seen = number;
}

/* This thread alone is interrupted, on a stack of its own: oneDNN's products point the stack pointer at memory from malloc while
 * they run, and a handler there would write over what lies below it. */
static void set_threads(int how, const sigset_t *set)
{
    static char own[1 << 16];
    const stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    if (how == SIG_BLOCK) sigaltstack(&stack, &stack_before);
    else sigaltstack(&stack_before, NULL);
#pragma omp parallel
    if (omp_get_thread_num() > 0) pthread_sigmask(how, set, NULL);
}

void dlrm_signals_catch(void)
{
    struct sigaction a = {.sa_handler = note, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigemptyset(&a.sa_mask);
    for (int i = 0; i < N_CAUGHT; i++) sigaddset(&a.sa_mask, caught[i]);
    set_threads(SIG_BLOCK, &a.sa_mask);
    seen = 0;
    for (int i = 0; i < N_CAUGHT; i++) sigaction(caught[i], &a, &before[i]);
    for (int i = 0; i < N_IGNORED; i++) sigaction(ignored[i], &(struct sigaction){.sa_handler = SIG_IGN}, &ignored_before[i]);
}

void dlrm_signals_release(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < N_IGNORED; i++) sigaction(ignored[i], &ignored_before[i], NULL);
    for (int i = 0; i < N_CAUGHT; i++) {
        sigaction(caught[i], &before[i], NULL);
        sigaddset(&set, caught[i]);
    }
    set_threads(SIG_UNBLOCK, &set);
}

int dlrm_signals_seen(void)
{
    return seen;
}

const char *dlrm_signal_name(int number)
{
    switch (number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    default: return "a signal";
    }
}
