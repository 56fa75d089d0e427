#!/usr/bin/env bash
# The tests and benchmarks that need GPUs: every op against its double reference, the golden cases, determinism over GPUs,
# step times. Prints one line a part and at the end the count of parts; the log is kept in docs/gpu-suite.log.
#   tests/gpu.sh BUILD_DIR [--no-bench]
# Uses the GPUs that are there: one, or two (more are left alone).
set -u
cd "$(dirname "$0")/.."
build=${1:?usage: tests/gpu.sh BUILD_DIR [--no-bench]}
trainer=$(realpath "$build/src/dlrm-train")
python=${PYTHON:-python3}
gpus=$(nvidia-smi --list-gpus | wc -l)
[ "$gpus" -gt 2 ] && gpus=2
[ "$gpus" -ge 1 ] || { echo "tests/gpu.sh: no GPU is visible"; exit 2; }
ranks=1; [ "$gpus" -eq 2 ] && ranks=1,2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
passed=0 failed=0
part() { # name, command
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then passed=$((passed + 1)); echo "ok   $name"; else failed=$((failed + 1)); echo "FAIL $name"; fi
    printf '%s\n' "$out" | tail -n 30 | sed 's/^/     /'
}

commit=${DLRM_COMMIT:-$(git rev-parse HEAD 2>/dev/null)}
echo "commit ${commit:-unknown}, $gpus x $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1), $(date -u +%Y-%m-%d)"
part "ops on cuda" "$build/tests/check_ops" --device cuda
# Runs are short and mostly start-up: six cases at a time.
cases=$(ls -d tests/golden/*/ | xargs -n1 basename)
results=$(mktemp -d)
for case in $cases; do
    while [ "$(jobs -rp | wc -l)" -ge 6 ]; do wait -n; done
    ($python tests/run/golden.py "$trainer" "tests/golden/$case" --ranks $ranks --bits "" >"$results/$case" 2>&1; echo $? >"$results/$case.status") &
done
wait
for case in $cases; do part "golden $case" bash -c "cat '$results/$case'; exit \$(cat '$results/$case.status')"; done
rm -r "$results"
if [ "${2:-}" != --no-bench ]; then
    part "step times" $python tests/bench_gpu.py "$trainer" --gpus $ranks
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
