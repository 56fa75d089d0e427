#!/usr/bin/env bash
# Step time on CPU against PyTorch: same models, batches and cores, the opponents taking turns.
#
#   ./tests/bench.sh [ROUNDS]        default 5
#
# PyTorch (tests/bench_torch.py) runs at its best of several numbers of threads and allocators, tried first; dlrm-train as
# one rank with all threads and as one rank per core, the better counts (models: tests/bench/*.yaml). Prints medians over
# the rounds, the share of the step that the matrix products alone take (tests/bench_gemm), and the ratio. Exit status 1
# where the ratio is below 1.5, or 1.2 where the products take more than 60 % of the step.
# Needs PyTorch: the python3 of DLRM_BENCH_PYTHON, else of an environment made in build-bench/ (a large download).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
source tests/setup.sh

rounds=${1:-5}
[[ $rounds =~ ^[1-9][0-9]*$ && $# -le 1 ]] || {
    say "usage: ./tests/bench.sh [ROUNDS]" >&2
    exit 2
}
setup build
mpi_environment
[ -e build/build.ninja ] || meson setup build --buildtype=release >/dev/null
ninja -C build src/dlrm-train tests/bench_gemm >/dev/null

python=${DLRM_BENCH_PYTHON:-build-bench/bin/python3}
if ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    [ -z "${DLRM_BENCH_PYTHON:-}" ] || die "DLRM_BENCH_PYTHON=$python cannot import torch and numpy"
    say "Installing PyTorch in build-bench/ (some 3 GB) ..."
    python3 -m venv build-bench || die "python3 -m venv does not work (Debian, Ubuntu: apt-get install python3-venv)"
    build-bench/bin/pip install --quiet torch numpy
fi

all=$(cores)
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE MKL_DEBUG_CPU_TYPE BLIS_ARCH_TYPE # kernels as the libraries choose them
# Allocators for PyTorch: glibc's as it is, glibc's told to keep memory, others where they are installed.
keep="MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=67108864"
allocators=("MALLOC_ARENA_MAX=8" "$keep")
for lib in /usr/lib/*/libtcmalloc_minimal.so.4 /usr/lib/*/libjemalloc.so.2; do
    [ ! -e "$lib" ] || allocators+=("LD_PRELOAD=$lib")
done

# "key": number of a line of JSON
number() { sed -n "s/.*\"$1\": \{0,1\}\([0-9.e+-]*\).*/\1/p"; }
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

# torch_ms THREADS ALLOCATOR MODEL BATCH STEPS
torch_ms() {
    # shellcheck disable=SC2086 # several assignments
    env OMP_NUM_THREADS="$1" $2 "$python" tests/bench_torch.py "$3" "$4" --threads "$1" --steps "$5" | number step_ms_median
}

# ours_ms RANKS MODEL BATCH STEPS
ours_ms() {
    OMP_NUM_THREADS=$((all / $1)) mpirun -n "$1" build/src/dlrm-train "tests/bench/$2.yaml" train.batch_size="$3" train.steps="$4" \
        log.jsonl="$work/run.jsonl" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }
    sed -n '/"event":"end"/p' "$work/run.jsonl" | number step_ms_median
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0
say "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $all core(s); PyTorch $("$python" -c 'import torch; print(torch.__version__)'); $rounds round(s)"

# compare MODEL BATCH STEPS WIDTHS...
compare() {
    local model=$1 batch=$2 steps=$3 best='' threads='' allocator='' t a ms ours split gemm
    shift 3
    for t in $(seq 1 "$all"); do
        for a in "${allocators[@]}"; do
            ms=$(torch_ms "$t" "$a" "$model" "$batch" $((steps / 4 + 1)))
            if [ -z "$best" ] || less "$ms" "$best"; then best=$ms threads=$t allocator=$a; fi
        done
    done
    rm -f "$work"/{torch,one,many}
    for _ in $(seq "$rounds"); do
        torch_ms "$threads" "$allocator" "$model" "$batch" "$steps" >>"$work/torch"
        ours_ms 1 "$model" "$batch" "$steps" >>"$work/one"
        ours_ms "$all" "$model" "$batch" "$steps" >>"$work/many"
    done
    best=$(median <"$work/torch") ours=$(median <"$work/one") split="1 rank x $all thread(s)"
    if less "$(median <"$work/many")" "$ours"; then ours=$(median <"$work/many") split="$all rank(s) x 1 thread"; fi
    gemm=$(build/tests/bench_gemm "$batch" "$all" $(((batch + all - 1) / all)) "$@" | tail -n 1)
    awk -v name="$model, batch $batch" -v torch="$best" -v how="$threads thread(s), ${allocator%% *}" -v ours="$ours" -v ranks="$split" \
        -v one="$(median <"$work/one")" -v many="$(median <"$work/many")" -v gemm="$gemm" -v batch="$batch" 'BEGIN {
        share = gemm / ours; target = (share > 0.6) ? 1.2 : 1.5; ratio = torch / ours
        verdict = (ratio >= target) ? "met" : "MISSED"
        printf "%s\n  PyTorch     %8.2f ms  %7.0f samples/s  (%s)\n", name, torch, 1000 * batch / torch, how
        printf "  dlrm-train  %8.2f ms  %7.0f samples/s  (%s; one rank %.2f, a rank per core %.2f)\n", ours, 1000 * batch / ours, ranks, one, many
        printf "  products    %8.2f ms  %4.0f %% of the step\n  ratio       %8.2f     target %.1f: %s\n", gemm, 100 * share, ratio, target, verdict
        exit (ratio < target) }' || missed=1
}

compare kaggle 2048 40 -13-512-256-64-16 367-512-256-1
compare kaggle 128 200 -13-512-256-64-16 367-512-256-1
compare terabyte 2048 20 -13-512-256-128 479-1024-1024-512-256-1
exit $missed
