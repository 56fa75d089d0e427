/* How fast the reader takes split-binary files, against read() of the same files in pieces of 128 KiB, as cat does it:
 *
 *   bench_reader FOLDER [BATCH]     e.g. bench_reader /dev/shm/criteo 65536
 *
 * reads the training split in global batches, on one rank that wants every feature. With `--make DTYPE MEBIBYTES` after
 * FOLDER it first writes one: 26 features of one id (DTYPE: int8 … int64), 13 dense values in fp16, labels in int8. Best of
 * several passes each, alternating; the files should fit the page cache. GB are 1e9 bytes of files, seconds those of the
 * processor, so that it counts for one core and other work does little harm.
 *
 *   bench_reader CONFIG.yaml [key.path=value ...]
 *
 * reads whatever the trainer would be given (row formats, shuffled rows), without the comparison. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/dataset.h"

enum { IDS = 26, DENSE = 13, PIECE = 128 << 10, PASSES = 7, ROWS_OF_TABLE = 100 };

/* --- a folder of data --- */

static dlrm_status write_column(const char *folder, const char *name, int64_t rows, int64_t row_bytes, int64_t id_bytes)
{
    char path[4096], *block;
    snprintf(path, sizeof path, "%s/train/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) return FAIL(DLRM_E_INPUT, "%s: cannot write it", path);
    TRY(dlrm_alloc(row_bytes, 4096, "a block of rows", &block));
    for (int64_t i = 0; id_bytes && i < 4096; i++) block[i * id_bytes] = (char)(i * 2654435761 % ROWS_OF_TABLE);
    bool whole = true;
    for (int64_t left = rows, n; whole && left > 0; left -= n) {
        n = left < 4096 ? left : 4096;
        whole = fwrite(block, (size_t)row_bytes, (size_t)n, f) == (size_t)n;
    }
    dlrm_free(&block);
    return fclose(f) == 0 && whole ? DLRM_OK : FAIL(DLRM_E_INPUT, "%s: cannot write it", path);
}

static dlrm_status make(const char *folder, const char *dtype, int64_t mebibytes)
{
    char path[4096], name[32];
    const int64_t id_bytes = atoi(dtype + 3) / 8, row_bytes = IDS * id_bytes + DENSE * 2 + 1, rows = mebibytes * (1 << 20) / row_bytes;
    snprintf(path, sizeof path, "%s/train", folder);
    mkdir(folder, 0777);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/feature_spec.yaml", folder);
    FILE *y = fopen(path, "w");
    if (!y) return FAIL(DLRM_E_INPUT, "%s: cannot write it", path);
    fprintf(y, "channel_spec: {label: [y], numerical: &x [x0");
    for (int k = 1; k < DENSE; k++) fprintf(y, ", x%d", k);
    fprintf(y, "], categorical: [c0");
    for (int j = 1; j < IDS; j++) fprintf(y, ", c%d", j);
    fprintf(y, "]}\nfeature_spec:\n  y: {dtype: bool}\n");
    for (int k = 0; k < DENSE; k++) fprintf(y, "  x%d: {dtype: float16}\n", k);
    for (int j = 0; j < IDS; j++) fprintf(y, "  c%d: {dtype: %s, cardinality: %d}\n", j, dtype, ROWS_OF_TABLE);
    fprintf(y, "source_spec:\n  train:\n  - {type: split_binary, features: [y], files: [train/y]}\n"
               "  - {type: split_binary, features: *x, files: [train/x]}\n");
    for (int j = 0; j < IDS; j++) fprintf(y, "  - {type: split_binary, features: [c%d], files: [train/c%d]}\n", j, j);
    if (fclose(y)) return FAIL(DLRM_E_INPUT, "%s: cannot write it", path);
    TRY(write_column(folder, "y", rows, 1, 0));
    TRY(write_column(folder, "x", rows, DENSE * 2, 0));
    for (int j = 0; j < IDS; j++) {
        snprintf(name, sizeof name, "c%d", j);
        TRY(write_column(folder, name, rows, id_bytes, id_bytes));
    }
    return DLRM_OK;
}

/* --- two ways to read it --- */

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t read_file(const char *path, char *piece)
{
    int64_t bytes = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t n; fd >= 0 && (n = read(fd, piece, PIECE)) > 0;) bytes += n;
    if (fd >= 0) close(fd);
    return bytes;
}

