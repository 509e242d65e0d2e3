#!/bin/bash
# Copies what git tracks of some paths below the current folder: packages hold what a commit
# has, and not what else lies beside it. In a copy without its history, all of them.
#
#   scripts/tracked.sh FOLDER PATH…
set -euo pipefail

to=$1
shift
mkdir -p "$to"
if [ "$(git rev-parse --is-inside-work-tree 2>/dev/null)" = true ] && [ -n "$(git ls-files -- "$@" | head -c 1)" ]; then
	git ls-files -z -- "$@" | tar --null -T - -c | tar -C "$to" -x
else
	tar -c "$@" | tar -C "$to" -x
fi
