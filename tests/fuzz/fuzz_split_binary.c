/* Data files: the first bytes choose types, hotness, table sizes and batch size, the rest is the files' contents, cut
 * into five. A batch comes out valid, with every id in its table, or with one message and zeros. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LABEL, DENSE, FIXED, BAG, OFFSETS, FILES, HEADER = 16 };

static char folder[64], paths[FILES][80];

static void remove_files(void)
{
    for (int f = 0; f < FILES; f++) unlink(paths[f]);
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/dlrm-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    DLRM_ASSERT(mkdtemp(folder));
    for (int f = 0; f < FILES; f++) snprintf(paths[f], sizeof paths[f], "%s/%d", folder, f);
    atexit(remove_files);
}

static void write_file(int f, const uint8_t *data, size_t bytes)
{
    FILE *out = fopen(paths[f], "wb");
    DLRM_ASSERT(out && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0);
}

static void check_batch(const dlrm_batch *b, const dlrm_model_spec *spec)
{
    DLRM_ASSERT(b->status == DLRM_OK || (b->status == DLRM_E_INPUT && !strncmp(b->message, folder, strlen(folder))));
    for (int64_t s = 0; s < b->own; s++) DLRM_ASSERT(b->labels[s] == 0.0f || b->labels[s] == 1.0f);
    for (int64_t i = 0; i < b->own * spec->dense_features; i++) DLRM_ASSERT(isfinite(b->dense[i]));
    for (int j = 0; j < spec->n_inputs; j++) {
        const dlrm_ids *in = &b->inputs[j];
        for (int64_t i = 0; i < in->count; i++) DLRM_ASSERT(in->ids[i] < spec->tables[j].rows);
        if (!in->offsets) continue;
        DLRM_ASSERT(in->offsets[0] == 0 && in->offsets[b->size] == in->count);
        for (int64_t s = 0; s < b->size; s++) {
            int64_t bag = in->offsets[s + 1] - in->offsets[s];
            DLRM_ASSERT(bag >= 0 && bag <= spec->inputs[j].hotness);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const dlrm_elem ids[] = {DLRM_INT8, DLRM_INT16, DLRM_INT32, DLRM_INT64};
    static const dlrm_elem labels[] = {DLRM_BOOL, DLRM_INT8, DLRM_INT32, DLRM_FLOAT32};
    if (!*folder) make_folder();
    if (size < HEADER) return 0;
    const uint8_t *h = data;
    data += HEADER;
    size -= HEADER;
    for (int f = 0; f < FILES; f++) { /* h[f] 256ths of what is left; the last file gets all */
        size_t bytes = f < FILES - 1 ? size * h[f] / 256 : size;
        write_file(f, data, bytes);
        data += bytes;
        size -= bytes;
    }
    dlrm_categorical categorical[] = {{.name = "a", .where = "spec", .dtype = ids[h[5] % 4], .cardinality = 1 + h[6]},
                                      {.name = "b", .where = "spec", .dtype = ids[h[7] % 4], .cardinality = 1 + h[8]}};
    char *id_files[] = {paths[FIXED], paths[BAG]}, *offset_files[] = {NULL, paths[OFFSETS]};
    dlrm_feature_spec files = {.n_dense = h[9] % 4,
                               .dense_dtype = h[9] & 4 ? DLRM_FLOAT16 : DLRM_FLOAT32,
                               .label_dtype = labels[h[10] % 4],
                               .n_categorical = 2,
                               .categorical = categorical,
                               .split[0] = {.present = true,
                                            .label = paths[LABEL],
                                            .dense = h[9] % 4 ? paths[DENSE] : NULL,
                                            .ids = id_files,
                                            .offsets = offset_files}};
    dlrm_table tables[] = {{.name = "A", .rows = 1 + h[6]}, {.name = "B", .rows = 1 + h[8]}};
    dlrm_input inputs[] = {{.table = 0, .hotness = 1 + h[11] % 4},
                           {.table = 1, .hotness = 1 + h[12] % 8, .variable = true}};
    dlrm_model_spec spec = {
        .dense_features = files.n_dense, .n_tables = 2, .n_inputs = 2, .tables = tables, .inputs = inputs};
    dlrm_config cfg = {.data.index_check = (dlrm_index_check)(h[13] % 3)};
    bool wanted[] = {true, true}, end;
    dlrm_reader_args args = {.batch_size = 1 + h[14], .epochs = 1, .ranks = 1, .wanted = wanted};
    dlrm_dataset *d;
    dlrm_reader *r;
    if (dlrm_dataset_open(&cfg, &spec, &files, &d) == DLRM_OK) {
        bool whole = true;
        int64_t bytes;
        DLRM_ASSERT(dlrm_reader_open(d, &args, &r) == DLRM_OK);
        for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end)); whole &= b->status == DLRM_OK) check_batch(b, &spec);
        DLRM_ASSERT(!whole || (dlrm_dataset_epoch_bytes(d, &args, &bytes) == DLRM_OK && dlrm_reader_bytes(r) == bytes));
        dlrm_reader_close(&r);
        dlrm_dataset_close(&d);
    } else {
        DLRM_ASSERT(!strncmp(dlrm_error_message(), folder, strlen(folder)));
    }
    DLRM_ASSERT(dlrm_mem_live_blocks() == 0);
    return 0;
}
