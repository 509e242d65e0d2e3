#!/bin/sh
# A queue of jobs, one a line of standard input: "IMAGE ARG…". Each starts as soon as a device is free for it.
# The arguments are words without spaces; nothing in them is expanded.
set -fu
while read -r image args; do
	[ -n "$image" ] || continue
	while :; do
		# shellcheck disable=SC2086 # words are meant
		devices=$(trimtab place --docker -- "$image" $args) && break
		[ $? -eq 75 ] || exit 1 # 75: none is free now
		sleep "${QUEUE_PAUSE:-10}"
	done
	# shellcheck disable=SC2086
	docker run -d --rm $devices -- "$image" $args || exit 1
done