static double plain(const dlrm_feature_spec *files, char *piece, int64_t *bytes)
{
    const dlrm_split_files *s = &files->split[DLRM_TRAIN_SPLIT];
    const double start = processor_seconds();
    *bytes = read_file(s->label, piece);
    if (s->dense) *bytes += read_file(s->dense, piece);
    for (int j = 0; j < files->n_categorical; j++) {
        *bytes += read_file(s->ids[j], piece);
        if (s->offsets[j]) *bytes += read_file(s->offsets[j], piece);
    }
    return processor_seconds() - start;
}

static dlrm_status drain(dlrm_reader *r)
{
    bool end;
    for (const dlrm_batch *b; (b = dlrm_reader_next(r, &end));)
        if (b->status != DLRM_OK) return FAIL(b->status, "%s", b->message);
    return DLRM_OK;
}

/* The time of a whole epoch, the second, so that shuffled rows' windows are all read in it; the first one fills the reader's
 * memory. */
static dlrm_status batched(dlrm_dataset *d, const dlrm_reader_args *args, double *seconds, int64_t *bytes)
{
    dlrm_reader_args two = *args;
    dlrm_reader *r;
    two.epochs = 2;
    TRY(dlrm_reader_open(d, &two, &r));
    for (bool end = false; !end;) dlrm_reader_next(r, &end);
    const int64_t before = dlrm_reader_bytes(r);
    const double start = processor_seconds();
    dlrm_status st = drain(r);
    *seconds = processor_seconds() - start;
    *bytes = dlrm_reader_bytes(r) - before;
    dlrm_reader_close(&r);
    return st;
}

static dlrm_status compare(const dlrm_feature_spec *files, dlrm_dataset *d, int64_t batch, int n_inputs)
{
    char *piece;
    bool *wanted;
    double best[2] = {0};
    TRY(dlrm_alloc(PIECE, 1, "a piece", &piece));
    TRY(dlrm_alloc(n_inputs, sizeof *wanted, "inputs", &wanted));
    for (int j = 0; j < n_inputs; j++) wanted[j] = true;
    const dlrm_reader_args args = {.split = DLRM_TRAIN_SPLIT, .batch_size = batch, .epochs = 1, .ranks = 1, .wanted = wanted};
    if (dlrm_dataset_rows(d, DLRM_TRAIN_SPLIT) < 8 * batch)
        return FAIL(DLRM_E_INPUT, "found %lld rows, expected at least 8 batches of %lld", (long long)dlrm_dataset_rows(d, DLRM_TRAIN_SPLIT),
                    (long long)batch);
    for (int k = 0; k < PASSES; k++) {
        int64_t bytes;
        double seconds = plain(files, piece, &bytes), rate = 1e-9 * (double)bytes / seconds;
        if (rate > best[0]) best[0] = rate;
        TRY(batched(d, &args, &seconds, &bytes));
        rate = 1e-9 * (double)bytes / seconds;
        if (rate > best[1]) best[1] = rate;
    }
    printf("read() %.2f GB/s a core, reader %.2f, ratio %.2f\n", best[0], best[1], best[1] / best[0]);
    dlrm_free(&wanted);
    dlrm_free(&piece);
    return DLRM_OK;
}

