#!/bin/sh
# Fetches what tests take from npm's registry, never shipped: axe-core, which test/page checks the web page's
# accessibility with, into .cache/axe; Grafana's schema and a TypeScript compiler, which packaging checks the
# dashboards with, into .cache/grafana. Versions and sums are those of each package-lock.json. What is there
# already is not fetched again.
set -eu
cd "$(dirname "$0")/.."

# fetch FROM INTO: the packages of FROM/package-lock.json.
fetch() {
	if cmp -s "$1/package-lock.json" "$2/package-lock.json"; then
		return
	fi
	mkdir -p "$2"
	cp "$1/package.json" "$2"
	cp "$1/package-lock.json" "$2"
	if ! (cd "$2" && npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1); then
		tail -5 "$2/npm.log" >&2
		rm -f "$2/package-lock.json"
		echo "$1: npm ci failed: is the registry of npm reachable? Tests that need it will skip" >&2
		return 1
	fi
}

failed=0
fetch test/page/axe .cache/axe || failed=1
fetch packaging/testdata/grafana .cache/grafana || failed=1
exit $failed
