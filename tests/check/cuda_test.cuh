/* For the tests and timings of the CUDA kernels alone: device arrays with a host copy, random numbers, reports. */
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda/check.h"

#define MUST(expr)                                                                            \
    do {                                                                                      \
        cudaError_t error_ = (expr);                                                          \
        if (error_ != cudaSuccess) {                                                          \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #expr, cudaGetErrorString(error_)); \
            exit(3);                                                                          \
        }                                                                                     \
    } while (0)

/* Random numbers that are the same everywhere. */
struct random_source {
    uint64_t x = 0x9E3779B97F4A7C15u;
    uint64_t next()
    {
        x += 0x9E3779B97F4A7C15u;
        uint64_t z = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    double unit()
    {
        return (double)(next() >> 11) * 0x1p-53;
    }
    float real()
    {
        return (float)(2 * unit() - 1);
    }
    int64_t below(int64_t n)
    {
        return (int64_t)(next() % (uint64_t)n);
    }
};

static inline float round_to(float x, dlrm_dtype type)
{
    if (type == DLRM_BF16) return __bfloat162float(__float2bfloat16_rn(x));
    if (type == DLRM_FP16) return __half2float(__float2half_rn(x));
    return x;
}

/* An array of a storage type on the device, with its values as floats on the host. */
struct device_array {
    dlrm_dtype type = DLRM_FP32;
    std::vector<float> host;
    void *device = NULL;

    device_array() = default;
    device_array(const device_array &) = delete;
    ~device_array()
    {
        cudaFree(device);
    }
    void make(dlrm_dtype t, int64_t n)
    {
        type = t;
        host.assign((size_t)n, 0);
        MUST(cudaFree(device));
        MUST(cudaMalloc(&device, (size_t)n * dlrm_dtype_bytes(t) + 16));
    }
    void randomize(random_source &r, float scale = 1)
    {
        for (float &x : host) x = round_to(r.real() * scale, type);
        upload();
    }
    void set(float value)
    {
        for (float &x : host) x = round_to(value, type);
        upload();
    }
    void upload()
    {
        std::vector<uint16_t> half(host.size());
        for (size_t i = 0; i < host.size() && type != DLRM_FP32; i++) {
            __nv_bfloat16 b = __float2bfloat16_rn(host[i]);
            __half h = __float2half_rn(host[i]);
            memcpy(&half[i], type == DLRM_BF16 ? (void *)&b : (void *)&h, 2);
        }
        MUST(cudaMemcpy(device, type == DLRM_FP32 ? (void *)host.data() : (void *)half.data(),
                        host.size() * dlrm_dtype_bytes(type), cudaMemcpyHostToDevice));
    }
    std::vector<float> download() const
    {
        std::vector<float> out(host.size());
        std::vector<uint16_t> half(host.size());
        MUST(cudaMemcpy(type == DLRM_FP32 ? (void *)out.data() : (void *)half.data(), device,
                        host.size() * dlrm_dtype_bytes(type), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < out.size() && type != DLRM_FP32; i++) {
            __nv_bfloat16 b;
            __half h;
            memcpy((void *)&b, &half[i], 2);
            memcpy((void *)&h, &half[i], 2);
            out[i] = type == DLRM_BF16 ? __bfloat162float(b) : __half2float(h);
        }
        return out;
    }
};

/* Device memory of plain values. */
template <class T> struct device_values {
    T *p = NULL;
    device_values() = default;
    device_values(const device_values &) = delete;
    ~device_values()
    {
        cudaFree(p);
    }
    void make(size_t n)
    {
        MUST(cudaFree(p));
        p = NULL;
        MUST(cudaMalloc(&p, n * sizeof(T) + 16));
    }
    void make(const std::vector<T> &values)
    {
        make(values.size());
        MUST(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> download(size_t n) const
    {
        std::vector<T> out(n);
        MUST(cudaMemcpy(out.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return out;
    }
};

/* Half a unit in the last place, relative. */
static inline double unit_of(dlrm_dtype type)
{
    return type == DLRM_BF16 ? 0x1p-8 : type == DLRM_FP16 ? 0x1p-11 : 0x1p-24;
}

/* Smallest step between numbers near 0. */
static inline double tiny_of(dlrm_dtype type)
{
    return type == DLRM_FP16 ? 0x1p-24 : 0x1p-126;
}

static const char *const type_names[] = {"fp32", "tf32", "bf16", "fp16"};

/* A rank's tables, inputs and one batch's ids, on the device and on the host. */
struct test_shard {
    std::vector<dlrm_cuda_table> tables;
    std::vector<dlrm_cuda_input> inputs;
    std::vector<device_array> weights, state0, state1;
    std::vector<std::vector<uint32_t>> ids;
    std::vector<std::vector<int64_t>> offsets;
    std::vector<device_values<uint32_t>> device_ids;
    std::vector<device_values<int64_t>> device_offsets;
    device_values<dlrm_cuda_bags> bags;
    device_values<char> memory, work, sorted_memory;
    dlrm_cuda_shard shard;
    dlrm_cuda_sorted sorted;
    int64_t B = 0, width = 0;

    void add_table(int64_t rows, int dim)
    {
        dlrm_cuda_table t = {};
        t.rows = rows;
        t.dim = dim;
        t.stream = 77 + tables.size();
        t.row_elements = dim;
        tables.push_back(t);
    }
    /* vectors: bags of a sample */
    void add_input(int table, int hotness, bool variable, bool mean, int vectors = 1)
    {
        dlrm_cuda_input in = {};
        in.table = table;
        in.hotness = hotness;
        in.vectors = vectors;
        in.column = (int32_t)width;
        in.variable = variable;
        in.mean = mean;
        inputs.push_back(in);
        width += (int64_t)vectors * tables[(size_t)table].dim;
    }
    /* The tables' weights are there; makes everything else. */
    void open(dlrm_dtype type, int64_t max_batch)
    {
        std::vector<int32_t> order(inputs.size());
        MUST(dlrm_cuda_shard_plan((int)tables.size(), tables.data(), (int)inputs.size(), inputs.data(), order.data(),
                                  type, width, max_batch, &shard));
        memory.make(shard.shard_bytes);
        work.make(shard.work_bytes);
        sorted_memory.make(shard.batch_bytes);
        MUST(dlrm_cuda_shard_bind(&shard, tables.data(), inputs.data(), order.data(), memory.p));
        dlrm_cuda_sorted_bind(&shard, sorted_memory.p, &sorted);
    }
    /* Takes the batch in ids and offsets (empty where hotness is fixed) to the device. */
    void feed(int64_t batch)
    {
        std::vector<dlrm_cuda_bags> b;
        B = batch;
        device_ids = std::vector<device_values<uint32_t>>(inputs.size());
        device_offsets = std::vector<device_values<int64_t>>(inputs.size());
        for (size_t j = 0; j < inputs.size(); j++) {
            device_ids[j].make(ids[j]);
            if (!offsets[j].empty()) device_offsets[j].make(offsets[j]);
            b.push_back({device_ids[j].p, device_offsets[j].p, NULL});
        }
        bags.make(b);
    }
    int64_t begin(int j, int64_t sample) const
    {
        return offsets[(size_t)j].empty() ? sample * inputs[(size_t)j].hotness : offsets[(size_t)j][(size_t)sample];
    }
};
