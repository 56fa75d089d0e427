#!/usr/bin/env python3
"""What PyTorch makes of the real rows in tests/data/criteo_sample: losses, evaluations and final weights in float64.

  criteo_sample_torch.py [OUT]      writes OUT, default tests/data/criteo_sample/expected/results.npz

tests/run/test_criteo_sample.py compares dlrm-train with that file. Nothing here comes from this project's tools: rows are
read from the text, the dictionaries, the model (nn.EmbeddingBag, nn.Linear), the loss and the AUC are made here. Each case
runs in float64, and in float32 over several orders of the samples within a batch. Ten times the largest deviation of those
is the tolerance that a float32 trainer must keep. The kept file was made with PyTorch 2.15.0 and NumPy 2.4.6 on Python
3.11.7.
"""
import os
import sys
from collections import Counter

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "..", "data", "criteo_sample")
DIM, BOTTOM, TOP, BATCH, EPOCHS = 16, [32, 16, 16], [32, 32, 16, 8, 1], 64, 3
LEAST_COUNT = 2  # rarer hashes share id 0 with missing ones
ORDERS = 8       # of float32 runs
# name: type of the dense values in the files, optimizer
CASES = {
    "sgd": (np.float32, lambda p: torch.optim.SGD(p, lr=0.3)),
    "adagrad": (np.float32, lambda p: torch.optim.Adagrad(p, lr=0.03, initial_accumulator_value=0.1, eps=1e-7)),
    "sgd_float16": (np.float16, lambda p: torch.optim.SGD(p, lr=0.3)),
}


class Sample:
    """The rows: every seventh, from the fifth on, is for testing, so that clicks are on both sides."""

    def __init__(self):
        with open(os.path.join(SAMPLE, "terabyte.tsv")) as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
        assert len(rows) == 700 and all(len(row) == 40 for row in rows)
        self.labels = np.array([float(row[0]) for row in rows])
        self.dense = np.array([[0.0 if not x or int(x) <= -3 else np.log(int(x) + 3) for x in row[1:14]] for row in rows])
        self.ids, self.table_rows = np.zeros((len(rows), 26), np.int64), []
        for k in range(26):
            counts = Counter(row[14 + k] for row in rows if row[14 + k])
            kept = sorted((-n, int(text, 16), text) for text, n in counts.items() if n >= LEAST_COUNT)
            ids = {text: i for i, (_, _, text) in enumerate(kept, 1)}
            self.table_rows.append(len(kept) + 1)
            self.ids[:, k] = [ids.get(row[14 + k], 0) for row in rows]
        at = np.arange(len(rows))
        self.train, self.test = at[at % 7 != 4], at[at % 7 == 4]


def layers(widths, last_relu):
    parts = []
    for n, (a, b) in enumerate(zip(widths, widths[1:])):
        parts += [nn.Linear(a, b)] + ([nn.ReLU()] if last_relu or n < len(widths) - 2 else [])
    return nn.Sequential(*parts)


