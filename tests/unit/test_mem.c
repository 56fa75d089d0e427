/* Memory that control groups leave, from files as the kernel has them: both versions, groups within groups, containers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

static char root[] = "/tmp/dlrm_groups_XXXXXX";

static void write_text(const char *folder, const char *file, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* A group's files; limit "": none. */
static void write_group(const char *folder, bool first, const char *limit, const char *used, const char *stat)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    mkdir(path, 0777);
    if (limit[0]) write_text(folder, first ? "memory.limit_in_bytes" : "memory.max", limit);
    write_text(folder, first ? "memory.usage_in_bytes" : "memory.current", used);
    write_text(folder, "memory.stat", stat);
}

static int64_t left(const char *groups)
{
    char path[300];
    write_text(".", "groups", groups);
    snprintf(path, sizeof path, "%s/groups", root);
    return dlrm_mem_groups_left(path, root);
}

static void test_second_version(void **state)
{
    (void)state;
    write_group("job", false, "1000\n", "400\n", "anon 10\nslab_inactive_file 7\nworkingset_inactive_file 9\ninactive_file 150\nactive_file 3\n");
    write_group("job/step", false, "max\n", "380\n", "inactive_file 150\n");
    write_group("job/small", false, "500\n", "450\n", "anon 1\n");
    write_group("other", false, "10\n", "9\n", "");
    assert_int_equal(left("0::/job\n"), 750);
    assert_int_equal(left("0::/job/step\n"), 750); /* the one above bounds it */
    assert_int_equal(left("0::/job/small\n"), 50);
    assert_int_equal(left("0::/job/small/gone/further\n"), 50);
    assert_int_equal(left("0::/absent\n"), INT64_MAX);
    assert_int_equal(left("0::/\n"), INT64_MAX); /* the machine's root has no limit */
    assert_int_equal(left("1:name=systemd:/job\n0::/other\n"), 1);
}

/* The root is the container's group there, whatever its name outside. */
static void test_container(void **state)
{
    (void)state;
    write_group(".", false, "3000\n", "2000\n", "inactive_file 500\n");
    assert_int_equal(left("0::/\n"), 1500);
    assert_int_equal(left("0::/../../kubepods/pod7\n"), 1500);
    assert_int_equal(left("0::/job\n"), 750);
    write_group(".", false, "3000\n", "3100\n", "inactive_file 0\n");
    assert_int_equal(left("0::/job\n"), 0); /* more than it may have */
}

static void test_first_version(void **state)
{
    (void)state;
    write_group("memory", true, "9223372036854771712\n", "123456\n", "total_inactive_file 456\n");
    write_group("memory/slurm", true, "800\n", "700\n", "inactive_file 1\ntotal_inactive_file 300\n");
    assert_int_equal(left("9:name=systemd:/\n4:memory:/slurm/step_0\n1:cpu:/\n"), 400);
    assert_true(left("4:memory:/\n") > INT64_C(1) << 60);
    assert_int_equal(left("4:memoryless:/slurm\n"), INT64_MAX);
}

static void test_odd_files(void **state)
{
    (void)state;
    write_group("odd", false, "many\n", "0\n", "");
    assert_int_equal(left(""), INT64_MAX);
    assert_int_equal(left("nothing\n:\n::\n"), 0); /* of the container above */
    write_group(".", false, "max\n", "0\n", "");
    assert_int_equal(left("0::/odd\n0:x"), INT64_MAX);
    assert_int_equal(dlrm_mem_groups_left("/nowhere/cgroup", root), INT64_MAX);
    assert_true(dlrm_mem_available() > 1 << 20);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[400];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_version),
        cmocka_unit_test(test_container),
        cmocka_unit_test(test_first_version),
        cmocka_unit_test(test_odd_files),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
