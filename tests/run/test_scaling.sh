#!/usr/bin/env bash
# run_scaling.sh on 1 and 2 CPU ranks: the table and the CSV are there, weak scaling doubles the batch, bad input is named.
#   test_scaling.sh TRAINER CONFIG
set -eu
sweep=$(realpath "$(dirname "$0")/../../run_scaling.sh")
trainer=$(realpath "$1") config=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
run() { TRAINER=$trainer PYTHON=${PYTHON:-python3} "$sweep" "$config" "$@" train.steps=2 eval.every_epoch=false device=cpu; }
fail() { echo "FAIL: $1"; exit 1; }
run --ranks "1 2" >strong.txt 2>err.txt || { cat err.txt; fail "the sweep ends with an error"; }
grep -q "^strong scaling" strong.txt || fail "no headline: $(cat strong.txt)"
[ "$(wc -l <scaling/scaling.csv)" = 3 ] || fail "the CSV has not 3 lines: $(cat scaling/scaling.csv)"
cut -d, -f1,2 scaling/scaling.csv | tail -n 2 | tr '\n' ' ' | grep -q "^1,1024 2,1024 $" || fail "batches of strong scaling: $(cat scaling/scaling.csv)"
run --ranks 2 --weak train.batch_size=64 >weak.txt 2>err.txt || { cat err.txt; fail "the weak sweep ends with an error"; }
grep -q "^2,128," scaling/scaling.csv || fail "weak scaling does not multiply the batch: $(cat scaling/scaling.csv)"
# Whatever else of the config has a batch_size.
{ echo "eval:"; echo "  batch_size: 512"; sed '/^eval:/,/^[^ ]/{/^eval:/d;/^ /d}' "$config"; } >first.yaml
config=$folder/first.yaml run --ranks 2 --weak >weak.txt 2>err.txt || { cat err.txt; fail "the weak sweep of the config's batch ends with an error"; }
grep -q "^2,2048," scaling/scaling.csv || fail "weak scaling takes another batch than train.batch_size: $(cat scaling/scaling.csv)"
if run --ranks two >out.txt 2>&1; then fail "--ranks two is accepted"; fi
grep -q 'found "two"' out.txt || fail "the message does not name what was found: $(cat out.txt)"
if run --ranks 1 train.batch_size=none >out.txt 2>&1; then fail "a failing run goes unnoticed"; fi
grep -q "the run on 1 ranks failed with exit status 1" out.txt || fail "the failing run is not named: $(cat out.txt)"
grep -q 'train\.batch_size: found "none"' out.txt || fail "why the run failed is not shown: $(cat out.txt)"
# A signal to the sweep has the training save a checkpoint.
rm -r scaling
TRAINER=$trainer "$sweep" "$config" --ranks 2 device=cpu eval.every_epoch=false train.epochs=100000 checkpoint.path=ckpt log.every_steps=1 >out.txt 2>&1 &
pid=$!
for _ in $(seq 3000); do ! grep -qs '"step":5,' scaling/ranks_2.jsonl || break; sleep 0.1; done
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 143 ] || fail "a sweep that was ended has exit status $code: $(cat out.txt)"
# A second one does not wait for it. (The launcher here takes no notice of the first.)
cat >launcher <<'SH'
#!/bin/bash
trap '' USR1
trap 'exit 9' TERM
touch started
while :; do sleep 0.05; done
SH
chmod +x launcher
MPIRUN=$folder/launcher TRAINER=$trainer "$sweep" "$config" --ranks 2 >out.txt 2>&1 &
stubborn=$!
for _ in $(seq 3000); do [ ! -e started ] || break; sleep 0.1; done
kill -TERM $stubborn
sleep 0.5
kill -0 $stubborn || fail "a sweep does not wait for its training: $(cat out.txt)"
kill -TERM $stubborn
stubborn_code=0
wait $stubborn || stubborn_code=$?
[ $stubborn_code = 143 ] || fail "a sweep that was ended twice has exit status $stubborn_code: $(cat out.txt)"
ls ckpt/step_*/manifest.json >/dev/null || fail "no checkpoint: $(cat out.txt scaling/ranks_2.log)"
grep -q "ended by SIGUSR1" scaling/ranks_2.jsonl || fail "the training was not asked to end: $(tail -n 2 scaling/ranks_2.jsonl)"
