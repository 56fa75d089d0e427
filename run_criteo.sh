#!/usr/bin/env bash
# Trains a DLRM on Criteo's rows, from a fresh clone on Debian or Ubuntu: installs what is missing, builds, converts,
# trains, evaluates.
#
#   ./run_criteo.sh [DATA_DIR | --rehearsal[=ROWS]] [key.path=value ...]
#
# DATA_DIR holds Criteo's Kaggle set (train.txt) or its Terabyte set (day_0 ... day_23), plain or .gz. Without it, rows in
# the same format are generated, with labels of a planted model. key.path=value goes to dlrm-train and overrides its config:
# configs/criteo_demo.yaml, criteo_kaggle.yaml or criteo_terabyte.yaml. Everything made lies in criteo_run/, which may be a
# link to a larger disk. What an earlier run made of the data is not made again, a training that was stopped goes on, and
# one that had finished is done anew.
# --rehearsal goes through MLPerf's whole Terabyte recipe (DLRM-DCNv2) on generated days in Terabyte's shape, 1440000 rows
# (or ROWS, a multiple of 48): 24 day files, conversion, shuffle, multi-hot, training with a schedule, evaluation on the
# first half of day 23, stop at the target AUC. Its config is configs/criteo_rehearsal.yaml.
set -euo pipefail
called_from=$PWD
cd "$(dirname "$0")"
# shellcheck source=tests/setup.sh
source tests/setup.sh

usage() {
    sed -n '5s/^# *//p; 7,14s/^# //p' "${BASH_SOURCE[0]}"
}
bad_arguments() {
    say "run_criteo.sh: $*" >&2
    usage >&2
    exit 2
}

data_dir='' rehearsal='' overrides=()
for arg; do
    case $arg in
    -h | --help) usage && exit 0 ;;
    --rehearsal) rehearsal=1440000 ;;
    --rehearsal=*)
        rehearsal=${arg#*=}
        if ! [[ $rehearsal =~ ^[1-9][0-9]{1,11}$ ]] || [ $((rehearsal % 48)) != 0 ]; then
            bad_arguments "$arg: expected a multiple of 48"
        fi
        ;;
    -*) bad_arguments "unknown option '$arg'" ;;
    *)
        if [[ $arg == *=* && ! -d $arg && ! -d $called_from/$arg ]]; then
            overrides+=("$arg")
            continue
        fi
        [ -z "$data_dir" ] || bad_arguments "two data folders, '$data_dir' and '$arg'"
        [ -n "$arg" ] || bad_arguments "an empty argument"
        data_dir=$arg
        ;;
    esac
done
[ -z "$data_dir" ] || [ -z "$rehearsal" ] || bad_arguments "a rehearsal generates its data, but '$data_dir' is given"
if [ -n "$data_dir" ]; then
    [ -d "$data_dir" ] || data_dir=$called_from/$data_dir
    [ -d "$data_dir" ] || bad_arguments "no folder '${data_dir#"$called_from/"}'"
    data_dir=$(cd "$data_dir" && pwd)
fi

# --- children: a signal to this script ends the one that runs; a training saves a checkpoint first --------------------------
child='' ask=TERM
forward() {
    if [ -n "$child" ]; then
        # shellcheck disable=SC2064 # of the child that runs now; a second signal does not wait for it
        trap "kill -TERM $child" TERM INT
        kill "-$ask" "$child" 2>/dev/null || true
        while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
    fi
    say "run_criteo.sh: stopped; the same command goes on from where it was" >&2
    exit "$1"
}
trap 'forward 143' TERM
trap 'forward 130' INT
attend() {
    "$@" &
    child=$!
    local rc=0
    wait "$child" || rc=$?
    child=''
    return $rc
}

# --- stages -------------------------------------------------------------------------------------------------------------
# A stage leaves FILE.stamp with what it was made from; it is done again when that has changed.
finished() { [ -e "$1" ] && [ "$(cat "$1.stamp" 2>/dev/null)" = "$2" ]; }
stamp() { printf '%s\n' "$2" >"$1.stamp"; }

