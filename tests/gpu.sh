#!/usr/bin/env bash
# The tests and benchmarks that need GPUs.
#
#   tests/gpu.sh BUILD_DIR [SECTION ...]
#
# Sections: ops (every op against its double reference), kernels (the kernels alone against plain loops), golden (PyTorch's float64
# results), bits (the same bits over runs and GPUs, at sizes that matter), sanitize (compute-sanitizer over ops and a short training),
# auc (lower precision against fp32), bench (times of kernels), times (step times), torch (PyTorch's step times, and ratios).
# And by name alone: host (step times with tables in the host's memory), large (with more tables than the GPU has room for), placements
# (by placement, two GPUs).
# Without any: all on one GPU; ops golden bits times torch on two, where the single-GPU parts would only repeat.
# Uses one or two of the GPUs that are there; CUDA_VISIBLE_DEVICES chooses. The build has src/dlrm-train, tests/check_ops,
# tests/cuda_kernels_test and tests/cuda_kernels_bench; PYTHON has NumPy, and PyTorch for torch.
# Prints a line and the end of the output for each part, and counts them at the end; the exit status is 0 only where none failed. The
# log of a run is kept in docs/gpu-suite.log, where tests/gpu_log.sh reads it; DLRM_COMMIT names the commit where git cannot.
set -u
cd "$(dirname "$0")/.." || exit 2
usage() { sed -n 's/^#   /usage: /p' tests/gpu.sh >&2; exit 2; }
[ $# -ge 1 ] || usage
build=$1
shift
trainer=$(realpath "$build/src/dlrm-train") || exit 2
python=${PYTHON:-python3}
all="ops kernels golden bits sanitize auc bench times torch"
for section; do [[ " $all host large placements " == *" $section "* ]] || usage; done
# The driver does not heed CUDA_VISIBLE_DEVICES here.
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || gpus=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)
[ "$gpus" -le 2 ] || gpus=2
[ "$gpus" -ge 1 ] || { echo "tests/gpu.sh: no GPU is visible" >&2; exit 2; }
ranks=1 sections=${*:-$all}
if [ "$gpus" = 2 ]; then ranks=1,2 sections=${*:-ops golden bits times torch}; fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_rmaps_base_oversubscribe=1 PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
most=$(($(nproc) / 2)) passed=0 failed=0 names=() pids=()
[ "$most" -ge 2 ] || most=2
[ "$most" -le 10 ] || most=10
limit=${DLRM_GPU_LIMIT:-400} # seconds of a part
wants() { [[ " $sections " == *" $1 "* ]]; }
# job NAME COMMAND...: runs it beside others, for what is mostly start-up and whose time does not matter
job() {
    local n=${#names[@]}
    names+=("$1")
    shift
    while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do wait -n; done
    (
        start=$SECONDS
        timeout "$limit" "$@" >"$work/$n.out" 2>&1
        echo "$? $((SECONDS - start))" >"$work/$n.status"
    ) &
    pids+=($!)
}
# collect [LINES]: waits for the jobs and tells of each as it ends, with its last lines
collect() {
    local n status seconds verdict
    for n in "${!names[@]}"; do
        wait "${pids[$n]}"
        read -r status seconds <"$work/$n.status"
        if [ "$status" = 0 ]; then passed=$((passed + 1)) verdict=ok; else failed=$((failed + 1)) verdict=FAIL; fi
        printf '%-4s %s (%s s%s)\n' "$verdict" "${names[$n]}" "$seconds" "$([ "$status" = 0 ] || echo ", exit status $status")"
        tail -n "${1:-12}" "$work/$n.out" | sed 's/^/     /'
    done
    names=() pids=()
}
# alone NAME COMMAND...: with nothing beside it
alone() {
    job "$@"
    collect 80
}

commit=${DLRM_COMMIT:-$(git rev-parse HEAD 2>/dev/null)$(git diff --quiet HEAD 2>/dev/null || echo -changed)}
part=''
for section in $all; do wants "$section" || part=", only $(xargs <<<"$sections")"; done
echo "commit ${commit:-unknown}, $gpus x $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), $(date -u +%Y-%m-%d)$part"

wants auc && job "AUC of lower precision" "$python" tests/gpu_auc.py "$trainer"
families=$("$build/tests/check_ops" --help 2>&1 | sed -n 's/^families: //p')
# each_share NAME SHARES FAMILY COMMAND...: all cases of a family in as many jobs, where one would not end in time. On one GPU processes
# take turns: shares do not make it faster.
each_share() {
    local k
    for ((k = 1; k <= $2; k++)); do
        job "$1$([ "$2" = 1 ] || echo ", share $k of $2")" "${@:4}" "$build/tests/check_ops" --device cuda --op "$3" --share "$k/$2"
    done
}
if wants ops; then for family in $families; do each_share "op $family on cuda" 1 "$family"; done; fi
wants kernels && job "kernels against plain loops" "$build/tests/cuda_kernels_test"
if wants sanitize; then
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    short=(configs/tiny.yaml device=cuda train.steps=20 data.synthetic.batches=8 eval.max_samples=3000 train.batch_size=512)
    check() { job "$1 of $2" "$sanitizer" --tool "$1" --error-exitcode 9 "${@:3}"; }
    shares() { case $1 in embedding) echo 12 ;; rows_update) echo 8 ;; interact | dense_update | linear | pinned) echo 4 ;; *) echo 2 ;; esac; }
    checked() { each_share "$1 of $2" "$(shares "$2")" "$2" "$sanitizer" --tool "$1" --error-exitcode 9; }
    for family in $families; do checked memcheck "$family"; done
    for precision in fp32 bf16; do
        for deterministic in false true; do
            check memcheck "a training run, $precision, deterministic $deterministic" "$trainer" "${short[@]}" train.precision=$precision \
                train.deterministic=$deterministic
        done
    done
    # The slow tools where kernels of our own share memory and synchronise; not the library's products.
    for family in interact loss embedding dense_update; do
        checked racecheck "$family"
        checked synccheck "$family"
    done
    for family in interact embedding; do checked initcheck "$family"; done
