"""Criteo text to split-binary, once more and independently of data_tools: what the tests compare the converter with."""
import os
import re
import shutil
import struct

import numpy as np

N_DENSE, N_IDS = 13, 26


def scratch_root():
    """Where test folders go: memory where there is enough, as a conversion syncs some 80 files; else the usual place."""
    return "/dev/shm" if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 1 << 30 else None


class Rows:
    """Parsed rows: label [n], dense [n, 13] (float64, NaN = missing), ids [n, 26] (int64, -1 = missing), number [n] (file
    << 40 | line; malformed lines count), test [n] bool and validation [n] bool are added by split()."""

    def __init__(self, label, dense, ids, number):
        self.label, self.dense, self.ids, self.number = label, dense, ids, number

    def __len__(self):
        return len(self.label)

    def pick(self, which):
        return Rows(self.label[which], self.dense[which], self.ids[which], self.number[which])


def parse(texts):
    """texts: the bytes of each file. Lines that do not parse are left out. Returns Rows and the lines of each file."""
    label, dense, ids, number, lines_of = [], [], [], [], []
    for f, text in enumerate(texts):
        lines = text.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        lines_of.append(len(lines))
        for i, line in enumerate(lines):
            fields = line.rstrip(b"\r").split(b"\t")
            try:
                assert len(fields) == 40 and fields[0] in (b"0", b"1")
                d = [float(int(x)) if x else np.nan for x in fields[1:14]]
                c = [int(x, 16) if x else -1 for x in fields[14:]]
                assert all(not x or re.fullmatch(b"[0-9a-fA-F]{1,8}", x) for x in fields[14:])
                assert all(not x or re.fullmatch(b"-?[0-9]+", x) and -2**31 <= int(x) < 2**31 for x in fields[1:14])
            except (AssertionError, ValueError):
                continue
            label.append(int(fields[0]))
            dense.append(d)
            ids.append(c)
            number.append(f << 40 | i)
    return Rows(np.array(label, np.uint8), np.array(dense).reshape(-1, N_DENSE), np.array(ids, np.int64).reshape(-1, N_IDS),
                np.array(number, np.int64)), lines_of


def vocabularies(ids, limit=0, cap=0):
    """One {hash: id} per column: by descending count, then ascending hash, from 1."""
    out = []
    for k in range(N_IDS):
        column = ids[:, k][ids[:, k] >= 0]
        values, counts = np.unique(column % cap if cap else column, return_counts=True)
        values, counts = values[counts >= limit], counts[counts >= limit]
        order = np.lexsort((values, -counts))
        out.append({int(v): i + 1 for i, v in enumerate(values[order])})
    return out


def apply_vocabularies(ids, vocabs, cap=0):
    out = np.zeros_like(ids)
    for k, vocab in enumerate(vocabs):
        for i, v in enumerate(ids[:, k]):
            out[i, k] = 0 if v < 0 else vocab.get(int(v) % cap if cap else int(v), 0)
    return out


def dense_values(dense, kind, dtype):
    with np.errstate(invalid="ignore", divide="ignore"):
        y = np.log(dense + 3) if kind == "log3" else np.log(np.maximum(dense, 0) + 1)
        y[np.isnan(dense) | ((dense <= -3) if kind == "log3" else False)] = 0
    return y.astype(np.float32).astype(dtype)


def id_dtype(cardinality):
    for dtype in (np.int8, np.int16, np.int32):
        if cardinality < np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise ValueError(cardinality)


def philox(seed, stream, index):
    mask = 0xFFFFFFFF
    k = [seed & mask, seed >> 32]
    c = [index & mask, index >> 32, stream & mask, stream >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & mask, p0 >> 32 ^ c[3] ^ k[1], p0 & mask]
        k = [k[0] + 0x9E3779B9 & mask, k[1] + 0xBB67AE85 & mask]
    return c


def fnv1a(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def shuffle_order(number, seed):
    """The training rows' order under --shuffle: ascending keys, a salted bijection of the rows' numbers."""
    s = philox(seed, fnv1a("shuffle"), 0)
    x = number.astype(np.uint64)
    for salt in (s[0] << 32 | s[1], s[2] << 32 | s[3]):
        x = x + np.uint64(salt)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        x = x ^ x >> np.uint64(31)
    return np.argsort(x, kind="stable")


def read_spec(path):
    """A reader for just the YAML that the description uses: block maps, block lists, plain scalars."""
    lines = []
    with open(path) as f:
        for line in f:
            text = line.split("#")[0].rstrip()
            if text.strip():
                lines.append((len(text) - len(text.lstrip()), text.strip()))

    def scalar(text):
        return {} if text == "{}" else int(text) if text.isdigit() else text

    def block(at, indent):
        if lines[at][1].startswith("- "):
            out = []
            while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
                rest = lines[at][1][2:]
                if rest.endswith(":") or ": " in rest:  # a map that starts on the dash's line
                    lines[at] = (indent + 2, rest)
                    value, at = block(at, indent + 2)
                else:
                    value, at = scalar(rest), at + 1
                out.append(value)
            return out, at
        out = {}
        while at < len(lines) and lines[at][0] == indent and not lines[at][1].startswith("- "):
            key, _, rest = lines[at][1].partition(":")
            if rest.strip():
                out[key], at = scalar(rest.strip()), at + 1
            else:
                out[key], at = block(at + 1, lines[at + 1][0])
        return out, at

    value, at = block(0, 0)
    assert at == len(lines), lines[at]
    return value


def read_folder(folder):
    """{split: (label, dense, ids)} as the description says, and the description. Every file it names is read whole."""
    spec = read_spec(os.path.join(folder, "feature_spec.yaml"))
    features, channels, out = spec["feature_spec"], spec["channel_spec"], {}
    for split, chunks in spec["source_spec"].items():
        column = {}
        for chunk in chunks:
            assert chunk["type"] == "split_binary" and len(chunk["files"]) == 1
            dtypes = {features[f]["dtype"] for f in chunk["features"]}
            assert len(dtypes) == 1
            data = np.fromfile(os.path.join(folder, chunk["files"][0]), dtype=dtypes.pop())
            column[tuple(chunk["features"])] = data.reshape(-1, len(chunk["features"]))
        label = column[tuple(channels["label"])][:, 0].astype(np.uint8)
        dense = column[tuple(channels["numerical"])]
        ids = np.stack([column[(c,)][:, 0].astype(np.int64) for c in channels["categorical"]], 1)
        out[split] = (label, dense, ids)
    return out, spec


def read_vocabulary(path):
    """{hash: id} and the header's (n, cap, limit, rows)."""
    with open(path, "rb") as f:
        head = f.read(40)
        assert head[:8] == b"DLRMVOC1"
        info = struct.unpack("<4Q", head[8:])
        pairs = np.frombuffer(f.read(), dtype="<u4").reshape(-1, 2)
    assert len(pairs) == info[0] and (np.diff(pairs[:, 1].astype(np.int64)) > 0).all()
    return {int(v): int(i) for i, v in pairs}, info
