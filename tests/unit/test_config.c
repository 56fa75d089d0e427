/* Configs: defaults, every type and rule, messages with position, key, found and expected; --help and docs/config.md
 * from the same table; the example configs. */
#include "config_fixture.h"

#include <unistd.h>

#include "config/keys.h"

static dlrm_status parse_text(const char *text, dlrm_config *cfg)
{
    return dlrm_config_parse("c.yaml", text, strlen(text), 0, NULL, cfg);
}

/* The good config with the first `from` in it replaced: messages then have lines. */
static dlrm_status parse_replaced(const char *from, const char *to, dlrm_config *cfg)
{
    char text[4096];
    const char *place = strstr(good_config, from);
    assert_non_null(place);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(place - good_config), good_config, to, place + strlen(from));
    return parse_text(text, cfg);
}

/* Names of files in a folder come behind its path. */
static void test_long_path(void **state)
{
    (void)state;
    static const char *const keys[] = {"checkpoint.path", "log.tensorboard", "data.path", "log.jsonl", "log.mlperf"};
    char text[4000];
    dlrm_config cfg;
    for (int k = 0; k < 5; k++) {
        for (int bytes = 3800; bytes < 3802; bytes++) {
            const int n = snprintf(text, sizeof text, "%s=", keys[k]);
            memset(text + n, 'x', (size_t)bytes);
            text[n + bytes] = 0;
            const dlrm_status st = parse_with(text, &cfg);
            assert_int_equal(st, bytes == 3800 ? DLRM_OK : DLRM_E_INPUT);
            if (st == DLRM_OK) dlrm_config_clear(&cfg);
        }
        assert_non_null(strstr(dlrm_error_message(), ": found 3801 bytes, expected a path, or null; at most 3800 bytes"));
    }
}

static void test_defaults(void **state)
{
    (void)state;
    dlrm_config c;
    assert_taken(parse_with("", &c));
    assert_string_equal(c.path, "good.yaml");
    assert_int_equal(c.device, DLRM_DEVICE_AUTO);
    assert_int_equal(c.model.dense_features, 13);
    assert_int_equal(c.model.embedding_dim, 16);
    assert_int_equal(c.model.bottom_mlp.n, 2);
    assert_int_equal(c.model.bottom_mlp.v[0], 64);
    assert_int_equal(c.model.top_mlp.v[1], 1);
    assert_int_equal(c.model.interaction, DLRM_DOT);
    assert_int_equal(c.model.pool_stride, 0);
    assert_int_equal(c.model.n_tables, 2);
    assert_int_equal(c.model.n_features, 0);
    assert_false(c.model.tables_from_dataset);
    assert_string_equal(c.model.tables[0].name, "C1");
    assert_int_equal(c.model.tables[0].rows, 1000);
    assert_int_equal(c.model.tables[0].count, 0);
    assert_int_equal(c.model.tables[0].dim, 0);
    assert_int_equal(c.model.tables[0].combiner, DLRM_SUM);
    assert_int_equal(c.model.tables[0].hotness.fixed.n, 0);
    assert_int_equal(c.model.tables[0].hotness.max, 0);
    assert_null(c.model.tables[1].name);
    assert_int_equal(c.model.tables[1].count, 2);
    assert_int_equal(c.optimizer.dense.name, DLRM_SGD);
    assert_true(c.optimizer.dense.learning_rate == 24.0 && c.optimizer.dense.momentum == 0);
    assert_int_equal(c.optimizer.embedding.name, DLRM_ADAGRAD);
    assert_true(c.optimizer.embedding.learning_rate == 1e-2 && c.optimizer.embedding.epsilon == 1e-10);
    assert_true(c.optimizer.embedding.initial_accumulator == 0);
    assert_int_equal(c.optimizer.schedule.warmup_steps, 0);
    assert_int_equal(c.optimizer.schedule.decay_steps, 0);
    assert_true(c.optimizer.schedule.decay_power == 2 && c.optimizer.schedule.min_learning_rate == 0);
    assert_int_equal(c.train.batch_size, 64);
    assert_int_equal(c.train.epochs, 1);
    assert_int_equal(c.train.steps, 0);
    assert_int_equal(c.train.precision, DLRM_FP32);
    assert_int_equal(c.train.embedding_dtype, DLRM_FP32);
    assert_int_equal(c.train.exchange_dtype, DLRM_DTYPE_AUTO);
    assert_false(c.train.deterministic);
    assert_int_equal(c.train.deterministic_chunks, 32);
    assert_int_equal(c.train.seed, 1);
    assert_int_equal(c.parallel.strategy, DLRM_STRATEGY_AUTO);
    assert_int_equal(c.parallel.data_parallel_threshold, -1);
    assert_int_equal(c.parallel.row_slice_threshold, -1);
    assert_int_equal(c.parallel.column_slice_threshold, -1);
    assert_int_equal(c.parallel.device_embedding_elements, -1);
    assert_true(c.parallel.host_cache);
    assert_true(c.parallel.timeout_s == 300);
    assert_int_equal(c.data.format, DLRM_SYNTHETIC);
    assert_null(c.data.path);
    assert_null(c.data.train_files);
    assert_null(c.data.test_files);
    assert_int_equal(c.data.test_part, DLRM_TEST_ALL);
    assert_int_equal(c.data.dense_type, DLRM_DENSE_AUTO);
    assert_false(c.data.shuffle);
    assert_int_equal(c.data.index_check, DLRM_INDEX_ERROR);
    assert_true(c.data.synthetic.alpha == 1.05);
    assert_int_equal(c.data.synthetic.batches, 10);
    assert_true(c.data.synthetic.dense_lognormal);
    assert_true(c.data.synthetic.labels_planted);
    assert_int_equal(c.eval.every_steps, 0);
    assert_true(c.eval.every_epoch);
    assert_int_equal(c.eval.batch_size, 64);
    assert_int_equal(c.eval.max_samples, 0);
    assert_true(c.eval.target_auc == 0);
    assert_null(c.checkpoint.path);
    assert_int_equal(c.checkpoint.every_steps, 0);
    assert_true(c.checkpoint.every_minutes == 0);
    assert_int_equal(c.checkpoint.allow_changed.n, 0);
    assert_int_equal(c.checkpoint.keep, 2);
    assert_string_equal(c.checkpoint.resume, "auto");
    assert_null(c.checkpoint.init_from);
    assert_null(c.checkpoint.export_to);
    assert_null(c.checkpoint.name_map);
    assert_int_equal(c.log.every_steps, 100);
    assert_null(c.log.jsonl);
    assert_null(c.log.tensorboard);
    assert_null(c.log.mlperf);
    assert_int_equal(c.log.progress, -1);
    dlrm_config_clear(&c);
    dlrm_config_clear(&c);
}

