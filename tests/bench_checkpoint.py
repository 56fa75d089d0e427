#!/usr/bin/env python3
"""Speed of saving and loading checkpoints beside dd's on the same disk, in turns.

  bench_checkpoint.py TRAINER FOLDER [--gib 4] [--ranks 1] [--times 3] [key=value ...]

FOLDER is on the disk that is measured. A save is timed from its start until all is on disk under its name (the last one of a
run, which nothing overlaps), dd with conv=fsync. Reading is timed as the files lie: in the page cache, where it has room for them.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess

CONFIG = """\
model:
  dense_features: 3
  embedding_dim: 128
  bottom_mlp: [128]
  interaction: dot
  top_mlp: [8, 1]
  tables: [{count: %d, rows: %d}]
optimizer: {dense: {name: sgd, learning_rate: 0.01}, embedding: {name: sgd, learning_rate: 0.01}}
train: {batch_size: 256}
data: {format: synthetic, synthetic: {batches: 5}}
eval: {every_epoch: false}
log: {every_steps: 1, jsonl: run.jsonl}
checkpoint: {path: ckpt, keep: 1}
"""


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("trainer")
    p.add_argument("folder")
    p.add_argument("--gib", type=float, default=4)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--times", type=int, default=3)
    p.add_argument("more", nargs="*")
    a = p.parse_intermixed_args()
    trainer = os.path.abspath(a.trainer)
    work = os.path.join(a.folder, "bench_checkpoint")
    os.makedirs(work)
    try:
        with open(os.path.join(work, "config.yaml"), "w") as f:
            f.write(CONFIG % (a.ranks, int(a.gib * 2**30 / 512 / a.ranks)))
        ratios = []
        for i in range(a.times):
            blocks = int(a.gib * 2**30) >> 22
            said = subprocess.run(["dd", "if=/dev/zero", "of=" + os.path.join(work, "dd"), "bs=4M", "count=%d" % blocks, "conv=fsync"], check=True,
                                  stderr=subprocess.PIPE, text=True, env=dict(os.environ, LC_ALL="C")).stderr
            dd = (blocks << 22) / float(re.search(r"copied, ([\d.e+-]+) s", said).group(1))
            os.remove(os.path.join(work, "dd"))
            run = subprocess.run(["mpirun", "-n", str(a.ranks), trainer, "config.yaml", "train.steps=%d" % (i + 1)] + a.more, cwd=work, check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
            read = re.search(r"read in ([\d.]+) s", run)
            with open(os.path.join(work, "run.jsonl")) as f:
                e = [json.loads(line) for line in f if '"checkpoint","step"' in line][-1]
            save = e["bytes"] / e["save_ms"] * 1e3
            ratios.append(save / dd)
            print("dd %.2f GB/s, save %.2f GB/s (%.0f %%)%s" % (dd / 1e9, save / 1e9, 100 * ratios[-1],
                                                               ", load %.2f GB/s" % (e["bytes"] / float(read.group(1)) / 1e9) if read else ""), flush=True)
        print("median: a save has %.0f %% of dd's speed" % (100 * statistics.median(ratios)))
    finally:
        shutil.rmtree(work)


main()
