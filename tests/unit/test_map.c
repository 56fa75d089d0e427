/* Mapped files: a use of what is not there any more ends, wherever it is, and the next one works; faults of others are theirs. */
#include "data_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "data/map.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 100 };

typedef struct range {
    const dlrm_map *m;
    int64_t at, bytes, sum;
} range;

static void add_up(void *ctx)
{
    range *x = ctx;
    for (int64_t i = 0; i < x->bytes; i++) x->sum += ((const volatile char *)x->m->base)[x->at + i];
}

static bool use(dlrm_map *m, int fd, int64_t at, int64_t bytes)
{
    range x = {.m = m, .at = at, .bytes = bytes};
    const bool whole = dlrm_map_use(m, fd, at, bytes, add_up, &x);
    assert_true(!whole || x.sum == bytes); /* every byte is 1 */
    return whole;
}

static int open_ones(const char *name, int64_t bytes)
{
    char *ones = malloc((size_t)bytes);
    memset(ones, 1, (size_t)bytes);
    write_file(name, ones, (size_t)bytes);
    free(ones);
    const int fd = open(in_folder(name), O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

static void shorten_and_use(void)
{
    dlrm_map m;
    const int fd = open_ones("train/x", BYTES);
    dlrm_map_open(fd, &m);
    assert_non_null(m.base);
    assert_true(use(&m, fd, 0, BYTES));
    assert_true(use(&m, fd, BYTES, 0));
    assert_false(use(&m, fd, 1, BYTES));
    assert_false(use(&m, fd, -1, 1));
    assert_false(use(&m, fd, INT64_MAX, 1));
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ftruncate(fd, 3 * PAGE + 50), 0); /* the last page is there, and has zeros after the end */
        assert_false(dlrm_map_use(&m, fd, 3 * PAGE, 100, add_up, &(range){.m = &m, .at = 3 * PAGE, .bytes = 100}));
        assert_true(use(&m, fd, 3 * PAGE, 50));
        assert_int_equal(ftruncate(fd, PAGE), 0);
        assert_false(use(&m, fd, 0, BYTES)); /* a fault in the midst */
        assert_false(use(&m, fd, 2 * PAGE, 10));
        assert_true(use(&m, fd, 0, PAGE));
        static char ones[BYTES];
        memset(ones, 1, sizeof ones);
        assert_int_equal(pwrite(fd, ones, BYTES, 0), BYTES);
        assert_true(use(&m, fd, 0, BYTES)); /* it has come back */
    }
    dlrm_map_close(&m);
    assert_null(m.base);
    close(fd);
}

static void test_shortened(void **state)
{
    (void)state;
    shorten_and_use();
}

/* As the reader's thread has them. */
static void *with_signals_blocked(void *none)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    shorten_and_use();
    return none;
}

static void test_in_a_thread(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, with_signals_blocked, NULL), 0);
    pthread_join(thread, NULL);
}

static void test_nothing_to_map(void **state)
{
    (void)state;
    dlrm_map m;
    const int fd = open_ones("train/empty", 0);
    dlrm_map_open(fd, &m);
    assert_null(m.base);
    assert_false(use(&m, fd, 0, 1));
    dlrm_map_close(&m);
    close(fd);
    dlrm_map_open(-1, &m);
    assert_null(m.base);
}

/* What has been used does not stay in this process' memory. */
static void test_memory(void **state)
{
    (void)state;
    enum { MANY = 64 << 20, SOME = 100000 };
    dlrm_map m;
    const int fd = open_ones("train/long", MANY);
    dlrm_map_open(fd, &m);
    for (int epoch = 0; epoch < 2; epoch++)
        for (int64_t at = 0; at < MANY; at += SOME) {
            assert_true(use(&m, fd, at, MANY - at < SOME ? MANY - at : SOME));
            if (at % (50 * SOME)) continue;
            long long resident = 0, shared = 0, all = 0;
            FILE *f = fopen("/proc/self/statm", "r");
            assert_int_equal(fscanf(f, "%lld %lld %lld", &all, &resident, &shared), 3);
            fclose(f);
            assert_true(shared * PAGE < 32 << 20);
        }
    dlrm_map_close(&m);
    close(fd);
}

/* In a process of its own: how it ends. */
static int end_of(void (*f)(void))
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        f();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void fault_elsewhere(void (*handler)(int))
{
    dlrm_map m;
    const int fd = open_ones("train/z", 2 * PAGE);
    signal(SIGBUS, handler); /* cmocka has its own */
    dlrm_map_open(fd, &m);
    if (!use(&m, fd, 0, 2 * PAGE) || ftruncate(fd, 0) != 0) _exit(1);
    _exit(((const volatile char *)m.base)[PAGE] == 77); /* not within a use */
}

static void fault_without_handler(void)
{
    fault_elsewhere(SIG_DFL);
}

static void answer(int number)
{
    _exit(number == SIGBUS ? 42 : 1);
}

static void fault_with_handler(void)
{
    fault_elsewhere(answer);
}

static void sent_within_a_use(void *ctx)
{
    (void)ctx;
    raise(SIGBUS); /* not by an access */
}

static void sent_by_kill(void)
{
    dlrm_map m;
    const int fd = open_ones("train/z", PAGE);
    signal(SIGBUS, SIG_DFL);
    dlrm_map_open(fd, &m);
    dlrm_map_use(&m, fd, 0, 1, sent_within_a_use, NULL);
}

/* They go to the handler that was there before, or end the process. */
static void test_faults_of_others(void **state)
{
    (void)state;
    int status = end_of(fault_with_handler);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = end_of(fault_without_handler);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = end_of(sent_by_kill);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_shortened),      IN_FOLDER(test_in_a_thread), IN_FOLDER(test_nothing_to_map),
        IN_FOLDER(test_memory), IN_FOLDER(test_faults_of_others),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
