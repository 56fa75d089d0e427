#!/usr/bin/env python3
"""What lower precision costs in quality: the same model, rows, initial weights and steps in each precision, and the AUC after them.

  gpu_auc.py TRAINER [--only NAME,NAME] [--tolerance 0.0005] [--jobs N]

26 tables of Criteo's sizes cut at a million rows, width 32, dot interaction, Adagrad; rows with a planted signal, each seen once; AUC
over a million other rows, which are the same for all. One line for each precision with its difference to fp32; fails if one is larger
than the tolerance, or if fp32 learned nothing. "fp32 again" is fp32 in deterministic mode, which differs in rounding alone: the
noise of such a comparison. A precision that the build does not have is said to be so.
The runs share the GPU, --jobs at a time. --device cpu --steps 20 --samples 10000 runs anywhere.
"""
import argparse
import os
import sys
import tempfile

import gpu_runs as runs

VARIANTS = {"fp32": {}, "fp32 again": {"train.deterministic": "true"}, "tf32": {"train.precision": "tf32"},
            "bf16": {"train.precision": "bf16"}, "fp16": {"train.precision": "fp16"},
            "bf16 tables": {"train.precision": "bf16", "train.embedding_dtype": "bf16"},
            "fp16 tables": {"train.precision": "fp16", "train.embedding_dtype": "fp16"}}
LEAST = 0.72  # AUC that shows that fp32 learned; the planted model's own is near 0.80


def configure(args):
    # First accumulators as small as the squared gradients of a mean over 8192 samples: larger ones would keep it from learning.
    dense = {"name": "adagrad", "learning_rate": args.dense_rate, "initial_accumulator": 1e-4}
    tables = {"name": "adagrad", "learning_rate": args.table_rate, "initial_accumulator": 1e-6}
    return {"device": args.device,
            "model": {"dense_features": 13, "embedding_dim": 32, "bottom_mlp": [128, 32], "interaction": "dot", "top_mlp": [256, 128, 1],
                      "tables": [{"rows": min(n, args.rows)} for n in runs.CRITEO]},
            "optimizer": {"dense": dense, "embedding": tables,
                          "schedule": {"warmup_steps": args.steps // 15, "decay_start_step": args.steps // 2, "decay_steps": args.steps // 2}},
            "train": {"batch_size": args.batch, "steps": args.steps},
            "data": {"format": "synthetic", "synthetic": {"alpha": args.alpha, "batches": args.steps, "labels": "planted"}},
            "eval": {"every_epoch": True, "batch_size": 65536, "max_samples": args.samples},
            "log": {"every_steps": max(args.steps // 10, 1), "progress": False}}


def start_variant(args, name, folder):
    options = ["%s=%s" % item for item in VARIANTS[name].items()]
    return name, runs.start(args.trainer, configure(args), folder, 1, options + args.override, name.replace(" ", "_"))


def finish_variant(args, name, started):
    """(AUC, loss), or what went wrong in words."""
    try:
        e = runs.of_kind(runs.finish(started, args.timeout), "eval")[-1]
        return e["auc"], e["loss"]
    except runs.Failed as e:
        return "not in this build" if "this build has no CUDA" in str(e) else str(e)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("--only", default=",".join(VARIANTS))
    p.add_argument("--tolerance", type=float, default=0.0005)
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--batch", type=int, default=8192)
    p.add_argument("--samples", type=int, default=1000000)
    p.add_argument("--rows", type=int, default=1000000, help="of a table, at most")
    p.add_argument("--alpha", type=float, default=1.05)
    p.add_argument("--dense-rate", type=float, default=0.02)
    p.add_argument("--table-rate", type=float, default=0.1)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--timeout", type=int, default=400)
    p.add_argument("--override", action="append", default=[])
    args = p.parse_args()
    args.trainer = os.path.abspath(args.trainer)
    names, results, running, failures = args.only.split(","), {}, [], []
    if names[0] != "fp32" or not set(names) <= set(VARIANTS):
        p.error("--only: expected fp32 and then some of %s" % ", ".join(list(VARIANTS)[1:]))
    with tempfile.TemporaryDirectory(prefix="dlrm_auc_") as folder:
        waiting = list(names)
        try:
            while waiting or running:
                while waiting and len(running) < args.jobs:
                    running.append(start_variant(args, waiting.pop(0), folder))
                name, started = running[0]
                results[name] = finish_variant(args, name, started)
                running.pop(0)
        finally:
            for _, (process, _) in running:
                process.terminate()
    base = results["fp32"]
    for name in names:
        got = results[name]
        if isinstance(got, str):
            print("%-12s %s" % (name, got))
            if got != "not in this build":
                failures.append("%s: did not run" % name)
            continue
        difference = got[0] - base[0] if not isinstance(base, str) else float("nan")
        print("%-12s AUC %.6f (%+.6f)  loss %.6f" % (name, got[0], difference, got[1]))
        if not abs(difference) <= args.tolerance:
            failures.append("%s: AUC is %+.6f from fp32's, expected at most %g" % (name, difference, args.tolerance))
    if not isinstance(base, str) and not base[0] >= LEAST:
        failures.append("fp32: AUC is %.4f, expected at least %.2f: nothing was learned, so nothing was compared" % (base[0], LEAST))
    for text in failures:
        print("FAIL", text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
