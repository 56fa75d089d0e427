#!/usr/bin/env python3
"""Golden cases: what a user would hand to dlrm-train, and a comparison of what comes back.

  as_run.py make CASE OUT          writes OUT/{config.yaml,data/,init/}
  as_run.py check CASE OUT         compares OUT/{run.jsonl,final/} with the float64 results; exit status 0 or 1
  as_run.py pack FOLDER CASE       packs a case of the generator (a folder with manifest.txt) into CASE

Between make and check:  (cd OUT && mpirun -n N dlrm-train config.yaml)
CASE is a folder with case.yaml and arrays.npz. Only numpy is needed.
"""
import json
import os
import struct
import sys

import numpy as np

DTYPES = {"f32": "<f4", "f64": "<f8", "i32": "<i4", "i64": "<i8"}
SAFETENSORS = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "U32": "<u4"}
PACKED = ("init/", "train/", "eval/", "expect_f64/final/", "expect_f64/loss.", "expect_f64/lr.", "expect_f64/eval_metrics.")


def scalar(text):
    text = text.strip()
    if text.startswith("["):
        return [scalar(x) for x in text[1:-1].split(",") if x.strip()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text.strip('"')


class Case:
    """case.yaml as nested dicts (a list of maps under "_list"), and the arrays by their names in the generator."""

    def __init__(self, folder):
        self.name = os.path.basename(os.path.abspath(folder))
        self.arrays = dict(np.load(os.path.join(folder, "arrays.npz")))
        with open(os.path.join(folder, "case.yaml")) as f:
            self.info = self.parse(f)

    @staticmethod
    def parse(lines):
        """The subset of YAML that case.yaml uses: block maps, lists of maps, [number lists]."""
        root = {}
        stack = [(-1, root)]
        for line in lines:
            line = line.split("#")[0].rstrip()
            if not line.strip():
                continue
            indent, body = len(line) - len(line.lstrip()), line.strip()
            while stack[-1][0] >= indent:
                stack.pop()
            if body.startswith("- "):
                item = {}
                stack[-1][1].setdefault("_list", []).append(item)
                stack.append((indent, item))
                indent, body = indent + 2, body[2:]
            key, _, value = body.partition(":")
            if value.strip():
                stack[-1][1][key] = scalar(value)
            else:
                stack[-1][1][key] = {}
                stack.append((indent, stack[-1][1][key]))
        return root

    def under(self, prefix):
        """{stem of the file name: array} of all arrays below a folder."""
        return {os.path.basename(k).rsplit(".", 1)[0]: v for k, v in self.arrays.items() if k.startswith(prefix)}


def public_name(stem):
    """bot_0_w -> bottom.0.weight, table_2 -> table.T2.weight, cross_1_v -> cross.1.v"""
    part = stem.split("_")
    if part[0] == "table":
        return "table.T%s.weight" % part[1]
    if part[0] == "cross":
        return "cross.%s.%s" % (part[1], {"v": "v", "w": "w", "b": "bias"}[part[2]])
    return "%s.%s.%s" % ({"bot": "bottom", "top": "top"}[part[0]], part[1], {"w": "weight", "b": "bias"}[part[2]])


def write_safetensors(path, tensors):
    """Floats as float32; int64 and uint32 as they are."""
    head, at = {}, 0
    integers = {"<i8": "I64", "<u4": "U32"}
    for name, value in tensors.items():
        head[name] = {"dtype": integers.get(value.dtype.str, "F32"), "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            f.write(np.ascontiguousarray(value, value.dtype if value.dtype.str in integers else "<f4").tobytes())


def read_safetensors(folder):
    """All tensors of all files of a folder; those of bfloat16 as float32."""
    out = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as f:
            raw = f.read()
        n = struct.unpack("<Q", raw[:8])[0]
        for key, entry in json.loads(raw[8:8 + n]).items():
            if key != "__metadata__":
                a, b = entry["data_offsets"]
                value = np.frombuffer(raw[8 + n + a:8 + n + b], SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
                out[key] = (value.astype("<u4") << 16).view("<f4") if entry["dtype"] == "BF16" else value
    return out


def number(x):
    """1.0e-07, not 1e-07, which YAML 1.1 takes for a string."""
    text = repr(x)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def make_data(case, out):
    """Split-binary files and their feature_spec.yaml."""
    model, index = case.info["model"], case.info["data"]["index_type"]
    inputs = model["inputs"]["_list"]
    dense = ["num_%d" % k for k in range(model["num_dense"])]
    y = ["channel_spec:", "  categorical: [%s]" % ", ".join("cat_%d" % j for j in range(len(inputs))), "  label: [label]",
         "  numerical: [%s]" % ", ".join(dense), "feature_spec:"]
    for j, i in enumerate(inputs):
        hotness = "max_hotness: %d" % i["max_hotness"] if i["hotness"] == "variable" else "hotness: %d" % i["hotness"]
        y.append("  cat_%d: {cardinality: %d, dtype: %s, %s}" %
                 (j, model["table_rows"][i["table"]], {"i32": "int32", "i64": "int64"}[index], hotness))
    y += ["  label: {dtype: bool}"] + ["  %s: {dtype: float32}" % k for k in dense] + ["metadata: {}", "source_spec:"]
    for split, source in (("train", "train"), ("test", "eval")):
        folder = os.path.join(out, "data", split)
        os.makedirs(folder, exist_ok=True)

        def chunk(features, files):
            for name, values in files:
                values.tofile(os.path.join(folder, name))
            y.append("    - {type: split_binary, features: [%s], files: [%s]}" %
                     (", ".join(features), ", ".join("%s/%s" % (split, name) for name, _ in files)))

        y.append("  %s:" % split)
        if dense:
            chunk(dense, [("numerical.bin", case.arrays[source + "/dense.f32"])])
        chunk(["label"], [("label.bin", case.arrays[source + "/labels.f32"].astype(np.uint8))])
        for j, i in enumerate(inputs):
            files = [("cat_%d.bin" % j, case.arrays["%s/indices_%d.%s" % (source, j, index)])]
            if i["hotness"] == "variable":
                offsets = case.arrays["%s/offsets_%d.%s" % (source, j, index)]
                files.append(("cat_%d.offsets.bin" % j, offsets.astype("<i8")))
            chunk(["cat_%d" % j], files)
    with open(os.path.join(out, "data", "feature_spec.yaml"), "w") as f:
        f.write("\n".join(y) + "\n")


def optimizer(o):
    pairs = [("name", {"sparse_adam": "adam"}.get(o["type"], o["type"])), ("learning_rate", number(o["lr"]))]
    pairs += [(ours, number(o[theirs])) for ours, theirs in (("momentum", "momentum"), ("epsilon", "eps"), ("beta1", "beta1"),
              ("beta2", "beta2"), ("initial_accumulator", "initial_accumulator_value")) if theirs in o]
    return "{%s}" % ", ".join("%s: %s" % p for p in pairs)


def make_config(case, out):
    model, schedule, data = case.info["model"], case.info["lr_schedule"], case.info["data"]
    inputs, pool = model["inputs"]["_list"], model["interaction"] == "pool"
    y = ["model:", "  dense_features: %d" % model["num_dense"], "  embedding_dim: %d" % model["embedding_dim"],
         "  bottom_mlp: %s" % model["bottom_mlp"][1:], "  interaction: %s" % model["interaction"],
         "  top_mlp: %s" % model["top_mlp"][1:]]
    y += ["  pool_stride: %d" % model["pool_stride"]] if pool else []
    y += ["  cross: {layers: %d, rank: %d}" % (model["cross_layers"], model["cross_rank"])] if model["interaction"] == "dcn" else []
    y.append("  tables:")
    for t, rows in enumerate(model["table_rows"]):
        dim = model["table_dims"][t] if "table_dims" in model else model["embedding_dim"]
        entry = "name: T%d, rows: %d" % (t, rows)
        entry += ", dim: %d" % dim if dim != model["embedding_dim"] else ""
        if pool:  # as Merlin's models: inputs in the order of the tables, which list their hotness themselves
            hotness = [i["hotness"] for i in inputs if i["table"] == t]
            entry += ", hotness: %s, combiner: sum" % (hotness if len(hotness) > 1 else hotness[0])
        y.append("    - {%s}" % entry)
    if pool:
        assert [i["table"] for i in inputs] == sorted(i["table"] for i in inputs)
        assert all(i["combiner"] == "sum" and i["hotness"] != "variable" for i in inputs)
    else:
        y.append("  features:")
        for i in inputs:
            hotness = "{max: %d}" % i["max_hotness"] if i["hotness"] == "variable" else i["hotness"]
            y.append("    - {table: T%d, hotness: %s, combiner: %s}" % (i["table"], hotness, i["combiner"]))
    y += ["optimizer:", "  dense: " + optimizer(case.info["optimizer"]["mlp"]),
          "  embedding: " + optimizer(case.info["optimizer"]["embedding"])]
    if schedule["type"] != "constant":
        keys = [k for k in ("warmup_steps", "decay_start_step", "decay_steps", "decay_power") if k in schedule]
        y.append("  schedule: {%s, min_learning_rate: %s}" %
                 (", ".join("%s: %d" % (k, schedule[k]) for k in keys), number(schedule["min_lr"])))
    y += ["train: {batch_size: %d, epochs: 1, precision: fp32}" % data["batch"], "data: {format: split_binary, path: data}",
          "eval: {every_epoch: true%s}" % (", batch_size: %d" % data["eval_step"] if "eval_step" in data else ""),
          "checkpoint: {init_from: init, export: final}", "log: {every_steps: 1, jsonl: run.jsonl}"]
    with open(os.path.join(out, "config.yaml"), "w") as f:
        f.write("\n".join(y) + "\n")


def make(case, out):
    os.makedirs(os.path.join(out, "init"), exist_ok=True)
    write_safetensors(os.path.join(out, "init", "model.safetensors"),
                      {public_name(stem): value for stem, value in case.under("init/").items()})
    make_data(case, out)
    make_config(case, out)


def check(case, jsonl, final):
    """Differences beyond the case's tolerances, as texts; and the largest difference of each kind, in tolerances."""
    tolerance, bad, worst = dict(case.info["tolerance"], lr=1e-6), [], {}

    def compare(kind, what, got, want, scale=1.0):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        if got.shape != want.shape:
            bad.append("%s: shape %s, expected %s" % (what, got.shape, want.shape))
            return
        error = np.abs(got - want) / scale
        error = float(error.max()) if np.isfinite(error).all() else float("inf")
        worst[kind] = max(worst.get(kind, 0.0), error / tolerance[kind])
        if error > tolerance[kind]:
            bad.append("%s: off by %.3g, tolerance %.3g" % (what, error, tolerance[kind]))

    with open(jsonl) as f:
        events = [json.loads(line) for line in f]
    steps = [e for e in events if e["event"] == "step"]
    compare("loss", "step losses", [e["loss"] for e in steps], case.arrays["expect_f64/loss.f64"])
    for key, want in zip(("lr", "lr_embedding"), case.arrays["expect_f64/lr.f64"].T):
        compare("lr", "%s of the steps" % key, [e[key] for e in steps], want, want)
    evals = [e for e in events if e["event"] == "eval"]
    if evals:
        loss, auc = case.arrays["expect_f64/eval_metrics.f64"]
        compare("loss", "eval loss", evals[-1]["loss"], loss)
        compare("auc", "eval AUC", evals[-1]["auc"], auc)
    else:
        bad.append("no eval event in %s" % jsonl)
    got = read_safetensors(final)
    for stem, want in case.under("expect_f64/final/").items():
        name = public_name(stem)
        if name in got:
            compare("table" if name.startswith("table") else "mlp", name, got[name], want)
        else:
            bad.append("%s: missing from %s" % (name, final))
    return bad, worst


def pack(folder, out):
    arrays = {}
    with open(os.path.join(folder, "manifest.txt")) as f:
        for line in f:
            part = line.split()
            if line.startswith(PACKED):
                shape = [int(x) for x in part[3:3 + int(part[2])]]
                arrays[part[0]] = np.fromfile(os.path.join(folder, part[0]), DTYPES[part[1]]).reshape(shape)
    os.makedirs(out, exist_ok=True)
    np.savez_compressed(os.path.join(out, "arrays.npz"), **arrays)
    with open(os.path.join(folder, "case.yaml")) as f, open(os.path.join(out, "case.yaml"), "w") as g:
        g.write(f.read())


def main(argv):
    if len(argv) != 4 or argv[1] not in ("make", "check", "pack"):
        sys.exit(__doc__)
    if argv[1] == "pack":
        return pack(argv[2], argv[3])
    case = Case(argv[2])
    if argv[1] == "make":
        return make(case, argv[3])
    bad, worst = check(case, os.path.join(argv[3], "run.jsonl"), os.path.join(argv[3], "final"))
    for text in bad:
        print("FAIL", case.name, text)
    print("FAIL" if bad else "ok", case.name, "worst/tolerance", {k: round(v, 3) for k, v in worst.items()})
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
