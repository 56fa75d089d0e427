/* Times of the CUDA kernels at the sizes that matter, with the bytes that each must move over its time.
 *
 *   cuda_kernels_bench [--small]            on tables in the device's memory
 *   cuda_kernels_bench --host [GiB]         of rows in the host's memory, of which so much is taken: 12 GiB */
#include "cuda_bench.cuh"

/* Lookup, sort and update of a model's tables on one GPU. */
static void time_tables(const char *model, test_shard &s, int64_t B, dlrm_optimizer_name name, bool hot_too)
{
    random_source r;
    char what[200];
    const bool adagrad = name == DLRM_ADAGRAD, rowwise = name == DLRM_ROWWISE_ADAGRAD;
    for (size_t t = 0; t < s.tables.size(); t++) {
        dlrm_cuda_table &table = s.tables[t];
        MUST(cudaMalloc(&table.weight, (size_t)(table.rows * table.dim) * 4));
        MUST(dlrm_cuda_table_init(table.weight, DLRM_FP32, 0, table.rows * table.dim, 1, t, 0.01, 0));
        const int64_t state = adagrad ? table.rows * table.dim : rowwise ? table.rows : 0;
        if (state == 0) continue;
        MUST(cudaMalloc(&table.state[0], (size_t)state * 4));
        MUST(dlrm_cuda_fill(table.state[0], state, 0.1f, 0));
    }
    s.open(DLRM_FP32, B);
    device_array pooled;
    pooled.make(DLRM_BF16, B * s.width);
    pooled.randomize(r, 1e-3f);
    dlrm_cuda_step step = {};
    step.embedding.name = name;
    step.embedding.lr = 1e-3f;
    step.embedding.epsilon = 1e-7f;
    step.unscale = 1;
    device_values<dlrm_cuda_step> device_step;
    device_step.make(std::vector<dlrm_cuda_step>{step});
    double row_elements = 0;
    for (auto &in : s.inputs) row_elements += (double)B * in.hotness * s.tables[(size_t)in.table].dim;
    const double pooled_elements = (double)B * (double)s.width;
    for (int k = 0; k < (hot_too ? 3 : 2); k++) {
        const char *ids = k == 0 ? "uniform ids" : k == 1 ? "alpha 1.05" : "one row a table";
        const double touched = make_ids(s, B, k == 1 ? 1.05 : 0, k == 2, r);
        double ms = time_of([&](int) { MUST(dlrm_cuda_lookup(&s.shard, s.bags.p, B, pooled.device, DLRM_BF16, 0, 0)); });
        snprintf(what, sizeof what, "%s, lookup to bf16, %s", model, ids);
        report(what, ms, row_elements * 4 + pooled_elements * 2);
        ms = time_of([&](int) { MUST(dlrm_cuda_sort(&s.shard, s.bags.p, B, &s.sorted, s.work.p, 0)); });
        snprintf(what, sizeof what, "%s, sort of %.1f M pairs, %s", model, (double)(B * s.shard.pairs) / 1e6, ids);
        report(what, ms, (double)(B * s.shard.pairs) * 17);
        ms = time_of([&](int) {
            MUST(dlrm_cuda_update(&s.shard, s.bags.p, B, &s.sorted, pooled.device, DLRM_BF16, name, false,
                                  NULL, device_step.p, 0));
        });
        snprintf(what, sizeof what, "%s, update (%s), %s", model, adagrad ? "adagrad" : rowwise ? "rowwise adagrad" : "sgd", ids);
        report(what, ms, touched * 8 * (1 + adagrad) + pooled_elements * 2);
    }
    for (auto &t : s.tables) {
        MUST(cudaFree(t.weight));
        MUST(cudaFree(t.state[0]));
    }
}