static void test_values(void **state)
{
    (void)state;
    dlrm_config c;
    assert_taken(parse_with(
        "device=cpu\nmodel.interaction=pool\nmodel.pool_stride=7\nmodel.bottom_mlp=[]\n"
        "model.tables=[{rows: 64e3, dim: 8, hotness: [1, 10], combiner: mean}, {rows: 5, hotness: {max: 40}}, "
        "{rows: 5, hotness: 3}]\n"
        "optimizer.dense={name: adam, learning_rate: 1e-7, beta2: .9}\n"
        "optimizer.embedding={name: rowwise_adagrad, learning_rate: 1, initial_accumulator: .1}\n"
        "train={batch_size: 128, steps: 50, deterministic: true, deterministic_chunks: 64, seed: 0}\n"
        "parallel={strategy: memory_optimized, timeout_s: 0.5}\n"
        "data.index_check=clamp\ndata.synthetic={alpha: 0, dense: uniform, labels: random}\n"
        "eval={batch_size: 32, every_epoch: false, every_steps: 7, target_auc: 0.8}\nlog.progress=false\nlog.every_steps=null\n"
        "checkpoint={path: ckpt, every_steps: 9, every_minutes: 1.5, keep: 3, resume: never, init_from: in, export: out, "
        "name_map: m.yaml, allow_changed: [train.seed, optimizer.schedule]}\nlog.jsonl=12",
        &c));
    assert_int_equal(c.device, DLRM_DEVICE_CPU);
    assert_int_equal(c.model.interaction, DLRM_POOL);
    assert_int_equal(c.model.pool_stride, 7);
    assert_int_equal(c.model.bottom_mlp.n, 0);
    assert_int_equal(c.model.n_tables, 3);
    assert_int_equal(c.model.tables[0].rows, 64000);
    assert_int_equal(c.model.tables[0].dim, 8);
    assert_int_equal(c.model.tables[0].combiner, DLRM_MEAN);
    assert_int_equal(c.model.tables[0].hotness.fixed.n, 2);
    assert_int_equal(c.model.tables[0].hotness.fixed.v[1], 10);
    assert_int_equal(c.model.tables[1].hotness.max, 40);
    assert_int_equal(c.model.tables[1].hotness.fixed.n, 0);
    assert_int_equal(c.model.tables[2].hotness.fixed.v[0], 3);
    assert_true(c.optimizer.dense.learning_rate == 1e-7 && c.optimizer.dense.epsilon == 1e-8);
    assert_true(c.optimizer.dense.beta1 == 0.9 && c.optimizer.dense.beta2 == 0.9);
    assert_true(c.optimizer.embedding.epsilon == 1e-8 && c.optimizer.embedding.initial_accumulator == 0.1);
    assert_int_equal(c.train.epochs, 0); /* one limit set: the other is none */
    assert_int_equal(c.train.steps, 50);
    assert_true(c.train.deterministic);
    assert_int_equal(c.train.deterministic_chunks, 64);
    assert_int_equal(c.train.seed, 0);
    assert_int_equal(c.parallel.strategy, DLRM_MEMORY_OPTIMIZED);
    assert_true(c.parallel.timeout_s == 0.5);
    assert_int_equal(c.data.index_check, DLRM_INDEX_CLAMP);
    assert_false(c.data.synthetic.dense_lognormal);
    assert_false(c.data.synthetic.labels_planted);
    assert_int_equal(c.eval.batch_size, 32);
    assert_false(c.eval.every_epoch);
    assert_int_equal(c.eval.every_steps, 7);
    assert_true(c.eval.target_auc == 0.8);
    assert_int_equal(c.log.progress, 0);
    assert_int_equal(c.log.every_steps, 0);
    assert_string_equal(c.log.jsonl, "12");
    assert_string_equal(c.checkpoint.path, "ckpt");
    assert_int_equal(c.checkpoint.every_steps, 9);
    assert_true(c.checkpoint.every_minutes == 1.5);
    assert_int_equal(c.checkpoint.keep, 3);
    assert_int_equal(c.checkpoint.allow_changed.n, 2);
    assert_string_equal(c.checkpoint.allow_changed.v[1], "optimizer.schedule");
    assert_string_equal(c.checkpoint.resume, "never");
    assert_string_equal(c.checkpoint.init_from, "in");
    assert_string_equal(c.checkpoint.export_to, "out");
    assert_string_equal(c.checkpoint.name_map, "m.yaml");
    dlrm_config_clear(&c);

    assert_taken(
        parse_with("train.epochs=3\ntrain.steps=7\nmodel.tables=[{rows: 5}]\n"
                   "model.features=[t0, {table: t0, hotness: {max: 3}, combiner: mean}, {table: t0, hotness: 2}]",
                   &c));
    assert_int_equal(c.train.epochs, 3);
    assert_int_equal(c.train.steps, 7);
    assert_int_equal(c.model.n_features, 3);
    assert_string_equal(c.model.features[0].table, "t0");
    assert_int_equal(c.model.features[0].combiner, -1);
    assert_int_equal(c.model.features[1].combiner, DLRM_MEAN);
    assert_int_equal(c.model.features[1].hotness.max, 3);
    assert_int_equal(c.model.features[2].hotness.fixed.v[0], 2);
    dlrm_config_clear(&c);

    /* null, 0 and an empty section say the same as nothing; an override may replace a whole section */
    assert_taken(parse_with(
        "eval={every_steps: null, max_samples: null, batch_size: null, target_auc: null}\ncheckpoint=null\n"
        "optimizer.schedule=null\ncheckpoint.every_steps=0\ncheckpoint.every_minutes=null\nmodel.features=~\n"
        "train.steps=null\nparallel.row_slice_threshold=null\nmodel.cross={layers: null}",
        &c));
    assert_int_equal(c.eval.every_steps, 0);
    assert_int_equal(c.eval.batch_size, 64);
    assert_int_equal(c.train.epochs, 1);
    dlrm_config_clear(&c);
}

