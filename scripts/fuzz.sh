#!/usr/bin/env bash
# Fuzzes each target for some time (first argument, 20s): every reader of what a container, an
# engine, the kernel, a peer or a disk may write. Ends with a line; exit status 1 if one failed.
# A crash is kept by go below testdata/fuzz of its package, where go test runs it from then on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-20s} targets=0 failed=0
while IFS=: read -r file name; do
  targets=$((targets + 1))
  if out=$(go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")" 2>&1); then
    printf 'ok   %-28s %-16s %s\n' "$(dirname "$file")" "$name" "$(grep -o 'execs: [0-9]*' <<<"$out" | tail -1)"
  else
    failed=$((failed + 1))
    printf 'FAIL %s %s\n%s\n' "$(dirname "$file")" "$name" "$out"
  fi
done < <(grep -rno --include=*_test.go '^func Fuzz[A-Za-z0-9]*' cmd probes runtime tuner tools | sed -E 's/:[0-9]+:func /:/' | sort)
printf 'fuzz: targets %d failed %d, %s each\n' "$targets" "$failed" "$time"
[ "$targets" -gt 0 ] && [ "$failed" -eq 0 ]
