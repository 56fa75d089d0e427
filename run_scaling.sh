#!/usr/bin/env bash
# Scaling sweep: one run for each number of ranks, and a table of what came out.
#   ./run_scaling.sh CONFIG --ranks "1 2 4 8" [--weak] [key=value ...]
# --weak: train.batch_size is multiplied by the number of ranks (else the global batch stays the same).
# Logs go to scaling/ranks_N.jsonl, the table to scaling/scaling.csv ($OUT overrides the folder). $MPIRUN is the launcher
# ("mpirun" with more slots than cores allowed, ranks that wait giving way; under Slurm say MPIRUN="srun --mpi=pmix"), $TRAINER the program
# (build/src/dlrm-train). docs/scaling.md has the recipe for several nodes.
set -eu
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }
wrong() { echo "run_scaling.sh: $1" >&2; usage >&2; exit 2; }
config=${1:-}
case $config in -h | --help) usage; exit 0 ;; esac
[ -f "$config" ] || wrong "${config:+$config: no such file; }expected a config first"
shift
ranks= weak=0 overrides=()
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) ranks=${2:-}; shift ;;
    --weak) weak=1 ;;
    *=*) overrides+=("$1") ;;
    *) wrong "unknown argument '$1'" ;;
    esac
    shift
done
[ -n "$ranks" ] || wrong "--ranks is missing"
here=$(cd "$(dirname "$0")" && pwd)
trainer=${TRAINER:-$here/build/src/dlrm-train}
out=${OUT:-scaling}
[ -x "$trainer" ] || { echo "run_scaling.sh: $trainer is not there; build it, or set TRAINER" >&2; exit 2; }
if [ -z "${MPIRUN:-}" ]; then
    MPIRUN="mpirun --bind-to none"
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
python=${PYTHON:-python3}
mkdir -p "$out"
batch=
for o in ${overrides[@]+"${overrides[@]}"}; do case $o in train.batch_size=*) batch=${o#*=} ;; esac; done
if [ "$weak" = 1 ] && [ -z "$batch" ]; then
    batch=$("$trainer" "$config" ${overrides[@]+"${overrides[@]}"} --plan 1 | sed -n 's/^training .* rows, batch \([0-9]*\),.*/\1/p')
    [ -n "$batch" ] || { echo "run_scaling.sh: $config: cannot tell its train.batch_size; give train.batch_size=N" >&2; exit 2; }
fi
# A signal ends the run at hand, which saves a checkpoint where it has a checkpoint.path, and the sweep.
child=
stop() {
    if [ -n "$child" ]; then
        trap 'kill -TERM "$child"' TERM INT # a second one does not wait
        kill -USR1 "$child" 2>/dev/null || true
        while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
    fi
    exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
for n in $ranks; do
    case $n in '' | *[!0-9]* | 0) echo "run_scaling.sh: --ranks: found \"$n\", expected numbers from 1" >&2; exit 2 ;; esac
    more=(log.jsonl="$out/ranks_$n.jsonl" log.progress=false)
    if [ "$weak" = 1 ]; then more+=(train.batch_size=$((batch * n))); fi
    echo "== $n ranks" >&2
    # shellcheck disable=SC2086  # MPIRUN is a command with arguments
    setsid $MPIRUN -n "$n" "$trainer" "$config" ${overrides[@]+"${overrides[@]}"} "${more[@]}" >"$out/ranks_$n.log" 2>&1 &
    child=$!
    wait "$child" || {
        code=$?
        # without the launcher's words, which stand between dashes and say nothing of why
        sed '/^-\{40,\}$/,/^-\{40,\}$/d' "$out/ranks_$n.log" | tail -n 5 >&2
        echo "run_scaling.sh: the run on $n ranks failed with exit status $code; $out/ranks_$n.log has all it said" >&2
        exit 1
    }
    child=
done
$python - "$out" "$weak" $ranks <<'PYTHON'
import csv, json, sys

out, weak, ranks = sys.argv[1], sys.argv[2] == "1", [int(n) for n in sys.argv[3:]]
rows = []
for n in ranks:
    with open("%s/ranks_%d.jsonl" % (out, n)) as f:
        events = {e["event"]: e for e in map(json.loads, f)}
    start, end = events["start"], events["end"]
    ms = end["step_ms_median"]
    rows.append({"ranks": n, "batch": start["batch_size"], "step_ms": ms, "samples_per_s": start["batch_size"] / ms * 1e3,
                 "exchange_share": max(r["time_shares"]["exchange"] or 0 for r in end["per_rank"])})
first = rows[0]
for r in rows:
    r["speed_up"] = r["samples_per_s"] / first["samples_per_s"]
    r["efficiency"] = r["speed_up"] * first["ranks"] / r["ranks"]
keys = ["ranks", "batch", "step_ms", "samples_per_s", "speed_up", "efficiency", "exchange_share"]
with open(out + "/scaling.csv", "w", newline="") as f:
    w = csv.DictWriter(f, keys, lineterminator="\n")
    w.writeheader()
    w.writerows(rows)
print("%s scaling, against %d rank(s)" % ("weak" if weak else "strong", first["ranks"]))
print("%6s %10s %10s %14s %9s %11s %9s" % ("ranks", "batch", "step ms", "samples/s", "speed-up", "efficiency", "exchange"))
for r in rows:
    print("%6d %10d %10.3f %14.0f %9.2f %10.1f%% %8.1f%%" % (r["ranks"], r["batch"], r["step_ms"], r["samples_per_s"], r["speed_up"],
                                                              100 * r["efficiency"], 100 * r["exchange_share"]))
PYTHON
