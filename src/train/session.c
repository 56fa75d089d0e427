#include "train/session.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/int64.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "config/records_spec.h"
#include "model/optimizer.h"
#include "model/weights.h"
#include "train/course.h"
#include "train/device.h"
#include "train/memory.h"
#include "train/same_ranks.h"

/* OMP_NUM_THREADS if set; else the cores that this rank may use: its own where the launcher binds ranks to cores, else an
 * even share of the machine's. */
static dlrm_status choose_threads(dlrm_comm *comm, int *threads)
{
    enum { MOST = 1024 };
    const char *set = getenv("OMP_NUM_THREADS");
    const int usable = omp_get_num_procs(), local = dlrm_comm_local_ranks(comm);
    if (set && *set) {
        char *end;
        const long n = strtol(set, &end, 10);
        *threads = (int)n;
        if (end > set && (*end == 0 || *end == ',') && n >= 1 && n <= MOST) return DLRM_OK; /* a comma: of nested loops, too */
        return FAIL(DLRM_E_USAGE, "OMP_NUM_THREADS: found \"%.60s\", expected a number of threads from 1 to %d", set, MOST);
    }
    *threads = usable / local > 1 ? usable / local : 1;
    if (usable < sysconf(_SC_NPROCESSORS_ONLN)) {
        if (local == 1)
            dlrm_info("note: this rank may use %d of %ld cores (bound by the launcher); mpirun --bind-to none lifts that", usable,
                      sysconf(_SC_NPROCESSORS_ONLN));
        *threads = usable;
    }
    return DLRM_OK;
}

/* The tables of records are what records.yaml says; then it has a say in the dense values, too. */
static dlrm_status load_records(dlrm_session *s, dlrm_records_spec *out)
{
    dlrm_config *cfg = &s->cfg;
    const bool hugectr_raw = cfg->data.format == DLRM_HUGECTR_RAW;
    char description[4096];
    snprintf(description, sizeof description, "%s/%s", cfg->data.path, dlrm_records_description);
    if (access(description, F_OK) != 0)
        return dlrm_config_fail(cfg, "model.tables", "found \"from_dataset\", but there is no %s, which `dlrm_data convert` writes beside "
                                "records and which could say; expected a list", description);
    TRY(dlrm_records_spec_load(cfg->data.path, out));
    if (hugectr_raw != out->hugectr_raw)
        return dlrm_config_fail(cfg, "data.format", "found %s, but %s says %s", dlrm_format_text(cfg->data.format), description,
                                dlrm_format_text(hugectr_raw ? DLRM_MLPERF_BIN : DLRM_HUGECTR_RAW));
    if (cfg->data.dense_type == DLRM_DENSE_AUTO)
        cfg->data.dense_type = out->form == DLRM_FORM_COUNTS ? DLRM_DENSE_INT32 : DLRM_DENSE_FLOAT32;
    return DLRM_OK;
}

/* Of files that the description names, unless the config names others, or a part. */
static dlrm_status check_record_rows(const dlrm_session *s, const dlrm_records_spec *r)
{
    const bool taken[DLRM_SPLITS] = {!s->cfg.data.train_files, !s->cfg.data.test_files && s->cfg.data.test_part == DLRM_TEST_ALL};
    for (int k = 0; k < DLRM_SPLITS; k++) {
        const int64_t rows = dlrm_dataset_rows(s->data, k);
        if (taken[k] && r->rows[k] > 0 && rows != r->rows[k])
            return FAIL(DLRM_E_INPUT, "%s/%s: found %lld rows, expected %lld as %s says", s->cfg.data.path, r->file[k], (long long)rows,
                        (long long)r->rows[k], r->features.path);
    }
    return DLRM_OK;
}

static dlrm_status open_dataset(dlrm_session *s)
{
    const bool split_binary = s->cfg.data.format == DLRM_SPLIT_BINARY, described = s->cfg.model.tables_from_dataset && !split_binary;
    dlrm_records_spec records = {0};
    dlrm_status st = DLRM_OK;
    if (split_binary) st = dlrm_feature_spec_load(s->cfg.data.path, &s->files);
    if (described) st = load_records(s, &records);
    if (st == DLRM_OK) st = dlrm_model_spec_resolve(&s->cfg, split_binary ? &s->files : described ? &records.features : NULL, &s->spec);
    if (st == DLRM_OK) st = dlrm_dataset_open(&s->cfg, &s->spec, split_binary ? &s->files : NULL, &s->data);
    if (st == DLRM_OK && described) st = check_record_rows(s, &records);
    dlrm_records_spec_clear(&records);
    return st;
}

