"""What tests/bench_gpu.py measures, by section.

asked: ms of a step by number of GPUs; gpus: other numbers to measure (1 where nothing is said); per_gpu: samples a GPU, in place of the
batch of all; wait: asked share of a step, at most; files: read, not made up; unseen: each batch comes once; most_rows: of a table;
parallel: the config's.
beside: the workload that this one is compared with, and times: how often its time this one has to take, at least.
listed: share of the tables' elements that the made-up batches' rows have to come to, so that a cache does not find what it brought in for
the same batches before: as many batches as that takes, and windows of as many steps, the second over the same batches again.
budget: share of the tables' elements that a GPU has room for; cache: false: rows in the host's memory are used where they lie.
device, steps: in place of those of all; precision: fp32 on CPU.
"""
import gpu_runs as runs

PUBLISHED = 8192 / 2.75e3  # ms of a step at 2.75 M samples/s a GPU

TIMES = [
    dict(name="mlperf bf16 alpha 0", model=runs.mlperf, precision="bf16", alpha=0, asked={1: 3.4, 2: 2.1}),
    dict(name="mlperf bf16", model=runs.mlperf, precision="bf16", asked={1: 3.4, 2: 2.1}),
    dict(name="mlperf bf16 deterministic", model=runs.mlperf, precision="bf16", deterministic=True, beside="mlperf bf16", gpus=[1, 2]),
    dict(name="mlperf bf16 files", model=runs.mlperf, precision="bf16", files=True, asked={1: 3.4}, wait=0.02),
    dict(name="mlperf tf32", model=runs.mlperf, precision="tf32", asked={1: 7.0}),
    dict(name="mlperf fp32", model=runs.mlperf, precision="fp32"),
    dict(name="tiny bf16", model=runs.tiny, precision="bf16", asked={1: 1.6, 2: 1.2}),
    dict(name="tiny bf16 deterministic", model=runs.tiny, precision="bf16", deterministic=True, beside="tiny bf16"),
    dict(name="small bf16", model=runs.small, precision="bf16", asked={1: 7.0, 2: 4.5}),
    dict(name="dcnv2 rowwise bf16 alpha 0", model=runs.dcnv2_rowwise, precision="bf16", alpha=0, per_gpu=8192, gpus=[1, 2, 4, 8]),
    dict(name="dcnv2 bf16 alpha 0", model=runs.dcnv2, precision="bf16", alpha=0, per_gpu=8192, asked=dict.fromkeys((2, 4, 8), PUBLISHED)),
    dict(name="dcnv2 bf16", model=runs.dcnv2, precision="bf16", per_gpu=8192, asked=dict.fromkeys((2, 4, 8), PUBLISHED)),
]


def in_host_memory(name, budget, **work):
    """On the GPU; some of it there, with the cache; and without."""
    host, part, listed = "host %s " % name, "%g %%" % (100 * budget), 2 * budget
    return [dict(work, name=host + "all on GPU", listed=listed),
            dict(work, name=host + part, listed=listed, budget=budget, beside=host + "all on GPU"),
            dict(work, name=host + part + " uncached", listed=listed, budget=budget, cache=False, beside=host + part, times=3)]


HOST = in_host_memory("mlperf 4M rows", 0.1, model=runs.mlperf, precision="bf16", most_rows=4000000)
# Of two batches of 8192, 214 ids each, the cache has to hold what they may list.
HOST += in_host_memory("dcnv2 7M rows", 0.1, model=runs.dcnv2_rowwise, precision="bf16", most_rows=7000000, per_gpu=8192)
# Two batches of 65536 may list 10.01 % of Tiny's elements.
HOST += in_host_memory("tiny", 0.12, model=runs.tiny, precision="bf16")

# A model of 1.5 times what the device is let have, beside all of it there, and on CPU alone; and one of 1.5 times what it has, 132 of
# 215 GB there, which takes 93 GB of page-locked memory.
LARGE = [
    dict(name="large on GPU", model=runs.mlperf, precision="bf16"),
    dict(name="large 1.5 x GPU", model=runs.mlperf, precision="bf16", budget=1 / 1.5, beside="large on GPU"),
    dict(name="large uncached", model=runs.mlperf, precision="bf16", budget=1 / 1.5, cache=False, beside="large 1.5 x GPU"),
    dict(name="larger than GPU", model=runs.mlperf_grown, precision="bf16", budget=132 / 215.6, beside="large on GPU"),
    dict(name="larger unseen", model=runs.mlperf_grown, precision="bf16", budget=132 / 215.6, files=True, unseen=True,
         beside="large on GPU"),
    dict(name="larger uncached", model=runs.mlperf_grown, precision="bf16", budget=132 / 215.6, cache=False,
         beside="larger than GPU"),
    dict(name="large on CPU", model=runs.mlperf, precision="fp32", device="cpu", steps=3, beside="large on GPU"),
]

PLACEMENTS = []
for model in (runs.tiny, runs.small):
    name = model.__name__ + " "
    PLACEMENTS += [dict(name=name + strategy, model=model, precision="bf16", gpus=[1, 2] if strategy == "basic" else [2],
                        parallel={"strategy": strategy}, beside=name + "basic")
                   for strategy in ("basic", "memory_balanced", "memory_optimized", "auto")]
PLACEMENTS += [dict(name="mlperf copied %d" % elements, model=runs.mlperf, precision="bf16", gpus=[2], beside="mlperf copied 0",
                    parallel={"data_parallel_threshold": elements}) for elements in (0, 300000, 3000000, 6000000)]
PLACEMENTS += [
    dict(name="tiny model-parallel", model=runs.tiny, precision="bf16", gpus=[1, 2]),
    dict(name="tiny data-parallel", model=runs.tiny, precision="bf16", gpus=[1, 2], parallel={"data_parallel_threshold": 1 << 40},
         beside="tiny model-parallel"),
    dict(name="medium rowwise", model=runs.medium_rowwise, precision="bf16", gpus=[2], parallel={"strategy": "memory_balanced"}, batches=3),
    dict(name="hugectr plugin", model=runs.hugectr_plugin, precision="bf16", gpus=[1, 2], alpha=0),
]

SECTIONS = {"times": TIMES, "host": HOST, "large": LARGE, "placements": PLACEMENTS}


def numbers_of_gpus(work):
    return set(work.get("asked", {})) | set(work.get("gpus", [])) or {1}