static void time_interaction(dlrm_dtype type, bool exact)
{
    const int n = 27, D = 128, width = D + n * (n - 1) / 2, stride = 480;
    const int64_t b = 65536;
    const size_t size = dlrm_dtype_bytes(type);
    random_source r;
    device_array bottom, pooled, d_bottom, d_pooled, out;
    bottom.make(type, b * D);
    d_bottom.make(type, b * D);
    pooled.make(type, b * 26 * D);
    d_pooled.make(type, b * 26 * D);
    out.make(type, b * stride);
    bottom.randomize(r);
    pooled.randomize(r);
    std::vector<dlrm_cuda_slot> slots;
    slots.push_back({bottom.device, d_bottom.device, D, D, D, 0});
    for (int i = 0; i < 26; i++)
        slots.push_back({(char *)pooled.device + (size_t)i * D * size, (char *)d_pooled.device + (size_t)i * D * size,
                         26 * D, 26 * D, D, D * (i + 1)});
    device_values<dlrm_cuda_slot> device_slots;
    device_slots.make(slots);
    dlrm_cuda_interact a = {};
    a.kind = DLRM_DOT;
    a.type = a.wire = type;
    a.exact = exact;
    a.n_slots = n;
    a.max_width = D;
    a.slots = device_slots.p;
    a.host_slots = slots.data();
    a.b = b;
    a.out_width = width;
    a.out_stride = stride;
    a.out = out.device;
    a.d_out = out.device;
    a.slot0_is_relu = true;
    char what[100];
    const char *name = type == DLRM_FP32 && !exact ? "tf32" : type_names[type];
    snprintf(what, sizeof what, "dot forward, 27 x 128, %s", name);
    report(what, time_of([&](int) { MUST(dlrm_cuda_interact_forward(&a, 0)); }),
           (double)b * (n * D + stride) * (double)size);
    snprintf(what, sizeof what, "dot backward, 27 x 128, %s", name);
    report(what, time_of([&](int) { MUST(dlrm_cuda_interact_backward(&a, 0)); }),
           (double)b * (2 * n * D + stride) * (double)size);
}

/* pool as in Merlin's Tiny model: 58 vectors, 840 wide, and no stride is given there; 7 as in Jumbo's. */
static void time_concat(dlrm_interaction kind)
{
    const int n = 59, D = 16, w = (n - 1) * D, windows = (w + 6) / 7;
    const int64_t b = 65536;
    random_source r;
    device_array x, dx, out;
    x.make(DLRM_BF16, b * n * D);
    dx.make(DLRM_BF16, b * n * D);
    x.randomize(r);
    std::vector<dlrm_cuda_slot> slots;
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)i * D * 2;
        slots.push_back({(char *)x.device + at, (char *)dx.device + at, n * D, n * D, D,
                         kind == DLRM_CAT ? i * D
                         : i              ? (i - 1) * D
                                          : windows});
    }
    device_values<dlrm_cuda_slot> device_slots;
    device_slots.make(slots);
    dlrm_cuda_interact a = {};
    a.kind = kind;
    a.type = a.wire = DLRM_BF16;
    a.pool_stride = 7;
    a.n_slots = n;
    a.max_width = D;
    a.slots = device_slots.p;
    a.host_slots = slots.data();
    a.b = b;
    a.out_width = kind == DLRM_CAT ? n * D : windows + D;
    a.out_stride = (a.out_width + 7) / 8 * 8;
    out.make(DLRM_BF16, b * a.out_stride);
    a.out = out.device;
    a.d_out = out.device;
    const double bytes = 2.0 * (double)b * (n * D + (double)a.out_stride);
    report(kind == DLRM_CAT ? "cat forward, 59 x 16, bf16" : "pool forward, 58 x 16 + 16, bf16",
           time_of([&](int) { MUST(dlrm_cuda_interact_forward(&a, 0)); }), bytes);
    report(kind == DLRM_CAT ? "cat backward, 59 x 16, bf16" : "pool backward, 58 x 16 + 16, bf16",
           time_of([&](int) { MUST(dlrm_cuda_interact_backward(&a, 0)); }), bytes);
}

