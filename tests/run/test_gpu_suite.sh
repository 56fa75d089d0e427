#!/usr/bin/env bash
# tests/gpu.sh and the programs that it starts, as far as they run without a GPU: the programs on CPU and small, the script with
# stand-ins for the GPU's tools.
#   test_gpu_suite.sh TRAINER PYTHON
set -eu
trainer=$(realpath "$1") python=$2
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
fail() { echo "FAIL: $1"; cat "$folder/out" 2>/dev/null; exit 1; }
program() { "$python" "tests/$1.py" "$trainer" --device cpu "${@:2}" >"$folder/out" 2>&1; }

program bench_gpu --rows 300 --batch 32 --file-rows 500 --steps 3 --only "mlperf bf16 files,tiny,dcnv2 rowwise" --json "$folder/times.json" ||
    fail "bench_gpu"
grep -q "^4 workloads, 0 failed" "$folder/out" || fail "bench_gpu did not run four workloads"
grep -Eq "mlp [0-9.]+ ms \([0-9.]+ %\) [0-9.e-]+ TFLOP/s, interaction .* TB/s" "$folder/out" || fail "bench_gpu does not tell what was achieved"
grep -q '"name": "tiny bf16"' "$folder/times.json" || fail "bench_gpu left no figures"
program bench_gpu --rows 1000 --batch 32 --only "host tiny" || fail "bench_gpu on tables in host memory"
grep -q "batches list rows of 2[0-9.]* % of the tables, the GPU has room for 12.0 %" "$folder/out" || fail "bench_gpu does not say what batches list"
program bench_gpu --rows 300 --batch 32 --steps 2 --section large || fail "bench_gpu --section large"
program bench_gpu --rows 300 --batch 32 --steps 2 --section placements --only "medium,hugectr,tiny data" || fail "bench_gpu --section placements"
if program bench_gpu --rows 300 --batch 32 --steps 3 --only tiny --override no.such=1; then fail "bench_gpu does not see that a run fails"; fi
program gpu_bits --rows 300 --batch 33 --steps 2 --gpus 1,2 || fail "gpu_bits"
grep -q "^tiny fp32: 4 comparisons" "$folder/out" || fail "gpu_bits compared too little"
if program gpu_bits --rows 300 --batch 33 --steps 2 --override optimizer.dense.learning_rate=0 --override optimizer.embedding.learning_rate=0 \
    --override data.synthetic.batches=1; then fail "gpu_bits does not see that nothing was trained"; fi
if program gpu_auc --rows 300 --batch 64 --steps 4 --samples 500 --only "fp32,fp32 again"; then fail "gpu_auc takes four steps for a model"; fi
grep -q "^fp32 again   AUC 0\.[0-9]* (" "$folder/out" || fail "gpu_auc did not compare"
grep -q "^FAIL fp32: AUC is 0\.[0-9]*, expected at least" "$folder/out" || fail "gpu_auc does not say what is wrong"

# The script: one GPU or two, a part that fails, the log that it leaves.
mkdir -p "$folder"/{bin,build/src,build/tests}
cp "$trainer" "$folder/build/src/"
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$folder/$1" && chmod +x "$folder/$1"; }
for name in check_ops cuda_kernels_test cuda_kernels_bench; do stand_in build/tests/$name "echo \"$name \$*\"; echo 'families: linear loss'"; done
# shellcheck disable=SC2016 # for the stand-ins to expand
stand_in bin/compute-sanitizer 'echo "$*"; [ "$2" != "$BAD" ]'
stand_in bin/python 'echo "$*"'
# shellcheck disable=SC2016
stand_in bin/nvidia-smi 'if [ "$1" = --list-gpus ]; then yes GPU | head -n "$GPUS"; else echo "Some GPU"; fi'
suite() { PATH=$folder/bin:$PATH PYTHON=python DLRM_COMMIT=abcdef tests/gpu.sh "$folder/build" "$@" >"$folder/out" 2>&1; }
export GPUS=1 BAD=
suite || fail "the suite on one GPU"
head -n 1 "$folder/out" | grep -Eqx "commit abcdef, 1 x Some GPU, [0-9-]{10}" || fail "the header"
for what in "check_ops --device cuda --op linear" "memcheck .*check_ops --device cuda --op loss" "golden.py .*a_dot_sgd --ranks 1 " racecheck gpu_auc cuda_kernels_bench "bench_gpu.* --gpus 1" bench_torch_gpu; do
    grep -Eq -- "$what" "$folder/out" || fail "the suite did not run $what"
done
tail -n 1 "$folder/out" | grep -Eqx "[0-9]+ passed, 0 failed" || fail "the closing line"
BAD=racecheck
if suite sanitize; then fail "a part that failed is a success"; fi
head -n 1 "$folder/out" | grep -q ", only sanitize$" || fail "the header of a part"
tail -n 1 "$folder/out" | grep -Eqx "[0-9]+ passed, 22 failed" || fail "failed parts are not counted"
GPUS=4
suite golden times placements || fail "the suite on two GPUs"
grep -q -- "bench_gpu.* --section placements --gpus 1,2" "$folder/out" || fail "placements are not on one GPU and two"
grep -q -- "a_dot_sgd --ranks 1,2 " "$folder/out" || fail "golden cases do not use both GPUs"
GPUS=0
if suite; then fail "no GPU is a success"; fi
if suite nonsense; then fail "an unknown section is a success"; fi
echo "all as expected"
