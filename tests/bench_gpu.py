#!/usr/bin/env python3
"""Step times of the trainer on GPUs, on made-up rows: MLPerf DLRM v1 and DLRM-DCNv2, Merlin's Tiny and Small models.

  bench_gpu.py TRAINER [--gpus 1,2] [--only TEXT] [--steps N] [--override KEY=VALUE ...]

For each workload prints the median and 95th percentile of the step time, samples/s, peak device time by phase (shares of
rank 0's compute queue), and how that compares to the floor of the hardware (bytes over 4.3 TB/s, arithmetic over 790
TFLOP/s for bf16 and 400 for TF32). One process a GPU, started with mpirun where there are several.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

CRITEO = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771,
          25641295, 39664984, 585935, 12972, 108, 36]
# DLRM-DCNv2's tables and their ids a sample
DCNV2 = [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000,
         40000000, 40000000, 590152, 12973, 108, 36]
HOTNESS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
# (tables, hotness of the inputs that share one, rows, width)
TINY = ([(1, [1, 10], 10000, 8), (1, [1, 10], 1000000, 16), (1, [1, 10], 25000000, 16), (1, [1], 25000000, 16), (16, [1], 10, 8),
         (10, [1], 1000, 8), (4, [1], 10000, 8), (2, [1], 100000, 16), (19, [1], 1000000, 16)], [256, 128])
SMALL = ([(5, [1, 30], 10000, 16), (3, [1, 30], 4000000, 32), (1, [1, 30], 50000000, 32), (1, [1], 50000000, 32), (30, [1], 10, 16),
          (30, [1], 1000, 16), (5, [1], 10000, 16), (5, [1], 100000, 32), (27, [1], 4000000, 32)], [512, 256, 128])


def merlin(model):
    groups, mlp = model
    tables = [{"count": n, "rows": rows, "dim": dim, "hotness": hotness} for n, hotness, rows, dim in groups]
    adagrad = {"name": "adagrad", "learning_rate": 0.01, "initial_accumulator": 0.1, "epsilon": 1e-7}
    return {"model": {"dense_features": 10, "embedding_dim": 16, "bottom_mlp": [], "interaction": "cat", "top_mlp": mlp + [1], "tables": tables},
            "optimizer": {"dense": adagrad, "embedding": adagrad}, "data": {"synthetic": {"dense": "uniform"}}}


def mlperf():
    sgd = {"name": "sgd", "learning_rate": 1.0}
    return {"model": {"dense_features": 13, "embedding_dim": 128, "bottom_mlp": [512, 256, 128], "interaction": "dot",
                      "top_mlp": [1024, 1024, 512, 256, 1], "tables": [{"rows": n} for n in CRITEO]},
            "optimizer": {"dense": sgd, "embedding": sgd}, "data": {"synthetic": {}}}


def dcnv2(optimizer):
    """Adagrad's state is as large as the tables: 209 GB in all, for two GPUs at least; rowwise it is next to nothing."""
    dense = {"name": "adagrad", "learning_rate": 0.004, "epsilon": 1e-8}
    return {"model": {"dense_features": 13, "embedding_dim": 128, "bottom_mlp": [512, 256, 128], "interaction": "dcn",
                      "cross": {"layers": 3, "rank": 512}, "top_mlp": [1024, 1024, 512, 256, 1],
                      "tables": [{"rows": n, "hotness": h} for n, h in zip(DCNV2, HOTNESS)]},
            "optimizer": {"dense": dense, "embedding": dict(dense, name=optimizer)}, "data": {"synthetic": {}}}


