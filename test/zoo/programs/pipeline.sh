#!/bin/bash
# Numbers, sorted and compressed by processes that come and go; a step is a pipeline. Two run side by side.
run() {
	n=0
	while :; do
		seq 1 20000 | sort -r | gzip -6 | sha256sum >/dev/null
		n=$((n + 1))
		read -r up _ </proc/uptime
		echo "$1 $n $up"
	done
}
told=0
declare -A done=([a]=0 [b]=0)
at=0
{ run a & run b & wait; } | while read -r who n up; do
	done[$who]=$n
	total=$((done[a] + done[b]))
	if [ "${up%.*}" -gt "$at" ]; then
		echo "step=$total t=$up dt=0.5"
		at=${up%.*}
	fi
done
