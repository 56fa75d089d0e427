#!/usr/bin/env bash
# Builds everything and runs the tests.
#
#   ./tests/run.sh [suite ...]     all suites, or those named: unit check mpi run golden fuzz gpu rules
#   ./tests/run.sh --setup         only installs what is missing
#
# Builds, all with warnings as errors, in build-tests/: release; sanitize (ASan + UBSan); cblas (the plainest BLAS in the
# place of OpenBLAS); onednn or openblas, whichever release does not take on this machine; fuzz (clang's libFuzzer with ASan + UBSan);
# cuda where nvcc is, with its tests where a GPU is, too. A build that is there already is brought up to date.
# DLRM_FUZZ_SECONDS is the time of each fuzz target (default 8). The last line counts the tests of all builds; the exit
# status is 0 only where none failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/setup.sh
source tests/setup.sh

suites=() setup_only=no
for arg; do
    case $arg in
    --setup) setup_only=yes ;;
    -h | --help)
        sed -n 's/^#   //p' tests/run.sh
        exit 0
        ;;
    unit | check | mpi | run | golden | fuzz | gpu | rules) suites+=("$arg") ;;
    *)
        say "run.sh: unknown argument '$arg'. Usage:" >&2
        sed -n 's/^#   //p' tests/run.sh >&2
        exit 2
        ;;
    esac
done
setup test
[ $setup_only = no ] || exit 0
mpi_environment
export UBSAN_OPTIONS=print_stacktrace=1 OPENBLAS_NUM_THREADS=1

logs=() failed_builds=0

# build_and_test NAME "SUITE ..." "TARGET ..." [VARIABLE=value ...] MESON_OPTION ...
build_and_test() {
    local name=$1 dir=build-tests/$1 suite wanted=() targets=() environment=() start=$SECONDS
    for suite in $2; do
        if [ ${#suites[@]} = 0 ] || [[ " ${suites[*]} " == *" $suite "* ]]; then wanted+=(--suite "$suite"); fi
    done
    [ ${#wanted[@]} -gt 0 ] || return 0
    read -ra targets <<<"$3"
    shift 3
    while [[ ${1:-} == [A-Z]*=* ]]; do
        environment+=("$1")
        shift
    done
    say "== $name: building"
    mkdir -p build-tests
    if ! { [ -e "$dir/build.ninja" ] || env "${environment[@]}" meson setup "$dir" --werror -Dtests=enabled "$@"; } >"$dir.log" 2>&1 ||
        ! ninja -C "$dir" "${targets[@]}" >>"$dir.log" 2>&1; then
        tail -n 60 "$dir.log"
        say "== $name: BUILD FAILED (all of its output: $dir.log)"
        failed_builds=$((failed_builds + 1))
        return
    fi
    say "== $name: built in $((SECONDS - start)) s"
    rm -f "$dir/meson-logs/testlog.json"
    # Runs of small models wait more than they work, so three tests share two cores. A time limit is for a test that hangs.
    env "${environment[@]}" meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes $((($(cores) * 3 + 1) / 2)) \
        --timeout-multiplier 5 "${wanted[@]}"
    logs+=("$dir/meson-logs/testlog.json")
}

reference_blas=(/usr/lib/*/blas)
grep -qw avx512f /proc/cpuinfo && other_gemm=openblas || other_gemm=onednn # meson.build's `auto` is the other way round
# shellcheck disable=SC2054 # commas belong to one option
sanitizers=(-Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false -Dc_args=-fno-sanitize-recover=undefined)

build_and_test release 'unit check mpi run golden fuzz' '' -Dbuildtype=release
build_and_test sanitize 'unit check mpi run golden fuzz' '' "${sanitizers[@]}"
build_and_test cblas 'check golden' 'src/dlrm-train tests/check_ops' LD_LIBRARY_PATH="${reference_blas[0]}" -Dbuildtype=release -Dgemm=cblas
build_and_test "$other_gemm" 'check golden' 'src/dlrm-train tests/check_ops' -Dbuildtype=release -Dgemm="$other_gemm"
build_and_test fuzz fuzz fuzz-targets CC=clang "${sanitizers[@]}" -Dfuzz=true
not_compiled=0
if have nvcc || [ -x /usr/local/cuda/bin/nvcc ]; then
    build_and_test cuda 'gpu rules' 'src/dlrm-train tests/check_ops tests/cuda_kernels_test tests/cuda_kernels_bench tests/cuda_cache_test' -Dbuildtype=release -Dcuda=enabled
elif [ ${#suites[@]} = 0 ] || [[ " ${suites[*]} " == *" gpu "* ]]; then
    not_compiled=1
fi

# Times by build and suite, what the GPU suites' last runs say, and the closing line.
python3 - "$failed_builds" "$not_compiled" "$(tests/gpu_log.sh)" "${logs[@]}" <<'REPORT'
import json, sys
count = {"passed": 0, "failed": int(sys.argv[1]), "skipped": int(sys.argv[2])}
if count["skipped"]:
    print("SKIPPED: the CUDA code is not compiled: no nvcc here")
for path in sys.argv[4:]:
    try:
        tests = [json.loads(line) for line in open(path)]
    except OSError:  # meson test ended before it wrote any
        tests = []
    build, times = path.split("/")[1], {}
    for t in tests:
        kind = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(t["result"], "failed")
        count[kind] += 1
        suite = t["name"].split(" / ")[0].split(":")[-1]  # "project:suite / test"
        n, s = times.get(suite, (0, 0.0))
        times[suite] = n + 1, s + t["duration"]
        if kind != "passed":
            print("%s in %s: %s" % (kind.upper(), build, t["name"]))
    if not tests:
        count["failed"] += 1
        print("FAILED in %s: no test ran" % build)
    print("%-9s %s" % (build, ", ".join("%s: %d tests, %.0f s" % (k, n, s) for k, (n, s) in sorted(times.items()))))
print(sys.argv[3])
print("%d passed, %d failed, %d skipped" % (count["passed"], count["failed"], count["skipped"]))
sys.exit(1 if count["failed"] or not count["passed"] else 0)
REPORT
