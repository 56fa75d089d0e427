/* The table of config keys. To add one: a field in config.h, a row here (and, if it depends on other keys, a check in
 * checks.c); then regenerate docs/config.md with `dlrm-train --help markdown`. */
#include "config/keys.h"

#include "config/config.h"

/* What a name says that this build cannot have; BUILT in its place makes it work. */
#define BUILT NULL
#ifdef DLRM_CUDA
#define ON_GPU BUILT
#else
#define ON_GPU "this build has no CUDA"
#endif

#define REQUIRED NULL
#define OR_NULL(value) .nullable = true, .off = (value)
#define TAKEN_BY(name) (1u << (name))

#define FIELD(f) .offset = offsetof(OWNER, f), .size = sizeof(((OWNER *)0)->f)
/* The last arguments are the text and, after it, any further columns. */
#define SECTION(p, ...)                                                         \
    {                                                                           \
        .path = p, .type = DLRM_KEY_SECTION, .def = "null", .text = __VA_ARGS__ \
    }
#define INT(p, f, d, lo, hi, u, ...)                                                                              \
    {                                                                                                             \
        .path = p, .type = DLRM_KEY_INT, FIELD(f), .def = d, .min = lo, .max = hi, .unit = u, .text = __VA_ARGS__ \
    }
#define FLOAT(p, f, d, lo, hi, u, ...)                                                                              \
    {                                                                                                               \
        .path = p, .type = DLRM_KEY_FLOAT, FIELD(f), .def = d, .min = lo, .max = hi, .unit = u, .text = __VA_ARGS__ \
    }
#define BOOL(p, f, d, ...)                                                                    \
    {                                                                                         \
        .path = p, .type = DLRM_KEY_BOOL, FIELD(f), .def = d, .unit = "", .text = __VA_ARGS__ \
    }
#define TEXT(p, f, d, u, ...)                                                                \
    {                                                                                        \
        .path = p, .type = DLRM_KEY_TEXT, FIELD(f), .def = d, .unit = u, .text = __VA_ARGS__ \
    }
#define TEXTS(p, f, u, ...)                                                                                        \
    {                                                                                                              \
        .path = p, .type = DLRM_KEY_TEXTS, FIELD(f), .def = "null", .nullable = true, .unit = u, .text = __VA_ARGS__ \
    }
#define NAME(p, f, d, n, ...)                                                                             \
    {                                                                                                     \
        .path = p, .type = DLRM_KEY_NAME, FIELD(f), .def = d, .names = n, .unit = "", .text = __VA_ARGS__ \
    }
#define WIDTHS(p, f, ...)                                                                                             \
    {                                                                                                                 \
        .path = p, .type = DLRM_KEY_WIDTHS, FIELD(f), .min = 1, .max = 1 << 20, .unit = "widths", .text = __VA_ARGS__ \
    }
#define HOTNESS(p, f, t, ...)                                                                                       \
    {                                                                                                               \
        .path = p, .type = t, FIELD(f), .def = "null", .min = 1, .max = 1 << 20, .unit = "ids", .text = __VA_ARGS__ \
    }
#define SUB(p, f, t, d, s, ...)                                                             \
    {                                                                                       \
        .path = p, .type = t, FIELD(f), .def = d, .sub = s, .unit = "", .text = __VA_ARGS__ \
    }
#define KEY_TABLE(rows)                     \
    {                                       \
        rows, sizeof(rows) / sizeof *(rows) \
    }

/* Largest values: far above any machine, far below where sums and products of them overflow. */
#define MAX_STEPS 0x1p50
#define MAX_ELEMENTS 0x1p53
#define MAX_BATCH 0x1p27

static const dlrm_key_name devices[] = {{"auto", DLRM_DEVICE_AUTO, BUILT},
                                        {"cpu", DLRM_DEVICE_CPU, BUILT},
                                        {"cuda", DLRM_DEVICE_CUDA, ON_GPU},
                                        {NULL, 0, NULL}};
static const dlrm_key_name interactions[] = {{"dot", DLRM_DOT, BUILT},
                                             {"cat", DLRM_CAT, BUILT},
                                             {"dcn", DLRM_DCN, BUILT},
                                             {"pool", DLRM_POOL, BUILT},
                                             {NULL, 0, NULL}};