/* Of a key that names what is read. */
static dlrm_status must_be_there(const dlrm_config *cfg, const char *key, const char *path, bool folder, const char *expected)
{
    struct stat found;
    if (stat(path, &found) != 0) return dlrm_config_fail(cfg, key, "cannot find \"%s\": %s; expected %s", path, strerror(errno), expected);
    if (folder && !S_ISDIR(found.st_mode)) return dlrm_config_fail(cfg, key, "found \"%s\", a file; expected %s", path, expected);
    return DLRM_OK;
}

static dlrm_status open_data(dlrm_session *s)
{
    s->from_files = s->cfg.data.format != DLRM_SYNTHETIC;
    if (s->from_files) TRY(must_be_there(&s->cfg, "data.path", s->cfg.data.path, true, "a folder of data, as `dlrm_data convert` makes it"));
    TRY(open_dataset(s));
    s->cfg.model.dense_features = s->spec.dense_features; /* which from_dataset leaves to the data */
    if (dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT) == 0) return FAIL(DLRM_E_INPUT, "%s: the train split has no rows", s->cfg.data.path);
    if (!dlrm_session_has_test(s)) {
        if (s->cfg.eval.every_steps > 0)
            return dlrm_config_fail(&s->cfg, "eval.every_steps", "is %lld, but the data has no test split", (long long)s->cfg.eval.every_steps);
        if (s->cfg.eval.target_auc > 0)
            return dlrm_config_fail(&s->cfg, "eval.target_auc", "is %g, but the data has no test split", s->cfg.eval.target_auc);
    }
    return DLRM_OK;
}

/* Of the power law that real data's ids are taken to follow, for the placement's cost. */
#define USUAL_ALPHA 1.05

/* memory: of a rank, for strategy auto. To look at, a model need not fit. */
static dlrm_status make_placement(dlrm_session *s, int64_t memory, dlrm_purpose purpose)
{
    const dlrm_config *cfg = &s->cfg;
    const dlrm_optimizer_config *opt = &cfg->optimizer.embedding;
    const dlrm_dtype exchange = dlrm_config_exchange_dtype(cfg);
    dlrm_host_tables_args host = dlrm_memory_host_tables(s);
    dlrm_placement_args a = {.strategy = cfg->parallel.strategy, .data_parallel = cfg->parallel.data_parallel_threshold,
                             .row_slice = cfg->parallel.row_slice_threshold, .column_slice = cfg->parallel.column_slice_threshold,
                             .unpooled = cfg->train.deterministic, .exact_rows = exchange != DLRM_FP32 && exchange != cfg->train.embedding_dtype,
                             .memory = memory,
                             .work = {.batch = s->batch, .value_bytes = (int)dlrm_dtype_bytes(exchange),
                                      .table_bytes = (int)dlrm_dtype_bytes(cfg->train.embedding_dtype),
                                      .states = dlrm_optimizer_rowwise(opt) ? 0 : dlrm_optimizer_states(opt),
                                      .row_states = dlrm_optimizer_rowwise(opt), .keeps_keys = s->device < 0 || host.budget >= 0,
                                      .shared_bytes = dlrm_optimizer_rowwise(opt) ? (int)sizeof(dlrm_squares) : 0,
                                      .alpha = cfg->data.format == DLRM_SYNTHETIC ? cfg->data.synthetic.alpha : USUAL_ALPHA}};
    if (host.budget >= 0) a.host = &host;
    dlrm_machine_rates(s->machine, s->device >= 0, &a.work);
    dlrm_status st = dlrm_placement_make(&s->spec, &a, s->ranks, &s->place);
    if (st == DLRM_E_RUNTIME && purpose == DLRM_TO_CHECK && memory > 0) {
        if (s->comm->rank == 0) dlrm_warn("%s", dlrm_error_message());
        dlrm_placement_clear(&s->place);
        a.memory = 0;
        s->host_room = host.host_room = -1;
        st = dlrm_placement_make(&s->spec, &a, s->ranks, &s->place);
    }
    return st;
}

/* Which inputs' ids each rank needs, and of which those of its own samples alone: of replicated tables, unless updates must see
 * the whole batch. */
static void choose_inputs(dlrm_session *s)
{
    const int J = s->spec.n_inputs;
    for (int j = 0; j < J; j++) {
        const bool replicated = dlrm_placement_replicates(&s->place, j);
        for (int p = 0; p < s->ranks; p++) s->wanted_by[(int64_t)p * J + j] = replicated || dlrm_placement_wants(&s->place, j, p);
        s->own_only[j] = replicated && !s->cfg.train.deterministic;
    }
}

