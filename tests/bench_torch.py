#!/usr/bin/env python3
"""The opponent of tests/bench.sh: a DLRM in PyTorch on CPU, in the style of facebook's reference implementation.

  bench_torch.py MODEL BATCH [--threads N] [--steps N] [--warmup N]

26 nn.EmbeddingBag(mode="sum", sparse=True), stacks of nn.Linear and ReLU, torch.bmm with a gather of the lower triangle,
binary cross entropy, torch.optim.SGD over all parameters. Batches lie ready in memory. Prints one line of JSON with the
median and the 95th percentile of the step time.
"""
import argparse
import json
import statistics
import time

import numpy as np
import torch
from torch import nn

KAGGLE = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652, 2173,
          4, 7046547, 18, 15, 286181, 105, 142572]
TERABYTE = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14,
            39979771, 25641295, 39664984, 585935, 12972, 108, 36]
MODELS = {
    "kaggle": dict(dim=16, rows=KAGGLE, bottom=[512, 256, 64, 16], top=[512, 256, 1], rate=0.1),
    "terabyte": dict(dim=128, rows=[min(n, 1000000) for n in TERABYTE], bottom=[512, 256, 128], top=[1024, 1024, 512, 256, 1],
                     rate=1.0),
}
ALPHA, BATCHES = 1.05, 10


def stack(width, outputs, last):
    layers = []
    for n in outputs:
        layers += [nn.Linear(width, n), nn.ReLU()]
        width = n
    return nn.Sequential(*(layers if last else layers[:-1]))


class Dlrm(nn.Module):
    def __init__(self, dim, rows, bottom, top, **_):
        super().__init__()
        vectors = len(rows) + 1
        self.bottom = stack(13, bottom, last=True)
        self.top = stack(dim + vectors * (vectors - 1) // 2, top, last=False)
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows)
        with torch.no_grad():
            for n, table in zip(rows, self.tables):
                table.weight.uniform_(-n ** -0.5, n ** -0.5)
        i, j = np.tril_indices(vectors, -1)
        self.register_buffer("i", torch.from_numpy(i), persistent=False)
        self.register_buffer("j", torch.from_numpy(j), persistent=False)

    def forward(self, dense, offsets, ids):
        x = self.bottom(dense)
        v = torch.cat([x] + [t(k, offsets) for t, k in zip(self.tables, ids)], dim=1).view(len(x), -1, x.shape[1])
        dots = torch.bmm(v, v.transpose(1, 2))
        return self.top(torch.cat([x, dots[:, self.i, self.j]], dim=1))


def make_batch(rng, rows, batch):
    """Power-law ids, log-normal dense values: the distributions of dlrm-train's synthetic data."""
    g = 1.0 - ALPHA
    ids = [torch.from_numpy(np.minimum(((rng.random(batch) * ((n + 1.0) ** g - 1) + 1) ** (1 / g)).astype(np.int64) - 1, n - 1))
           for n in rows]
    dense = torch.from_numpy(np.exp(rng.standard_normal((batch, 13))).astype(np.float32))
    labels = torch.from_numpy((rng.random((batch, 1)) < 0.25).astype(np.float32))
    return dense, ids, labels


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=MODELS)
    p.add_argument("batch", type=int)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--warmup", type=int, default=5)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    config, rng = MODELS[args.model], np.random.default_rng(1)
    model = Dlrm(**config)
    loss_of, optimizer = nn.BCEWithLogitsLoss(), torch.optim.SGD(model.parameters(), lr=config["rate"])
    batches = [make_batch(rng, config["rows"], args.batch) for _ in range(BATCHES)]
    offsets = torch.arange(args.batch)
    times = []
    for step in range(args.warmup + args.steps):
        dense, ids, labels = batches[step % BATCHES]
        start = time.perf_counter()
        loss = loss_of(model(dense, offsets, ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    times = sorted(times[args.warmup:])
    print(json.dumps(dict(torch=torch.__version__, model=args.model, batch=args.batch, threads=args.threads,
                          step_ms_median=round(statistics.median(times), 3), step_ms_min=round(times[0], 3),
                          step_ms_p95=round(times[int(0.95 * (len(times) - 1))], 3), last_loss=value)))


if __name__ == "__main__":
    main()
