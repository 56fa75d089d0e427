/* The CUDA kernels alone, against plain loops in double, element by element: tolerances follow from the number of terms
 * and the rounding of the types. Each op runs twice and must give the same bits. Needs a GPU and nothing else. */
#include "cuda_test.cuh"

#include <tuple>

#include "base/rng.h"

static int cases, failures;

static void check(bool ok, const char *what, const char *detail)
{
    cases++;
    if (ok) return;
    failures++;
    if (failures <= 40) printf("FAIL %s: %s\n", what, detail);
}

/* got within tolerance of want, everywhere; reports the first that is not. */
static void check_close(const std::vector<float> &got, const std::vector<double> &want, const std::vector<double> &tolerance,
                        const char *what)
{
    char detail[200] = "";
    for (size_t i = 0; i < got.size(); i++)
        if (!(std::fabs(got[i] - want[i]) <= tolerance[i])) {
            snprintf(detail, sizeof detail, "element %zu of %zu: %.9g, expected %.9g ± %.3g", i, got.size(), got[i], want[i], tolerance[i]);
            break;
        }
    check(detail[0] == 0, what, detail);
}

static void check_same(const std::vector<float> &a, const std::vector<float> &b, const char *what)
{
    check(a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0, what, "bits differ");
}

/* --- embeddings --- */

struct embedding_case {
    const char *name;
    std::vector<std::pair<int64_t, int>> tables;          /* rows, dim */
    std::vector<std::tuple<int, int, bool, bool>> inputs; /* table, hotness, variable, mean */
    int64_t B;
    double skew; /* share of ids that are row 0 */
};

/* ids of the case; `hot` says which. */
static void make_batch(test_shard &s, const embedding_case &c, random_source &r)
{
    s.ids.assign(s.inputs.size(), {});
    s.offsets.assign(s.inputs.size(), {});
    for (size_t j = 0; j < s.inputs.size(); j++) {
        const dlrm_cuda_input &in = s.inputs[j];
        if (in.variable) s.offsets[j].push_back(0);
        for (int64_t b = 0; b < c.B; b++) {
            const int64_t n = in.variable ? r.below(in.hotness + 1) : in.hotness;
            for (int64_t k = 0; k < n; k++)
                s.ids[j].push_back(r.unit() < c.skew ? 0 : r.below(s.tables[(size_t)in.table].rows));
            if (in.variable) s.offsets[j].push_back((int64_t)s.ids[j].size());
        }
    }
    s.feed(c.B);
}

static void open_case(test_shard &s, const embedding_case &c, dlrm_dtype type, random_source &r)
{
    for (auto &t : c.tables) s.add_table(t.first, t.second);
    for (auto &i : c.inputs) s.add_input(std::get<0>(i), std::get<1>(i), std::get<2>(i), std::get<3>(i));
    s.weights = std::vector<device_array>(s.tables.size());
    s.state0 = std::vector<device_array>(s.tables.size());
    s.state1 = std::vector<device_array>(s.tables.size());
    for (size_t t = 0; t < s.tables.size(); t++) {
        const int64_t n = s.tables[t].rows * s.tables[t].dim;
        s.weights[t].make(type, n);
        s.weights[t].randomize(r);
        s.state0[t].make(DLRM_FP32, n);
        s.state1[t].make(DLRM_FP32, n);
        s.tables[t].weight = s.weights[t].device;
        s.tables[t].state[0] = (float *)s.state0[t].device;
        s.tables[t].state[1] = (float *)s.state1[t].device;
    }
    s.open(type, c.B + 3);
    make_batch(s, c, r);
}

static void test_lookup(test_shard &s, dlrm_dtype type, const char *name)
{
    std::vector<double> want((size_t)(s.B * s.width)), tolerance(want.size());
    for (size_t j = 0; j < s.inputs.size(); j++) {
        const dlrm_cuda_input &in = s.inputs[j];
        const int dim = s.tables[(size_t)in.table].dim;
        const std::vector<float> &w = s.weights[(size_t)in.table].host;
        for (int64_t b = 0; b < s.B; b++) {
            const int64_t from = s.begin((int)j, b), to = s.begin((int)j, b + 1);
            for (int d = 0; d < dim; d++) {
                double sum = 0, size = 0;
                for (int64_t i = from; i < to; i++) {
                    const double x = w[(size_t)(s.ids[j][(size_t)i] * dim + d)];
                    sum += x;
                    size += std::fabs(x);
                }
                const double by = in.mean && to > from ? 1.0 / (double)(to - from) : 1;
                const size_t at = (size_t)(b * s.width + in.column + d);
                want[at] = sum * by;
                tolerance[at] = unit_of(type) * std::fabs(sum * by) * 1.01 + (double)(to - from + 2) * 0x1p-24 * size * by + tiny_of(type);
            }
        }
    }
    device_array out;
    out.make(type, s.B * s.width);
    out.set(NAN);
    MUST(dlrm_cuda_lookup(&s.shard, s.bags.p, s.B, out.device, type, 0));
    const std::vector<float> got = out.download();
    check_close(got, want, tolerance, name);
    out.set(NAN);
    MUST(dlrm_cuda_lookup(&s.shard, s.bags.p, s.B, out.device, type, 0));
    check_same(got, out.download(), name);
}

