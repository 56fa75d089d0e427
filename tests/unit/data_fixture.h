/* For the tests of data: a folder of files written by the test, a model and a config made by hand, messages. */
#pragma once
#include "base/mem.h"
#include "data/dataset.h"
#include "folder_fixture.h"

static int64_t blocks_before;

/* Every test starts in a new folder and must give back all memory. */
static inline int open_folder(void **state)
{
    if (make_folder(state)) return -1;
    blocks_before = dlrm_mem_live_blocks();
    return mkdir(in_folder("train"), 0777) || mkdir(in_folder("test"), 0777);
}

static inline int close_folder(void **state)
{
    if (dlrm_mem_live_blocks() == blocks_before) return remove_folder(state);
    print_error("%lld blocks were not freed\n", (long long)(dlrm_mem_live_blocks() - blocks_before));
    return -1;
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

static inline int64_t epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args)
{
    int64_t bytes;
    assert_ok(dlrm_dataset_epoch_bytes(d, args, &bytes));
    return bytes;
}

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
