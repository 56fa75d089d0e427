"""What the GPU suite's programs share: the models of the benchmarks, starting the trainer, reading its log.

A config is a dict, written as JSON, which is YAML. `device` may be cpu everywhere, and sizes small, so that all of this also runs
on a machine without a GPU.
"""
import json
import os
import subprocess
import sys

import numpy as np

CRITEO = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771,
          25641295, 39664984, 585935, 12972, 108, 36]
# DLRM-DCNv2's tables and their ids a sample
DCNV2 = [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000,
         40000000, 40000000, 590152, 12973, 108, 36]
HOTNESS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
# (tables, hotness of the inputs that share one, rows, width), and the MLP
TINY = ([(1, [1, 10], 10000, 8), (1, [1, 10], 1000000, 16), (1, [1, 10], 25000000, 16), (1, [1], 25000000, 16), (16, [1], 10, 8),
         (10, [1], 1000, 8), (4, [1], 10000, 8), (2, [1], 100000, 16), (19, [1], 1000000, 16)], [256, 128])
SMALL = ([(5, [1, 30], 10000, 16), (3, [1, 30], 4000000, 32), (1, [1, 30], 50000000, 32), (1, [1], 50000000, 32), (30, [1], 10, 16),
          (30, [1], 1000, 16), (5, [1], 10000, 16), (5, [1], 100000, 32), (27, [1], 4000000, 32)], [512, 256, 128])
MEDIUM = ([(20, [1, 50], 100000, 64), (5, [1, 50], 10000000, 64), (1, [1, 50], 100000000, 128), (1, [1], 100000000, 128), (80, [1], 10, 32),
           (60, [1], 1000, 32), (80, [1], 100000, 64), (24, [1], 200000, 64), (40, [1], 10000000, 64)], [1024, 512, 256, 128])


def mlperf(most_rows=None):
    """DLRM v1 as MLPerf trains it, its tables cut to most_rows."""
    sgd = {"name": "sgd", "learning_rate": 1.0}
    return {"model": {"dense_features": 13, "embedding_dim": 128, "bottom_mlp": [512, 256, 128], "interaction": "dot",
                      "top_mlp": [1024, 1024, 512, 256, 1], "tables": [{"rows": min(n, most_rows or n)} for n in CRITEO]},
            "optimizer": {"dense": sgd, "embedding": sgd}, "data": {"format": "synthetic", "synthetic": {"labels": "random"}}}


def mlperf_grown(most_rows=None):
    """With the five largest tables 2.27 times as large: 215 GB, 1.5 times what a GPU of 141 GB has."""
    config = mlperf(most_rows)
    for table in config["model"]["tables"]:
        if table["rows"] > 20000000:
            table["rows"] = int(2.27 * table["rows"])
    return config


def dcnv2(most_rows=None, optimizer="adagrad"):
    """Adagrad's state is as large as the tables: 209 GB in all, for two GPUs at least; rowwise it is next to nothing."""
    dense = {"name": "adagrad", "learning_rate": 0.004, "epsilon": 1e-8}
    return {"model": {"dense_features": 13, "embedding_dim": 128, "bottom_mlp": [512, 256, 128], "interaction": "dcn",
                      "cross": {"layers": 3, "rank": 512}, "top_mlp": [1024, 1024, 512, 256, 1],
                      "tables": [{"rows": min(n, most_rows or n), "hotness": h} for n, h in zip(DCNV2, HOTNESS)]},
            "optimizer": {"dense": dense, "embedding": dict(dense, name=optimizer)},
            "data": {"format": "synthetic", "synthetic": {"labels": "random"}}}


def dcnv2_rowwise(most_rows=None):
    return dcnv2(most_rows, "rowwise_adagrad")


def merlin(model, most_rows=None):
    """The synthetic models of Merlin's distributed-embeddings, without their pooling."""
    groups, mlp = model
    tables = [{"count": n, "rows": min(rows, most_rows or rows), "dim": dim, "hotness": hotness} for n, hotness, rows, dim in groups]
    adagrad = {"name": "adagrad", "learning_rate": 0.01, "initial_accumulator": 0.1, "epsilon": 1e-7}
    return {"model": {"dense_features": 10, "embedding_dim": 16, "bottom_mlp": [], "interaction": "cat", "top_mlp": mlp + [1], "tables": tables},
            "optimizer": {"dense": adagrad, "embedding": adagrad},
            "data": {"format": "synthetic", "synthetic": {"labels": "random", "dense": "uniform"}}}


def tiny(most_rows=None):
    return merlin(TINY, most_rows)


def small(most_rows=None):
    return merlin(SMALL, most_rows)


