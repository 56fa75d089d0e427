#!/usr/bin/env bash
# tests/gpu_log.sh: what it says of runs that passed, failed, did not end, and of what has changed under cuda/ since.
set -eu
script=$(realpath "$(dirname "$0")/../gpu_log.sh")
command -v git >/dev/null || { echo "not run: no git"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
repo=$folder/repo
mkdir -p "$repo"/{tests,docs,cuda,src}
cp "$script" "$repo/tests/"
cd "$repo"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
commit() { git add . && git commit -q -m "$1" && git rev-parse HEAD; }
fail=0
# says LINE: that is all it says
says() {
    local got
    got=$(tests/gpu_log.sh) || { echo "FAIL: exit status $?"; fail=1; }
    [ "$got" = "$1" ] || { printf 'FAIL: expected\n%s\ngot\n%s\n' "$1" "$got"; fail=1; }
}
run() { printf 'commit %s, %s, 2026-11-30%s\nok   ops\n     12 failures of nothing\n%s\n' "$1" "$2" "${4:-}" "$3"; }

git init -q
echo a >cuda/a.cu; echo b >cuda/b.c; echo s >src/s.c
first=$(commit one)
says "GPU suites: never run: no docs/gpu-suite.log"
echo "nothing of use" >docs/gpu-suite.log
says "GPU suites: never run: no run in docs/gpu-suite.log"

one="1 x NVIDIA H200" two="2 x NVIDIA H200"
run "$first" "$one" "20 passed, 0 failed" >docs/gpu-suite.log
says "GPU suites: last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: none"
echo more >>src/s.c # not of interest
says "GPU suites: last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: none"
echo more >>cuda/b.c; echo new >cuda/new.cuh # not committed, and not known to git
says "GPU suites: last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: b.c, new.cuh"
rm cuda/a.cu
second=$(commit two)
says "GPU suites: last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: a.cu, b.c, new.cuh"

# A later run failed; one on two GPUs never ended, or was a part.
run "$second" "$one" "19 passed, 1 failed" >>docs/gpu-suite.log
run "$second" "$two" "and then nothing" >>docs/gpu-suite.log
says "GPU suites: the last run, on commit ${second:0:12} ($one, 2026-11-30), had 1 failed; last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: a.cu, b.c, new.cuh
GPU suites: the last run, on commit ${second:0:12} ($two, 2026-11-30), did not end; no run on 2 GPU(s) in docs/gpu-suite.log passed"
run "$second" "$two" "3 passed, 0 failed" ", only golden bits" >docs/gpu-suite.log
says "GPU suites: last passed on commit ${second:0:12} ($two, 2026-11-30, only golden bits); changed under cuda/ since: none"

# Commits that this clone does not have; no clone at all.
run 0123456789abcdef0123456789abcdef01234567 "$one" "20 passed, 0 failed" >docs/gpu-suite.log
says "GPU suites: last passed on commit 0123456789ab ($one, 2026-11-30); changed under cuda/ since: cannot tell: the commit is not in this clone's history"
run "$first" "$one" "20 passed, 0 failed" >docs/gpu-suite.log
echo more >>src/s.c
commit three >/dev/null
git clone -q --depth 1 "file://$repo" "$folder/shallow"
cd "$folder/shallow"
says "GPU suites: last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: cannot tell: the commit is not in this clone's history (a shallow clone)"
rm -rf .git
says "GPU suites: last passed on commit ${first:0:12} ($one, 2026-11-30); changed under cuda/ since: cannot tell: this is no git clone"
exit $fail