static dlrm_status open_own(dlrm_session *s)
{
    const dlrm_config *cfg = &s->cfg;
    if (cfg->train.deterministic && cfg->train.deterministic_chunks < s->ranks)
        return dlrm_config_fail(cfg, "train.deterministic_chunks", "is %lld, expected at least the number of ranks, %d",
                                (long long)cfg->train.deterministic_chunks, s->ranks);
    TRY(open_data(s));
    s->batch = dlrm_min64(cfg->train.batch_size, dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT));
    s->eval_batch = dlrm_session_has_test(s) ? dlrm_min64(cfg->eval.batch_size, dlrm_dataset_rows(s->data, DLRM_TEST_SPLIT)) : 0;
    if (s->spec.n_vocabularies > 0 && dlrm_course_steps(s) >= UINT32_MAX)
        return dlrm_config_fail(cfg, "train.steps", "comes to %lld steps, but tables with rows: dynamic count them to %lld",
                                (long long)dlrm_course_steps(s), (long long)UINT32_MAX - 1);
    return DLRM_OK;
}

/* Who has which tables and inputs, and so what each rank reads. */
static dlrm_status open_placed(dlrm_session *s, int64_t memory, dlrm_purpose purpose)
{
    const dlrm_config *cfg = &s->cfg;
    TRY(make_placement(s, memory, purpose));
    if (purpose == DLRM_TO_CHECK) TRY(dlrm_memory_check_budget(s));
    const int J = s->spec.n_inputs, R = s->ranks;
    TRY(dlrm_alloc((int64_t)R * J, sizeof *s->wanted_by, "inputs held", &s->wanted_by));
    TRY(dlrm_alloc(J, sizeof *s->own_only, "inputs held", &s->own_only));
    choose_inputs(s);
    s->train_args = (dlrm_reader_args){.split = DLRM_TRAIN_SPLIT, .batch_size = s->batch, .epochs = cfg->train.epochs,
                                       .deterministic = cfg->train.deterministic, .chunks = (int)cfg->train.deterministic_chunks,
                                       .rank = s->comm->rank, .ranks = R, .wanted = s->wanted_by + (int64_t)s->comm->rank * J,
                                       .wanted_by = s->wanted_by, .own_only = s->own_only};
    s->eval_args = s->train_args;
    s->train_args.shuffle = cfg->data.shuffle;
    s->eval_args.split = DLRM_TEST_SPLIT;
    s->eval_args.batch_size = s->eval_batch;
    s->eval_args.max_rows = cfg->eval.max_samples;
    s->eval_args.epochs = 0;
    return DLRM_OK;
}

/* The data's position, from the checkpoint's: the row at which the next batch begins, in batches of now. */
static dlrm_status find_start(dlrm_session *s)
{
    const dlrm_train_state *at = &s->from.manifest.progress;
    const int64_t per_epoch = dlrm_session_epoch_batches(s);
    if (!s->from.folder[0]) return DLRM_OK;
    s->first_step = at->step;
    if (__builtin_mul_overflow(at->epoch, per_epoch, &s->first_batch) || s->first_batch > INT64_MAX / 2)
        return FAIL(DLRM_E_INPUT, "%s/" DLRM_MANIFEST_NAME ": 'epoch' is %lld, expected at most %lld of %lld batches each", s->from.folder,
                    (long long)at->epoch, (long long)(INT64_MAX / 2 / per_epoch), (long long)per_epoch);
    s->first_batch += dlrm_min64(at->row / s->batch, per_epoch);
    s->train_args.first_batch = s->first_batch;
    return DLRM_OK;
}

typedef struct locking {
    dlrm_session *s;
    double since;
} locking;

/* For dlrm_comm_work: rank 0 takes the folder. A killed run's ranks may outlive their launcher and save once more: their end is
 * waited for. */
static dlrm_status lock_some(void *ctx, bool *done)
{
    enum { LONGEST_S = 10 };
    locking *l = ctx;
    const char *path = l->s->cfg.checkpoint.path;
    *done = !path || l->s->comm->rank != 0;
    if (!*done) TRY(dlrm_checkpoints_lock(path, DLRM_WORK_S, &l->s->lock, done));
    if (*done || dlrm_now() - l->since < LONGEST_S) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: another run writes its checkpoints there; end it, or name another checkpoint.path", path);
}

