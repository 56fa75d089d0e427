/* The CUDA kernels alone, against plain loops in double, element by element: tolerances follow from the number of terms
 * and the rounding of the types. Each op runs twice and must give the same bits. Needs a GPU and nothing else. Here:
 * the program, and the tests of loss and flat arrays. */
#include "cuda_checks.cuh"

#include "base/rng.h"

int cases, failures;

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
        MUST(dlrm_cuda_loss((float *)z.device, (float *)y.device, (float *)d.device, 0.5f, NULL, device_cut.p, &cut[0],
                            work.p, loss.p, 0));
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
            for (int64_t i = cut[0].at[leaf]; i < cut[0].at[leaf + (1 << cut[0].node[k].level)]; i++)
                sum += terms[(size_t)i];
            check(std::fabs(got[(size_t)k] - sum) <= 1e-12 * (sum + 1), "loss", "sum of a node");
        }
        MUST(dlrm_cuda_loss((float *)z.device, (float *)y.device, NULL, 0.5f, NULL, device_cut.p, &cut[0], work.p,
                            loss.p, 0));
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
            MUST(dlrm_cuda_dense_update(n, (float *)w.device, (float *)g.device, (float *)s0.device, (float *)s1.device,
                                        k.name, k.momentum, step.p, copy.device, copy_type, 0));
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
              cudaErrorInvalidValue,
          "dense update", "rowwise adagrad is taken");
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
                a.host[(size_t)i] =
                    round_to((2 * dlrm_rng_uniform(3, 99, (uint64_t)(first + i)) - 1) * (float)0.01, type);
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
                for (int d = 0; d < 24; d++)
                    b.host[(size_t)(i * 24 + d)] = d < 13 ? round_to(a.host[(size_t)(i * 17 + d)], to) : 0;
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
        dlrm_tree_fold(
            parts, levels.data(),
            [](void *ctx, int into, int from) {
                context *x = (context *)ctx;
                for (int i = 0; i < 100; i++) x->p[into * x->stride + i] += x->p[from * x->stride + i];
            },
            &c);
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
    int gpus = 0;
    const cudaError_t code = cudaGetDeviceCount(&gpus);
    if (code != cudaSuccess || gpus == 0) {
        printf("not run: no GPU (%s)\n", cudaGetErrorString(code));
        return 77;
    }
    test_embeddings();
    printf("embeddings: %d checks, %d failed\n", cases, failures);
    test_interactions();
    printf("and interaction: %d checks, %d failed\n", cases, failures);
    test_loss();
    test_dense_update();
    test_flat();
    MUST(cudaDeviceSynchronize());
    printf("%d checks, %d failed\n", cases, failures);
    return failures != 0;
}