/* The model that the folder's description fits: no layers, a table for each feature. */
static dlrm_status run(const char *folder, int64_t batch)
{
    dlrm_feature_spec files;
    dlrm_model_spec spec = {0};
    dlrm_config cfg = {0};
    dlrm_dataset *d;
    TRY(dlrm_feature_spec_load(folder, &files));
    spec.dense_features = files.n_dense;
    spec.n_inputs = spec.n_tables = files.n_categorical;
    TRY(dlrm_alloc(spec.n_tables, sizeof *spec.tables, "tables", &spec.tables));
    TRY(dlrm_alloc(spec.n_inputs, sizeof *spec.inputs, "inputs", &spec.inputs));
    for (int j = 0; j < spec.n_inputs; j++) {
        const dlrm_categorical *c = &files.categorical[j];
        spec.tables[j] = (dlrm_table){.name = (char *)c->name, .rows = c->cardinality, .dim = 1};
        spec.inputs[j] = (dlrm_input){.table = j, .hotness = c->hotness, .variable = c->variable, .name = (char *)c->name};
    }
    TRY(dlrm_dataset_open(&cfg, &spec, &files, &d));
    dlrm_status st = compare(&files, d, batch, spec.n_inputs);
    dlrm_dataset_close(&d);
    dlrm_free(&spec.tables);
    dlrm_free(&spec.inputs);
    dlrm_feature_spec_clear(&files);
    return st;
}

/* The best of several epochs' rates. */
static dlrm_status best_of(dlrm_dataset *d, const dlrm_reader_args *args)
{
    double best = 0;
    for (int k = 0; k < PASSES; k++) {
        int64_t bytes;
        double seconds;
        TRY(batched(d, args, &seconds, &bytes));
        const double rate = 1e-9 * (double)bytes / seconds;
        if (rate > best) best = rate;
    }
    printf("reader %.2f GB/s a core\n", best);
    return DLRM_OK;
}

static dlrm_status run_config(const char *path, int n_overrides, char **overrides)
{
    dlrm_config cfg;
    dlrm_feature_spec files = {0};
    dlrm_model_spec spec;
    dlrm_dataset *d;
    bool *wanted;
    TRY(dlrm_config_load(path, n_overrides, overrides, &cfg));
    const dlrm_feature_spec *described = cfg.data.format == DLRM_SPLIT_BINARY ? &files : NULL;
    if (described) TRY(dlrm_feature_spec_load(cfg.data.path, &files));
    TRY(dlrm_model_spec_resolve(&cfg, described, &spec));
    TRY(dlrm_dataset_open(&cfg, &spec, described, &d));
    TRY(dlrm_alloc(spec.n_inputs, sizeof *wanted, "inputs", &wanted));
    for (int j = 0; j < spec.n_inputs; j++) wanted[j] = true;
    const dlrm_reader_args args = {.split = DLRM_TRAIN_SPLIT, .batch_size = cfg.train.batch_size, .epochs = 1, .ranks = 1, .wanted = wanted,
                                   .wanted_by = wanted, .shuffle = cfg.data.shuffle};
    dlrm_status st = best_of(d, &args);
    dlrm_free(&wanted);
    dlrm_dataset_close(&d);
    dlrm_model_spec_clear(&spec);
    dlrm_feature_spec_clear(&files);
    dlrm_config_clear(&cfg);
    return st;
}

static dlrm_status finish(dlrm_status st)
{
    if (st != DLRM_OK) fprintf(stderr, "%s\n", dlrm_error_message());
    return st;
}

int main(int argc, char **argv)
{
    const size_t length = argc > 1 ? strlen(argv[1]) : 0;
    if (length > 5 && !strcmp(argv[1] + length - 5, ".yaml")) return finish(run_config(argv[1], argc - 2, argv + 2));
    const char *folder = argc > 1 ? argv[1] : NULL;
    const bool makes = argc > 4 && !strcmp(argv[2], "--make");
    const char *batch = argc == (makes ? 6 : 3) ? argv[argc - 1] : "65536";
    const int64_t samples = atoll(batch);
    if (!folder || samples < 1 || (makes && strncmp(argv[3], "int", 3))) {
        fprintf(stderr, "usage: %s FOLDER [--make int8|int16|int32|int64 MEBIBYTES] [BATCH]\n       %s CONFIG.yaml [key.path=value ...]\n", argv[0], argv[0]);
        return DLRM_E_USAGE;
    }
    dlrm_status st = makes ? make(folder, argv[3], atoll(argv[4])) : DLRM_OK;
    return finish(st == DLRM_OK ? run(folder, samples) : st);
}
