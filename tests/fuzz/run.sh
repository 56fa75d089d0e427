#!/usr/bin/env bash
# Runs one libFuzzer target for DLRM_FUZZ_SECONDS (default 8), starting from its corpus, which it does not change:
#   run.sh TARGET CORPUS_FOLDER
# A finding is kept as ./crash-…, ./timeout-… or ./oom-… in DLRM_FUZZ_FINDINGS (default: the working directory). To grow
# the corpus by hand: TARGET -max_total_time=3600 NEW_FOLDER CORPUS_FOLDER, then TARGET -merge=1 CORPUS_FOLDER NEW_FOLDER.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ASAN_OPTIONS=allocator_may_return_null=1 "$1" -max_total_time="${DLRM_FUZZ_SECONDS:-8}" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="${DLRM_FUZZ_FINDINGS:-.}/" "$work" "$2"
