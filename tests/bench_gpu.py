#!/usr/bin/env python3
"""Step times of the trainer on GPUs: MLPerf DLRM v1 and DLRM-DCNv2, Merlin's Tiny, Small and Medium models.

  bench_gpu.py TRAINER [--section NAME] [--gpus 1,2] [--only TEXT,TEXT] [--steps N] [--json FILE] [--override KEY=VALUE ...]

Sections (tests/gpu_workloads.py): times, host (tables in the host's memory), large (more of them than the device has room for), placements
(strategies, copied tables); where none is named, the first of these that has what --only asks for.

Every run has two windows of N steps; the figures are the second's, when the generator has made its batches and everything is warm: median
and 95th percentile of the step, samples/s, and for each phase its time on rank 0's compute queue and what it achieves: products in TFLOP/s,
tables and interaction in TB/s, the exchange in GB/s a direction over the time that it is waited for. Bytes are
those that have to move: ids and sorting are not counted, different rows of a batch once. The floor is the larger of arithmetic at
790 TFLOP/s (bf16; TF32 400, fp32 67) and table bytes, without counting a row once, at 4.3 TB/s, over the number of GPUs.

With --device cpu --rows 1000 --batch 256 it runs anywhere, which proves the program and measures nothing.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import gpu_runs as runs
from gpu_workloads import SECTIONS, numbers_of_gpus

RATES = {"bf16": 790e12, "fp16": 790e12, "tf32": 400e12, "fp32": 67e12}  # FLOP/s of an H200, as reached
COPY = 4.3e12  # bytes/s


def make_files(rows, config, alpha, folder):
    """The training split of a split-binary folder with rows of this model: int32 ids, float16 dense values."""
    rng, n = np.random.default_rng(1), config["model"]["dense_features"]
    tables = config["model"]["tables"]
    dense, cats = ["d%d" % k for k in range(n)], ["c%d" % k for k in range(len(tables))]
    os.makedirs(os.path.join(folder, "train"))
    np.exp(rng.standard_normal((rows, n), dtype=np.float32)).astype("<f2").tofile(os.path.join(folder, "train", "dense.bin"))
    (rng.random(rows) < 0.25).astype("u1").tofile(os.path.join(folder, "train", "label.bin"))

    def make_ids(k):
        ids = runs.power_law_ids(np.random.default_rng([1, k]), tables[k]["rows"], alpha, rows).astype("<i4")
        ids.tofile(os.path.join(folder, "train", cats[k] + ".bin"))

    with ThreadPoolExecutor() as threads:
        list(threads.map(make_ids, range(len(tables))))
    chunks = [(dense, "dense"), (["label"], "label")] + [([name], name) for name in cats]
    features = {"label": {"dtype": "bool"}}
    features.update({name: {"dtype": "float16"} for name in dense})
    features.update({name: {"dtype": "int32", "cardinality": table["rows"]} for name, table in zip(cats, tables)})
    spec = {"channel_spec": {"categorical": cats, "label": ["label"], "numerical": dense}, "feature_spec": features, "metadata": {},
            "source_spec": {"train": [{"type": "split_binary", "features": names, "files": ["train/%s.bin" % f]} for names, f in chunks]}}
    with open(os.path.join(folder, "feature_spec.yaml"), "w") as f:
        json.dump(spec, f)
    return folder


def batches_listing(config, alpha, share):
    """So many batches list rows of this share of the tables' elements, and what they do list of it."""
    batch, all_elements, n = config["train"]["batch_size"], runs.elements_of(config), 8
    while runs.elements_of(config, n * batch, alpha) < share * all_elements and n < 1000:
        n += n // 8
    return n, runs.elements_of(config, n * batch, alpha) / all_elements


