#!/usr/bin/env python3
"""The opponents of tests/bench_gpu.py: the same models in PyTorch on GPUs, at their best.

  bench_torch_gpu.py [--gpus 1|2] [--only TEXT,TEXT] [--ours FILE]

eager: one nn.EmbeddingBag(mode="sum", sparse=True) a table, torch.optim over all of it, as facebook's and Merlin's examples do.
tuned: by hand: one matrix for all tables of a width, gathers without autograd, the dense part under torch.compile, tables updated in
  place: index_add_ for SGD, rows made unique and their gradients summed for Adagrad.
hybrid (two GPUs): the tuned model with its tables spread over the GPUs, vectors and gradients exchanged with all_to_all over NCCL, the
  MLPs' gradients in one all_reduce.
bf16 is autocast; otherwise products are TF32. Batches lie ready on the GPU; times are medians from CUDA events. --ours: the figures
of bench_gpu.py --json, for the ratios. --device cpu --rows 1000 --batch 64 --no-compile runs anywhere, and proves nothing but that.
"""
import argparse
import gc
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import gpu_runs

MODELS = {"mlperf": gpu_runs.mlperf, "tiny": gpu_runs.tiny, "small": gpu_runs.small}
# model, how, precision, (timed steps, warm-up); asked: how many times as fast we are to be
RUNS = {1: [dict(model="mlperf", how="eager", precision="tf32", steps=(15, 4)),
            dict(model="mlperf", how="eager", precision="bf16", steps=(15, 4)),
            dict(model="mlperf", how="tuned", precision="tf32", steps=(20, 8)),
            dict(model="mlperf", how="tuned", precision="bf16", steps=(20, 8), asked=3.0),
            dict(model="tiny", how="eager", precision="tf32", steps=(8, 3)),
            dict(model="tiny", how="tuned", precision="bf16", steps=(10, 5)),
            dict(model="small", how="eager", precision="tf32", steps=(5, 2)),
            dict(model="small", how="tuned", precision="bf16", steps=(10, 5))],
        2: [dict(model="mlperf", how="hybrid", precision="bf16", steps=(20, 8))]}
ALPHA, BATCHES, RATE = 1.05, 3, 0.01


def stack(width, outputs, last):
    layers = []
    for n in outputs:
        layers += [nn.Linear(width, n), nn.ReLU()]
        width = n
    return nn.Sequential(*(layers if last else layers[:-1]))


