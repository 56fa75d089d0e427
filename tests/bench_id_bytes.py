#!/usr/bin/env python3
"""What the ids of a rank's own samples take on their way (docs/design-notes.md, row formats): as int32; in as few whole bytes as their
table needs, which is what travels; and each distinct id once with an index into them. For MLPerf's tables, whose rows and ids per
sample are read from configs/criteo_dcnv2.yaml, and the trainer's power law (alpha 0: uniform). Counted, not timed.

bench_id_bytes.py [--samples 8192] [--alpha 1.05] [--one-hot]
"""
import argparse
import os
import re

import numpy as np

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "configs", "criteo_dcnv2.yaml")


def tables():
    with open(CONFIG) as f:
        found = re.findall(r"^ +- \{name: \w+, +rows: (\d+)(?:, +hotness: (\d+))?", f.read(), re.M)
    assert len(found) == 26, "%s: expected 26 tables, found %d" % (CONFIG, len(found))
    return [(int(rows), int(hotness or 1)) for rows, hotness in found]


def width(values):
    """Whole bytes of a number below `values`."""
    return max(1, -(-(values - 1).bit_length() // 8))


def ids(r, n, rows, alpha):
    u, g = r.random(n), 1 - alpha
    x = np.exp(u * np.log(rows + 1)) if g == 0 else (u * ((rows + 1) ** g - 1) + 1) ** (1 / g)
    return np.minimum(x.astype(np.int64) - 1, rows - 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--samples", type=int, default=8192)
    p.add_argument("--alpha", type=float, default=1.05)
    p.add_argument("--one-hot", action="store_true")
    a = p.parse_args()
    r = np.random.default_rng(1)
    sums = np.zeros(4)
    for rows, hotness in tables():
        n = a.samples * (1 if a.one_hot else hotness)
        distinct = len(np.unique(ids(r, n, rows, a.alpha)))
        narrow, once = n * width(rows), distinct * width(rows) + n * width(distinct)
        sums += [4 * n, narrow, once, min(narrow, once)]
    print("%d samples, alpha %g%s: int32 %.2f MB, narrow %.2f, distinct ids with indices %.2f, the better of both by table %.2f" %
          (a.samples, a.alpha, ", one id each" if a.one_hot else "", *sums / 1e6))


if __name__ == "__main__":
    main()