static void test_refused_overrides(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"checkpoint.every_steps=9", "checkpoint.every_steps: found 9, but checkpoint.path is not set: nothing can be saved"},
        {"checkpoint.every_minutes=9", "checkpoint.every_minutes: found 9, but checkpoint.path is not set: nothing can be saved"},
        {"checkpoint={path: c/, export: c//step_000000009/x}",
         "checkpoint.export: found \"c//step_000000009/x\", expected a folder that is no checkpoint of checkpoint.path"},
        {"checkpoint={path: c, export: c/.step_000000009.part}",
         "checkpoint.export: found \"c/.step_000000009.part\", expected a folder that is no checkpoint of checkpoint.path"},
        {"model.pool_stride=7", "model.pool_stride: found 7, expected null: it is for interaction: pool, and this is dot"},
        {"model.cross={layers: 3}", "model.cross.layers: found 3, expected null: it is for interaction: dcn, and this is dot"},
        {"model.cross={rank: 5}", "model.cross.rank: found 5, expected null: it is for interaction: dcn, and this is dot"},
        {"checkpoint.keep=0", "checkpoint.keep: found \"0\", expected an integer from 1 to 1048576"},
        {"checkpoint.allow_changed=train.seed", "checkpoint.allow_changed: found \"train.seed\", expected a list of at most 256 keys, or null"},
        {"checkpoint.allow_changed=[train.sed]", "checkpoint.allow_changed: found \"train.sed\", expected a key or a section of keys"},
        {"train.batch_size=-3", "train.batch_size: found \"-3\", expected an integer from 1 to 134217728"},
        {"train.batch_size=1e12", "train.batch_size: found \"1e12\", expected an integer from 1 to 134217728"},
        {"train.batch_size=1.5", "train.batch_size: found \"1.5\", expected an integer from 1 to 134217728"},
        {"train.batch_size=null", "train.batch_size: found \"null\", expected an integer from 1 to 134217728"},
        {"train.batch_size=[1]", "train.batch_size: found \"list\", expected an integer from 1 to 134217728"},
        {"train.steps=0", "train.steps: found \"0\", expected an integer from 1 to 1125899906842624, or null"},
        {"train.seed=-1", "train.seed: found \"-1\", expected an integer from 0 to 9007199254740992"},
        {"train.deterministic=yes", "train.deterministic: found \"yes\", expected true or false"},
        {"train.deterministic=1", "train.deterministic: found \"1\", expected true or false"},
        {"train.deterministic_chunks=48", "train.deterministic_chunks: found 48, expected a power of two"},
        {"train=5", "train: found \"5\", expected a map"},
        {"train=[]", "train: found \"list\", expected a map"},
        {"data.synthetic=1", "data.synthetic: found \"1\", expected a map"},
        {"data.synthetic.alpha=.inf", "data.synthetic.alpha: found \".inf\", expected a number from 0 to 8"},
        {"data.synthetic.alpha=nan", "data.synthetic.alpha: found \"nan\", expected a number from 0 to 8"},
        {"optimizer.dense.learning_rate=-1",
         "optimizer.dense.learning_rate: found \"-1\", expected a number from 0 to 1000000"},
        {"optimizer.dense.name=lamb",
         "optimizer.dense.name: found \"lamb\", expected one of sgd, adagrad, rowwise_adagrad, adam"},
        {"optimizer.dense=5", "optimizer.dense: found \"5\", expected a map"},
        {"optimizer.dense={name: rowwise_adagrad, learning_rate: 1}",
         "optimizer.dense.name: found \"rowwise_adagrad\", expected sgd, adagrad or adam: it keeps one accumulator for "
         "each row of a table, and the MLPs have none"},
        {"optimizer.dense.epsilon=1e-6",
         "optimizer.dense.epsilon: does not belong to sgd, only to adagrad, rowwise_adagrad, adam"},
        {"optimizer.embedding.momentum=0.9", "optimizer.embedding.momentum: does not belong to adagrad, only to sgd"},
        {"optimizer.embedding={name: adam, learning_rate: 1, beta1: 1}",
         "optimizer.embedding.beta1: found \"1\", expected a number from 0 to 0.9999999"},
        {"optimizer.embedding={name: adam, learning_rate: 1, nesterov: 1}",
         "optimizer.embedding.nesterov: unknown key; expected one of name, learning_rate, momentum, "
         "initial_accumulator, "
         "epsilon, beta1, beta2"},
        {"optimizer.embedding={name: adam}",
         "optimizer.embedding.learning_rate: missing, expected a number from 0 to 1000000"},
        {"optimizer.schedule={warmup_steps: 10, decay_start_step: 9, decay_steps: 1}",
         "optimizer.schedule.decay_start_step: found 9, expected at least warmup_steps, 10, since decay_steps is not "
         "0"},
        {"model.bottom_mlp=5",
         "model.bottom_mlp: found \"5\", expected a list of at most 128 integers from 1 to 1048576"},
        {"model.bottom_mlp=[5, 1e9]", "model.bottom_mlp.1: found \"1e9\", expected an integer from 1 to 1048576"},
        {"model.bottom_mlp=[]",
         "model.bottom_mlp: found no layers, but interaction: dot needs a bottom output as wide as the tables"},
        {"model.top_mlp=[8, 2]", "model.top_mlp: found a last layer of width 2, expected 1: it is the logit"},
        {"model.embedding_dim=1e9", "model.embedding_dim: found \"1e9\", expected an integer from 1 to 65536, or auto"},
        {"model.tables.0.dim=automatic",
         "model.tables.0.dim: found \"automatic\", expected an integer from 1 to 65536, auto, or null"},
        {"model.dense_features=auto", "model.dense_features: found \"auto\", expected an integer from 0 to 1048576, or from_dataset"},
        {"model.dense_features=from_dataset",
         "model.dense_features: found \"from_dataset\", but without model.tables: from_dataset no description of "
         "data.format: synthetic is read; expected an integer"},
        {"model.tables.0.rows=1e18",
         "model.tables.0.rows: found \"1e18\", expected an integer from 1 to 4294967295, or dynamic"},
        {"model.tables.0.rows=0", "model.tables.0.rows: found \"0\", expected an integer from 1 to 4294967295, or dynamic"},
        {"model.tables.1.count=1e9",
         "model.tables.1.count: found \"1e9\", expected an integer from 1 to 1048576, or null"},
        {"model.tables.0.combiner=max", "model.tables.0.combiner: found \"max\", expected one of sum, mean, none"},
        {"model.tables.0.hotness=0",
         "model.tables.0.hotness: found \"0\", expected an integer from 1 to 1048576, a list of "
         "such, or {max: such an integer}, or null"},
        {"model.tables.0.hotness=[]",
         "model.tables.0.hotness: found \"list\", expected an integer from 1 to 1048576, a list "
         "of such, or {max: such an integer}, or null"},
        {"model.tables.0.hotness=[1, 0]",
         "model.tables.0.hotness.1: found \"0\", expected an integer from 1 to 1048576"},
        {"model.tables.0.hotness={max: 0}",
         "model.tables.0.hotness: found \"map\", expected an integer from 1 to 1048576, a "
         "list of such, or {max: such an integer}, or null"},
        {"model.tables.0.hotness={max: 1, min: 0}",
         "model.tables.0.hotness: found \"map\", expected an integer from 1 to "
         "1048576, a list of such, or {max: such an integer}, or null"},
        {"model.tables.0=5", "model.tables.0: found \"5\", expected a map"},
        {"model.tables.2.rows=5", "model.tables.2.rows: \"2\" is no element of the list of 2, counted from 0"},
        {"model.tables=[]", "model.tables: found \"list\", expected a list of 1 to 1048576 maps, or from_dataset"},
        {"model.tables=dataset",
         "model.tables: found \"dataset\", expected a list of 1 to 1048576 maps, or from_dataset"},
        {"model.tables=[{row: 5}]", "model.tables.0.row: unknown key; did you mean model.tables.0.rows?"},
        {"model.tables=[{rows: 5}, {dim: 5}]",
         "model.tables.1.rows: missing, expected an integer from 1 to 4294967295, or dynamic"},
        {"model.tables=from_dataset",
         "model.tables: found \"from_dataset\", but data.format: synthetic has no data description that could "
         "say; expected a list"},
        {"model.features=C1",
         "model.features: found \"C1\", expected a list of 1 to 1048576 maps or names of tables, or null"},
        {"model.features=[{table: C1, hotness: [1, 2]}]",
         "model.features.0.hotness: found \"list\", expected an integer from 1 "
         "to 1048576, or {max: such an integer}, or null"},
        {"model.features=[{hotness: 1}]", "model.features.0.table: missing, expected a table's name"},
        {"data.format=csv",
         "data.format: found \"csv\", expected one of split_binary, mlperf_bin, npy, hugectr_raw, synthetic"},
        {"log.jsonl=\"\"", "log.jsonl: found \"\", expected a path, or null"},
        {"log.tensorboard=\"\"", "log.tensorboard: found \"\", expected a path, or null"},
        {"log.mlperf=\"\"", "log.mlperf: found \"\", expected a path, or null"},
        {"log.progress=on", "log.progress: found \"on\", expected one of auto, true, false"},
        {"parallel.timeout_s=0", "parallel.timeout_s: found \"0\", expected a number from 0.001 to 1e+09"},
        {"eval={every_epoch: false, target_auc: 0.8}",
         "eval.target_auc: found 0.8, but eval.every_epoch is false and eval.every_steps 0: nothing is evaluated, and so no AUC reached; expected null"},
        {"eval.target_auc=1.5", "eval.target_auc: found \"1.5\", expected a number from 0 to 1, or null"},
        /* unknown keys */
        {"train.batchsize=1", "train.batchsize: unknown key; did you mean train.batch_size?"},
        {"trian.steps=1", "trian: unknown key; did you mean train?"},
        {"batch_size=1", "batch_size: unknown key; did you mean train.batch_size?"},
        {"warmup_steps=1", "warmup_steps: unknown key; did you mean optimizer.schedule.warmup_steps?"},
        {"optimizer.schedul.warmup_steps=1", "optimizer.schedul: unknown key; did you mean optimizer.schedule?"},
        {"xyz=1",
         "xyz: unknown key; expected one of device, model, optimizer, train, parallel, data, eval, checkpoint, log"},
        {"eval.q123456789012345678901234567890123456789012345678901234567890123456789=1",
         "eval.q12345678901234567890123456789012345678901234567890123456789: unknown key; expected one of every_steps, "
         "every_epoch, batch_size, max_samples, target_auc"},
        {"eval.qqqqqqqqq=1",
         "eval.qqqqqqqqq: unknown key; expected one of every_steps, every_epoch, batch_size, max_samples, target_auc"},
        /* not of this build */
