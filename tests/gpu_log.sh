#!/usr/bin/env bash
# What the last runs of the GPU suites are worth today: one line for each number of GPUs in the log that tests/gpu.sh wrote.
#
#   tests/gpu_log.sh [LOG]     default docs/gpu-suite.log
#
# Says on which commit the suites last passed, on what machine, and which files under cuda/ differ from that commit now.
# The log holds one or more runs, one after the other. A run begins with "commit HASH, N x GPU, DATE" (and ", only SECTION ..."
# where it was a part of the suites) and is complete with "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
log=${1:-docs/gpu-suite.log}

# Of each run: number of GPUs, commit, failures (-1: it did not end), what ran on.
runs() {
    awk '
        function put() { if (commit) printf "%s\t%s\t%d\t%s\n", gpus, commit, failures, where }
        /^commit [^ ,]+, [0-9]+ x [^,]+, / {
            put()
            commit = $2; sub(/,$/, "", commit)
            gpus = $3; failures = -1
            where = $0; sub(/^commit [^ ,]+, /, "", where)
        }
        /^[0-9]+ passed, [0-9]+ failed$/ && commit { failures = $3 }
        END { put() }' "$log"
}

# Files under cuda/ that differ between a commit and what lies here.
changed_since() {
    if ! git rev-parse --git-dir >/dev/null 2>&1; then
        echo "cannot tell: this is no git clone"
    elif ! git cat-file -e "$1^{commit}" 2>/dev/null; then
        echo "cannot tell: the commit is not in this clone's history$([ "$(git rev-parse --is-shallow-repository)" = false ] || echo " (a shallow clone)")"
    else
        { git diff --name-only "$1" -- cuda && git ls-files --others --exclude-standard -- cuda; } | sort -u |
            awk '{ sub(/^cuda\//, ""); list = list (NR > 1 ? ", " : "") $0 } END { print NR ? list : "none" }'
    fi
}

[ -r "$log" ] || {
    echo "GPU suites: never run: no $log"
    exit
}
[ -n "$(runs)" ] || {
    echo "GPU suites: never run: no run in $log"
    exit
}
for gpus in $(runs | cut -f 1 | sort -nu); do
    last='' passed='' before=''
    while IFS=$'\t' read -r n commit failures where; do
        [ "$n" = "$gpus" ] || continue
        last="commit ${commit:0:12} ($where)" last_failures=$failures
        [ "$failures" != 0 ] || passed=$commit before=$last
    done < <(runs)
    case $last_failures in
    0) verdict="last passed on $last" ;;
    -1) verdict="the last run, on $last, did not end" ;;
    *) verdict="the last run, on $last, had $last_failures failed" ;;
    esac
    if [ -z "$passed" ]; then
        echo "GPU suites: $verdict; no run on $gpus GPU(s) in $log passed"
        continue
    fi
    [ "$last_failures" = 0 ] || verdict+="; last passed on $before"
    echo "GPU suites: $verdict; changed under cuda/ since: $(changed_since "$passed")"
done