def configure(args, work, gpus, folder):
    """The config, alpha, and a line on it or None."""
    config, alpha, said = work["model"](min(args.rows or 1 << 40, work.get("most_rows", 1 << 40))), work.get("alpha", 1.05), None
    config["device"] = work.get("device", args.device)
    batch = work["per_gpu"] * gpus if "per_gpu" in work else 65536
    steps, batches = min(args.steps, work.get("steps", args.steps)), work.get("batches", args.batches)
    config["train"] = {"batch_size": args.batch or batch, "deterministic": work.get("deterministic", False),
                       "precision": work["precision"] if config["device"] == "cuda" else "fp32"}
    config["parallel"] = dict(work.get("parallel", {}))
    if "listed" in work:
        steps, share = batches_listing(config, alpha, work["listed"])
        batches = steps
        said = "%d batches list rows of %.1f %% of the tables" % (batches, 100 * share)
    if "budget" in work:
        config["parallel"].update({"strategy": "memory_balanced", "host_cache": work.get("cache", True),
                                   "device_embedding_elements": int(work["budget"] * runs.elements_of(config) / gpus)})
        room = "the GPU has room for %.1f %%" % (100 * work["budget"])
        said = "%s, %s" % (said, room) if said else room
    config["train"]["steps"] = 2 * steps
    config["eval"] = {"every_epoch": False}
    config["log"] = {"every_steps": steps, "progress": False}
    if work.get("files"):
        rows = 2 * steps * config["train"]["batch_size"] if work.get("unseen") else args.file_rows
        config["data"] = {"format": "split_binary", "path": make_files(rows, config, alpha, os.path.join(folder, "data"))}
    else:
        config["data"]["synthetic"].update({"alpha": alpha, "batches": batches})
    return config, alpha, said