#ifndef DLRM_CUDA
        {"device=cuda", "device: found \"cuda\": this build has no CUDA"},
        {"train.precision=tf32", "train.precision: found \"tf32\": this build has no CUDA"},
        {"train.precision=bf16", "train.precision: found \"bf16\": this build has no CUDA"},
        {"train.precision=fp16", "train.precision: found \"fp16\": this build has no CUDA"},
#endif
        {"parallel.device_embedding_elements=-5",
         "parallel.device_embedding_elements: found \"-5\", expected an integer from 0 to 9007199254740992, or null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[600];
        snprintf(expected, sizeof expected, "command line: %s", cases[i][1]);
        assert_refused_with(cases[i][0], expected);
    }
    assert_refused_with("train.batch_size='64'",
                        "command line: train.batch_size: found \"64\", expected an integer from 1 to 134217728");
    assert_refused_with("train.batch_size", "command line: found \"train.batch_size\", expected key.path=value");
    assert_refused_with("=5", "command line: found \"=5\", expected key.path=value");
    assert_refused_with("a..b=5", "command line: a..b: there is nothing between two dots, or at an end");
    assert_refused_with("train.steps=[5", "command line: train.steps: not YAML: did not find expected ',' or ']'");
}

/* Rules between a key in the file and an override of another name the file's. */
static void test_refused_positions(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"batch_size: 64", "batch_size: -3",
         "c.yaml:14:21: train.batch_size: found \"-3\", expected an integer from 1 to 134217728"},
        {"batch_size: 64", "batchsize: 64",
         "c.yaml:14:9: train.batchsize: unknown key; did you mean train.batch_size?"},
        {"batch_size: 64", "batch_size: 64, batch_size: 65",
         "c.yaml:14:25: train.batch_size: duplicate key, set in line 14 already"},
        {"{batch_size: 64}", "{}", "c.yaml:14:8: train.batch_size: missing, expected an integer from 1 to 134217728"},
        {"train: {batch_size: 64}\n", "", "c.yaml: train.batch_size: missing, expected an integer from 1 to 134217728"},
        {"train: {batch_size: 64}", "train.batch_size: 64",
         "c.yaml:14:1: train.batch_size: unknown key; expected one of device, model, optimizer, train, parallel, data, "
         "eval, "
         "checkpoint, log"},
        {"dense_features: 13", "dense_features: 0",
         "c.yaml:5:15: model.bottom_mlp: found 2 layers, expected [], since model.dense_features is 0 and leaves them "
         "without "
         "an input"},
        {"{count: 2, rows: 100}", "{count: 2}",
         "c.yaml:10:7: model.tables.1.rows: missing, expected an integer from 1 to 4294967295, or dynamic"},
        {"{count: 2, rows: 100}", "5", "c.yaml:10:7: model.tables.1: found \"5\", expected a map"},
        {"interaction: dot", "interaction: pool",
         "c.yaml:3:3: model.pool_stride: missing, but interaction: pool needs it"},
        {"interaction: dot", "interaction: dcn\n  cross: {rank: 5}", "c.yaml:7:10: model.cross.layers: missing, but interaction: dcn needs it"},
        {"interaction: dot", "interaction: dcn\n  cross: {layers: 3}", "c.yaml:7:10: model.cross.rank: missing, but interaction: dcn needs it"},
        {"format: synthetic", "format: split_binary",
         "c.yaml:15:7: data.path: missing, but format: split_binary needs it"},
        {"name: sgd, ", "",
         "c.yaml:12:10: optimizer.dense.name: missing, expected one of sgd, adagrad, rowwise_adagrad, adam"},
        {"  embedding: {name: adagrad, learning_rate: 1e-2}\n", "",
         "c.yaml:12:3: optimizer.embedding.name: missing, expected one of sgd, adagrad, rowwise_adagrad, adam"},
        {"1e-2}", "1e-2, momentum: 0}",
         "c.yaml:13:61: optimizer.embedding.momentum: does not belong to adagrad, only to sgd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlrm_config c;
        assert_message(parse_replaced(cases[i].from, cases[i].to, &c), cases[i].message);
    }
    dlrm_config c;
    assert_message(parse_text("- 1\n", &c),
                   "c.yaml:1:1: expected a map of config keys, such as train: {batch_size: 2048}");
    assert_message(parse_text("", &c), "c.yaml: model.dense_features: missing, expected an integer from 0 to 1048576, or from_dataset");
    assert_message(dlrm_config_load("/nowhere/c.yaml", 0, NULL, &c),
                   "/nowhere/c.yaml: cannot be opened: No such file or directory");
}

