#!/bin/sh
# Copies the files that the cgroup probe reads of one cgroup and its ancestors:
#   record.sh DEST MOUNT PATH FILE...
# e.g. record.sh hybrid/cpu /sys/fs/cgroup/cpu docker/ID cpu.stat cpu.shares
set -eu
dest=$1 mount=$2 path=$3
shift 3
while :; do
	mkdir -p "$dest/$path"
	for f in "$@" cgroup.procs cgroup.type cgroup.sane_behavior notify_on_release; do
		[ -e "$mount/$path/$f" ] || continue
		case $f in
		cgroup.procs) : >"$dest/$path/$f" ;; # its presence tells, not its content
		*) cat "$mount/$path/$f" >"$dest/$path/$f" || rm -f "$dest/$path/$f" ;;
		esac
	done
	case $path in . | /) break ;; esac
	path=$(dirname "$path")
done
