#!/bin/sh
# Fetches axe-core, which test/page checks the web page's accessibility with, into
# .cache/axe: the version and the sum that test/page/axe/package-lock.json names. Once there
# it is not fetched again.
set -eu

cd "$(dirname "$0")/.."
into=.cache/axe
if ! cmp -s test/page/axe/package-lock.json "$into/package-lock.json" || [ ! -e "$into/node_modules/axe-core/axe.min.js" ]; then
	mkdir -p "$into"
	cp test/page/axe/package.json test/page/axe/package-lock.json "$into"
	if ! (cd "$into" && npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1); then
		tail -5 "$into/npm.log" >&2
		rm -f "$into/package-lock.json"
		echo "axe: npm ci failed: is the registry of npm reachable? Tests of the page's accessibility will skip" >&2
		exit 1
	fi
fi