/* Of a key that names a folder to write into. */
static dlrm_status make_folder(const dlrm_config *cfg, const char *key, const char *path)
{
    return !path || dlrm_folder_make(path) == DLRM_OK ? DLRM_OK : dlrm_config_fail(cfg, key, "%s", dlrm_error_message());
}

static dlrm_status make_folders(const dlrm_session *s)
{
    if (s->comm->rank != 0) return DLRM_OK;
    TRY(make_folder(&s->cfg, "checkpoint.path", s->cfg.checkpoint.path));
    return make_folder(&s->cfg, "checkpoint.export", s->cfg.checkpoint.export_to);
}

/* What is read when there is no checkpoint to go on from. */
static dlrm_status find_weights(const dlrm_session *s)
{
    const char *from = s->cfg.checkpoint.init_from, *map = s->cfg.checkpoint.name_map;
    if (!from || s->from.folder[0]) return DLRM_OK;
    TRY(must_be_there(&s->cfg, "checkpoint.init_from", from, false, "a safetensors file, or a folder of them"));
    return map ? must_be_there(&s->cfg, "checkpoint.name_map", map, false, "a YAML file of names") : DLRM_OK;
}

/* What a rank computes on, and what memory bounds its tables: of the machine that is planned for, or found here. Placements are tried
 * with as much of the host's memory as every rank has. */
static dlrm_status find_machine(dlrm_session *s, int64_t *memory)
{
    if (s->machine) {
        TRY(dlrm_machine_choose(s->machine, &s->cfg, s->comm, &s->device, memory));
    } else {
        TRY(dlrm_comm_agree(s->comm, dlrm_device_choose(&s->cfg, s->comm, &s->device)));
        TRY(dlrm_memory_budget(s, memory));
    }
    if (s->device >= 0 && s->cfg.parallel.device_embedding_elements >= 0 && *memory > 0) s->host_room = *memory;
    return DLRM_OK;
}

/* The rest of a session whose comm, ranks and machine are set. */
static dlrm_status open_session(const char *config, int n_overrides, char *const *overrides, dlrm_purpose purpose, dlrm_session *s)
{
    dlrm_comm *comm = s->comm;
    int64_t memory;
    dlrm_status st = choose_threads(comm, &s->threads);
    if (st == DLRM_OK) {
        omp_set_num_threads(s->threads); /* of parallel loops outside of the backend */
        st = (s->machine ? dlrm_config_load_plan : dlrm_config_load)(config, n_overrides, overrides, &s->cfg);
    }
    if (st == DLRM_OK) dlrm_comm_set_timeout(comm, s->cfg.parallel.timeout_s);
    TRY(dlrm_comm_agree(comm, st));
    TRY(dlrm_comm_agree(comm, open_own(s)));
    TRY(dlrm_same_ranks_check(s));
    if (purpose == DLRM_TO_TRAIN) TRY(dlrm_comm_agree(comm, make_folders(s)));
    locking l = {.s = s, .since = dlrm_now()};
    if (purpose == DLRM_TO_TRAIN) TRY(dlrm_comm_work(comm, lock_some, &l));
    TRY(dlrm_resume_find(&s->cfg, &s->spec, dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT), comm, s->weights_only, &s->from));
    TRY(dlrm_comm_agree(comm, find_weights(s)));
    TRY(find_machine(s, &memory));
    TRY(dlrm_comm_agree(comm, open_placed(s, memory, purpose)));
    return s->weights_only ? DLRM_OK : find_start(s);
}

dlrm_status dlrm_session_open(const char *config, int n_overrides, char *const *overrides, dlrm_comm *comm, dlrm_purpose purpose,
                              dlrm_session *s)
{
    *s = (dlrm_session){.comm = comm, .opened_at = dlrm_now_since_1970(), .ranks = comm->ranks, .weights_only = purpose == DLRM_TO_SCORE, .lock = -1, .host_room = -1};
    return open_session(config, n_overrides, overrides, purpose, s);
}

dlrm_status dlrm_session_open_plan(const char *config, int n_overrides, char *const *overrides, dlrm_comm *comm, int ranks,
                                   const dlrm_machine *machine, dlrm_session *s)
{
    *s = (dlrm_session){.comm = comm, .ranks = ranks, .machine = machine, .lock = -1, .host_room = -1};
    DLRM_ASSERT(comm->ranks == 1);
    return open_session(config, n_overrides, overrides, DLRM_TO_CHECK, s);
}