class Model(nn.Module):
    def __init__(self, table_rows):
        super().__init__()
        vectors = 1 + len(table_rows)
        self.bottom = layers([13] + BOTTOM, True)
        self.top = layers([DIM + vectors * (vectors - 1) // 2] + TOP, False)
        self.tables = nn.ModuleList([nn.EmbeddingBag(n, DIM, mode="sum") for n in table_rows])
        self.pairs = np.tril_indices(vectors, -1)

    def forward(self, dense, ids):
        x = self.bottom(dense)
        vectors = torch.stack([x] + [table(ids[:, k:k + 1]) for k, table in enumerate(self.tables)], 1)
        dots = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([x, dots[:, self.pairs[0], self.pairs[1]]], 1))[:, 0]

    def named(self):
        """Parameters by the names of the trainer's files."""
        out = {}
        for stack in ("bottom", "top"):
            linear = [m for m in getattr(self, stack) if isinstance(m, nn.Linear)]
            for n, m in enumerate(linear):
                out["%s.%d.weight" % (stack, n)], out["%s.%d.bias" % (stack, n)] = m.weight, m.bias
        for k, table in enumerate(self.tables):
            out["table.cat_%d.weight" % k] = table.weight
        return out


def initial(model):
    """Float32 numbers, large enough for every layer to pass a signal on. With this seed no ReLU is so close to zero that rounding
    can put it on the other side: learning rates 3e-5 larger or smaller move the losses in proportion."""
    r = np.random.RandomState(8)
    out = {}
    for name, p in model.named().items():
        scale = 0.5 if name.startswith("table") else 0.1 if name.endswith("bias") else (6 / sum(p.shape)) ** 0.5
        out[name] = r.uniform(-scale, scale, p.shape).astype(np.float32)
    return out


def auc(scores, labels):
    clicked, other = scores[labels == 1][:, None], scores[labels == 0][None]
    return float(np.mean((clicked > other) + 0.5 * (clicked == other)))


def run(sample, case, dtype, order=None):
    """Losses of the steps, [AUC, loss] after each epoch, final weights, and the test scores; order: seed of a shuffle of the
    samples within each batch, which leaves all results the same but for rounding."""
    stored, make_optimizer = CASES[case]
    dense = torch.tensor(sample.dense.astype(np.float32).astype(stored).astype(np.float64), dtype=dtype)
    labels, ids = torch.tensor(sample.labels, dtype=dtype), torch.tensor(sample.ids)
    model = Model(sample.table_rows).to(dtype)
    with torch.no_grad():
        for name, value in initial(model).items():
            model.named()[name].copy_(torch.tensor(value))
    optimizer, loss_of = make_optimizer(model.parameters()), nn.BCEWithLogitsLoss()
    r = np.random.RandomState(order)
    losses, evals, scores = [], [], None
    for _ in range(EPOCHS):
        for begin in range(0, len(sample.train), BATCH):
            rows = sample.train[begin:begin + BATCH]
            if order is not None:
                rows = r.permutation(rows)
            optimizer.zero_grad()
            loss = loss_of(model(dense[rows], ids[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            logits = model(dense[sample.test], ids[sample.test])
            scores = logits.double().numpy()
            evals.append([auc(scores, sample.labels[sample.test]), loss_of(logits, labels[sample.test]).item()])
    final = {name: p.detach().double().numpy() for name, p in model.named().items()}
    return np.array(losses), np.array(evals), final, scores


def tolerances(sample, case, exact):
    """Of losses, MLP weights, table weights and AUC, from the spread of float32."""
    spread, score_spread = np.zeros(3), 0.0
    for order in [None] + list(range(ORDERS)):
        losses, evals, final, scores = run(sample, case, torch.float32, order)
        spread[0] = max(spread[0], np.abs(losses - exact[0]).max(), np.abs(evals[:, 1] - exact[1][:, 1]).max())
        for name, value in final.items():
            kind = 2 if name.startswith("table") else 1
            spread[kind] = max(spread[kind], np.abs(value - exact[2][name]).max())
        score_spread = max(score_spread, np.abs(scores - exact[3]).max())
    # the AUC moves only where a click and a non-click are as close as the scores are exact
    labels = sample.labels[sample.test]
    gaps = np.abs(exact[3][labels == 1][:, None] - exact[3][labels == 0][None])
    print("  float32 spread: loss %.2g, MLPs %.2g, tables %.2g, scores %.2g" % (*spread, score_spread))
    return np.append(np.maximum(10 * spread, 1e-6), 1e-8 + np.mean(gaps < 20 * score_spread))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(SAMPLE, "expected", "results.npz")
    torch.set_num_threads(1)
    sample = Sample()
    arrays = {"init/" + name: value for name, value in initial(Model(sample.table_rows)).items()}
    print("PyTorch %s; %d parameters in %d table rows and the MLPs" %
          (torch.__version__, sum(a.size for a in arrays.values()), sum(sample.table_rows)))
    for case in CASES:
        exact = run(sample, case, torch.float64)
        print("%s: loss %.6f ... %.6f, AUC and loss after each epoch %s" %
              (case, exact[0][0], exact[0][-1], exact[1].round(6).tolist()))
        tolerance = tolerances(sample, case, exact)
        print("  tolerances: loss %.2g, MLPs %.2g, tables %.2g, AUC %.2g" % tuple(tolerance))
        arrays.update({case + "/loss": exact[0], case + "/eval": exact[1], case + "/tolerance": tolerance})
        arrays.update({"%s/final/%s" % (case, name): value for name, value in exact[2].items()})
    np.savez_compressed(out, **arrays)
    print("%s: %d bytes" % (out, os.path.getsize(out)))


if __name__ == "__main__":
    main()
