/* Interaction, forward and backward, against plain loops in double. */
#include "cuda_checks.cuh"

struct interact_case {
    dlrm_interaction kind;
    int n, D, pool_stride, misalign; /* misalign: elements that data, stride and out are off 16 bytes */
    int64_t b;
    bool relu;
};

static void test_interact(const interact_case &c, dlrm_dtype type, bool exact, random_source &r)
{
    char name[200];
    snprintf(name, sizeof name, "interaction %d, %s%s, n %d, D %d, stride %d, misaligned %d, b %lld", c.kind,
             type_names[type], type == DLRM_FP32 && !exact ? " as tf32" : "", c.n, c.D, c.pool_stride, c.misalign,
             (long long)c.b);
    std::vector<dlrm_cuda_slot> slots((size_t)c.n);
    std::vector<device_array> data((size_t)c.n), grad((size_t)c.n);
    int w = 0, out_width;
    for (int i = 0; i < c.n; i++) {
        const int width = c.kind == DLRM_DOT ? c.D
                          : i == 0           ? (c.D % 2 ? 0 : c.D / 2)
                                             : c.D + (c.misalign ? i % 3 : i % 3 * 4);
        const int64_t stride = width + 16 + c.misalign;
        data[(size_t)i].make(type, c.b * stride + c.misalign);
        data[(size_t)i].randomize(r);
        grad[(size_t)i].make(type, c.b * stride + c.misalign);
        grad[(size_t)i].set(77);
        const size_t off = (size_t)c.misalign * dlrm_dtype_bytes(type);
        slots[(size_t)i] = {
            (char *)data[(size_t)i].device + off, (char *)grad[(size_t)i].device + off, stride, stride, width, 0};
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
    a.type = a.wire = type;
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
            grad_tolerance[(size_t)i][at(i, s, d)] =
                off ? 0 : u * size + 1.01 * unit_of(type) * std::fabs(value) + tiny_of(type);
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
                    for (int d = 0; d < c.D; d++)
                        sum += x(i, s, d) * x(j, s, d), size += std::fabs(x(i, s, d) * x(j, s, d));
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
    for (int i = 0; i < c.n; i++)
        check_close(grad[(size_t)i].download(), want_grad[(size_t)i], grad_tolerance[(size_t)i], name);
}

void test_interactions(void)
{
    random_source r;
    const interact_case all[] = {
        {DLRM_DOT, 27, 128, 0, 0, 37, true},  {DLRM_DOT, 27, 128, 0, 1, 9, true},  {DLRM_DOT, 3, 16, 0, 0, 50, false},
        {DLRM_DOT, 9, 8, 0, 0, 20, true},     {DLRM_DOT, 16, 64, 0, 0, 21, true},  {DLRM_DOT, 17, 40, 0, 0, 21, true},
        {DLRM_DOT, 32, 24, 0, 0, 9, false},   {DLRM_DOT, 33, 32, 0, 0, 9, true},   {DLRM_DOT, 64, 136, 0, 0, 5, true},
        {DLRM_DOT, 65, 16, 0, 0, 5, true},    {DLRM_DOT, 2, 5, 0, 0, 30, true},    {DLRM_DOT, 1, 16, 0, 0, 3, true},
        {DLRM_DOT, 27, 13, 0, 2, 8, true},    {DLRM_DOT, 450, 128, 0, 0, 2, true}, {DLRM_DOT, 27, 128, 0, 0, 0, true},
        {DLRM_CAT, 5, 16, 0, 0, 33, true},    {DLRM_CAT, 4, 7, 0, 1, 33, true},    {DLRM_CAT, 3, 64, 0, 0, 100, false},
        {DLRM_POOL, 6, 16, 7, 0, 40, true},   {DLRM_POOL, 4, 9, 3, 1, 20, false},  {DLRM_POOL, 3, 32, 1, 0, 17, true},
        {DLRM_POOL, 3, 4, 100, 0, 17, false},
    };
    for (const interact_case &c : all) {
        for (dlrm_dtype type : types) test_interact(c, type, true, r);
        test_interact(c, DLRM_FP32, false, r);
    }
}