def medium_rowwise(most_rows=None):
    """With the pooling of its 311 tables, 206 GiB; rowwise Adagrad's state is next to nothing."""
    config = merlin(MEDIUM, most_rows)
    config["model"].update({"dense_features": 25, "interaction": "pool", "pool_stride": 7})
    config["optimizer"]["embedding"] = dict(config["optimizer"]["dense"], name="rowwise_adagrad")
    return config


def hugectr_plugin(most_rows=None):
    """The model of the benchmark of HugeCTR's plugin: 100 slots of 10 ids, whose vectors lie side by side."""
    adam = {"name": "adam", "learning_rate": 0.001, "epsilon": 1e-7}
    return {"model": {"dense_features": 0, "embedding_dim": 4, "bottom_mlp": [], "interaction": "cat", "top_mlp": 6 * [1024] + [1],
                      "tables": [{"count": 100, "rows": min(8192, most_rows or 8192), "hotness": 10, "combiner": "none"}]},
            "optimizer": {"dense": adam, "embedding": adam}, "data": {"format": "synthetic", "synthetic": {"labels": "random"}}}


def elements_of(config, draws=None, alpha=0.0):
    """Elements of the tables, or of the different rows of so many samples."""
    total = 0.0
    for t in config["model"]["tables"]:
        hotness = t.get("hotness", 1)
        ids = sum(hotness) if isinstance(hotness, list) else hotness
        rows = t["rows"] if draws is None else distinct_rows(t["rows"], alpha, draws * ids)
        total += t.get("count", 1) * t.get("dim", config["model"]["embedding_dim"]) * rows
    return total


def inputs_of(config):
    """[(rows, width, hotness)] of a config's inputs."""
    out = []
    for t in config["model"]["tables"]:
        hotness = t.get("hotness", 1)
        dim = t.get("dim", config["model"]["embedding_dim"])
        out += [(t["rows"], dim, h) for h in (hotness if isinstance(hotness, list) else [hotness])] * t.get("count", 1)
    return out


def power_law_cdf(n, alpha, x):
    """Share of ids below x, of ids as data.synthetic makes them."""
    g = 1.0 - alpha
    return np.log1p(x) / np.log1p(n) if g == 0 else (np.power(x + 1.0, g) - 1) / ((n + 1.0) ** g - 1)


def distinct_rows(n, alpha, draws):
    """Expected number of different ids among so many draws; ids of a range of 0.1 % share their mean probability."""
    wide = np.geomspace(4096, max(n, 4097), 20000).astype(np.int64)
    edges = np.unique(np.minimum(np.concatenate([np.arange(min(n, 4096)), wide, [n]]), n))
    width = np.diff(edges).astype(np.float64)
    p = np.diff(power_law_cdf(n, alpha, edges.astype(np.float64))) / width
    return float(np.sum(width * -np.expm1(draws * np.log1p(-np.minimum(p, 1 - 1e-12)))))


def power_law_ids(rng, n, alpha, count):
    """As data.synthetic draws them."""
    g, u = 1.0 - alpha, rng.random(count)
    x = np.exp(u * np.log1p(n)) if g == 0 else (u * ((n + 1.0) ** g - 1) + 1) ** (1 / g)
    return np.minimum(x.astype(np.int64) - 1, n - 1)


class Failed(Exception):
    pass


def start(trainer, config, folder, gpus=1, overrides=(), name="config"):
    """Starts the trainer on a config; finish() waits for it."""
    config.setdefault("log", {})["jsonl"] = os.path.join(folder, name + ".jsonl")
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w") as f:
        json.dump(config, f)
    command = (["mpirun", "-n", str(gpus), "--bind-to", "none"] if gpus > 1 else []) + [trainer, path] + list(overrides)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with open(os.path.join(folder, name + ".out"), "w") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment)
    return process, os.path.join(folder, name)


def finish(started, timeout):
    """The events of the run's log; Failed with its output if it ends with an error, or not in time."""
    process, base = started
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        status = "none: it was stopped after %d s" % timeout
    with open(base + ".out") as f:
        said = f.read()
    if status != 0:
        raise Failed("exit status %s\n%s" % (status, said[-2000:]))
    with open(base + ".jsonl") as f:
        return [json.loads(line) for line in f]


def of_kind(events, kind):
    return [e for e in events if e["event"] == kind]


def table(rows):
    """Prints rows of cells as columns, the first to the left and the others to the right."""
    widths = [max(len(str(r[k])) for r in rows if k < len(r)) for k in range(max(map(len, rows)))]
    for r in rows:
        print("  ".join(str(c).ljust(w) if k == 0 else str(c).rjust(w) for k, (c, w) in enumerate(zip(r, widths))).rstrip())
    sys.stdout.flush()