struct pair {
    int64_t key;
    uint32_t bag;
};

/* The pairs in (row, sample, input, position) order. */
static std::vector<pair> sorted_pairs(const test_shard &s)
{
    std::vector<pair> all;
    for (size_t t = 0; t < s.tables.size(); t++) {
        std::vector<std::vector<uint32_t>> by_row((size_t)s.tables[t].rows);
        for (int64_t b = 0; b < s.B; b++)
            for (size_t j = 0; j < s.inputs.size(); j++)
                if (s.inputs[j].table == (int)t)
                    for (int64_t i = s.begin((int)j, b); i < s.begin((int)j, b + 1); i++)
                        by_row[(size_t)s.ids[j][(size_t)i]].push_back((uint32_t)(b * (int64_t)s.inputs.size() + (int64_t)j));
        for (size_t row = 0; row < by_row.size(); row++)
            for (uint32_t bag : by_row[row]) all.push_back({s.tables[t].first_key + (int64_t)row, bag});
    }
    return all;
}

static void test_sort(test_shard &s, const char *name)
{
    MUST(dlrm_cuda_sort(&s.shard, s.bags.p, s.B, &s.sorted, s.work.p, 0));
    const size_t n = (size_t)(s.B * s.shard.pairs);
    std::vector<uint32_t> bags(n), keys32(n);
    std::vector<int64_t> keys(n);
    MUST(cudaMemcpy(bags.data(), s.sorted.bags, n * 4, cudaMemcpyDeviceToHost));
    if (s.shard.wide_keys)
        MUST(cudaMemcpy(keys.data(), s.sorted.keys, n * 8, cudaMemcpyDeviceToHost));
    else
        MUST(cudaMemcpy(keys32.data(), s.sorted.keys, n * 4, cudaMemcpyDeviceToHost));
    const std::vector<pair> want = sorted_pairs(s);
    size_t at = 0;
    bool same = true;
    for (size_t i = 0; i < n; i++) {
        if (bags[i] == UINT32_MAX) continue;
        const int64_t key = s.shard.wide_keys ? keys[i] : keys32[i];
        same = same && at < want.size() && want[at].key == key && want[at].bag == bags[i];
        at++;
    }
    check(same && at == want.size(), name, "order of pairs");
}

static dlrm_rule make_rule(dlrm_optimizer_name name, bool momentum)
{
    dlrm_rule r = {};
    r.name = name;
    r.lr = 0.125f;
    r.momentum = momentum ? 0.9f : 0;
    r.epsilon = 1e-4f;
    r.beta1 = 0.9f;
    r.beta2 = 0.99f;
    r.adam_rate = 0.3f;
    r.adam_root = 1.25f;
    return r;
}

/* One element: new w, s0, s1 and how far the kernel may be off, given its gradient's error. square: rowwise adagrad's. */
struct element {
    double w, s0, s1;
};

static element apply(const dlrm_rule &r, element x, double g, double square)
{
    switch (r.name) {
    case DLRM_SGD:
        if (r.momentum == 0) return {x.w - r.lr * g, x.s0, x.s1};
        x.s0 = r.momentum * x.s0 + g;
        return {x.w - r.lr * x.s0, x.s0, x.s1};
    case DLRM_ADAGRAD: x.s0 += g * g; return {x.w - r.lr * g / (std::sqrt(x.s0) + r.epsilon), x.s0, x.s1};
    case DLRM_ROWWISE_ADAGRAD: x.s0 += square; return {x.w - r.lr * g / (std::sqrt(x.s0) + r.epsilon), x.s0, x.s1};
    case DLRM_ADAM:
        x.s0 = r.beta1 * x.s0 + (1.0 - r.beta1) * g;
        x.s1 = r.beta2 * x.s1 + (1.0 - r.beta2) * g * g;
        return {x.w - r.adam_rate * x.s0 / (std::sqrt(x.s1) * r.adam_root + r.epsilon), x.s0, x.s1};
    }
    return x;
}

static dlrm_cuda_step make_step(const dlrm_rule &rule)
{
    dlrm_cuda_step step = {};
    step.dense = step.embedding = rule;
    step.seed = 5;
    step.step = 9;
    step.loss_scale = 4;
    step.unscale = 0.25f;
    return step;
}

static void set_state(test_shard &s)
{
    for (size_t t = 0; t < s.tables.size(); t++) {
        s.weights[t].upload();
        for (float &x : s.state0[t].host) x = 0.5f;
        for (float &x : s.state1[t].host) x = 0.25f;
        s.state0[t].upload();
        s.state1[t].upload();
    }
}

