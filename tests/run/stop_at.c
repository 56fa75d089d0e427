/* A library to preload: the rank $STOP_RANK (default: all) is sent $STOP_SIGNAL (STOP; default KILL) as it makes its call number
 * $STOP_CALL (default 1) of $STOP_AT: MPI_Init_thread, MPI_Iallreduce (a training's step, a batch of an evaluation, a round of long
 * work), MPI_Finalize, or the opening of a file by a path that ends so. */
#undef _FILE_OFFSET_BITS /* open and open64 are two here */
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void pass(const char *what)
{
    static int call;
    const char *at = getenv("STOP_AT"), *number = getenv("STOP_CALL"), *only = getenv("STOP_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    const char *how = getenv("STOP_SIGNAL");
    const size_t n = strlen(what), m = at ? strlen(at) : 0;
    if (!at || m > n || strcmp(what + n - m, at) != 0 || (only && strcmp(only, rank ? rank : "0") != 0)) return;
    if (++call == (number ? atoi(number) : 1)) raise(how && !strcmp(how, "STOP") ? SIGSTOP : SIGKILL);
}

#define NEXT(f) __typeof__(f) *next = (__typeof__(f) *)dlsym(RTLD_NEXT, #f)

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *got)
{
    NEXT(MPI_Init_thread);
    pass("MPI_Init_thread");
    return next(argc, argv, wanted, got);
}

int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    NEXT(MPI_Iallreduce);
    pass("MPI_Iallreduce");
    return next(in, out, n, type, op, comm, request);
}

int MPI_Finalize(void)
{
    NEXT(MPI_Finalize);
    pass("MPI_Finalize");
    return next();
}

/* Of the calls that open a file the one that the program is compiled to, with offsets of 64 bits. */
int open64(const char *path, int flags, ...)
{
    NEXT(open64);
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    pass(path);
    return next(path, flags, mode);
}