/* What a config names is bounded even where aliases make it cheap to write. */
static void test_alias_lists_are_bounded(void **state)
{
    (void)state;
    enum { IDS = 2000, TABLES = 1000 };
    char *text = malloc(IDS * 2 + TABLES * 4 + 200),
         *end =
             text + sprintf(text, "model: {embedding_dim: 4, dense_features: 0, "
                                  "bottom_mlp: [], top_mlp: [1], interaction: cat, tables: [&a {rows: 5, hotness: [");
    for (int i = 0; i < IDS; i++) end += sprintf(end, "1,");
    end += sprintf(end, "]}");
    for (int i = 1; i < TABLES; i++) end += sprintf(end, ",*a");
    sprintf(end, "]}\n");
    dlrm_config c;
    assert_int_equal(parse_text(text, &c), DLRM_E_INPUT);
    assert_non_null(
        strstr(dlrm_error_message(), "model.tables.524: the tables up to here list more than 1048576 features"));
    free(text);
}

static void test_config_fail(void **state)
{
    (void)state;
    dlrm_config c;
    assert_taken(parse_with("train.steps=5", &c));
    assert_message(dlrm_config_fail(&c, "train.batch_size", "x %d", 1), "good.yaml:14:21: train.batch_size: x 1");
    assert_message(dlrm_config_fail(&c, "train.steps", "x"), "command line: train.steps: x");
    assert_message(dlrm_config_fail(&c, "model.tables.1.rows", "x"), "good.yaml:10:24: model.tables.1.rows: x");
    assert_message(dlrm_config_fail(&c, "model.tables.1.dim", "x"), "good.yaml:10:7: model.tables.1.dim: x");
    assert_message(dlrm_config_fail(&c, "eval.every_steps", "x"), "good.yaml: eval.every_steps: x");
    dlrm_config_clear(&c);
}