static void time_flat(void)
{
    const int64_t b = 65536, n = 2400000;
    random_source r;
    device_array z, y, d, w, g, copy;
    for (device_array *a : {&z, &y, &d}) a->make(DLRM_FP32, b);
    z.randomize(r);
    y.set(1);
    std::vector<dlrm_cut> cut(1);
    dlrm_cut_make(b, 0, 1, false, 1, &cut[0]);
    device_values<dlrm_cut> device_cut;
    device_cut.make(cut);
    device_values<double> work, loss;
    work.make((size_t)dlrm_cuda_loss_work(&cut[0]));
    loss.make(DLRM_MAX_NODES);
    report("loss of 65536 samples", time_of([&](int) {
               MUST(dlrm_cuda_loss((float *)z.device, (float *)y.device, (float *)d.device, 1, NULL, device_cut.p,
                                   &cut[0], work.p, loss.p, 0));
           }),
           (double)b * 12);
    w.make(DLRM_FP32, n);
    g.make(DLRM_FP32, n);
    g.randomize(r);
    copy.make(DLRM_BF16, n);
    dlrm_cuda_step step = {};
    step.dense.name = DLRM_SGD;
    device_values<dlrm_cuda_step> device_step;
    device_step.make(std::vector<dlrm_cuda_step>{step});
    report("dense update (sgd) of 2.4 M weights with a bf16 copy", time_of([&](int) {
               MUST(dlrm_cuda_dense_update(n, (float *)w.device, (float *)g.device, NULL, NULL, DLRM_SGD, false,
                                           device_step.p, copy.device, DLRM_BF16, 0));
           }),
           (double)n * 14);
    w.make(DLRM_FP32, 32 * n);
    report("tree sum of 32 x 2.4 M gradients",
           time_of([&](int) { MUST(dlrm_cuda_tree_sum((float *)w.device, n, n, 32, NULL, 0)); }), (double)n * 33 * 4);
}

int main(int argc, char **argv)
{
    const int64_t B = 65536;
    const bool small = argc > 1 && !strcmp(argv[1], "--small");
    if (argc > 1 && !strcmp(argv[1], "--host")) {
        time_host_memory(argc > 2 ? atof(argv[2]) : 12);
        return 0;
    }
    void *from, *to;
    const size_t bytes = (size_t)2 << 30;
    MUST(cudaMalloc(&from, bytes));
    MUST(cudaMalloc(&to, bytes));
    MUST(cudaMemset(from, 1, bytes));
    report("copy of 2 GiB", time_of([&](int) { MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, 0)); }),
           2.0 * (double)bytes);
    MUST(cudaFree(from));
    MUST(cudaFree(to));
    for (bool half : {true, false}) time_interaction(half ? DLRM_BF16 : DLRM_FP32, false);
    time_interaction(DLRM_FP32, true);
    time_concat(DLRM_CAT);
    time_concat(DLRM_POOL);
    time_flat();
    {
        test_shard s;
        for (int t = 0; t < 26; t++) s.add_table(small ? 100000 : 187767399 / 26, 128);
        for (int t = 0; t < 26; t++) s.add_input(t, 1, false, false);
        time_tables("DLRM v1", s, B, DLRM_SGD, true);
    }
    { /* Merlin Tiny */
        test_shard s;
        const struct {
            int count, multi;
            int64_t rows;
            int dim;
        } e[] = {{1, 10, 10000, 8}, {1, 10, 1000000, 16}, {1, 10, 25000000, 16}, {1, 0, 25000000, 16}, {16, 0, 10, 8},
                 {10, 0, 1000, 8},  {4, 0, 10000, 8},     {2, 0, 100000, 16},    {19, 0, 1000000, 16}};
        for (auto &x : e)
            for (int k = 0; k < x.count; k++) {
                s.add_table(small ? std::min<int64_t>(x.rows, 10000) : x.rows, x.dim);
                s.add_input((int)s.tables.size() - 1, 1, false, false);
                if (x.multi) s.add_input((int)s.tables.size() - 1, x.multi, false, false);
            }
        time_tables("Tiny", s, B, DLRM_ADAGRAD, false);
    }
    { /* MLPerf's DLRM-DCNv2, a GPU's share of the batch */
        test_shard s;
        for (int hotness : {3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1}) {
            s.add_table(small ? 100000 : 187767399 / 26, 128);
            s.add_input((int)s.tables.size() - 1, hotness, false, false);
        }
        time_tables("DCNv2", s, 8192, DLRM_ROWWISE_ADAGRAD, false);
    }
    return 0;
}