static std::vector<float> run_update(test_shard &s, const device_array &g, dlrm_dtype type, const dlrm_rule &rule,
                                     const device_values<dlrm_cuda_step> &step)
{
    set_state(s);
    MUST(dlrm_cuda_update(&s.shard, s.bags.p, s.B, &s.sorted, g.device, type, rule.name, rule.momentum != 0, step.p, 0));
    std::vector<float> all;
    for (size_t t = 0; t < s.tables.size(); t++)
        for (const device_array *a : {&s.weights[t], &s.state0[t], &s.state1[t]}) {
            const std::vector<float> x = a->download();
            all.insert(all.end(), x.begin(), x.end());
        }
    return all;
}

static void test_update(test_shard &s, dlrm_dtype type, const dlrm_rule &rule, random_source &r, const char *name)
{
    const dlrm_dtype stored = s.shard.dtype;
    device_array g;
    g.make(type, s.B * s.width);
    g.randomize(r, 2);
    dlrm_cuda_step settings = make_step(rule);
    device_values<dlrm_cuda_step> step;
    step.make(std::vector<dlrm_cuda_step>{settings});
    const std::vector<float> got = run_update(s, g, type, rule, step);
    check_same(got, run_update(s, g, type, rule, step), name);
    std::vector<double> want, tolerance;
    for (size_t t = 0; t < s.tables.size(); t++) {
        const int dim = s.tables[t].dim;
        const size_t n = s.weights[t].host.size();
        std::vector<double> sum(n), size(n), count((size_t)s.tables[t].rows);
        for (size_t j = 0; j < s.inputs.size(); j++) {
            if (s.inputs[j].table != (int)t) continue;
            for (int64_t b = 0; b < s.B; b++) {
                const int64_t from = s.begin((int)j, b), to = s.begin((int)j, b + 1);
                const double by = settings.unscale * (s.inputs[j].mean ? 1.0 / (double)(to - from) : 1);
                for (int64_t i = from; i < to; i++) {
                    const int64_t row = s.ids[j][(size_t)i];
                    count[(size_t)row]++;
                    for (int d = 0; d < dim; d++) {
                        const double x = by * g.host[(size_t)(b * s.width + s.inputs[j].column + d)];
                        sum[(size_t)(row * dim + d)] += x;
                        size[(size_t)(row * dim + d)] += std::fabs(x);
                    }
                }
            }
        }
        const bool rowwise = rule.name == DLRM_ROWWISE_ADAGRAD;
        std::vector<double> w(n), s0(n, 0.5), s1(n, 0.25), tw(n), t0(n), t1(n);
        for (size_t row = 0; row < count.size(); row++) {
            double square = 0, most = 0;
            for (int d = 0; d < dim; d++) square += sum[row * dim + d] * sum[row * dim + d] / dim;
            for (int d = 0; d < dim; d++) most = std::fmax(most, size[row * dim + d]);
            for (int d = 0; d < dim; d++) {
                const size_t i = row * (size_t)dim + (size_t)d;
                const element old = {s.weights[t].host[i], 0.5, 0.25};
                w[i] = old.w;
                if (count[row] == 0) continue;
                const element x = apply(rule, old, sum[i], square);
                /* the sum's error: 1.25 sqrt-free bound, terms in at most three levels of 32 */
                const double eg = 0x1p-24 * (std::fmin(count[row], 32) + 70 + 2) * size[i], em = 0x1p-24 * 104 * most;
                const element up = apply(rule, old, sum[i] + eg, square + 2 * em * most),
                              down = apply(rule, old, sum[i] - eg, square - 2 * em * most);
                w[i] = x.w;
                tw[i] = std::fabs(up.w - x.w) + std::fabs(down.w - x.w) + 0x1p-21 * (std::fabs(x.w) + std::fabs(x.w - old.w) + 1e-3);
                if (stored != DLRM_FP32) tw[i] += 2.02 * unit_of(stored) * std::fabs(x.w) + tiny_of(stored);
                if (rule.name == DLRM_SGD && rule.momentum == 0) continue;
                if (rowwise) {
                    s0[row] = x.s0;
                    t0[row] = 2 * em * most + 0x1p-22 * x.s0;
                    continue;
                }
                s0[i] = x.s0;
                t0[i] = std::fabs(up.s0 - x.s0) + std::fabs(down.s0 - x.s0) + 0x1p-21 * (std::fabs(x.s0) + 0.5);
                if (rule.name != DLRM_ADAM) continue;
                s1[i] = x.s1;
                t1[i] = std::fabs(up.s1 - x.s1) + std::fabs(down.s1 - x.s1) + 0x1p-21 * x.s1;
            }
        }
        for (const std::vector<double> *v : {&w, &s0, &s1}) want.insert(want.end(), v->begin(), v->end());
        for (const std::vector<double> *v : {&tw, &t0, &t1}) tolerance.insert(tolerance.end(), v->begin(), v->end());
    }
    check_close(got, want, tolerance, name);
    settings.skip = 1;
    step.make(std::vector<dlrm_cuda_step>{settings});
    const std::vector<float> skipped = run_update(s, g, type, rule, step);
    std::vector<float> before;
    for (size_t t = 0; t < s.tables.size(); t++)
        for (const device_array *a : {&s.weights[t], &s.state0[t], &s.state1[t]}) before.insert(before.end(), a->host.begin(), a->host.end());
    check_same(skipped, before, name);
}

