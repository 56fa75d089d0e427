#!/bin/sh
# A rank that stops ends the job: within seconds, with an error code, and with a message that names what was waited for.
# Usage: test_watchdog.sh MPIRUN TEST_COMM
out=$(timeout 60 "$1" -n 3 "$2" hang 2>&1)
code=$?
printf '%s\n' "$out"
[ $code -ne 0 ] || { echo "FAILED: exit code 0"; exit 1; }
[ $code -ne 124 ] || { echo "FAILED: the job hung"; exit 1; }
case $out in
    *'a barrier has waited longer than parallel.timeout_s (2 s); another rank has stopped or died'*) ;;
    *) echo "FAILED: the message is missing"; exit 1 ;;
esac
