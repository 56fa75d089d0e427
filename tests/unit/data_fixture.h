/* For the tests of data: a folder of files written by the test, a model and a config made by hand, messages. */
#pragma once
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/dataset.h"

static char data_folder[64];
static int64_t blocks_before;

static inline const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", data_folder, name);
    return path;
}

static inline void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* Every test starts in a new folder and must give back all memory. */
static inline int open_folder(void **state)
{
    (void)state;
    snprintf(data_folder, sizeof data_folder, "/tmp/dlrm-test-data-XXXXXX");
    if (!mkdtemp(data_folder)) return -1;
    blocks_before = dlrm_mem_live_blocks();
    return mkdir(in_folder("train"), 0777) || mkdir(in_folder("test"), 0777);
}

static inline int remove_folder(void **state)
{
    (void)state;
    if (dlrm_mem_live_blocks() != blocks_before) {
        print_error("%lld blocks were not freed\n", (long long)(dlrm_mem_live_blocks() - blocks_before));
        return -1;
    }
    return nftw(data_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("message '%s' has no '%s'", text, part);
}

#define assert_ok(expr)                                                         \
    do {                                                                        \
        if ((expr) != DLRM_OK) fail_msg("%s: %s", #expr, dlrm_error_message()); \
    } while (0)

#define assert_refused(expr, part)              \
    do {                                        \
        assert_int_equal(expr, DLRM_E_INPUT);   \
        assert_has(dlrm_error_message(), part); \
    } while (0)

/* A model made by hand: what the config would resolve to. */
typedef struct data_model {
    dlrm_config cfg;
    dlrm_model_spec spec;
    dlrm_table tables[16];
    dlrm_input inputs[16];
    bool wanted[16]; /* all of them */
} data_model;

static inline void add_input(data_model *m, const char *name, int64_t rows, int hotness, bool variable)
{
    int j = m->spec.n_inputs++;
    m->spec.n_tables++;
    m->spec.tables = m->tables;
    m->spec.inputs = m->inputs;
    m->tables[j] = (dlrm_table){.name = (char *)name, .rows = rows, .dim = 4};
    m->inputs[j] = (dlrm_input){.table = j, .hotness = hotness, .variable = variable, .name = (char *)name};
    m->wanted[j] = true;
}

/* One rank reads everything, once. */
static inline dlrm_reader_args whole(const data_model *m, int64_t batch_size)
{
    return (dlrm_reader_args){.batch_size = batch_size, .epochs = 1, .ranks = 1, .wanted = m->wanted};
}
