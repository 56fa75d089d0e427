#!/usr/bin/env python3
"""One golden case through the trainer.

  golden.py TRAINER CASE [--ranks 1,2,3,4] [--bits 7] [--device auto] [--placements replicated,…]

On each number of ranks, deterministic mode off and on: losses, learning rates, evaluation and final weights within the
case's tolerances of the float64 results. And bits: deterministic mode gives the same losses and the same bytes of
exported weights on all these ranks and those of --bits; the default mode gives the same bytes again; evaluating after
every step, or never, changes no weight. Under each forced placement: the default mode within the tolerances, and again the
same bytes in deterministic mode.
"""
import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import as_run  # noqa: E402
import launch  # noqa: E402

FORCED = {  # all tables, or those below the size of the middle one
    "replicated": ["parallel.data_parallel_threshold=1000000000"],
    "some_replicated": ["parallel.data_parallel_threshold=MIDDLE"],
    "rows": ["parallel.row_slice_threshold=0"],
    "columns": ["parallel.column_slice_threshold=1"],
    "mixed": ["parallel.data_parallel_threshold=SMALLEST", "parallel.row_slice_threshold=LARGEST", "parallel.column_slice_threshold=8"],
}


class Runner:
    def __init__(self, trainer, case, device):
        self.trainer, self.case, self.device, self.failures, self.count = trainer, case, device, [], 0
        self.folder = tempfile.TemporaryDirectory(prefix="dlrm_golden_")
        as_run.make(case, self.folder.name)

    def fail(self, what, text):
        self.failures.append("%s, %s: %s" % (self.case.name, what, text))

    def run(self, ranks, deterministic, *overrides):
        """Trains; what came back, or None after a failure. Few ranks get two threads: those may not change bits either."""
        self.count += 1
        tag = "run%d" % self.count
        what = "%d rank(s), deterministic %s%s" % (ranks, deterministic, "".join(", " + o for o in overrides))
        done = launch.train(self.trainer, ranks, ["config.yaml", "device=" + self.device, "train.deterministic=%s" % str(deterministic).lower(),
                            "log.jsonl=%s.jsonl" % tag, "checkpoint.export=%s" % tag, *overrides],
                            self.folder.name, threads=2 if ranks <= 2 else 1)
        if done.returncode != 0:
            return self.fail(what, "exit status %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        return Result(what, os.path.join(self.folder.name, tag))

    def forced(self, placement):
        sizes = sorted(v.size for k, v in self.case.under("init/").items() if k.startswith("table"))
        words = FORCED[placement]
        for name, size in (("SMALLEST", sizes[0]), ("MIDDLE", sizes[len(sizes) // 2]), ("LARGEST", sizes[-1])):
            words = [o.replace(name, str(size)) for o in words]
        return words

    def check(self, result):
        bad, worst = as_run.check(self.case, result.path + ".jsonl", result.path)
        for text in bad:
            self.fail(result.what, text)
        return worst

    def same(self, a, b, losses=False):
        """Equal bytes of all exported files; with `losses`, of every logged loss, too."""
        if a is None or b is None:
            return
        x, y = a.weights(), b.weights()
        if sorted(x) != sorted(y):
            self.fail(b.what, "exported %s, but %s: %s" % (sorted(y), a.what, sorted(x)))
        elif x != y:
            self.fail(b.what, "%s differ from those of %s" % (", ".join(k for k in x if x[k] != y[k]), a.what))
        if losses and a.losses() != b.losses():
            self.fail(b.what, "losses differ from those of %s:\n  %s\n  %s" % (a.what, a.losses(), b.losses()))


class Result:
    def __init__(self, what, path):
        self.what, self.path = what, path

    def weights(self):
        out = {}
        for name in os.listdir(self.path):
            with open(os.path.join(self.path, name), "rb") as f:
                out[name] = f.read()
        return out

    def losses(self):
        with open(self.path + ".jsonl") as f:
            events = [json.loads(line) for line in f]
        return [(e["event"], e["step"], e["loss"], e.get("auc")) for e in events if e["event"] in ("step", "eval")]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("case")
    p.add_argument("--ranks", default="1,2,3,4")
    p.add_argument("--bits", default="7")
    p.add_argument("--device", default="auto")
    p.add_argument("--placements", default=",".join(FORCED))
    args = p.parse_args()
    ranks, more = [[int(x) for x in text.split(",") if x] for text in (args.ranks, args.bits)]
    r = Runner(os.path.abspath(args.trainer), as_run.Case(args.case), args.device)
    default = {n: r.run(n, False) for n in ranks}
    pinned = {n: r.run(n, True) for n in ranks}
    placements = [x for x in args.placements.split(",") if x]
    several = [n for n in ranks if n > 1]  # a placement is of several ranks
    placements = placements if several else []
    forced = {x: r.run(several[:2][-1], False, *r.forced(x)) for x in placements}
    worst = {}
    for result in list(forced.values()) + list(default.values()) + list(pinned.values()):
        for kind, value in (r.check(result) if result else {}).items():
            worst[kind] = max(worst.get(kind, 0.0), value)
    for n in ranks[1:]:
        r.same(pinned[ranks[0]], pinned[n], losses=True)
    for n in more:
        r.same(pinned[ranks[0]], r.run(n, True), losses=True)
    for k, x in enumerate(placements):
        r.same(pinned[ranks[0]], r.run(several[k % len(several)], True, *r.forced(x)), losses=True)
    some = ranks[min(1, len(ranks) - 1)]
    r.same(default[some], r.run(some, False), losses=True)
    r.same(default[some], r.run(some, False, "eval.every_steps=1"))
    r.same(pinned[some], r.run(some, True, "eval.every_epoch=false"))
    for text in r.failures:
        print("FAIL", text)
    print("%s: %d runs, %d failures, worst/tolerance %s" %
          (r.case.name, r.count, len(r.failures), {k: round(v, 3) for k, v in worst.items()}))
    return 1 if r.failures else 0


if __name__ == "__main__":
    sys.exit(main())
