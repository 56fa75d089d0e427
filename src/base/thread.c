#include "base/thread.h"

#include <signal.h>
#include <string.h>

dlrm_status dlrm_thread_start(pthread_t *thread, void *(*work)(void *), void *ctx, const char *what)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(thread, NULL, work, ctx);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error ? FAIL(DLRM_E_RUNTIME, "cannot start the thread that %s: %s", what, strerror(error)) : DLRM_OK;
}
