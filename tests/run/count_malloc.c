/* A library to preload: counts the memory requests of a process and says at its end how many came from the program itself and
 * how many from the libraries that it uses (MPI, OpenMP, BLAS, libc). Built for tests; glibc only. */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own names of what is replaced here */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes);

static uintptr_t program_begin, program_end; /* of its code */
static _Atomic long from_program, from_libraries;

#define COUNT() count((uintptr_t)__builtin_return_address(0))

static void count(uintptr_t caller)
{
    if (caller >= program_begin && caller < program_end)
        from_program++;
    else
        from_libraries++;
}

void *malloc(size_t bytes)
{
    COUNT();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    COUNT();
    return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    COUNT();
    return __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    COUNT();
    return __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    COUNT();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    COUNT();
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    COUNT();
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* The first object is the program. */
static int find_program(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        program_begin = info->dlpi_addr + p->p_vaddr;
        program_end = program_begin + p->p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    dl_iterate_phdr(find_program, NULL);
}

__attribute__((destructor)) static void say(void)
{
    char line[100];
    int n = snprintf(line, sizeof line, "count_malloc: %ld from the program, %ld from libraries\n", atomic_load(&from_program),
                     atomic_load(&from_libraries));
    if (write(STDERR_FILENO, line, (size_t)n) != n) abort();
}
