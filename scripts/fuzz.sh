#!/usr/bin/env bash
# Fuzzes each target for some time (first argument, 20s), two at once: every reader of what a
# container, an engine, the kernel, a peer or a disk may write. Ends with what crashed and a line;
# exit status 1 if one crashed.
# A crash is printed with its input, whole, and kept by go below testdata/fuzz of its package,
# where go test runs it from then on. Beside it lie inputs of earlier runs that reached something new.
#
# Go would spend up to a minute on making each input that reached something new smaller; 20 tries
# leave the time to looking for more.
#
# What a busy machine does to Go's fuzzer is no crash. At the end of the time it may fail with nothing but
# "context deadline exceeded" (go.dev/issue/75804, mended in Go 1.27). An input that took ten
# seconds is taken for a crash: if it passes by itself its target is fuzzed again, and that counts.
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
  cd "$1" || return
  local try out input said=
  for try in first second; do
    if out=$("$work/$1.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzminimizetime 20x -test.parallel 1 -test.fuzzcachedir "$kept/$1" 2>&1); then
      said+=$(printf 'ok   %-28s %-16s %s' "$1" "$2" "$(grep -o 'execs: [0-9]*' <<<"$out" | tail -1)")
      break
    fi
    input=$(sed -n 's/^ *Failing input written to //p' <<<"$out")
    if [ -z "$input" ] && [ "$(sed -E '/^(fuzz: |--- FAIL: |FAIL$|exit status )/d; s/^ *//' <<<"$out")" = "context deadline exceeded" ]; then
      said+=$(printf 'ok   %-28s %-16s %s' "$1" "$2" "$(grep -o 'execs: [0-9]*' <<<"$out" | tail -1), the fuzzer ended late")
      break
    fi
    said+=$(printf 'FAIL %s %s\n%s' "$1" "$2" "$out")
    [ -z "$input" ] || said+=$(printf '\n%s/%s:\n%s' "$1" "$input" "$(cat "$input")")
    if [ "$try" = second ] || ! grep -q 'fuzzing process hung or terminated unexpectedly' <<<"$out" ||
      ! timeout 60 "$work/$1.test" -test.run "^$2\$${input:+/^${input##*/}\$}" >/dev/null 2>&1; then
      echo "$1 $2" >>"$work/crashed"
      break
    fi
    [ -z "$input" ] || rm "$input"
    said+=$'\nBy itself this input passes: once more.\n'
  done
  flock "$work" cat <<<"$said" # whole, though another ends at the same time
}
export -f fuzz
touch "$work/crashed"
xargs -P 2 -L 1 bash -c 'fuzz "$@"' fuzz <<<"$targets" || echo "xargs: $?" >>"$work/crashed"

sed 's/^/CRASHED /' "$work/crashed"
printf 'fuzz: targets %d crashes %d; %s each, compiled in %d s, fuzzed in %d s\n' \
  "$(wc -l <<<"$targets")" "$(wc -l <"$work/crashed")" "$time" "$compiled" $((SECONDS - compiled))
[ -n "$targets" ] && [ ! -s "$work/crashed" ]
