/* Rules between config keys, as far as they hold for any data. What depends on the tables is checked where they are
 * expanded (spec.c). */
#include <string.h>

#include "base/files.h"
#include "config/config_internal.h"

/* A number (0: not given) that one interaction needs and the others have no place for. */
static dlrm_status check_owner(const dlrm_config *cfg, const char *key, int64_t value, dlrm_interaction owner)
{
    const dlrm_interaction found = cfg->model.interaction;
    if (found == owner && value == 0)
        return dlrm_config_fail(cfg, key, "missing, but interaction: %s needs it", dlrm_interaction_text(owner));
    if (found != owner && value != 0)
        return dlrm_config_fail(cfg, key, "found %lld, expected null: it is for interaction: %s, and this is %s", (long long)value,
                                dlrm_interaction_text(owner), dlrm_interaction_text(found));
    return DLRM_OK;
}

static dlrm_status check_model(const dlrm_config *cfg)
{
    const dlrm_int_list *bottom = &cfg->model.bottom_mlp, *top = &cfg->model.top_mlp;
    TRY(check_owner(cfg, "model.cross.layers", cfg->model.cross_layers, DLRM_DCN));
    TRY(check_owner(cfg, "model.cross.rank", cfg->model.cross_rank, DLRM_DCN));
    TRY(check_owner(cfg, "model.pool_stride", cfg->model.pool_stride, DLRM_POOL));
    if (cfg->model.interaction == DLRM_DOT && bottom->n == 0)
        return dlrm_config_fail(cfg, "model.bottom_mlp",
                                "found no layers, but interaction: dot needs a bottom output as "
                                "wide as the tables");
    if (cfg->model.dense_features == DLRM_FROM_DATASET && cfg->data.format != DLRM_SPLIT_BINARY && !cfg->model.tables_from_dataset)
        return dlrm_config_fail(cfg, "model.dense_features",
                                "found \"from_dataset\", but without model.tables: from_dataset no description of data.format: %s is read; "
                                "expected an integer",
                                dlrm_format_text(cfg->data.format));
    if (bottom->n > 0 && cfg->model.dense_features == 0)
        return dlrm_config_fail(cfg, "model.bottom_mlp",
                                "found %d layers, expected [], since model.dense_features is 0 and "
                                "leaves them without an input",
                                bottom->n);
    if (top->n > 0 && top->v[top->n - 1] != 1)
        return dlrm_config_fail(cfg, "model.top_mlp", "found a last layer of width %d, expected 1: it is the logit",
                                top->v[top->n - 1]);
    return DLRM_OK;
}

typedef struct search {
    const char *section;
    bool found;
} search;

static void look(void *ctx, const char *path, const char *value)
{
    search *s = ctx;
    (void)value;
    s->found |= dlrm_key_is_within(path, s->section);
}

/* Is a path one of the folders that checkpoint.path has for checkpoints, or within it, be it through a symbolic link? These are
 * resumed from, and removed as checkpoint.keep says. */
static bool is_among_checkpoints(const char *path, const char *folder)
{
    char at[PATH_MAX], above[PATH_MAX];
    dlrm_path_resolve(path, at);
    dlrm_path_resolve(folder, above);
    size_t n = strlen(above);
    while (n > 0 && above[n - 1] == '/') n--;
    if (strncmp(at, above, n) != 0 || at[n] != '/') return false;
    const char *name = at + n;
    while (*name == '/') name++;
    name += *name == '.';
    return strncmp(name, "step_", 5) == 0;
}

/* What a run writes besides its checkpoints. */
static dlrm_status check_written(const dlrm_config *cfg)
{
    const struct {
        const char *key, *path, *expected;
    } written[] = {{"checkpoint.export", cfg->checkpoint.export_to, "a folder that is no checkpoint of checkpoint.path"},
                   {"log.jsonl", cfg->log.jsonl, "a file outside of the checkpoints of checkpoint.path"},
                   {"log.mlperf", cfg->log.mlperf, "a file outside of the checkpoints of checkpoint.path"},
                   {"log.tensorboard", cfg->log.tensorboard, "a folder outside of the checkpoints of checkpoint.path"}};
    for (size_t i = 0; i < sizeof written / sizeof *written && cfg->checkpoint.path; i++)
        if (written[i].path && is_among_checkpoints(written[i].path, cfg->checkpoint.path))
            return dlrm_config_fail(cfg, written[i].key, "found \"%.200s\", expected %s", written[i].path, written[i].expected);
    return DLRM_OK;
}

