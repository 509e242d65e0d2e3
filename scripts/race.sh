#!/usr/bin/env bash
# Runs the tests under Go's race detector (about 7 minutes on two CPUs; needs gcc). First it must
# find a race that is there on purpose. Ends with how many packages and tests ran.
#
# There is no Docker for these tests: what needs it skips. `make test` runs it, without the detector.
# Nor does it take packages in which there is nothing to find: of those that their tests are built
# from none of ours starts a goroutine, by itself or by what it imports.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=1 DOCKER_HOST=unix:///nonexistent

# left_out: packages, and why. All others run, new ones too.
left_out='
probes/cuda           100 s of C programs; its Go starts no goroutine, that of probes/uprobe does
probes/kernel         holds times of the kernel against those of processes; its Go starts no goroutine
probes/mpi            as probes/cuda
probes/nccl           as probes/cuda
runtime/containerd    starts containerd
test/crash            starts the daemon and containers
test/demo             starts the daemon and containers
test/e2e              starts the daemon and containers
test/examples         builds trimtab for each example
test/gpucheck         starts the daemon
test/page             starts Chromium; the server has tests of its own in tuner/page
test/vgpu             C programs
test/vm               starts a virtual machine
test/workloads/gpu    C programs
'
# skipped: tests of the other packages, and why.
skipped='
TestCommandsOfThePage   runs other programs
TestCompletionInShells  runs other programs
TestDocsCommandsRun     runs other programs
TestFloorIsWrittenAnew  runs other programs
TestConfined            the detector needs cgo, whose threads the sandbox does not let start
TestLinks               in probes/nvml: holds a rate of 20 ms against a mean of 4 s
'
names() { awk 'NF { print $1 }' <<<"$1"; }

seeded=$(go test -race -count=1 -tags seededrace ./test/race 2>&1) || true
grep -q 'WARNING: DATA RACE' <<<"$seeded" || {
  printf '%s\nrace: the race of test/race was not found: the detector does not work here\n' "$seeded"
  exit 1
}

module=$(go list -m)
for package in $(names "$left_out"); do
  [ -d "$package" ] || { echo "race: $package is left out, and is not there"; exit 1; }
done
starts='\bgo (func|[[:alpha:]_.]+)\(|\.(Go|Parallel|RunParallel|AfterFunc)\(|"(net/http|os/exec|google.golang.org/grpc|github.com/oklog/run)["/]'
concurrent=$(go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
  ! grep -qE "$starts" "$dir"/*.go || echo "$package"
done)
packages=$(go list -test -f '{{with .ForTest}}{{.}} {{join $.Deps " "}}{{end}}' ./... |
  awk -v concurrent="$concurrent" '
    BEGIN { split(concurrent, list, "\n"); for (i in list) is[list[i]] = 1 }
    { for (i = 1; i <= NF; i++) if ($i in is) { print $1; next } }' |
  sort -u | grep -vxF "$(names "$left_out" | sed "s#^#$module/#")")

mkdir -p .cache
CGO_ENABLED=0 go build -o .cache/testsummary ./tools/testsummary
rc=0
# shellcheck disable=SC2086 # a list of packages
go test -race -json -count=1 -short -p "${1:-2}" -timeout 20m -skip "^($(names "$skipped" | paste -sd '|'))\$" $packages 2>&1 |
  .cache/testsummary | tee .cache/race || rc=$?
printf 'race: the seeded race was found; %d packages, of %d with tests, %s\n' "$(grep -cE '^(ok  |FAIL) ' .cache/race)" "$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}x{{end}}' ./... | grep -c x)" "$(tail -1 .cache/race)"
exit "$rc"