static const struct {
    dlrm_optimizer_name name;
    bool momentum;
} rules[] = {{DLRM_SGD, false}, {DLRM_SGD, true}, {DLRM_ADAGRAD, false}, {DLRM_ROWWISE_ADAGRAD, false}, {DLRM_ADAM, false}};
static const dlrm_dtype types[] = {DLRM_FP32, DLRM_BF16, DLRM_FP16};

static void test_embeddings(void)
{
    const std::vector<embedding_case> all = {
        {"one-hot", {{1000, 128}, {50, 128}, {7, 128}}, {{0, 1, false, false}, {1, 1, false, false}, {2, 1, false, false}}, 777, 0},
        {"mixed widths", {{100, 8}, {100, 16}, {31, 4}, {9, 64}, {20, 200}}, {{0, 1, 0, 0}, {1, 10, 0, 0}, {2, 3, 0, 1}, {3, 2, 0, 0}, {4, 1, 0, 1}}, 300, 0.2},
        {"odd widths", {{100, 5}, {64, 33}, {10, 1}, {40, 150}}, {{0, 2, 0, 0}, {1, 1, 0, 1}, {2, 4, 0, 0}, {3, 1, 0, 0}}, 201, 0},
        {"shared and variable", {{60, 16}, {300, 32}}, {{0, 3, 1, 0}, {1, 1, 0, 0}, {0, 2, 0, 1}, {1, 5, 1, 1}, {0, 1, 0, 0}}, 257, 0.1},
        {"one row takes all", {{10, 128}, {10, 16}, {10, 300}}, {{0, 1, 0, 0}, {1, 2, 0, 0}, {2, 1, 0, 0}}, 3333, 1},
        {"half on one row", {{5000, 128}, {5000, 8}}, {{0, 1, 0, 0}, {1, 4, 1, 0}}, 2100, 0.5},
        {"more rows than 32 bits count", {{1000, 4}}, {{0, 2, 0, 0}}, 100, 0},
        {"one sample", {{3, 8}, {4, 8}}, {{0, 1, 0, 0}, {1, 1, 1, 0}}, 1, 0},
    };
    char name[200];
    random_source r;
    for (const embedding_case &c : all)
        for (dlrm_dtype stored : types) {
            test_shard s;
            open_case(s, c, stored, r);
            if (strstr(c.name, "32 bits")) { /* as if the table were that large: wide keys */
                s.shard.wide_keys = true;
                s.shard.key_bits = 34;
                s.work.make(s.shard.work_bytes * 4 + (1 << 20));
                s.sorted_memory.make(s.shard.batch_bytes * 4);
                s.shard.sort_bytes *= 2;
                dlrm_cuda_sorted_bind(&s.shard, s.sorted_memory.p, &s.sorted);
            }
            for (dlrm_dtype type : types) {
                snprintf(name, sizeof name, "lookup, %s, tables %s, out %s", c.name, type_names[stored], type_names[type]);
                test_lookup(s, type, name);
            }
            snprintf(name, sizeof name, "sort, %s", c.name);
            test_sort(s, name);
            for (auto &k : rules)
                for (dlrm_dtype type : types) {
                    snprintf(name, sizeof name, "update, %s, rule %d%s, tables %s, gradients %s", c.name, k.name, k.momentum ? " momentum" : "",
                             type_names[stored], type_names[type]);
                    test_update(s, type, make_rule(k.name, k.momentum), r, name);
                }
        }
}

/* A row's update does not depend on which other tables stand beside it. */
static void test_placement(void)
{
    random_source r;
    const embedding_case both = {"", {{37, 32}, {11, 128}}, {{0, 3, 0, 0}, {1, 1, 0, 0}}, 5000, 0.3};
    test_shard a, b;
    open_case(a, both, DLRM_FP32, r);
    b.add_table(11, 128);
    b.tables[0].stream = a.tables[1].stream;
    b.add_input(0, 1, false, false);
    b.weights = std::vector<device_array>(1);
    b.weights[0].make(DLRM_FP32, 11 * 128);
    b.weights[0].host = a.weights[1].host;
    b.weights[0].upload();
    b.tables[0].weight = b.weights[0].device;
    b.open(DLRM_FP32, 5000);
    b.ids = {a.ids[1]};
    b.offsets = {{}};
    b.feed(5000);
    device_array ga, gb;
    ga.make(DLRM_FP32, 5000 * a.width);
    ga.randomize(r);
    gb.make(DLRM_FP32, 5000 * b.width);
    for (int64_t s = 0; s < 5000; s++)
        for (int d = 0; d < 128; d++) gb.host[(size_t)(s * 128 + d)] = ga.host[(size_t)(s * a.width + a.inputs[1].column + d)];
    gb.upload();
    device_values<dlrm_cuda_step> step;
    step.make(std::vector<dlrm_cuda_step>{make_step(make_rule(DLRM_SGD, false))});
    for (auto p : {std::make_pair(&a, &ga), std::make_pair(&b, &gb)}) {
        MUST(dlrm_cuda_sort(&p.first->shard, p.first->bags.p, 5000, &p.first->sorted, p.first->work.p, 0));
        MUST(dlrm_cuda_update(&p.first->shard, p.first->bags.p, 5000, &p.first->sorted, p.second->device, DLRM_FP32, DLRM_SGD, false, step.p, 0));
    }
    check_same(a.weights[1].download(), b.weights[0].download(), "update of a table alone and among others");
}

