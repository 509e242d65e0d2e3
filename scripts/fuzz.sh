#!/usr/bin/env bash
# Fuzzes each target for some time (first argument, 20s), two at once: every reader of what a
# container, an engine, the kernel, a peer or a disk may write. Ends with what failed and a line;
# exit status 1 if one failed.
# A crash is kept by go below testdata/fuzz of its package, where go test runs it from then on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Inputs that reached something new are kept where go test -fuzz keeps them.
kept=$(go env GOCACHE)/fuzz/$(go list -m)
time=${1:-20s}
export work kept time

targets=$(grep -rno --include=*_test.go '^func Fuzz[A-Za-z0-9]*' cmd probes runtime tuner tools | sed -E 's#/[^/]*:[0-9]+:func # #' | sort)
packages=$(cut -d' ' -f1 <<<"$targets" | uniq)
for package in $packages; do
  go test -c -fuzz . -o "$work/$package.test" "./$package"
done
compiled=$SECONDS

fuzz() { # PACKAGE TARGET
  local out said
  if out=$(cd "$1" && "$work/$1.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.parallel 1 -test.fuzzcachedir "$kept/$1" 2>&1); then
    said=$(printf 'ok   %-28s %-16s %s' "$1" "$2" "$(grep -o 'execs: [0-9]*' <<<"$out" | tail -1)")
  else
    said=$(printf 'FAIL %s %s\n%s' "$1" "$2" "$out")
    echo "$1 $2" >>"$work/failed"
  fi
  flock "$work" cat <<<"$said" # whole, though another ends at the same time
}
export -f fuzz
touch "$work/failed"
xargs -P 2 -L 1 bash -c 'fuzz "$@"' fuzz <<<"$targets" || echo "fuzz: xargs: $?" >>"$work/failed"

sed 's/^/FAILED /' "$work/failed"
printf 'fuzz: targets %d failed %d, %s each; compiled in %d s, fuzzed in %d s\n' \
  "$(wc -l <<<"$targets")" "$(wc -l <"$work/failed")" "$time" "$compiled" $((SECONDS - compiled))
[ -n "$targets" ] && [ ! -s "$work/failed" ]