class Dense(nn.Module):
    """Everything but the tables: vectors is a list of [B, some, width]."""

    def __init__(self, config, inputs, bf16):
        super().__init__()
        m = config["model"]
        self.bf16, self.dot, n = bf16, m["interaction"] == "dot", len(inputs) + 1
        self.bottom = stack(m["dense_features"], m["bottom_mlp"], last=True)
        width = m["bottom_mlp"][-1] if m["bottom_mlp"] else m["dense_features"]
        self.top = stack(width + n * (n - 1) // 2 if self.dot else width + sum(w for _, w, _ in inputs), m["top_mlp"], last=False)
        i, j = torch.tril_indices(n, n, -1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, dense, vectors, labels):
        with torch.autocast(dense.device.type, torch.bfloat16, enabled=self.bf16):
            x = self.bottom(dense)
            if self.dot:
                v = torch.cat([x.unsqueeze(1)] + vectors, 1)
                x = torch.cat([x, torch.bmm(v, v.transpose(1, 2))[:, self.i, self.j]], 1)
            else:
                x = torch.cat([v.flatten(1) for v in vectors] + [x], 1)
            z = self.top(x).squeeze(1)
        return F.binary_cross_entropy_with_logits(z.float(), labels)


def draw_ids(rows, shape, device):
    """Of the power law of data.synthetic."""
    g = 1.0 - ALPHA
    u = torch.rand(shape, device=device, dtype=torch.float64)
    return (((u * ((rows + 1.0) ** g - 1) + 1) ** (1 / g)).long() - 1).clamp_(0, rows - 1)


def tables_of(config):
    """[(rows, width)] of the tables, [(table, hotness)] of the inputs."""
    tables, inputs = [], []
    for t in config["model"]["tables"]:
        hotness = t.get("hotness", 1)
        for _ in range(t.get("count", 1)):
            inputs += [(len(tables), h) for h in (hotness if isinstance(hotness, list) else [hotness])]
            tables.append((t["rows"], t.get("dim", config["model"]["embedding_dim"])))
    return tables, inputs


def dense_and_labels(config, batch, device):
    dense = torch.rand(batch, config["model"]["dense_features"], device=device)
    return dense if config["model"]["interaction"] == "dot" else 100 * dense, torch.randint(0, 2, (batch,), device=device).float()


def optimizer_of(config, parameters, **more):
    adagrad = config["optimizer"]["dense"]["name"] == "adagrad"
    return torch.optim.Adagrad(parameters, lr=RATE, **more) if adagrad else torch.optim.SGD(parameters, lr=RATE, **more)


def eager(args, config, bf16):
    tables, inputs = tables_of(config)
    net = Dense(config, gpu_runs.inputs_of(config), bf16).to(args.device)
    bags = nn.ModuleList(nn.EmbeddingBag(n, w, mode="sum", sparse=True, device=args.device,
                                         _weight=torch.empty(n, w, device=args.device).uniform_(-n ** -0.5, n ** -0.5)) for n, w in tables)
    optimizer = optimizer_of(config, list(net.parameters()) + list(bags.parameters()))
    data = [([draw_ids(tables[t][0], (args.batch, h), args.device) for t, h in inputs], *dense_and_labels(config, args.batch, args.device))
            for _ in range(BATCHES)]

    def step(k):
        ids, dense, labels = data[k % BATCHES]
        optimizer.zero_grad(set_to_none=True)
        vectors = [bags[t](i).unsqueeze(1) for (t, _), i in zip(inputs, ids)]
        if bf16 and net.dot:
            vectors = [v.to(torch.bfloat16) for v in vectors]
        net(dense, vectors, labels).backward()
        optimizer.step()
    return step


class Tables:
    """Tables of one width as one matrix, and where each begins."""

    def __init__(self, rows, width, adagrad, device):
        self.w = torch.empty(sum(rows), width, device=device).uniform_(-1e-3, 1e-3)
        self.a = torch.full_like(self.w, 0.1) if adagrad else None

    def update(self, ids, gradients):
        if self.a is None:
            self.w.index_add_(0, ids, gradients.float(), alpha=-RATE)
            return
        rows, place = torch.unique(ids, return_inverse=True)
        g = torch.zeros(rows.numel(), self.w.shape[1], device=self.w.device).index_add_(0, place, gradients.float())
        a = self.a.index_select(0, rows) + g * g
        self.a.index_copy_(0, rows, a)
        self.w.index_add_(0, rows, g / (a.sqrt() + 1e-7), alpha=-RATE)


def tuned(args, config, bf16):
    tables, inputs = tables_of(config)
    first, rows, groups = {}, {}, {}
    for t, (n, w) in enumerate(tables):
        first[t] = sum(rows.setdefault(w, []))
        rows[w].append(n)
    for t, h in inputs:
        groups.setdefault((tables[t][1], h), []).append(t)
    matrices = {w: Tables(n, w, config["optimizer"]["embedding"]["name"] == "adagrad", args.device) for w, n in rows.items()}
    net = Dense(config, gpu_runs.inputs_of(config), bf16).to(args.device)
    optimizer = optimizer_of(config, net.parameters(), foreach=True)
    dense_part = net if args.no_compile else torch.compile(net)

    def draw(h, of):
        return torch.stack([draw_ids(tables[t][0], (args.batch, h), args.device) + first[t] for t in of], 1)

    data = [({(w, h): draw(h, of) for (w, h), of in groups.items()}, *dense_and_labels(config, args.batch, args.device))
            for _ in range(BATCHES)]

    def look_up(w, h, ids):
        flat, table = ids.reshape(-1), matrices[w].w
        e = F.embedding_bag(flat.view(-1, h), table, mode="sum") if h > 1 else torch.index_select(table, 0, flat)
        e = e.view(args.batch, ids.shape[1], w)
        return (e.to(torch.bfloat16) if bf16 and net.dot else e).requires_grad_(True)

    def step(k):
        ids, dense, labels = data[k % BATCHES]
        vectors = [look_up(w, h, i) for (w, h), i in ids.items()]
        dense_part(dense, vectors, labels).backward()
        for width, matrix in matrices.items():
            mine = [(h, i, v.grad) for ((w, h), i), v in zip(ids.items(), vectors) if w == width]
            gradients = [g.reshape(-1, 1, width).expand(-1, h, width).reshape(-1, width) for h, _, g in mine]
            every = [i.reshape(-1) for _, i, _ in mine]
            matrix.update(torch.cat(every) if len(every) > 1 else every[0], torch.cat(gradients) if len(every) > 1 else gradients[0])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def hybrid(args, config, bf16):
    """As `tuned`, of models with one width and one id a feature; this process has one of the GPUs."""
    n, rank = dist.get_world_size(), dist.get_rank()
    tables, B = tables_of(config)[0], args.batch
    b, width, act = B // n, tables[0][1], torch.bfloat16 if bf16 else torch.float32
    own, load = [[] for _ in range(n)], [0] * n
    for t in sorted(range(len(tables)), key=lambda t: -tables[t][0]):  # the least loaded that may have another
        p = min(range(n), key=lambda p: (len(own[p]) * n >= len(tables), load[p]))
        own[p].append(t)
        load[p] += tables[t][0]
    rows = [tables[t][0] for t in own[rank]]
    matrix = Tables(rows, width, False, args.device)
    first = torch.tensor([sum(rows[:k]) for k in range(len(rows))], device=args.device)
    order = torch.tensor([t for ts in own for t in ts], device=args.device)
    back = order.argsort()
    torch.manual_seed(1)
    net = Dense(config, gpu_runs.inputs_of(config), bf16).to(args.device)
    parameters = list(net.parameters())
    optimizer = optimizer_of(config, parameters, foreach=True)
    dense_part = net if args.no_compile else torch.compile(net)
    torch.manual_seed(2 + rank)
    data = [(torch.stack([draw_ids(r, (B,), args.device) for r in rows], 1) + first, *dense_and_labels(config, b, args.device))
            for _ in range(BATCHES)]
    wide, mine = [b * len(ts) * width for ts in own], b * len(rows) * width

    def step(k):
        ids, dense, labels = data[k % BATCHES]
        ids = ids.view(-1)
        sent = torch.index_select(matrix.w, 0, ids).to(act)
        received = torch.empty(sum(wide), device=args.device, dtype=act)
        dist.all_to_all_single(received, sent.view(-1), wide, [mine] * n)
        vectors = torch.cat([r.view(b, -1, width) for r in received.split(wide)], 1).index_select(1, back).requires_grad_(True)
        dense_part(dense, [vectors], labels).backward()
        blocks = vectors.grad.index_select(1, order).split([len(ts) for ts in own], 1)
        gradients = torch.empty(n * mine, device=args.device, dtype=act)
        dist.all_to_all_single(gradients, torch.cat([g.reshape(-1) for g in blocks]), [mine] * n, wide)
        flat = torch.cat([p.grad.view(-1) for p in parameters])
        dist.all_reduce(flat)
        flat /= n
        for p, g in zip(parameters, flat.split([p.numel() for p in parameters])):
            p.grad.copy_(g.view_as(p))
        matrix.update(ids, gradients.view(-1, width) / n)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def time_steps(args, step, timed, warm):
    """Median in ms."""
    times = []
    for k in range(warm + timed):
        if args.device == "cpu":
            start = time.perf_counter()
            step(k)
            times.append(1e3 * (time.perf_counter() - start))
            continue
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        step(k)
        events[1].record()
        torch.cuda.synchronize()
        times.append(events[0].elapsed_time(events[1]))
    return sorted(times[warm:])[timed // 2]


def measure(args, run):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    step = {"eager": eager, "tuned": tuned, "hybrid": hybrid}[run["how"]](args, MODELS[run["model"]](args.rows), run["precision"] == "bf16")
    return time_steps(args, step, *run["steps"])


def one_rank(rank, args, run, port, ms):
    if args.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=2)
    value = measure(args, run)
    if rank == 0:
        ms.value = value
    dist.destroy_process_group()


def measure_two(args, run, port):
    ms = torch.multiprocessing.get_context("spawn").Value("d", 0.0)
    torch.multiprocessing.spawn(one_rank, (args, run, port, ms), nprocs=2)
    return ms.value


def our_times(path):
    if not path:
        return {}
    try:
        with open(path) as f:
            return {(r["name"], r["gpus"]): r["ms"] for r in json.load(f)}
    except FileNotFoundError:
        print("note: there is no %s: no ratios" % path)
        return {}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gpus", type=int, choices=RUNS, default=1)
    p.add_argument("--only", default="", help='runs whose name, as in "mlperf tuned bf16", begins with one of these texts')
    p.add_argument("--ours")
    p.add_argument("--batch", type=int, default=65536)
    p.add_argument("--rows", type=int, help="of a table, at most")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--no-compile", action="store_true")
    args = p.parse_args()
    ours, done, failed = our_times(args.ours), 0, 0
    print("PyTorch %s" % torch.__version__)
    for k, run in enumerate(RUNS[args.gpus]):
        name, start, ms = "%s %s %s" % (run["model"], run["how"], run["precision"]), time.perf_counter(), None
        if not any(name.startswith(text) for text in args.only.split(",")):
            continue
        try:
            ms = measure(args, run) if args.gpus == 1 else measure_two(args, run, 29517 + k)
        except Exception as e:  # the other runs are still of interest
            print("%-20s %d GPU  FAILED: %r" % (name, args.gpus, str(e)[-1500:]), flush=True)
            failed += 1
        gc.collect()
        torch.cuda.empty_cache()
        torch.compiler.reset()
        if ms is None:
            continue
        line = "%-20s %d GPU  median %8.3f ms  %6.2f M samples/s" % (name, args.gpus, ms, args.batch / ms * 1e-3)
        mine = ours.get(("%s %s" % (run["model"], run["precision"]), args.gpus))
        if mine:
            line += "  ours %.3f ms: %.2f times as fast" % (mine, ms / mine)
            if "asked" in run:
                line += ", asked %.1f: %s" % (run["asked"], "reached" if ms / mine >= run["asked"] else "MISSED")
        print("%s  (%.0f s)" % (line, time.perf_counter() - start), flush=True)
        done += 1
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
