/* Lookup, sort and update against plain loops in double. */
#include <tuple>

#include "cuda_checks.cuh"

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
                s.ids[j].push_back((uint32_t)(r.unit() < c.skew ? 0 : r.below(s.tables[(size_t)in.table].rows)));
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
                    const double x = w[(size_t)s.ids[j][(size_t)i] * (size_t)dim + (size_t)d];
                    sum += x;
                    size += std::fabs(x);
                }
                const double by = in.mean && to > from ? 1.0 / (double)(to - from) : 1;
                const size_t at = (size_t)(b * s.width + in.column + d);
                want[at] = sum * by;
                tolerance[at] = unit_of(type) * std::fabs(sum * by) * 1.01 +
                                (double)(to - from + 2) * 0x1p-24 * size * by + tiny_of(type);
            }
        }
    }
    device_array out;
    out.make(type, s.B * s.width);
    out.set(NAN);
    MUST(dlrm_cuda_lookup(&s.shard, s.bags.p, s.B, out.device, type, 0, 0));
    const std::vector<float> got = out.download();
    check_close(got, want, tolerance, name);
    out.set(NAN);
    MUST(dlrm_cuda_lookup(&s.shard, s.bags.p, s.B, out.device, type, 0, 0));
    check_same(got, out.download(), name);
    out.set(NAN);
    dlrm_cuda_shard not_plain = s.shard; /* the kernel that knows caches, and vectors side by side */
    not_plain.plain = false;
    MUST(dlrm_cuda_lookup(&not_plain, s.bags.p, s.B, out.device, type, 0, 0));
    check_same(got, out.download(), name);
    for (const dlrm_cuda_shard &shard : {s.shard, not_plain}) { /* beside other kernels */
        out.set(NAN);
        MUST(dlrm_cuda_lookup(&shard, s.bags.p, s.B, out.device, type, 2, 0));
        check_same(got, out.download(), name);
    }
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
                        by_row[(size_t)s.ids[j][(size_t)i]].push_back(
                            (uint32_t)(b * (int64_t)s.inputs.size() + (int64_t)j));
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
    MUST(
        dlrm_cuda_update(&s.shard, s.bags.p, s.B, &s.sorted, g.device, type, rule.name, rule.momentum != 0, NULL, step.p, 0));
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
                /* the sum's error: at most 32 terms, 32 pieces and a few groups are added in turn */
                const double eg = 0x1p-24 * (std::fmin(count[row], 32) + 70 + 2) * size[i], em = 0x1p-24 * 104 * most;
                const element up = apply(rule, old, sum[i] + eg, square + 2 * em * most),
                              down = apply(rule, old, sum[i] - eg, square - 2 * em * most);
                w[i] = x.w;
                tw[i] = std::fabs(up.w - x.w) + std::fabs(down.w - x.w) +
                        0x1p-21 * (std::fabs(x.w) + std::fabs(x.w - old.w) + 1e-3);
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
        for (const device_array *a : {&s.weights[t], &s.state0[t], &s.state1[t]})
            before.insert(before.end(), a->host.begin(), a->host.end());
    check_same(skipped, before, name);
}

static void test_tables(void)
{
    const std::vector<embedding_case> all = {
        {"one-hot",
         {{1000, 128}, {50, 128}, {7, 128}},
         {{0, 1, false, false}, {1, 1, false, false}, {2, 1, false, false}},
         777,
         0},
        {"mixed widths",
         {{100, 8}, {100, 16}, {31, 4}, {9, 64}, {20, 200}},
         {{0, 1, 0, 0}, {1, 10, 0, 0}, {2, 3, 0, 1}, {3, 2, 0, 0}, {4, 1, 0, 1}},
         300,
         0.2},
        {"odd widths",
         {{100, 5}, {64, 33}, {10, 1}, {40, 150}},
         {{0, 2, 0, 0}, {1, 1, 0, 1}, {2, 4, 0, 0}, {3, 1, 0, 0}},
         201,
         0},
        {"shared and variable",
         {{60, 16}, {300, 32}},
         {{0, 3, 1, 0}, {1, 1, 0, 0}, {0, 2, 0, 1}, {1, 5, 1, 1}, {0, 1, 0, 0}},
         257,
         0.1},
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
                snprintf(name, sizeof name, "lookup, %s, tables %s, out %s", c.name, type_names[stored],
                         type_names[type]);
                test_lookup(s, type, name);
            }
            snprintf(name, sizeof name, "sort, %s", c.name);
            test_sort(s, name);
            for (auto &k : rules)
                for (dlrm_dtype type : types) {
                    snprintf(name, sizeof name, "update, %s, rule %d%s, tables %s, gradients %s", c.name, k.name,
                             k.momentum ? " momentum" : "", type_names[stored], type_names[type]);
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
        for (int d = 0; d < 128; d++)
            gb.host[(size_t)(s * 128 + d)] = ga.host[(size_t)(s * a.width + a.inputs[1].column + d)];
    gb.upload();
    device_values<dlrm_cuda_step> step;
    step.make(std::vector<dlrm_cuda_step>{make_step(make_rule(DLRM_SGD, false))});
    for (auto p : {std::make_pair(&a, &ga), std::make_pair(&b, &gb)}) {
        MUST(dlrm_cuda_sort(&p.first->shard, p.first->bags.p, 5000, &p.first->sorted, p.first->work.p, 0));
        MUST(dlrm_cuda_update(&p.first->shard, p.first->bags.p, 5000, &p.first->sorted, p.second->device, DLRM_FP32,
                              DLRM_SGD, false, NULL, step.p, 0));
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
        for (int i = 0; i < rows; i++) s.ids[0][(size_t)i] = (uint32_t)i;
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
        MUST(dlrm_cuda_update(&s.shard, s.bags.p, rows, &s.sorted, g.device, DLRM_FP32, DLRM_SGD, false, NULL, step.p, 0));
        double sum = 0;
        for (float x : s.weights[0].download()) sum += (x - 1) / up;
        char detail[100];
        snprintf(detail, sizeof detail, "mean %.4f steps, expected 0.25", sum / (rows * dim));
        check(std::fabs(sum / (rows * dim) - 0.25) < 0.01, "stochastic rounding", detail);
    }
}

void test_embeddings(void)
{
    test_tables();
    test_placement();
    test_rounding();
}