build_release() {
    local log=build/run_criteo.log
    mkdir -p build
    say "Building a release in build/ ..."
    if ! { [ -e build/build.ninja ] || attend meson setup build --buildtype=release; } >"$log" 2>&1 ||
        ! attend ninja -C build src/dlrm-train data_tools/dlrm_data >>"$log" 2>&1; then
        tail -n 30 "$log" >&2
        die "the build failed (all of its output: $log)"
    fi
}

# Bytes as people read them.
human() { numfmt --to=iec --suffix=B --format='%.1f' "$1"; }
duration() {
    if [ "$1" -lt 120 ]; then
        echo "$1 s"
    elif [ "$1" -lt 7200 ]; then
        echo "$(($1 / 60)) min"
    else
        echo "$(($1 / 3600)) h"
    fi
}

# The last number called KEY of the events of that kind in a run's log.
logged() { sed -n "/\"event\":\"$1\"/s/.*\"$2\":\(-\{0,1\}[0-9][0-9.e+-]*\).*/\1/p" "$run_log" | tail -n 1; }

find_inputs() {
    local file n
    if [ -e "$data_dir/train.txt" ] || [ -e "$data_dir/train.txt.gz" ]; then
        set=kaggle
        compgen -G "$data_dir/day_*" >/dev/null && die "$data_dir has both train.txt and day_* files: which set is it?"
        inputs=("$data_dir/train.txt")
        [ -e "${inputs[0]}" ] || inputs[0]+=.gz
        return
    fi
    set=terabyte
    for n in {0..23}; do
        file=$data_dir/day_$n
        [ -e "$file" ] || file+=.gz
        [ ! -e "$file" ] || inputs+=("$file")
    done
    [ ${#inputs[@]} -gt 0 ] || die "$data_dir has neither train.txt (Kaggle) nor day_0 ... day_23 (Terabyte), nor these as .gz"
    [ ${#inputs[@]} -gt 1 ] || die "$data_dir has one day only, ${inputs[0]##*/}: the last day given is held back for the evaluation"
    [ ${#inputs[@]} = 24 ] || say "Note: ${#inputs[@]} of the 24 days are here; the last one of them is for the evaluation."
}

# Bytes of text in the inputs; a .gz holds about 3.2 times its size.
text_bytes() {
    local file size total=0
    for file in "${inputs[@]}"; do
        size=$(stat -L -c %s "$file")
        case $file in *.gz) size=$((size * 16 / 5)) ;; esac
        total=$((total + size))
    done
    echo "$total"
}

# What the conversion and the training need. Refuses where the disk is too small.
estimate() {
    local text need sample=$out/sample run_log=$out/sample/run.jsonl start free seconds
    text=$(text_bytes)
    need=$((text * room[0] / 10))
    free=$(($(df -Pk "$out" | awk 'NR == 2 { print $4 }') * 1024))
    say "Criteo $set, about $(human "$text") of text in ${#inputs[@]} file(s)"
    say "  disk:   about $(human "$need") while converting, $(human $((text * room[1] / 10))) afterwards; free in criteo_run/: $(human "$free")"
    say "  memory: weights of $weights over all ranks; free: $(awk '/^MemAvailable/ { print int($2 / 1e6) }' /proc/meminfo) GB"
    [ "$need" -le "$free" ] || die "the disk is too small: make criteo_run a link to a folder with $(human "$need") free"

    # Times are measured on the first rows.
    rm -rf "$sample"
    mkdir -p "$sample"
    { gzip -cdf "${inputs[0]}" 2>/dev/null || true; } | head -n 200000 >"$sample/train.txt" # which closes the pipe early
    start=$(date +%s%N)
    quietly "$sample/log" "$dlrm_data" convert "$sample/train.txt" --out "$sample/data" "${convert_options[@]}"
    # All rows together have dictionaries beyond the caches, and shuffle through the disk: twice the time.
    seconds=$(awk -v ns=$(($(date +%s%N) - start)) -v text="$text" -v part="$(stat -c %s "$sample/train.txt")" \
        'BEGIN { printf "%d", 2 * ns * 1e-9 * text / part }')
    say "  time:   about $(duration "$seconds") to convert"
    quietly "$sample/log" "${launch[@]}" "$config" "${overrides[@]}" train.steps=10 data.path="$sample/data" log.jsonl="$run_log" \
        eval.every_epoch=false eval.every_steps=0 eval.target_auc=null log.progress=false
    seconds=$(awk -v ms="$(logged end step_ms_median)" -v batch="$(logged start batch_size)" -v rows=$((text / 240)) \
        'BEGIN { printf "%d", ms / 1000 * rows / batch }')
    say "          about $(duration "$seconds") for one pass of training on ${launch[2]} rank(s) of this machine"
    rm -rf "$sample"
}

# make_stage MADE_OF FILE COMMAND...: runs the command that makes FILE unless that is there, made by the same command from the same.
make_stage() {
    local made=$1 file=$2
    shift 2
    made="$made"$'\n'"$*"
    ! finished "$file" "$made" || return 0
    rm -rf "$file" "$file".* "$out/checkpoints"
    local start=$SECONDS
    attend "$@" >"$out/stage.log" || die "failed: $*"
    sed -n '/^wrote \|^planted AUC, test/p' "$out/stage.log"
    [ "$file" != "$out/days" ] || cp "$out/stage.log" "$out/synth.log"
    stage_seconds=$((stage_seconds + SECONDS - start))
    stamp "$file" "$made"
}

# The Terabyte recipe up to the training, on generated days. What a stage is made of names all stages before it.
rehearse() {
    local made
    say "Rehearsal of MLPerf's Terabyte recipe on $rehearsal generated rows in 24 days: all of its stages, with smaller sizes."
    made=$("$dlrm_data" --version)
    make_stage "$made" "$out/days" "$dlrm_data" synth --rows "$rehearsal" --days 24 --shape terabyte --scale 0.001 --seed 1 --out "$out/days"
    made+=" $rehearsal"
    # MLPerf scores the first half of day 23.
    make_stage "$made" "$out/rows" "$dlrm_data" convert "$out"/days/day_{0..23} --test-rows $((rehearsal / 48)) --out "$out/rows"
    make_stage "$made" "$out/shuffled" "$dlrm_data" shuffle "$out/rows" --seed 1 --out "$out/shuffled"
    make_stage "$made" "$data" "$dlrm_data" multihot "$out/shuffled" --out "$data"
}

# quietly LOG COMMAND...: runs it; what it said is shown only where it fails.
quietly() {
    local log=$1
    shift
    attend "$@" >"$log" 2>&1 && return
    tail -n 15 "$log" >&2
    die "failed: $*"
}

# --- the run --------------------------------------------------------------------------------------------------------------
setup build
mpi_environment
inputs=() set=demo weights='' row_bytes=128 convert_options=(--shuffle 1) stage_seconds=0
room=(10 4) # on the disk, in tenths of the text: while converting, and afterwards
[ -z "$data_dir" ] || find_inputs
[ -z "$rehearsal" ] || set=rehearsal
case $set in
kaggle) # as facebook's DLRM
    weights='2.2 GB' row_bytes=64 room=(11 5) convert_options+=(--dense log1 --dense-type float32 --test-rows 3274330)
    ;;
terabyte) weights='96 GB (with all days)' row_bytes=512 convert_options+=(--cap 40000000 --dense log1) ;; # as MLPerf's v1
esac
out=criteo_run/$set config=configs/criteo_$set.yaml data=criteo_run/$set/data run_log=criteo_run/$set/run.jsonl
dlrm_data=build/data_tools/dlrm_data
mkdir -p "$out"
build_release

# All GPUs if this build can use them; else two ranks share the cores.
ranks=$(($(cores) > 1 ? 2 : 1))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(($(cores) / ranks))}
if build/src/dlrm-train --version | grep -q CUDA && have nvidia-smi; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || true
    [ "$gpus" = 0 ] || ranks=$gpus
fi
launch=(mpirun -n "$ranks" build/src/dlrm-train)

if [ $set = demo ]; then
    inputs=("$out/train.txt")
    made="1200000 rows, seed 1, $("$dlrm_data" --version)"
    say "No data folder given: training on 1.2 M generated rows in Criteo's format, whose labels come from a planted model."
    say "The real sets are Criteo's: train.txt of Kaggle's Display Advertising Challenge (kaggle.com/c/criteo-display-ad-challenge),"
    say "and the Terabyte Click Logs, day_0 ... day_23 (huggingface.co/datasets/criteo/CriteoClickLogs). Then: ./run_criteo.sh FOLDER"
    if ! finished "${inputs[0]}" "$made"; then
        attend "$dlrm_data" synth --shape kaggle --rows 1200000 --test-fraction 0.142857 --seed 1 --out "${inputs[0]}" >"$out/synth.log"
        cat "$out/synth.log"
        stamp "${inputs[0]}" "$made"
    fi
fi

if [ $set = rehearsal ]; then
    rehearse
else
    made=$(stat -L -c '%n %s %Y' "${inputs[@]}" && echo "${convert_options[@]}")
fi
if [ $set != rehearsal ] && ! finished "$data" "$made"; then
    [ $set = demo ] || estimate
    say "Converting to $data/ ..."
    rm -rf "$data" "$data.partial" "$out/checkpoints"
    attend "$dlrm_data" convert "${inputs[@]}" --out "$data" "${convert_options[@]}"
    stamp "$data" "$made"
fi

for arg in "${overrides[@]}"; do
    case $arg in log.jsonl=*) run_log=${arg#*=} ;; esac
done
# Checkpoints, where there is room for two. A training that had finished is not gone on with.
checkpoints=$out/checkpoints saving=()
# A table's row has row_bytes in a checkpoint, weights and optimizer; the MLPs have less than 20 MB.
state_bytes=$(awk -v row="$row_bytes" '$1 == "cardinality:" { n += $2 } END { printf "%.0f", n * row + 20000000 }' "$data/feature_spec.yaml")
if [ "$(($(df -Pk "$out" | awk 'NR == 2 { print $4 }') * 1024))" -gt $((2 * state_bytes)) ]; then
    saving=("checkpoint.path=$checkpoints" checkpoint.every_minutes=10 checkpoint.keep=1)
else
    say "Note: the disk has no room for checkpoints (two of $(human "$state_bytes")); a training that is stopped starts anew."
fi
if [ -e "$checkpoints/finished" ]; then
    build/src/dlrm-train "$config" "${overrides[@]}" --check >/dev/null || exit # what cannot start leaves the finished one as it is
    saving+=(checkpoint.resume=never)
    rm -f "$checkpoints/finished"
fi
# A session of its own: Ctrl-C then reaches this script alone, which passes it on as SIGUSR1.
command=(setsid "${launch[@]}" "$config" "log.jsonl=$run_log" "${saving[@]}" "${overrides[@]}")
# mpirun gives ranks a terminal even where it has none itself.
[ -t 1 ] || command+=(log.progress=false)
say "OMP_NUM_THREADS=$OMP_NUM_THREADS ${command[*]:1}"
training_start=$SECONDS
ask=USR1
attend "${command[@]}" || {
    rc=$?
    say "run_criteo.sh: training ended with exit status $rc" >&2
    exit $rc
}
ask=TERM
[ ! -d "$checkpoints" ] || touch "$checkpoints/finished"

say
loss=$(logged eval loss)
[ -n "$loss" ] || say "evaluation      none (eval.every_epoch, or a training that had come to its end before)"
[ -z "$loss" ] || say "loss            $loss"
[ -z "$loss" ] || say "AUC             $(logged eval auc)$([ ! -e "$out/synth.log" ] || sed -n 's/^planted AUC, test rows: \([0-9.]*\).*/   (planted model: \1, the bound)/p' "$out/synth.log")"
reached=yes
if [ $set = rehearsal ]; then
    if grep -q '"why":"target AUC reached"' "$run_log"; then
        say "time to target  $(logged end train_s | cut -c 1-6) s of training steps, $(logged end steps) of them;" \
            "$((SECONDS - training_start)) s with start and evaluations"
    else
        say "time to target  the target AUC was not reached; training and evaluations took $((SECONDS - training_start)) s"
        [[ " ${overrides[*]} " == *' eval.target_auc=null '* ]] || reached=no
    fi
    say "data            $stage_seconds s of making them in this run"
fi
say "median step     $(logged end step_ms_median) ms"
say "throughput      $(logged end samples_per_s) samples/s"
say "log             $run_log"
[ $reached = yes ]