static const dlrm_key_name combiners[] = {
    {"sum", DLRM_SUM, BUILT}, {"mean", DLRM_MEAN, BUILT}, {"none", DLRM_UNPOOLED, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name dims[] = {{"auto", DLRM_DIM_AUTO, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name dense_counts[] = {{"from_dataset", DLRM_FROM_DATASET, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name row_numbers[] = {{"dynamic", DLRM_DYNAMIC_ROWS, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name evictions[] = {{"none", DLRM_EVICT_NONE, BUILT}, {"lru", DLRM_EVICT_LRU, BUILT}, {"lfu", DLRM_EVICT_LFU, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name optimizers[] = {{"sgd", DLRM_SGD, BUILT},
                                           {"adagrad", DLRM_ADAGRAD, BUILT},
                                           {"rowwise_adagrad", DLRM_ROWWISE_ADAGRAD, BUILT},
                                           {"adam", DLRM_ADAM, BUILT},
                                           {NULL, 0, NULL}};
static const dlrm_key_name precisions[] = {{"fp32", DLRM_FP32, BUILT},
                                           {"tf32", DLRM_TF32, ON_GPU},
                                           {"bf16", DLRM_BF16, ON_GPU},
                                           {"fp16", DLRM_FP16, ON_GPU},
                                           {NULL, 0, NULL}};
static const dlrm_key_name storage_dtypes[] = {
    {"fp32", DLRM_FP32, BUILT}, {"bf16", DLRM_BF16, BUILT}, {"fp16", DLRM_FP16, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name exchange_dtypes[] = {{"auto", DLRM_DTYPE_AUTO, BUILT},
                                                {"fp32", DLRM_FP32, BUILT},
                                                {"bf16", DLRM_BF16, BUILT},
                                                {"fp16", DLRM_FP16, BUILT},
                                                {NULL, 0, NULL}};
static const dlrm_key_name strategies[] = {{"auto", DLRM_STRATEGY_AUTO, BUILT},
                                           {"basic", DLRM_BASIC, BUILT},
                                           {"memory_balanced", DLRM_MEMORY_BALANCED, BUILT},
                                           {"memory_optimized", DLRM_MEMORY_OPTIMIZED, BUILT},
                                           {NULL, 0, NULL}};
static const dlrm_key_name formats[] = {{"split_binary", DLRM_SPLIT_BINARY, BUILT},
                                        {"mlperf_bin", DLRM_MLPERF_BIN, BUILT},
                                        {"npy", DLRM_NPY, BUILT},
                                        {"hugectr_raw", DLRM_HUGECTR_RAW, BUILT},
                                        {"synthetic", DLRM_SYNTHETIC, BUILT},
                                        {NULL, 0, NULL}};
static const dlrm_key_name index_checks[] = {{"error", DLRM_INDEX_ERROR, BUILT},
                                             {"clamp", DLRM_INDEX_CLAMP, BUILT},
                                             {"modulo", DLRM_INDEX_MODULO, BUILT},
                                             {NULL, 0, NULL}};
static const dlrm_key_name test_parts[] = {{"all", DLRM_TEST_ALL, BUILT},
                                           {"first_half", DLRM_TEST_FIRST_HALF, BUILT},
                                           {"second_half", DLRM_TEST_SECOND_HALF, BUILT},
                                           {NULL, 0, NULL}};
static const dlrm_key_name dense_types[] = {{"auto", DLRM_DENSE_AUTO, BUILT},
                                            {"int32", DLRM_DENSE_INT32, BUILT},
                                            {"float32", DLRM_DENSE_FLOAT32, BUILT},
                                            {NULL, 0, NULL}};
static const dlrm_key_name dense_values[] = {{"lognormal", true, BUILT}, {"uniform", false, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name label_sources[] = {{"planted", true, BUILT}, {"random", false, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name resumes[] = {{"auto", 0, BUILT}, {"never", 0, BUILT}, {NULL, 0, NULL}};
static const dlrm_key_name progresses[] = {
    {"auto", -1, BUILT}, {"true", true, BUILT}, {"false", false, BUILT}, {NULL, 0, NULL}};

#define OWNER dlrm_table_entry
static const dlrm_key table_keys[] = {
    TEXT("name", name, "null", "a name",
         "Name of the table, as in `table.<name>.weight`. Tables without one are called `t<index>`, counted "
         "from 0 in the list that `count` has expanded; with `count`, `<name>_0`, `<name>_1`, … Names are unique.",
         OR_NULL(0)),
    INT("count", count, "null", 1, 1 << 20, "tables", "So many alike tables. null: this one.", OR_NULL(0)),
    INT("rows", rows, REQUIRED, 1, DLRM_MAX_ROWS, "rows",
        "Rows of the table; ids are 0 to rows - 1. dynamic: ids are keys, any integers of 64 bits, which get "
        "their rows as they appear; `capacity`, `evict` and `admission` say which do (docs/embeddings.md).",
        .names = row_numbers),
    INT("capacity", capacity, "null", 1, DLRM_MAX_ROWS - 1, "keys",
        "With rows: dynamic, and required there: keys that have a row at a time. Row 0 is for all others, so the "
        "table has capacity + 1 rows.",
        OR_NULL(0)),
    NAME("evict", evict, "none", evictions,
         "With rows: dynamic: whose row a new key gets when all are taken: nobody's, and it reads row 0; that of the key "
         "used least recently; of the key used least frequently. A row that the batch at hand uses stays."),
    INT("admission", admission, "1", 1, UINT32_MAX, "occurrences",
        "With rows: dynamic: the occurrence at which a key gets its row; until then it reads row 0. The last "
        "`capacity` new keys are counted."),
    INT("dim", dim, "null", 1, 65536, "elements", "Width of the table; auto: by its rows, as in model.embedding_dim. null: model.embedding_dim.", OR_NULL(0), .names = dims),
    NAME("combiner", combiner, "sum", combiners,
         "What the rows that a sample lists become: one vector, their sum or mean; none: they stay apart, side by side in the "
         "order of the ids, as those of so many features of one id would. none needs a fixed hotness."),
    HOTNESS("hotness", hotness, DLRM_KEY_HOTNESS_LIST,
            "Ids per sample. A list: that many features share the table, with so many ids each. {max: m}: a "
            "variable number, 0 to m. null: what the data says, else 1.",
            OR_NULL(0)),
};
static const dlrm_key_table table_table = KEY_TABLE(table_keys);
#undef OWNER

#define OWNER dlrm_feature_entry
static const dlrm_key feature_keys[] = {
    TEXT("table", table, REQUIRED, "a table's name", "The table that this feature's ids are rows of."),
    HOTNESS("hotness", hotness, DLRM_KEY_HOTNESS,
            "Ids per sample; {max: m}: a variable number, 0 to m. null: what the table says.", OR_NULL(0)),
    NAME("combiner", combiner, "null", combiners, "sum, mean or none. null: what the table says.", OR_NULL(-1)),
};
static const dlrm_key_table feature_table = KEY_TABLE(feature_keys);
#undef OWNER

#define OWNER dlrm_optimizer_config
static const dlrm_key optimizer_keys[] = {
    NAME("name", name, REQUIRED, optimizers,
         "The rule. On the tables adam is lazy (as torch.optim.SparseAdam), and so is momentum: rows that no "
         "sample of the batch lists do not change. rowwise_adagrad keeps one accumulator for each row of a "
         "table, so it is for the tables alone."),
    FLOAT("learning_rate", learning_rate, REQUIRED, 0, 1e6, "1", "Base rate, before optimizer.schedule."),
    FLOAT("momentum", momentum, "0", 0, 1, "1", "buf = momentum * buf + g; w -= lr * buf.",
          .takers = TAKEN_BY(DLRM_SGD)),
    FLOAT("initial_accumulator", initial_accumulator, "0", 0, 1e6, "1", "First value of the sum of squares.",
          .takers = TAKEN_BY(DLRM_ADAGRAD) | TAKEN_BY(DLRM_ROWWISE_ADAGRAD)),
    FLOAT("epsilon", epsilon, "1e-10", 1e-37, 1, "1", "Added to the root of the sum of squares.",
          .takers = TAKEN_BY(DLRM_ADAGRAD)),
    FLOAT("epsilon", epsilon, "1e-8", 1e-37, 1, "1", "Added to the root.",
          .takers = TAKEN_BY(DLRM_ROWWISE_ADAGRAD) | TAKEN_BY(DLRM_ADAM)),
    FLOAT("beta1", beta1, "0.9", 0, 0.9999999, "1", "Decay of the mean.", .takers = TAKEN_BY(DLRM_ADAM)),
    FLOAT("beta2", beta2, "0.999", 0, 0.9999999, "1", "Decay of the mean square.", .takers = TAKEN_BY(DLRM_ADAM)),
};
static const dlrm_key_table optimizer_table = KEY_TABLE(optimizer_keys);
#undef OWNER

#define OWNER dlrm_config
static const dlrm_key config_keys[] = {
    NAME("device", device, "auto", devices, "Where to compute. auto: cuda if this build and this machine have it."),

    SECTION("model", "The network."),
    INT("model.dense_features", model.dense_features, REQUIRED, 0, 1 << 20, "features",
        "Numerical features of a sample. from_dataset: as many as the data's description has.", .names = dense_counts),
    INT("model.embedding_dim", model.embedding_dim, REQUIRED, 1, 65536, "elements",
        "Width of a table that names none. auto: with interaction: dot as wide as the bottom output; else by the table's rows, 2 * "
        "rows ^ (1/4), up to the next multiple of 8, at most 256: 8 up to 256 rows, 16 up to 4096, 64 up to 1048576, 128 up to 16777216.",
        .names = dims),
    WIDTHS("model.bottom_mlp", model.bottom_mlp,
           "Output widths of the layers over the numerical features, ReLU after every layer. []: none; then the "
           "numerical features themselves stand in the place of its output (not with interaction: dot)."),
    NAME("model.interaction", model.interaction, REQUIRED, interactions,
         "How the bottom output and the tables' vectors become the top MLP's input. dot: bottom output, then "
         "the dot products of all pairs (all widths are equal). cat: all vectors, one after the other. dcn: "
         "cross layers over cat. pool: means over windows of pool_stride elements of the tables' vectors, "
         "then the bottom output."),
    SECTION("model.cross", "The cross layers of interaction: dcn."),
    INT("model.cross.layers", model.cross_layers, "null", 1, 128, "layers", "Number; required with interaction: dcn, null with the others.",
        OR_NULL(0)),
    INT("model.cross.rank", model.cross_rank, "null", 1, 65536, "elements",
        "Inner width of the low-rank weights; required with interaction: dcn, null with the others.", OR_NULL(0)),
    INT("model.pool_stride", model.pool_stride, "null", 1, 1 << 20, "elements",
        "Window of interaction: pool; required with it, null with the others. 1: plain concatenation.", OR_NULL(0)),
    WIDTHS("model.top_mlp", model.top_mlp,
           "Output widths of the layers over the interaction, ReLU after every layer but the last, which is the "
           "logit and 1 wide. []: the interaction's one output is the logit."),
    SUB("model.tables", model.tables, DLRM_KEY_TABLES, REQUIRED, &table_table,
        "The embedding tables: a list, or from_dataset: one per categorical feature of the data, named after "
        "it (less a final `.bin`), rows = its cardinality. mlperf_bin, hugectr_raw: as data.path's records.yaml says."),
    SUB("model.features", model.features, DLRM_KEY_FEATURES, "null", &feature_table,
        "The table of each categorical feature, in the order of the data: a table's name, or a map. null: "
        "the tables' own order. Not together with lists in model.tables.N.hotness.",
        OR_NULL(0)),

    SECTION("optimizer", "How weights are updated, after the mean loss over the global batch."),
    SUB("optimizer.dense", optimizer.dense, DLRM_KEY_MAP, "null", &optimizer_table, "For the MLPs and the cross layers."),
    SUB("optimizer.embedding", optimizer.embedding, DLRM_KEY_MAP, "null", &optimizer_table, "For the tables."),
    SECTION("optimizer.schedule",
            "The rate at step n, from 1. Below warmup_steps W: lr * n / W; then lr * (W - 1) / W up to "
            "decay_start_step D; then, over decay_steps K, max(min_learning_rate, lr * ((D + K - n) / K) ^ "
            "decay_power); then that of step D + K - 1. W 0 or 1: no warm-up. K 0: no decay, and the full lr "
            "from n = W on."),
    INT("optimizer.schedule.warmup_steps", optimizer.schedule.warmup_steps, "0", 0, MAX_STEPS, "steps", "W."),
    INT("optimizer.schedule.decay_start_step", optimizer.schedule.decay_start_step, "0", 0, MAX_STEPS, "step",
        "D; with decay, not below W."),
    INT("optimizer.schedule.decay_steps", optimizer.schedule.decay_steps, "0", 0, MAX_STEPS, "steps", "K."),
    FLOAT("optimizer.schedule.decay_power", optimizer.schedule.decay_power, "2", 0, 100, "1", "Exponent of the decay."),
    FLOAT("optimizer.schedule.min_learning_rate", optimizer.schedule.min_learning_rate, "0", 0, 1e6, "1",
          "Least rate while decaying, of both optimizers."),

    SECTION("train", "The run."),
    INT("train.batch_size", train.batch_size, REQUIRED, 1, MAX_BATCH, "samples", "Global batch, over all ranks."),
    INT("train.epochs", train.epochs, "null", 1, 1 << 30, "epochs",
        "Stop after so many passes over the training rows. null: no limit; one epoch if steps is null too.",
        OR_NULL(0)),
    INT("train.steps", train.steps, "null", 1, MAX_STEPS, "steps",
        "Stop after so many steps. null: no limit. With epochs, whichever comes first.", OR_NULL(0)),
    NAME("train.precision", train.precision, "fp32", precisions,
         "Arithmetic of MLPs and interaction; master weights stay fp32. fp16: the loss is scaled by a power of two, which "
         "falls by half when a gradient overflows, in a step that is skipped, and doubles after 2000 good ones."),
    NAME("train.embedding_dtype", train.embedding_dtype, "fp32", storage_dtypes,
         "Storage of the tables, also in an export. bf16, fp16: a row is updated in fp32 and rounded up or down by random "
         "bits, such that its mean is kept; optimizer state stays fp32."),
    NAME("train.exchange_dtype", train.exchange_dtype, "auto", exchange_dtypes,
         "What embedding vectors and their gradients travel as, rounded to nearest, on one rank too. auto: bf16 or fp16 if "
         "precision is that, else fp32."),
    BOOL("train.deterministic", train.deterministic, "false",
         "true: the same bits on any number of ranks. false: the same bits run after run on the same ranks."),
    INT("train.deterministic_chunks", train.deterministic_chunks, "32", 1, 65536, "chunks",
        "Pieces of a batch whose sums are joined in a fixed order; a power of two, at least the number of ranks."),
    INT("train.seed", train.seed, "1", 0, MAX_ELEMENTS, "1", "Of initial weights and synthetic data."),

    SECTION("parallel", "Placement of the tables over ranks."),
    NAME("parallel.strategy", parallel.strategy, "auto", strategies,
         "basic: in turn. memory_balanced: by size, to and fro. memory_optimized: largest first, to the rank "
         "that holds least. auto: what a cost model expects the slowest rank to be fastest with, from the bytes that are looked "
         "up, sent and updated, within the memory that each rank has; it also chooses the thresholds below that are null."),
    INT("parallel.data_parallel_threshold", parallel.data_parallel_threshold, "null", 0, MAX_ELEMENTS, "elements",
        "A table with at most so many elements is copied to every rank, which looks its own samples up there. null: none.",
        OR_NULL(-1)),
    INT("parallel.row_slice_threshold", parallel.row_slice_threshold, "null", 0, MAX_ELEMENTS, "elements",
        "A table with at least so many elements is cut by rows over all ranks: row r of table t lies on rank (r + t) mod ranks. "
        "null: none.", OR_NULL(-1)),
    INT("parallel.column_slice_threshold", parallel.column_slice_threshold, "null", 1, MAX_ELEMENTS, "elements",
        "A larger table is cut by columns, into the least power of two of slices not above it, at most as many as ranks. "
        "null: none, but with more ranks than tables the largest are halved until every rank has a slice.",
        OR_NULL(-1)),
    INT("parallel.device_embedding_elements", parallel.device_embedding_elements, "null", 0, MAX_ELEMENTS, "elements",
        "Weights of tables that a rank's device has room for; optimizer state comes on top. The largest tables beyond it that host "
        "memory has room for live there, page-locked, and rows that are used often in a cache on the device, which has at least half of the room. "
        "Results are the same. On CPU it changes nothing. null: no limit.", OR_NULL(-1)),
    BOOL("parallel.host_cache", parallel.host_cache, "true",
         "false: rows of tables in host memory are read and written where they lie, which is slower, and the device has room for "
         "other tables alone."),
    FLOAT("parallel.timeout_s", parallel.timeout_s, "300", 0.001, 1e9, "seconds",
          "A collective that takes longer ends the job."),

    SECTION("data", "Where rows come from."),
    NAME("data.format", data.format, REQUIRED, formats,
         "split_binary: a file per feature, described by feature_spec.yaml or model_size.json. mlperf_bin, hugectr_raw: "
         "files of records. npy: torchrec's arrays, three files a day. synthetic: made up. docs/data.md describes each."),
    TEXT("data.path", data.path, "null", "a path", "Folder of the data; required unless synthetic.", OR_NULL(0)),
    TEXT("data.train_files", data.train_files, "null", "names",
         "mlperf_bin, hugectr_raw, npy: the training files in data.path, in order: names separated by commas, in which * "
         "and ? stand for any text and character; those of one pattern go by their numbers. npy: the names' part before "
         "_labels.npy. null: *_train.bin or train_data.bin; npy: all of day_* but the test files.",
         OR_NULL(0)),
    TEXT("data.test_files", data.test_files, "null", "names",
         "The same of the test split. null: *_test.bin or test_data.bin; npy: the last of several day_*. None of these: "
         "no test split.",
         OR_NULL(0)),
    NAME("data.test_part", data.test_part, "all", test_parts,
         "mlperf_bin, hugectr_raw, npy: which rows of the test files are the test split. first_half, rounded up: of "
         "Criteo's last day what MLPerf scores."),
    NAME("data.dense_type", data.dense_type, "auto", dense_types,
         "What the dense values of mlperf_bin and hugectr_raw are: int32 counts x, which stand for ln(x + 1), or float32, "
         "used as they are. auto: as the values look; an error where that is not clear."),
    BOOL("data.shuffle", data.shuffle, "false",
         "Another order of the training rows in every epoch, by blocks and within a window (docs/data.md). Synthetic rows "
         "come in no order: false."),
    NAME("data.index_check", data.index_check, "error", index_checks,
         "An id outside its table: error stops the run; clamp takes row 0 and counts it in the log; modulo takes the id "
         "modulo the table's rows (a negative one stops the run)."),
    SECTION("data.synthetic", "For format: synthetic."),
    FLOAT("data.synthetic.alpha", data.synthetic.alpha, "1.05", 0, 8, "1", "Power law of the ids. 0: uniform."),
    INT("data.synthetic.batches", data.synthetic.batches, "10", 1, 0x1p31, "batches", "Distinct batches, an epoch."),
    NAME("data.synthetic.dense", data.synthetic.dense_lognormal, "lognormal", dense_values,
         "lognormal: exp of a standard normal. uniform: [0, 100)."),
    NAME("data.synthetic.labels", data.synthetic.labels_planted, "planted", label_sources,
         "planted: from a hidden model of the inputs. random: coin flips."),

    SECTION("eval", "Scoring of the test split: loss and exact AUC."),
    INT("eval.every_steps", eval.every_steps, "0", 0, MAX_STEPS, "steps", "Interval. 0 or null: off.", OR_NULL(0)),
    BOOL("eval.every_epoch", eval.every_epoch, "true", "At the end of an epoch, and where training ends within one."),
    INT("eval.batch_size", eval.batch_size, "null", 1, MAX_BATCH, "samples",
        "Global batch; the results do not depend on it. null: train.batch_size.", OR_NULL(0)),
    INT("eval.max_samples", eval.max_samples, "0", 0, MAX_STEPS, "samples",
        "Only the first so many rows, of --eval and --predict, too. 0 or null: all.", OR_NULL(0)),
    FLOAT("eval.target_auc", eval.target_auc, "null", 0, 1, "1",
          "Training stops when an evaluation reaches it, so every_epoch or every_steps is needed. 0 or null: off.", OR_NULL(0)),

    SECTION("checkpoint", "Saved weights and state."),
    TEXT("checkpoint.path", checkpoint.path, "null", "a path",
         "Folder of the checkpoints; one is always written at the end. null: nothing is saved.", OR_NULL(0)),
    INT("checkpoint.every_steps", checkpoint.every_steps, "0", 0, MAX_STEPS, "steps", "Interval. 0 or null: off.",
        OR_NULL(0)),
    FLOAT("checkpoint.every_minutes", checkpoint.every_minutes, "0", 0, 1e7, "minutes", "Interval. 0 or null: off.",
          OR_NULL(0)),
    INT("checkpoint.keep", checkpoint.keep, "2", 1, 1 << 20, "checkpoints", "The latest so many stay."),
    TEXT("checkpoint.resume", checkpoint.resume, "auto", "a path",
         "auto: go on from the newest checkpoint in checkpoint.path, if any. never: start anew. Or a "
         "checkpoint's folder.",
         .names = resumes),
    TEXTS("checkpoint.allow_changed", checkpoint.allow_changed, "keys",
          "Keys, or sections, that may differ from those of the checkpoint that is resumed: [optimizer.schedule]."),
    TEXT("checkpoint.init_from", checkpoint.init_from, "null", "a path",
         "Initial weights: a safetensors file, or a folder of them.", OR_NULL(0)),
    TEXT("checkpoint.export", checkpoint.export_to, "null", "a path",
         "Folder for the final weights as safetensors, written when training ends by a limit or target_auc.",
         OR_NULL(0)),
    TEXT("checkpoint.name_map", checkpoint.name_map, "null", "a path",
         "YAML map `name in init_from's file: our name`, where one `*` on both sides stands for the same text.",
         OR_NULL(0)),

    SECTION("log", "What the run tells."),
    INT("log.every_steps", log.every_steps, "100", 0, MAX_STEPS, "steps", "Interval of step lines. 0 or null: off.",
        OR_NULL(0)),
    TEXT("log.jsonl", log.jsonl, "null", "a path", "File of JSON lines, one event each: docs/log.md.", OR_NULL(0)),
    NAME("log.progress", log.progress, "auto", progresses, "A progress bar. auto: on a terminal."),
    TEXT("log.tensorboard", log.tensorboard, "null", "a path",
         "Folder of TensorBoard event files: the numbers of the log's step and eval events. Each run adds a file.", OR_NULL(0)),
    TEXT("log.mlperf", log.mlperf, "null", "a path", "File of MLPerf's log lines of a training: docs/log.md.", OR_NULL(0)),
};
#undef OWNER
const dlrm_key_table dlrm_config_keys = KEY_TABLE(config_keys);

static const char *name_of(const dlrm_key_name *names, int value)
{
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "?";
}

const char *dlrm_interaction_text(dlrm_interaction v)
{
    return name_of(interactions, (int)v);
}

const char *dlrm_combiner_text(dlrm_combiner v)
{
    return name_of(combiners, (int)v);
}

const char *dlrm_strategy_text(dlrm_strategy v)
{
    return name_of(strategies, (int)v);
}

const char *dlrm_evict_text(dlrm_evict v)
{
    return name_of(evictions, (int)v);
}

const char *dlrm_optimizer_text(dlrm_optimizer_name v)
{
    return name_of(optimizers, (int)v);
}

const char *dlrm_format_text(dlrm_format v)
{
    return name_of(formats, (int)v);
}

const char *dlrm_dtype_text(dlrm_dtype v)
{
    return v == DLRM_DTYPE_AUTO ? "auto" : name_of(precisions, (int)v);
}