static void test_load_file(void **state)
{
    (void)state;
    char path[] = "/tmp/dlrm-test-config-XXXXXX", *override = (char[]){"train.batch_size=32"};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, good_config, strlen(good_config)), strlen(good_config));
    close(fd);
    dlrm_config c;
    assert_taken(dlrm_config_load(path, 1, &override, &c));
    assert_string_equal(c.path, path);
    assert_int_equal(c.train.batch_size, 32);
    dlrm_config_clear(&c);
    remove(path);
}

/* --- the table itself, and what is made of it --- */

static void check_rows(const dlrm_key_table *t)
{
    for (int i = 0; i < t->n; i++) {
        const dlrm_key *key = &t->keys[i];
        assert_true(key->text && key->text[strlen(key->text) - 1] == '.');
        if (key->sub) check_rows(key->sub);
        if (key->type == DLRM_KEY_SECTION) continue;
        assert_non_null(key->unit);
        assert_true(key->size > 0);
        if (key->type == DLRM_KEY_INT || key->type == DLRM_KEY_FLOAT) assert_true(key->min < key->max && key->unit[0]);
        if (key->type == DLRM_KEY_INT) assert_int_equal(key->size, sizeof(int64_t));
        if (key->def && !strcmp(key->def, "null")) assert_true(key->nullable || key->type == DLRM_KEY_MAP);
    }
}