static int widest(const dlrm_model_spec *spec)
{
    int w = spec->dense_features > spec->interaction_width ? spec->dense_features : spec->interaction_width;
    if (spec->cross_rank > w) w = spec->cross_rank;
    for (int l = 0; l < spec->bottom.n; l++) w = spec->bottom.v[l] > w ? spec->bottom.v[l] : w;
    for (int l = 0; l < spec->top.n; l++) w = spec->top.v[l] > w ? spec->top.v[l] : w;
    return w;
}

static int widest_vector(const dlrm_model_spec *spec)
{
    int w = spec->bottom_width;
    for (int j = 0; j < spec->n_inputs; j++) {
        const int side_by_side = spec->interaction == DLRM_DOT ? 1 : dlrm_input_vectors(&spec->inputs[j]);
        const int width = side_by_side * spec->tables[spec->inputs[j].table].dim;
        w = width > w ? width : w;
    }
    return w;
}

static dlrm_status open_model(dlrm_session *s)
{
    const dlrm_config *cfg = &s->cfg;
    const int64_t max_batch = dlrm_session_max_batch(s);
    dlrm_backend_args args = {.threads = s->threads, .pinned = cfg->train.deterministic, .max_width = widest(&s->spec),
                              .max_leaves = cfg->train.deterministic ? (int)cfg->train.deterministic_chunks : 1,
                              .max_slots = 1 + s->place.n_vectors, .max_vector = widest_vector(&s->spec),
                              .precision = cfg->train.precision, .device = s->device, .host_room = s->host_room, .max_batch = max_batch,
                              .dense_features = s->spec.dense_features, .seed = (uint64_t)cfg->train.seed};
    TRY(dlrm_device_open(&args, &s->be));
    TRY(dlrm_model_open(cfg, &s->spec, &s->place, &s->be, s->comm, max_batch, &s->model));
    return cfg->checkpoint.init_from || s->from.folder[0] ? DLRM_OK : dlrm_model_init(&s->model);
}

static dlrm_status load_checkpoint(dlrm_session *s)
{
    const double start = dlrm_now();
    TRY(dlrm_checkpoint_load(&s->model, s->from.folder, &s->from.manifest, !s->weights_only));
    const dlrm_manifest *m = &s->from.manifest;
    dlrm_info("resumed from %s: step %lld, epoch %lld, written by %d rank%s, read in %.1f s", s->from.folder, (long long)m->progress.step,
              (long long)m->progress.epoch, m->ranks, m->ranks > 1 ? "s" : "", dlrm_now() - start);
    if (s->cfg.checkpoint.init_from) dlrm_info("note: checkpoint.init_from is not read; the checkpoint goes before it");
    return DLRM_OK;
}

dlrm_status dlrm_session_open_model(dlrm_session *s)
{
    TRY(dlrm_memory_check(s));
    TRY(dlrm_comm_agree(s->comm, open_model(s)));
    TRY(dlrm_comm_agree(s->comm, dlrm_model_open_exchange(&s->model, dlrm_device_open_exchange)));
    const char *path = s->from.folder[0] ? s->from.folder : s->cfg.checkpoint.init_from;
    if (!path) return DLRM_OK;
    TRY(s->from.folder[0] ? load_checkpoint(s) : dlrm_weights_load(&s->model, path, s->cfg.checkpoint.name_map));
    return dlrm_same_ranks_check_weights(s, path);
}

void dlrm_session_close(dlrm_session *s)
{
    dlrm_model_close(&s->model);
    if (s->be.ops) s->be.ops->close(&s->be);
    dlrm_resume_clear(&s->from);
    dlrm_placement_clear(&s->place);
    dlrm_free(&s->wanted_by);
    dlrm_free(&s->own_only);
    dlrm_dataset_close(&s->data);
    dlrm_model_spec_clear(&s->spec);
    dlrm_feature_spec_clear(&s->files);
    dlrm_config_clear(&s->cfg);
    if (s->lock >= 0) close(s->lock);
}

bool dlrm_session_has_test(const dlrm_session *s)
{
    return dlrm_dataset_rows(s->data, DLRM_TEST_SPLIT) > 0;
}

int64_t dlrm_session_scored_rows(const dlrm_session *s)
{
    const int64_t rows = dlrm_dataset_rows(s->data, DLRM_TEST_SPLIT), most = s->cfg.eval.max_samples;
    return most > 0 ? dlrm_min64(rows, most) : rows;
}

int64_t dlrm_session_epoch_batches(const dlrm_session *s)
{
    int64_t rows = dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT);
    return rows / s->batch + (rows % s->batch != 0);
}

int64_t dlrm_session_max_batch(const dlrm_session *s)
{
    return dlrm_max64(s->batch, s->eval_batch);
}