/* Stochastic rounding keeps the mean: 1 + 1/4 of a step rounds up for a quarter of the elements. */
static void test_rounding(void)
{
    for (dlrm_dtype type : {DLRM_BF16, DLRM_FP16}) {
        const int dim = 128, rows = 512;
        random_source r;
        test_shard s;
        const embedding_case c = {"", {{rows, dim}}, {{0, 1, 0, 0}}, rows, 0};
        open_case(s, c, type, r);
        for (int i = 0; i < rows; i++) s.ids[0][(size_t)i] = i;
        s.feed(rows);
        s.weights[0].set(1);
        device_array g;
        g.make(DLRM_FP32, rows * dim);
        const double up = 4 * unit_of(type) / 2; /* a step above 1 */
        dlrm_rule rule = make_rule(DLRM_SGD, false);
        g.set((float)(-up / 4 / rule.lr * 4)); /* unscaled by 1/4 */
        device_values<dlrm_cuda_step> step;
        step.make(std::vector<dlrm_cuda_step>{make_step(rule)});
        MUST(dlrm_cuda_sort(&s.shard, s.bags.p, rows, &s.sorted, s.work.p, 0));
        MUST(dlrm_cuda_update(&s.shard, s.bags.p, rows, &s.sorted, g.device, DLRM_FP32, DLRM_SGD, false, step.p, 0));
        double sum = 0;
        for (float x : s.weights[0].download()) sum += (x - 1) / up;
        char detail[100];
        snprintf(detail, sizeof detail, "mean %.4f steps, expected 0.25", sum / (rows * dim));
        check(std::fabs(sum / (rows * dim) - 0.25) < 0.01, "stochastic rounding", detail);
    }
}

/* --- interaction --- */

struct interact_case {
    dlrm_interaction kind;
    int n, D, pool_stride, misalign; /* misalign: elements that data, stride and out are off 16 bytes */
    int64_t b;
    bool relu;
};