static void test_table(void **state)
{
    (void)state;
    check_rows(&dlrm_config_keys);
}

static void list_required(const dlrm_key_table *t, const char *prefix, char *list, size_t bytes)
{
    for (int i = 0; i < t->n; i++) {
        const dlrm_key *key = &t->keys[i];
        char path[200];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key->path);
        if (key->type != DLRM_KEY_SECTION && !key->def) snprintf(list + strlen(list), bytes - strlen(list), "%s ", path);
        if (key->sub) list_required(key->sub, path, list, bytes);
    }
}

/* Everything else has a default. (What some values of another key need besides, as data.path, is in checks.c.) */
static void test_required(void **state)
{
    (void)state;
    char list[1000] = "";
    list_required(&dlrm_config_keys, "", list, sizeof list);
    assert_string_equal(list, "model.dense_features model.embedding_dim model.bottom_mlp model.interaction model.top_mlp model.tables "
                              "model.tables.rows model.features.table optimizer.dense.name optimizer.dense.learning_rate "
                              "optimizer.embedding.name optimizer.embedding.learning_rate train.batch_size data.format ");
}

static char *help_text(const char *topic, bool expected)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    assert_int_equal(dlrm_config_help(f, topic), expected);
    fclose(f);
    return text;
}

static void test_help(void **state)
{
    (void)state;
    char *all = help_text(NULL, true), *one = help_text("train.batch_size", true), *two = help_text("batch_size", true);
    char *data = help_text("data", true), *none = help_text("nothing", false);
    char *empty = help_text("", false);
    assert_non_null(strstr(all, "key.path=value"));
    assert_non_null(strstr(all, "\n  checkpoint "));
    assert_string_equal(one,
                        "train.batch_size\n    an integer from 1 to 134217728; unit: samples; required\n    Global "
                        "batch, over all ranks.\n");
    assert_non_null(strstr(two, "train.batch_size\n"));
    assert_non_null(strstr(two, "eval.batch_size\n"));
    assert_null(strstr(two, "train.steps"));
    assert_non_null(strstr(data, "data.synthetic.alpha\n    a number from 0 to 8; default: 1.05\n"));
    assert_null(strstr(data, "\ntrain."));
    assert_string_equal(none, "");
    char *texts[] = {all, one, two, data, none, empty};
    for (int i = 0; i < 6; i++) {
        for (char *line = texts[i]; *line; line += strcspn(line, "\n") + 1)
            if (i > 0) assert_true(strcspn(line, "\n") <= 104);
        free(texts[i]);
    }
}