def costs(config, alpha, gpus):
    """What one GPU does in a step, by phase: (FLOP or bytes, the unit of a tera of them a second); and the floor in s."""
    model, B, precision = config["model"], config["train"]["batch_size"], config["train"]["precision"]
    act, state = (2 if precision in ("bf16", "fp16") else 4), {"adagrad": 1, "adam": 2}.get(config["optimizer"]["embedding"]["name"], 0)
    inputs, different = runs.inputs_of(config), runs.elements_of(config, B, alpha)
    rows = sum(h * dim for _, dim, h in inputs)
    pooled = rows if model["tables"][0].get("combiner") == "none" else sum(dim for _, dim, _ in inputs)
    bottom, vectors = model["bottom_mlp"], len(inputs) + 1
    width = bottom[-1] if bottom else model["dense_features"]
    all_vectors = pooled + width
    windows = -(-pooled // model.get("pool_stride", 1))
    x = {"dot": width + vectors * (vectors - 1) // 2, "pool": width + windows}.get(model["interaction"], all_vectors)
    layers = list(zip([model["dense_features"]] + bottom, bottom)) + list(zip([x] + model["top_mlp"], model["top_mlp"]))
    flop = 6.0 * sum(i * o for i, o in layers) - (2.0 * layers[0][0] * layers[0][1] if bottom else 0)
    cross = 12.0 * model["cross"]["layers"] * model["cross"]["rank"] * x if model["interaction"] == "dcn" else 0
    moved = B * act * {"dot": 3 * all_vectors + 2 * x, "pool": 2 * all_vectors + 2 * x}.get(model["interaction"], 4 * x)
    floor = max(B * (flop + cross) / RATES[precision], B * rows * 4 * (3 + 2 * state) / COPY)
    did = {"mlp": (B * flop, "TFLOP/s"), "lookup": (B * (rows * 4 + pooled * act), "TB/s"),
           "update": (B * rows * act + different * 8 * (1 + state), "TB/s"),
           "interaction": (B * cross, "TFLOP/s") if cross else (moved, "TB/s")}
    return {phase: (amount / gpus, unit) for phase, (amount, unit) in did.items()}, floor / gpus


def phase_line(step, did, sent):
    """Of a step's phases: time, share, and what was achieved in it."""
    parts, rest = [], 1.0
    did = dict(did, exchange=(1e3 * sent, "GB/s"))
    for phase, share in step["time_shares"].items():
        ms, (amount, unit) = step["step_ms"] * share, did.get(phase, (0, ""))
        rest -= share
        parts.append("%s %.3f ms (%.1f %%)%s" % (phase, ms, 100 * share, " %.4g %s" % (amount / ms * 1e-9, unit) if amount and ms > 0 else ""))
    return "    " + ", ".join(parts) + ", other %.1f %%" % (100 * max(rest, 0))


def measure(args, work, gpus, medians):
    """Runs one workload and prints its lines; the figures for --json."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 << 30 else None
    with tempfile.TemporaryDirectory(prefix="dlrm_bench_", dir=memory if work.get("files") else None) as folder:
        config, alpha, said = configure(args, work, gpus, folder)
        events = runs.finish(runs.start(args.trainer, config, folder, gpus, args.override), 300)
    step, end = runs.of_kind(events, "step")[-1], runs.of_kind(events, "end")[0]
    did, floor = costs(config, alpha, gpus)
    batch = config["train"]["batch_size"]
    ms, wait, verdicts = step["step_ms_median"], step["data_wait_ms"] / step["step_ms"], []
    line = "%-26s %d GPU  batch %d  median %6.3f ms  p95 %6.3f  %6.2f M samples/s  floor %.2f (%.1fx)  data wait %.1f %%" % (
        work["name"], gpus, batch, ms, step["step_ms_p95"], batch / ms * 1e-3, 1e3 * floor, ms / (1e3 * floor), 100 * wait)
    for got, most, text in [(ms, work.get("asked", {}).get(gpus), "asked %.2f ms"), (wait, work.get("wait"), "asked wait %.2f")]:
        if most is not None:
            verdicts.append("%s: %s" % (text % most, "reached" if got <= most else "MISSED"))
    if step.get("cache_hit_rate"):
        verdicts.append("%.1f %% of the rows were in the cache" % (100 * step["cache_hit_rate"]))
    beside = medians.get((work.get("beside"), gpus))
    if beside and work["beside"] != work["name"]:
        verdicts.append("%.2f times %s" % (ms / beside, work["beside"]))
        if "times" in work:
            verdicts.append("asked %g times: %s" % (work["times"], "reached" if ms >= work["times"] * beside else "MISSED"))
    print("  ".join([line] + verdicts))
    if said:
        print("    " + said)
    print(phase_line(step, did, end["per_rank"][0]["sent_bytes_per_step"]), flush=True)
    medians[(work["name"], gpus)] = ms
    return {"name": work["name"], "gpus": gpus, "ms": ms, "p95": step["step_ms_p95"], "batch": batch, "verdicts": verdicts}


def chosen(args):
    """The workloads of the section that --only asks for."""
    for section in [args.section] if args.section else SECTIONS:
        found = [w for w in SECTIONS[section] if any(w["name"].startswith(text) for text in args.only.split(","))]
        if found:
            return found
    return []


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("--section", choices=sorted(SECTIONS))
    p.add_argument("--gpus", default="1")
    p.add_argument("--only", default="", help="workloads whose name begins with one of these texts")
    p.add_argument("--steps", type=int, default=100, help="of a window")
    p.add_argument("--batches", type=int, default=6)
    p.add_argument("--batch", type=int, help="of all workloads")
    p.add_argument("--rows", type=int, help="of a table, at most")
    p.add_argument("--file-rows", type=int, default=2000000)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--json", help="file for the figures")
    p.add_argument("--override", action="append", default=[])
    args = p.parse_args()
    args.trainer = os.path.abspath(args.trainer)
    results, failed, medians = [], 0, {}
    for gpus in [int(x) for x in args.gpus.split(",")]:
        for work in chosen(args):
            if gpus not in numbers_of_gpus(work):
                continue
            try:
                results.append(measure(args, work, gpus, medians))
            except runs.Failed as e:
                print("%-26s %d GPU  FAILED: %s" % (work["name"], gpus, e), flush=True)
                failed += 1
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f)
    missed = sum("MISSED" in v for r in results for v in r["verdicts"])
    print("%d workloads, %d failed, %d asked figures missed" % (len(results), failed, missed))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
