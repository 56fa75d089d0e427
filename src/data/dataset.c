/* Datasets: which source, how many rows, and how a batch is cut over ranks. */
#include "data/shuffle.h"
#include "data/source.h"

#include "base/mem.h"
#include "base/tree.h"

dlrm_epoch dlrm_epoch_of(const dlrm_dataset *d, const dlrm_reader_args *args)
{
    int64_t rows = d->rows[args->split];
    if (args->max_rows > 0 && args->max_rows < rows) rows = args->max_rows;
    return (dlrm_epoch){rows, rows / args->batch_size + (rows % args->batch_size != 0)};
}

/* A rank's own samples of a batch of `size`. */
static int64_t own_of(const dlrm_reader_args *a, int64_t size, int64_t *begin)
{
    int64_t own;
    dlrm_cut_samples(size, a->rank, a->ranks, a->deterministic, a->chunks, begin, &own);
    return own;
}

int64_t dlrm_epoch_own(const dlrm_dataset *d, const dlrm_reader_args *a)
{
    int64_t rows = dlrm_epoch_of(d, a).rows, begin;
    return rows / a->batch_size * own_of(a, a->batch_size, &begin) + own_of(a, rows % a->batch_size, &begin);
}

int64_t dlrm_epoch_most_own(const dlrm_dataset *d, const dlrm_reader_args *a)
{
    int64_t begin, full = own_of(a, a->batch_size, &begin), last = own_of(a, dlrm_epoch_of(d, a).rows % a->batch_size, &begin);
    return full > last ? full : last;
}

/* Of full batches, and of the last one. */
static void lanes_of(const dlrm_dataset *d, const dlrm_reader_args *a, int *first, int *end)
{
    int64_t rows = dlrm_epoch_of(d, a).rows, size[2] = {rows < a->batch_size ? 0 : a->batch_size, rows % a->batch_size};
    for (int k = 0; k < 2; k++) {
        int64_t begin, own = own_of(a, size[k], &begin);
        dlrm_shuffle_lanes(size[k], begin, own, &first[k], &end[k]);
    }
}

void dlrm_epoch_lanes(const dlrm_dataset *d, const dlrm_reader_args *a, int *first, int *end)
{
    int from[2], to[2];
    lanes_of(d, a, from, to);
    bool both = from[0] < to[0] && from[1] < to[1];
    int one = from[0] < to[0] ? 0 : 1;
    *first = both && from[1] < from[0] ? from[1] : from[both ? 0 : one];
    *end = both && to[1] > to[0] ? to[1] : to[both ? 0 : one];
}

/* Of a lane that the last batch alone needs, the last window. */
int64_t dlrm_epoch_lane_rows(const dlrm_dataset *d, const dlrm_reader_args *a)
{
    int from[2], to[2], first, end;
    int64_t n = 0;
    lanes_of(d, a, from, to);
    dlrm_epoch_lanes(d, a, &first, &end);
    for (int k = first; k < end; k++) {
        int64_t rows = dlrm_shuffle_lane_rows(dlrm_epoch_of(d, a).rows, a->batch_size, k);
        bool always = k >= from[0] && k < to[0];
        n += always || rows < DLRM_SHUFFLE_WINDOW ? rows : DLRM_SHUFFLE_WINDOW;
    }
    return n;
}

/* The files under the hotness that config and description say together. */
static dlrm_status settle_files(dlrm_dataset *d, const dlrm_feature_spec *files)
{
    static const char *const split_name[DLRM_SPLITS] = {"train", "test"};
    const dlrm_model_spec *spec = d->spec;
    DLRM_ASSERT(spec->n_inputs == files->n_categorical);
    d->files = *files;
    d->files.categorical = NULL;
    TRY(dlrm_alloc(files->n_categorical, sizeof *files->categorical, "the categorical features",
                   &d->files.categorical));
    for (int j = 0; j < files->n_categorical; j++) {
        dlrm_categorical *c = &d->files.categorical[j];
        *c = files->categorical[j];
        c->hotness = spec->inputs[j].hotness;
        c->variable = spec->inputs[j].variable;
        for (int s = 0; s < DLRM_SPLITS; s++)
            if (files->split[s].present && c->variable != (files->split[s].offsets[j] != NULL))
                return FAIL(DLRM_E_INPUT, "%s: feature %s: source_spec.%s names %s, but its hotness is %s%d", c->where,
                            c->name, split_name[s], c->variable ? "no offsets file" : "an offsets file",
                            c->variable ? "variable, at most " : "", c->hotness);
    }
    TRY(dlrm_feature_spec_check(&d->files));
    for (int s = 0; s < DLRM_SPLITS; s++) d->rows[s] = d->files.split[s].rows;
    return DLRM_OK;
}

dlrm_status dlrm_dataset_open(const dlrm_config *cfg, const dlrm_model_spec *spec, const dlrm_feature_spec *files,
                              dlrm_dataset **out)
{
    dlrm_status st;
    dlrm_dataset *d;
    *out = NULL;
    TRY(dlrm_alloc(1, sizeof *d, "a dataset", &d));
    d->spec = spec;
    d->check = cfg->data.index_check;
    d->seed = (uint64_t)cfg->train.seed;
    if (files) {
        d->source = &dlrm_split_binary_source;
        TRY_TO(fail, st, settle_files(d, files));
    } else if (cfg->data.format == DLRM_MLPERF_BIN || cfg->data.format == DLRM_NPY || cfg->data.format == DLRM_HUGECTR_RAW) {
        d->source = &dlrm_row_source;
        TRY_TO(fail, st, dlrm_row_files_open(cfg, spec, &d->row_files));
        for (int s = 0; s < DLRM_SPLITS; s++) d->rows[s] = d->row_files.split[s].rows;
    } else {
        d->source = &dlrm_synthetic_source;
        TRY_TO(fail, st, dlrm_synthetic_make(cfg, spec, &d->synthetic));
        for (int s = 0; s < DLRM_SPLITS; s++) d->rows[s] = cfg->data.synthetic.batches * cfg->train.batch_size;
    }
    *out = d;
    return DLRM_OK;
fail:
    dlrm_dataset_close(&d);
    return st;
}

void dlrm_dataset_close(dlrm_dataset **d)
{
    if (!*d) return;
    dlrm_synthetic_free(&(*d)->synthetic);
    dlrm_free(&(*d)->files.categorical);
    dlrm_row_files_close(&(*d)->row_files);
    dlrm_free(d);
}

bool dlrm_dataset_exchanges(const dlrm_dataset *d)
{
    return d->source->packs;
}

int64_t dlrm_dataset_rows(const dlrm_dataset *d, int split)
{
    return d->rows[split];
}

dlrm_status dlrm_dataset_epoch_bytes(const dlrm_dataset *d, const dlrm_reader_args *args, int64_t *bytes)
{
    return d->source->epoch_bytes(d, args, bytes);
}