fi
golden() { job "golden $1${3:+ under other placements}" "$python" tests/run/golden.py "$trainer" "tests/golden/$1" --ranks "$2" --bits "" \
    --device cuda --placements "${3:-}"; }
if wants golden; then
    for case in tests/golden/*/; do golden "$(basename "$case")" $ranks; done
    if [ "$gpus" = 2 ]; then # each of these is a dozen runs; CPU ranks have all cases under all placements
        for case in b_dot_adagrad e_varlen_mean_sgd i_sparse_adam; do golden $case 2 replicated,rows,columns,mixed; done
    fi
fi
wants bits && job "the same bits" "$python" tests/gpu_bits.py "$trainer" --gpus $ranks
if wants bits; then
    job "steps as graphs and op by op" "$python" tests/run/test_graphs.py "$trainer" Graphs.test_one_gpu
    [ "$gpus" = 1 ] || job "the same on two GPUs" "$python" tests/run/test_graphs.py "$trainer" Graphs.test_two_gpus
    job "checkpoints, one GPU and CPU" "$python" tests/run/test_checkpoints_gpu.py "$trainer" OnGpus.test_one_gpu OnGpus.test_bf16 OnGpus.test_other_device
    [ "$gpus" = 1 ] || job "a rank of two GPUs killed or stopped" "$python" tests/run/test_faults_gpu.py "$trainer"
    [ "$gpus" = 1 ] || job "checkpoints, two GPUs" "$python" tests/run/test_checkpoints_gpu.py "$trainer" OnGpus.test_two_gpus
    job "tables in the host's memory" "$python" tests/run/test_host_memory.py "$trainer" OnGpu
    job "unpooled ids" "$python" tests/run/test_unpooled.py "$trainer" OnGpus.test_one_gpu
    [ "$gpus" = 1 ] || job "unpooled ids, two GPUs" "$python" tests/run/test_unpooled.py "$trainer" OnGpus.test_two_gpus
    job "dynamic rows" "$python" tests/run/test_dynamic_rows.py "$trainer" OnGpus.test_one_gpu OnGpus.test_resume
    [ "$gpus" = 1 ] || job "dynamic rows, two GPUs" "$python" tests/run/test_dynamic_rows.py "$trainer" OnGpus.test_two_gpus
    job "fp16 and its loss scale" "$python" tests/run/test_loss_scale.py "$trainer"
    job "times of phases in graphs" "$python" tests/run/test_graphs.py "$trainer" Graphs.test_shares
fi
collect

wants bench && alone "times of kernels" "$build/tests/cuda_kernels_bench"
limit=600
wants times && alone "step times" "$python" tests/bench_gpu.py "$trainer" --gpus "$gpus" --json "$work/times.json"
limit=900
if wants host; then alone "step times with tables in the host's memory" "$python" tests/bench_gpu.py "$trainer" --section host; fi
if wants large; then alone "step times of a large model" "$python" tests/bench_gpu.py "$trainer" --section large; fi
if wants placements; then alone "step times by placement" "$python" tests/bench_gpu.py "$trainer" --section placements --gpus "$ranks"; fi
wants torch && alone "PyTorch's step times" "$python" tests/bench_torch_gpu.py --gpus "$gpus" --ours "$work/times.json"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