# batch: by number of GPUs; asked: ms by number of GPUs, where there is a target; floors of one GPU in ms: arithmetic, memory
Workload = collections.namedtuple("Workload", "name make precision alpha batch asked arithmetic memory")
SAME = {1: 65536, 2: 65536}
EACH = {1: 8192, 2: 16384, 4: 32768, 8: 65536}  # as the published runs: 8192 a GPU
PER_GPU = 8192 / 2.75e3  # ms of a step at 2.75 M samples/s a GPU
WORKLOADS = [
    Workload("mlperf bf16 alpha 0", mlperf, "bf16", 0, SAME, {1: 3.4, 2: 2.1}, 1.20, 0.61),
    Workload("mlperf bf16 alpha 1.05", mlperf, "bf16", 1.05, SAME, {1: 3.4, 2: 2.1}, 1.20, 0.61),
    Workload("mlperf tf32 alpha 1.05", mlperf, "tf32", 1.05, {1: 65536}, {1: 7.0}, 2.37, 0.61),
    Workload("mlperf fp32 alpha 1.05", mlperf, "fp32", 1.05, {1: 65536}, {}, None, 0.61),
    Workload("merlin tiny bf16", lambda: merlin(TINY), "bf16", 1.05, SAME, {1: 1.6, 2: 1.2}, None, 0.32),
    Workload("merlin small bf16", lambda: merlin(SMALL), "bf16", 1.05, SAME, {1: 7.0, 2: 4.5}, None, 2.60),
    Workload("dcnv2 rowwise bf16 alpha 0", lambda: dcnv2("rowwise_adagrad"), "bf16", 0, EACH, {}, 1.00, 0.63),
    Workload("dcnv2 bf16 alpha 0", lambda: dcnv2("adagrad"), "bf16", 0, {k: EACH[k] for k in (2, 4, 8)},
             {2: PER_GPU, 4: PER_GPU, 8: PER_GPU}, 1.00, 1.04),
    Workload("dcnv2 bf16 alpha 1.05", lambda: dcnv2("adagrad"), "bf16", 1.05, {k: EACH[k] for k in (2, 4, 8)},
             {2: PER_GPU, 4: PER_GPU, 8: PER_GPU}, 1.00, 1.04)]


def measure(args, gpus, w, folder):
    config = w.make()
    config["device"] = "cuda"
    config["train"] = {"batch_size": w.batch[gpus], "steps": args.steps, "precision": w.precision}
    config["data"]["format"] = "synthetic"
    config["data"]["synthetic"].update({"alpha": w.alpha, "batches": args.batches, "labels": "random"})
    config["eval"] = {"every_epoch": False}
    config["log"] = {"every_steps": args.steps // 2, "jsonl": os.path.join(folder, "run.jsonl"), "progress": False}
    path = os.path.join(folder, "config.yaml")
    with open(path, "w") as f:
        json.dump(config, f)  # JSON is YAML
    command = (["mpirun", "-n", str(gpus), "--bind-to", "none"] if gpus > 1 else []) + [args.trainer, path] + args.override
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
    if done.returncode != 0:
        print("%-26s %d GPU: FAILED, exit status %d\n%s" % (w.name, gpus, done.returncode, done.stdout[-1500:]))
        return None
    with open(config["log"]["jsonl"]) as f:
        return [json.loads(line) for line in f if '"event":"end"' in line][0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("--gpus", default="1")
    p.add_argument("--only", default="")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batches", type=int, default=6)
    p.add_argument("--override", action="append", default=[])
    args = p.parse_args()
    failed = 0
    for gpus in [int(x) for x in args.gpus.split(",")]:
        for w in WORKLOADS:
            if args.only not in w.name or gpus not in w.batch:
                continue
            with tempfile.TemporaryDirectory(prefix="dlrm_bench_") as folder:
                end = measure(args, gpus, w, folder)
            if end is None:
                failed += 1
                continue
            ms = end["step_ms_median"]
            line = "%-26s %d GPU  batch %6d  median %6.3f ms  p95 %6.3f  %6.2f M samples/s" % (
                w.name, gpus, w.batch[gpus], ms, end["step_ms_p95"], w.batch[gpus] / ms * 1e-3)
            if gpus in w.asked:
                line += "  asked %.2f: %s" % (w.asked[gpus], "reached" if ms <= w.asked[gpus] else "MISSED")
            if gpus == 1:
                floor = max(w.arithmetic or 0, w.memory)
                line += "  floor %.2f (%.1fx)" % (floor, ms / floor)
            print(line)
            print("    " + ", ".join("%s %.1f %%" % (k, 100 * v) for k, v in end["per_rank"][0]["time_shares"].items()), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