static void test_interact(const interact_case &c, dlrm_dtype type, bool exact, random_source &r)
{
    char name[200];
    snprintf(name, sizeof name, "interaction %d, %s%s, n %d, D %d, stride %d, misaligned %d, b %lld", c.kind, type_names[type],
             type == DLRM_FP32 && !exact ? " as tf32" : "", c.n, c.D, c.pool_stride, c.misalign, (long long)c.b);
    std::vector<dlrm_cuda_slot> slots((size_t)c.n);
    std::vector<device_array> data((size_t)c.n), grad((size_t)c.n);
    int w = 0, out_width;
    for (int i = 0; i < c.n; i++) {
        const int width = c.kind == DLRM_DOT ? c.D : i == 0 ? (c.D % 2 ? 0 : c.D / 2) : c.D + (c.misalign ? i % 3 : i % 3 * 4);
        const int64_t stride = width + 16 + c.misalign;
        data[(size_t)i].make(type, c.b * stride + c.misalign);
        data[(size_t)i].randomize(r);
        grad[(size_t)i].make(type, c.b * stride + c.misalign);
        grad[(size_t)i].set(77);
        const size_t off = (size_t)c.misalign * storage_bytes(type);
        slots[(size_t)i] = {(char *)data[(size_t)i].device + off, (char *)grad[(size_t)i].device + off, stride, stride, width, 0};
        if (i == c.n / 2 && c.n > 2) slots[(size_t)i].grad = NULL;
    }
    for (int i = c.kind == DLRM_POOL ? 1 : 0; i < c.n; w += slots[(size_t)i++].width) slots[(size_t)i].column = w;
    const int windows = c.kind == DLRM_POOL ? (w + c.pool_stride - 1) / c.pool_stride : 0;
    out_width = c.kind == DLRM_DOT ? c.D + c.n * (c.n - 1) / 2 : c.kind == DLRM_CAT ? w : windows + slots[0].width;
    if (c.kind == DLRM_POOL) slots[0].column = windows;
    const int64_t out_stride = c.misalign ? out_width + c.misalign : (out_width + 7) / 8 * 8;
    device_array out, d_out;
    out.make(type, c.b * out_stride);
    out.set(NAN);
    d_out.make(type, c.b * out_stride);
    d_out.randomize(r);
    device_values<dlrm_cuda_slot> device_slots;
    device_slots.make(slots);
    dlrm_cuda_interact a = {};
    a.kind = c.kind;
    a.type = type;
    a.exact = exact;
    a.pool_stride = c.pool_stride;
    a.n_slots = c.n;
    for (auto &s : slots) a.max_width = s.width > a.max_width ? s.width : a.max_width;
    a.slots = device_slots.p;
    a.host_slots = slots.data();
    a.b = c.b;
    a.out_width = out_width;
    a.out_stride = out_stride;
    a.out = out.device;
    a.d_out = d_out.device;
    a.slot0_is_relu = c.relu;

    const double u = type == DLRM_FP32 && !exact ? 0x1p-10 : 0x1p-24 * (c.D + c.n + 4); /* per unit of |x y| summed */
    std::vector<double> want((size_t)(c.b * out_stride)), tolerance(want.size());
    std::vector<std::vector<double>> want_grad((size_t)c.n), grad_tolerance((size_t)c.n);
    for (int i = 0; i < c.n; i++) {
        want_grad[(size_t)i].assign(grad[(size_t)i].host.begin(), grad[(size_t)i].host.end());
        grad_tolerance[(size_t)i].assign(grad[(size_t)i].host.size(), 0);
    }
    auto at = [&](int i, int64_t s, int d) { return (size_t)(c.misalign + s * slots[(size_t)i].stride + d); };
    auto x = [&](int i, int64_t s, int d) { return (double)data[(size_t)i].host[at(i, s, d)]; };
    for (int64_t s = 0; s < c.b; s++) {
        const float *g = &d_out.host[(size_t)(s * out_stride)];
        const size_t o = (size_t)(s * out_stride);
        auto put_grad = [&](int i, int d, double value, double size) {
            if (!slots[(size_t)i].grad) return;
            const bool off = i == 0 && c.relu && !(x(0, s, d) > 0);
            want_grad[(size_t)i][at(i, s, d)] = off ? 0 : value;
            grad_tolerance[(size_t)i][at(i, s, d)] = off ? 0 : u * size + 1.01 * unit_of(type) * std::fabs(value) + tiny_of(type);
        };
        auto put = [&](int k, double value, double size) {
            want[o + (size_t)k] = value;
            tolerance[o + (size_t)k] = u * size + 1.01 * unit_of(type) * std::fabs(value) + tiny_of(type);
        };
        if (c.kind == DLRM_DOT) {
            for (int d = 0; d < c.D; d++) put(d, x(0, s, d), 0);
            for (int i = 0; i < c.n; i++)
                for (int j = 0; j < i; j++) {
                    double sum = 0, size = 0;
                    for (int d = 0; d < c.D; d++) sum += x(i, s, d) * x(j, s, d), size += std::fabs(x(i, s, d) * x(j, s, d));
                    put(c.D + i * (i - 1) / 2 + j, sum, size);
                }
            for (int i = 0; i < c.n; i++)
                for (int d = 0; d < c.D; d++) {
                    double sum = i == 0 ? g[d] : 0, size = std::fabs(sum);
                    for (int j = 0; j < c.n; j++) {
                        if (i == j) continue;
                        const double p = g[c.D + (i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i)] * x(j, s, d);
                        sum += p, size += std::fabs(p);
                    }
                    put_grad(i, d, sum, size);
                }
        } else if (c.kind == DLRM_CAT) {
            for (int i = 0; i < c.n; i++)
                for (int d = 0; d < slots[(size_t)i].width; d++) {
                    put(slots[(size_t)i].column + d, x(i, s, d), 0);
                    put_grad(i, d, g[slots[(size_t)i].column + d], 0);
                }
        } else {
            const int left = (windows * c.pool_stride - w) / 2;
            for (int k = 0; k < windows; k++) {
                double sum = 0, size = 0;
                int inside = 0;
                for (int pass = 0; pass < 2; pass++)
                    for (int e = k * c.pool_stride - left; e < k * c.pool_stride - left + c.pool_stride; e++) {
                        if (e < 0 || e >= w) continue;
                        int i = 1;
                        while (e - slots[(size_t)i].column >= slots[(size_t)i].width) i++;
                        const int d = e - slots[(size_t)i].column;
                        if (pass == 0)
                            sum += x(i, s, d), size += std::fabs(x(i, s, d)), inside++;
                        else
                            put_grad(i, d, g[k] / (double)inside, std::fabs(g[k]));
                    }
                put(k, sum / inside, size);
            }
            for (int d = 0; d < slots[0].width; d++) {
                put(windows + d, x(0, s, d), 0);
                put_grad(0, d, g[windows + d], 0);
            }
        }
    }
    MUST(dlrm_cuda_interact_forward(&a, 0));
    const std::vector<float> got = out.download();
    check_close(got, want, tolerance, name);
    out.set(NAN);
    MUST(dlrm_cuda_interact_forward(&a, 0));
    check_same(got, out.download(), name);
    strcat(name, ", backward");
    MUST(dlrm_cuda_interact_backward(&a, 0));
    for (int i = 0; i < c.n; i++) check_close(grad[(size_t)i].download(), want_grad[(size_t)i], grad_tolerance[(size_t)i], name);
}