static dlrm_status check_checkpoint(const dlrm_config *cfg)
{
    TRY(check_written(cfg));
    if (!cfg->checkpoint.path && cfg->checkpoint.every_steps > 0)
        return dlrm_config_fail(cfg, "checkpoint.every_steps", "found %lld, but checkpoint.path is not set: nothing can be saved",
                                (long long)cfg->checkpoint.every_steps);
    if (!cfg->checkpoint.path && cfg->checkpoint.every_minutes > 0)
        return dlrm_config_fail(cfg, "checkpoint.every_minutes", "found %g, but checkpoint.path is not set: nothing can be saved",
                                cfg->checkpoint.every_minutes);
    for (int i = 0; i < cfg->checkpoint.allow_changed.n; i++) {
        search s = {.section = cfg->checkpoint.allow_changed.v[i]};
        dlrm_config_each(cfg, look, &s);
        if (!s.found)
            return dlrm_config_fail(cfg, "checkpoint.allow_changed", "found \"%.100s\", expected a key or a section of keys", s.section);
    }
    return DLRM_OK;
}

static dlrm_status check_run(const dlrm_config *cfg)
{
    const dlrm_schedule_config *s = &cfg->optimizer.schedule;
    int64_t chunks = cfg->train.deterministic_chunks;
    if (cfg->optimizer.dense.name == DLRM_ROWWISE_ADAGRAD)
        return dlrm_config_fail(cfg, "optimizer.dense.name",
                                "found \"rowwise_adagrad\", expected sgd, adagrad or adam: it keeps one accumulator "
                                "for each row of a table, and the MLPs have none");
    if (s->decay_steps > 0 && s->decay_start_step < s->warmup_steps)
        return dlrm_config_fail(cfg, "optimizer.schedule.decay_start_step",
                                "found %lld, expected at least warmup_steps, %lld, since decay_steps is not 0",
                                (long long)s->decay_start_step, (long long)s->warmup_steps);
    if (chunks & (chunks - 1))
        return dlrm_config_fail(cfg, "train.deterministic_chunks", "found %lld, expected a power of two",
                                (long long)chunks);
    if (cfg->eval.target_auc > 0 && !cfg->eval.every_epoch && cfg->eval.every_steps == 0)
        return dlrm_config_fail(cfg, "eval.target_auc", "found %g, but eval.every_epoch is false and eval.every_steps 0: nothing is evaluated, and so "
                                "no AUC reached; expected null", cfg->eval.target_auc);
    TRY(check_checkpoint(cfg));
    if (cfg->checkpoint.name_map && !cfg->checkpoint.init_from)
        return dlrm_config_fail(cfg, "checkpoint.name_map",
                                "found \"%s\", but checkpoint.init_from is not set: there are no names to map",
                                cfg->checkpoint.name_map);
    return DLRM_OK;
}

/* Keys of the formats whose rows lie in files that nothing describes. */
static dlrm_status check_row_formats(const dlrm_config *cfg)
{
    const char *format = dlrm_format_text(cfg->data.format);
    bool records = cfg->data.format == DLRM_MLPERF_BIN || cfg->data.format == DLRM_HUGECTR_RAW;
    bool rows = records || cfg->data.format == DLRM_NPY;
    if (!rows && (cfg->data.train_files || cfg->data.test_files))
        return dlrm_config_fail(cfg, cfg->data.train_files ? "data.train_files" : "data.test_files",
                                "found \"%.60s\", expected null: data.format: %s has no such files",
                                cfg->data.train_files ? cfg->data.train_files : cfg->data.test_files, format);
    if (!rows && cfg->data.test_part != DLRM_TEST_ALL)
        return dlrm_config_fail(cfg, "data.test_part", "expected all with data.format: %s; eval.max_samples takes the first rows",
                                format);
    if (!records && cfg->data.dense_type != DLRM_DENSE_AUTO)
        return dlrm_config_fail(cfg, "data.dense_type", "expected auto with data.format: %s, whose %s", format,
                                rows ? "arrays say what they hold" : "values have a type already");
    return DLRM_OK;
}

static dlrm_status check_data(const dlrm_config *cfg)
{
    bool synthetic = cfg->data.format == DLRM_SYNTHETIC;
    if (!synthetic && !cfg->data.path)
        return dlrm_config_fail(cfg, "data.path", "missing, but format: %s needs it",
                                dlrm_format_text(cfg->data.format));
    if (cfg->model.tables_from_dataset && (synthetic || cfg->data.format == DLRM_NPY))
        return dlrm_config_fail(cfg, "model.tables",
                                "found \"from_dataset\", but data.format: %s has no data description that "
                                "could say; expected a list", dlrm_format_text(cfg->data.format));
    if (synthetic && cfg->data.shuffle)
        return dlrm_config_fail(cfg, "data.shuffle", "found true, expected false: synthetic rows are drawn one by one and come in no order");
    return check_row_formats(cfg);
}

dlrm_status dlrm_config_check(dlrm_config *cfg)
{
    TRY(check_model(cfg));
    TRY(check_run(cfg));
    TRY(check_data(cfg));
    if (cfg->train.epochs == 0 && cfg->train.steps == 0) cfg->train.epochs = 1;
    if (cfg->eval.batch_size == 0) cfg->eval.batch_size = cfg->train.batch_size;
    return DLRM_OK;
}
