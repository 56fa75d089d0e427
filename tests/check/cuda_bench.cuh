/* What the benchmarks of the CUDA kernels share. */
#pragma once
#include <algorithm>

#include "cuda_test.cuh"

enum { WARM_UP = 3, RUNS = 20 };

/* Median milliseconds of f(i), i counting up, each after prepare(i), whose time does not count. */
template <class P, class F> static inline double time_of(P prepare, F f)
{
    cudaEvent_t a, b;
    std::vector<float> all;
    MUST(cudaEventCreate(&a));
    MUST(cudaEventCreate(&b));
    for (int i = 0; i < WARM_UP + RUNS; i++) {
        float ms;
        prepare(i);
        MUST(cudaEventRecord(a));
        f(i);
        MUST(cudaEventRecord(b));
        MUST(cudaEventSynchronize(b));
        MUST(cudaEventElapsedTime(&ms, a, b));
        if (i >= WARM_UP) all.push_back(ms);
    }
    MUST(cudaEventDestroy(a));
    MUST(cudaEventDestroy(b));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

template <class F> static inline double time_of(F f)
{
    return time_of([](int) {}, f);
}

static inline void report(const char *what, double ms, double bytes)
{
    printf("%-62s %8.4f ms %7.3f TB/s\n", what, ms, bytes / ms / 1e9);
}

/* The power law of synthetic data's ids. */
static inline int64_t draw(random_source &r, int64_t n, double alpha, bool hot)
{
    if (hot) return 0;
    const double u = r.unit(), g = 1 - alpha;
    if (alpha == 0) return r.below(n);
    const int64_t id = (int64_t)(std::pow(u * (std::pow((double)n + 1, g) - 1) + 1, 1 / g)) - 1;
    return id < 0 ? 0 : id >= n ? n - 1 : id;
}

/* Fills ids and feeds; returns distinct rows times their width, of all tables. */
static inline double make_ids(test_shard &s, int64_t B, double alpha, bool hot, random_source &r)
{
    double touched = 0;
    s.ids.assign(s.inputs.size(), {});
    s.offsets.assign(s.inputs.size(), {});
    for (size_t j = 0; j < s.inputs.size(); j++)
        for (int64_t i = 0; i < B * s.inputs[j].hotness; i++)
            s.ids[j].push_back((uint32_t)draw(r, s.tables[(size_t)s.inputs[j].table].rows, alpha, hot));
    s.feed(B);
    for (size_t t = 0; t < s.tables.size(); t++) {
        std::vector<int64_t> all;
        for (size_t j = 0; j < s.inputs.size(); j++)
            if (s.inputs[j].table == (int)t) all.insert(all.end(), s.ids[j].begin(), s.ids[j].end());
        std::sort(all.begin(), all.end());
        touched += (double)(std::unique(all.begin(), all.end()) - all.begin()) * s.tables[t].dim;
    }
    return touched;
}

void time_host_memory(double gib); /* cuda_bench_host.cu */