static void test_interactions(void)
{
    random_source r;
    const interact_case all[] = {
        {DLRM_DOT, 27, 128, 0, 0, 37, true},  {DLRM_DOT, 27, 128, 0, 1, 9, true},   {DLRM_DOT, 3, 16, 0, 0, 50, false},
        {DLRM_DOT, 9, 8, 0, 0, 20, true},     {DLRM_DOT, 16, 64, 0, 0, 21, true},   {DLRM_DOT, 17, 40, 0, 0, 21, true},
        {DLRM_DOT, 32, 24, 0, 0, 9, false},   {DLRM_DOT, 33, 32, 0, 0, 9, true},    {DLRM_DOT, 64, 136, 0, 0, 5, true},
        {DLRM_DOT, 65, 16, 0, 0, 5, true},    {DLRM_DOT, 2, 5, 0, 0, 30, true},     {DLRM_DOT, 1, 16, 0, 0, 3, true},
        {DLRM_DOT, 27, 13, 0, 2, 8, true},    {DLRM_DOT, 450, 128, 0, 0, 2, true},  {DLRM_DOT, 27, 128, 0, 0, 0, true},
        {DLRM_CAT, 5, 16, 0, 0, 33, true},    {DLRM_CAT, 4, 7, 0, 1, 33, true},     {DLRM_CAT, 3, 64, 0, 0, 100, false},
        {DLRM_POOL, 6, 16, 7, 0, 40, true},   {DLRM_POOL, 4, 9, 3, 1, 20, false},   {DLRM_POOL, 3, 32, 1, 0, 17, true},
        {DLRM_POOL, 3, 4, 100, 0, 17, false},
    };
    for (const interact_case &c : all) {
        for (dlrm_dtype type : types) test_interact(c, type, true, r);
        test_interact(c, DLRM_FP32, false, r);
    }
}

/* --- loss, flat arrays --- */

static void test_loss(void)
{
    random_source r;
    struct {
        int64_t b;
        int rank, ranks, chunks;
    } all[] = {{65536, 0, 1, 0}, {1000, 1, 3, 32}, {5, 0, 1, 32}, {3000, 0, 2, 4}, {1, 0, 1, 0}, {0, 0, 1, 8}};
    for (auto &c : all) {
        std::vector<dlrm_cut> cut(1);
        dlrm_cut_make(c.b, c.rank, c.ranks, c.chunks > 0, c.chunks ? c.chunks : 1, &cut[0]);
        const int64_t b = cut[0].at[cut[0].n_leaves];
        device_array z, y, d;
        for (device_array *a : {&z, &y, &d}) a->make(DLRM_FP32, b);
        z.randomize(r, 30);
        for (float &x : y.host) x = (float)r.below(2);
        y.upload();
        device_values<dlrm_cut> device_cut;
        device_cut.make(cut);
        device_values<double> work, loss;
        work.make((size_t)dlrm_cuda_loss_work(&cut[0]));
        loss.make(DLRM_MAX_NODES);
        MUST(dlrm_cuda_loss((float *)z.device, (float *)y.device, (float *)d.device, 0.5f, NULL, device_cut.p, &cut[0], work.p, loss.p, 0));
        const std::vector<double> got = loss.download((size_t)cut[0].n_nodes);
        std::vector<double> want((size_t)b), tolerance((size_t)b);
        std::vector<double> terms((size_t)b);
        for (size_t i = 0; i < (size_t)b; i++) {
            const double t = z.host[i], p = 1 / (1 + std::exp(-t));
            terms[i] = (t > 0 ? t : 0) - t * y.host[i] + std::log1p(std::exp(-std::fabs(t)));
            want[i] = (p - y.host[i]) * 0.5;
            tolerance[i] = 0x1p-24 * std::fabs(want[i]) + 1e-15;
        }
        check_close(d.download(), want, tolerance, "gradient of the loss");
        for (int k = 0; k < cut[0].n_nodes; k++) {
            double sum = 0;
            const int leaf = cut[0].node[k].leaf;
            for (int64_t i = cut[0].at[leaf]; i < cut[0].at[leaf + (1 << cut[0].node[k].level)]; i++) sum += terms[(size_t)i];
            check(std::fabs(got[(size_t)k] - sum) <= 1e-12 * (sum + 1), "loss", "sum of a node");
        }
        MUST(dlrm_cuda_loss((float *)z.device, (float *)y.device, NULL, 0.5f, NULL, device_cut.p, &cut[0], work.p, loss.p, 0));
        check(got == loss.download((size_t)cut[0].n_nodes), "loss alone", "bits differ");
    }
}

