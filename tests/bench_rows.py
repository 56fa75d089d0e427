#!/usr/bin/env python3
"""How fast one core reads each row format, in order and shuffled: writes rows of MLPerf's shapes below FOLDER and starts
bench_reader on them. Not a test.

  bench_rows.py BENCH_READER FOLDER       e.g. bench_rows.py build/tests/bench_reader /dev/shm/rows
"""
import os
import subprocess
import sys

import numpy as np

ROWS = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771,
        25641295, 39664984, 585935, 12972, 108, 36]
HOTNESS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]


def write(folder, n, hotness):
    """n rows as records of counts and of floats, and as arrays."""
    r = np.random.default_rng(1)
    os.makedirs(folder, exist_ok=True)
    labels = r.integers(0, 2, (n, 1)).astype("<i4")
    counts = np.floor(np.exp(r.uniform(0, 8, (n, 13)))).astype("<i4") - 1
    dense = np.log(counts + 1.0).astype("<f4")
    ids = [r.integers(0, rows, (n, h)).astype("<i4") for rows, h in zip(ROWS, hotness)]
    np.concatenate([labels, counts] + ids, 1).tofile(os.path.join(folder, "counts.bin"))
    np.concatenate([labels, dense.view("<i4")] + ids, 1).tofile(os.path.join(folder, "floats.bin"))
    np.save(os.path.join(folder, "day_0_labels.npy"), labels)
    np.save(os.path.join(folder, "day_0_dense.npy"), dense)
    if max(hotness) == 1:
        np.save(os.path.join(folder, "day_0_sparse.npy"), np.concatenate(ids, 1))
    else:
        np.savez(os.path.join(folder, "day_0_sparse_multi_hot.npz"), **{str(j): i for j, i in enumerate(ids)})
    tables = "".join("    - {rows: %d, hotness: %d}\n" % x for x in zip(ROWS, hotness))
    with open(os.path.join(folder, "model.yaml"), "w") as f:
        f.write("model:\n  dense_features: 13\n  embedding_dim: 16\n  bottom_mlp: [16]\n  interaction: dot\n  top_mlp: [1]\n  tables:\n" + tables +
                "optimizer: {dense: {name: sgd, learning_rate: 1}, embedding: {name: sgd, learning_rate: 1}}\n"
                "data: {format: hugectr_raw, path: %s, train_files: counts.bin}\n" % folder)


def main(program, folder):
    for name, n, hotness, batch in (("160-byte", 1 << 22, [1] * 26, 65536), ("912-byte", 1 << 20, HOTNESS, 16384)):
        path = os.path.join(folder, name)
        write(path, n, hotness)
        for what, more in (("records, counts", []), ("records, floats", ["data.train_files=floats.bin"]),
                           ("arrays", ["data.format=npy", "data.train_files=day_0"]), ("records, shuffled", ["data.shuffle=true"])):
            done = subprocess.run([program, os.path.join(path, "model.yaml"), "train.batch_size=%d" % batch] + more, stdout=subprocess.PIPE,
                                  text=True, check=True)
            print("%s rows, %s: %s" % (name, what, done.stdout.strip()))


if __name__ == "__main__":
    main(*sys.argv[1:])
