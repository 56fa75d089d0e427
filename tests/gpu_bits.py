#!/usr/bin/env python3
"""The same bits, at sizes where every fast kernel is at work: MLPerf's model and Merlin's Tiny with their tables cut.

  gpu_bits.py TRAINER [--gpus 1,2]

In fp32 and bf16: deterministic mode gives the same losses and exported weights on every number of GPUs, and again; the default mode
gives them again on the same number of GPUs. An odd batch, so that chunks and ranks have unequal samples.
--device cpu --batch 65 --rows 300 --steps 3 runs anywhere.
"""
import argparse
import os
import sys
import tempfile

import gpu_runs as runs


def start(args, model, precision, deterministic, gpus, folder):
    config = model(args.rows)
    config["device"] = args.device
    config["train"] = {"batch_size": args.batch, "steps": args.steps, "precision": precision, "deterministic": deterministic}
    config["data"]["synthetic"].update({"batches": args.steps, "labels": "planted"})
    config["optimizer"]["dense"] = dict(config["optimizer"]["dense"], learning_rate=0.02)
    config["eval"] = {"every_epoch": False}
    config["log"] = {"every_steps": 1, "progress": False}
    config["checkpoint"] = {"export": os.path.join(folder, "weights")}
    os.makedirs(folder)
    return runs.start(args.trainer, config, folder, gpus, args.override), config["checkpoint"]["export"]


def finish(started):
    """Losses, and the bytes of the exported files."""
    run, export = started
    out = {"losses": [e["loss"] for e in runs.of_kind(runs.finish(run, 200), "step")]}
    for name in sorted(os.listdir(export)):
        with open(os.path.join(export, name), "rb") as f:
            out[name] = f.read()
    return out


def compare(args, name, model, precision):
    """The failures, in words. All runs are started at once: they are mostly start-up."""
    numbers = [int(x) for x in args.gpus.split(",")]
    wanted = [(True, numbers[0])] + [(True, n) for n in numbers] + [(False, n) for n in numbers] + [(False, n) for n in numbers]
    with tempfile.TemporaryDirectory(prefix="dlrm_bits_") as folder:
        started = [start(args, model, precision, d, n, os.path.join(folder, str(k))) for k, (d, n) in enumerate(wanted)]
        try:
            got = [finish(s) for s in started]
        finally:
            for (process, _), _ in started:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
    m = len(numbers)
    pairs = [("deterministic, %d GPU(s) against %d" % (n, numbers[0]), got[0], got[1 + k]) for k, n in enumerate(numbers)]
    pairs += [("default, %d GPU(s), twice" % n, got[1 + m + k], got[1 + 2 * m + k]) for k, n in enumerate(numbers)]
    failures = []
    for what, a, b in pairs:
        differ = [k for k in sorted(set(a) | set(b)) if a.get(k) != b.get(k)]
        if differ:
            failures.append("%s %s, %s: %s differ" % (name, precision, what, ", ".join(differ)))
    losses = got[0]["losses"]
    if len(set(losses)) < 2 or len(got[0]) < 2:
        failures.append("%s %s: nothing was trained and exported: losses %s, files %s" % (name, precision, losses, sorted(got[0])))
    print("%s %s: %d comparisons, loss %.6f to %.6f" % (name, precision, len(pairs), losses[0], losses[-1]), flush=True)
    return failures


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("--gpus", default="1")
    p.add_argument("--batch", type=int, default=20011)
    p.add_argument("--rows", type=int, default=20000)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--override", action="append", default=[])
    args = p.parse_args()
    args.trainer = os.path.abspath(args.trainer)
    failures = []
    for name, model in (("mlperf", runs.mlperf), ("tiny", runs.tiny)):
        for precision in ("bf16", "fp32") if args.device == "cuda" else ("fp32",):
            try:
                failures += compare(args, name, model, precision)
            except runs.Failed as e:
                failures.append("%s %s: %s" % (name, precision, e))
    for text in failures:
        print("FAIL", text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