static void test_dense_update(void)
{
    random_source r;
    for (auto &k : rules) {
        if (k.name == DLRM_ROWWISE_ADAGRAD) continue;
        for (dlrm_dtype copy_type : types) {
            const int64_t n = 10007;
            const dlrm_rule rule = make_rule(k.name, k.momentum);
            device_array w, g, s0, s1, copy;
            for (device_array *a : {&w, &g, &s0, &s1}) a->make(DLRM_FP32, n);
            copy.make(copy_type, n);
            w.randomize(r);
            g.randomize(r);
            s0.set(0.5f);
            s1.set(0.25f);
            device_values<dlrm_cuda_step> step;
            step.make(std::vector<dlrm_cuda_step>{make_step(rule)});
            MUST(dlrm_cuda_dense_update(n, (float *)w.device, (float *)g.device, (float *)s0.device, (float *)s1.device, k.name, k.momentum,
                                        step.p, copy.device, copy_type, 0));
            std::vector<double> want((size_t)n), tolerance((size_t)n);
            for (size_t i = 0; i < (size_t)n; i++) {
                want[i] = apply(rule, {w.host[i], 0.5, 0.25}, g.host[i] * 0.25, 0).w;
                tolerance[i] = 0x1p-21 * (std::fabs(want[i]) + std::fabs(want[i] - w.host[i]));
            }
            const std::vector<float> got = w.download();
            check_close(got, want, tolerance, "dense update");
            std::vector<float> rounded = got;
            for (float &x : rounded) x = round_to(x, copy_type);
            check_same(copy.download(), rounded, "copy of the weights");
        }
    }
    check(dlrm_cuda_dense_update(1, NULL, NULL, NULL, NULL, DLRM_ROWWISE_ADAGRAD, false, NULL, NULL, DLRM_FP32, 0) ==
              cudaErrorInvalidValue, "dense update", "rowwise adagrad is taken");
}

static void test_flat(void)
{
    random_source r;
    const int64_t n = 5003;
    device_array a, b;
    for (dlrm_dtype type : types)
        for (int64_t first : {0, 3, 12345}) {
            a.make(type, n);
            a.set(NAN);
            MUST(dlrm_cuda_table_init(a.device, type, first, n, 3, 99, 0.01, 0));
            for (int64_t i = 0; i < n; i++)
                a.host[(size_t)i] = round_to((2 * dlrm_rng_uniform(3, 99, (uint64_t)(first + i)) - 1) * (float)0.01, type);
            check_same(a.download(), a.host, "initial values");
        }
    a.make(DLRM_FP32, n);
    MUST(dlrm_cuda_fill((float *)a.device, n, 0.1f, 0));
    for (float &x : a.host) x = 0.1f;
    check_same(a.download(), a.host, "fill");
    for (dlrm_dtype from : types)
        for (dlrm_dtype to : types) {
            a.make(from, 50 * 17);
            a.randomize(r);
            b.make(to, 50 * 24);
            b.set(NAN);
            MUST(dlrm_cuda_convert_rows(a.device, from, 17, b.device, to, 24, 50, 13, 0));
            for (int i = 0; i < 50; i++)
                for (int d = 0; d < 24; d++) b.host[(size_t)(i * 24 + d)] = d < 13 ? round_to(a.host[(size_t)(i * 17 + d)], to) : 0;
            check_same(b.download(), b.host, "conversion");
        }
    for (int parts : {1, 2, 3, 7, 8, 16, 32, 64, 100, 256}) {
        const int64_t stride = 131;
        a.make(DLRM_FP32, parts * stride);
        a.randomize(r);
        std::vector<float> sum = a.host;
        std::vector<int> levels((size_t)parts, 0);
        if (parts == 3) levels = {1, 0, 2};
        struct context {
            float *p;
            int64_t stride;
        } c = {sum.data(), stride};
        dlrm_tree_fold(parts, levels.data(), [](void *ctx, int into, int from) {
            context *x = (context *)ctx;
            for (int i = 0; i < 100; i++) x->p[into * x->stride + i] += x->p[from * x->stride + i];
        }, &c);
        MUST(dlrm_cuda_tree_sum((float *)a.device, stride, 100, parts, levels.data(), 0));
        std::vector<float> got = a.download();
        got.resize(100);
        sum.resize(100);
        check_same(got, sum, "tree sum");
    }
    for (dlrm_dtype type : types)
        for (float bad : {0.0f, INFINITY, -INFINITY, NAN}) {
            a.make(type, n);
            a.randomize(r);
            a.host[4999] = bad;
            a.upload();
            device_values<int32_t> found;
            found.make(std::vector<int32_t>{0});
            MUST(dlrm_cuda_find_nonfinite(a.device, type, n, found.p, 0));
            check(found.download(1)[0] == (bad != 0), "search for infinities", "wrong answer");
        }
}

int main()
{
    test_embeddings();
    printf("embeddings: %d checks, %d failed\n", cases, failures);
    test_placement();
    test_rounding();
    test_interactions();
    printf("and interaction: %d checks, %d failed\n", cases, failures);
    test_loss();
    test_dense_update();
    test_flat();
    MUST(cudaDeviceSynchronize());
    printf("%d checks, %d failed\n", cases, failures);
    return failures != 0;
}