/* docs/config.md is what the program prints: `dlrm-train --help markdown > docs/config.md`. */
static void test_docs_are_current(void **state)
{
    (void)state;
#ifdef DLRM_CUDA
    skip(); /* they are those of a build without CUDA */
#endif
    char *made;
    size_t bytes, length;
    FILE *f = open_memstream(&made, &bytes);
    dlrm_config_markdown(f);
    fclose(f);
    char *kept = malloc(bytes + 2);
    f = fopen(SOURCE_ROOT "/docs/config.md", "rb");
    assert_non_null(f);
    length = fread(kept, 1, bytes + 1, f);
    fclose(f);
    if (length != bytes || memcmp(kept, made, bytes) != 0)
        fail_msg("docs/config.md is not what `dlrm-train --help markdown` prints; write it anew");
    free(kept);
    free(made);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(dlrm_interaction_text(DLRM_POOL), "pool");
    assert_string_equal(dlrm_strategy_text(DLRM_MEMORY_BALANCED), "memory_balanced");
    assert_string_equal(dlrm_optimizer_text(DLRM_ROWWISE_ADAGRAD), "rowwise_adagrad");
    assert_string_equal(dlrm_format_text(DLRM_SPLIT_BINARY), "split_binary");
    assert_string_equal(dlrm_dtype_text(DLRM_TF32), "tf32");
    assert_string_equal(dlrm_dtype_text(DLRM_DTYPE_AUTO), "auto");
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(dlrm_key_distance("abc", "abc"), 0);
    assert_int_equal(dlrm_key_distance("abc", "acb"), 1);
    assert_int_equal(dlrm_key_distance("", "abc"), 3);
    assert_int_equal(dlrm_key_distance("kitten", "sitting"), 3);
    char text[65];
    memset(text, 'x', 64);
    text[64] = '\0';
    assert_int_equal(dlrm_key_distance(text, "x"), 99);
    text[63] = '\0';
    assert_int_equal(dlrm_key_distance(text, ""), 63);
}

static void test_examples(void **state)
{
    (void)state;
    dlrm_config c;
    dlrm_model_spec spec;
    assert_taken(dlrm_config_load(SOURCE_ROOT "/configs/tiny.yaml", 0, NULL, &c));
    assert_taken(dlrm_model_spec_resolve(&c, NULL, &spec));
    assert_int_equal(spec.n_inputs, 8);
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&c);

    assert_taken(dlrm_config_load(SOURCE_ROOT "/configs/criteo_kaggle.yaml", 0, NULL, &c));
    assert_true(c.model.tables_from_dataset);
    assert_int_equal(c.model.embedding_dim, 16);
    dlrm_config_clear(&c);

    assert_taken(dlrm_config_load(SOURCE_ROOT "/configs/criteo_terabyte.yaml", 0, NULL, &c));
    assert_true(c.model.tables_from_dataset);
    assert_int_equal(c.train.batch_size, 55296);
    assert_true(c.optimizer.dense.learning_rate == 24 && c.eval.target_auc == 0.8025);
    assert_true(c.optimizer.schedule.min_learning_rate == 1e-7);
    dlrm_config_clear(&c);

    assert_taken(dlrm_config_load(SOURCE_ROOT "/configs/criteo_full.yaml", 0, NULL, &c));
    assert_taken(dlrm_model_spec_resolve(&c, NULL, &spec));
    assert_int_equal(spec.n_tables, 26);
    assert_int_equal(spec.table_elements, 882774575LL * 128);
    assert_int_equal(spec.interaction_width, 479);
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&c);

    assert_taken(dlrm_config_load(SOURCE_ROOT "/configs/criteo_dcnv2.yaml", 0, NULL, &c));
    assert_taken(dlrm_model_spec_resolve(&c, NULL, &spec));
    int ids = 0;
    for (int j = 0; j < spec.n_inputs; j++) ids += spec.inputs[j].hotness;
    assert_int_equal(ids, 214);
    assert_int_equal(spec.table_elements, 204184588LL * 128);
    assert_int_equal(spec.interaction_width, 3456);
    assert_int_equal(spec.mlp_elements, 2 * 3456 * 512 * 3 + 170496 + 5243136 + (512 + 256 + 128) + 3 * 3456 + (1024 + 1024 + 512 + 256 + 1));
    assert_true(c.optimizer.dense.epsilon == 1e-8 && c.optimizer.embedding.learning_rate == 0.004 && c.eval.target_auc == 0.80275);
    dlrm_model_spec_clear(&spec);
    dlrm_config_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_defaults, no_blocks_left),
        cmocka_unit_test_teardown(test_values, no_blocks_left),
        cmocka_unit_test_teardown(test_refused_overrides, no_blocks_left),
        cmocka_unit_test_teardown(test_refused_positions, no_blocks_left),
        cmocka_unit_test_teardown(test_long_path, no_blocks_left),
        cmocka_unit_test_teardown(test_alias_lists_are_bounded, no_blocks_left),
        cmocka_unit_test_teardown(test_config_fail, no_blocks_left),
        cmocka_unit_test_teardown(test_load_file, no_blocks_left),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_docs_are_current),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_distance),
        cmocka_unit_test_teardown(test_examples, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
