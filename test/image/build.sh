#!/bin/sh
# Builds the Docker image that the demo and the end-to-end tests train in:
# Debian's own PyTorch, Pillow and NumPy, and what they link to. The training
# scripts are not in it: mount test/workloads read-only at /workloads.
#
#   test/image/build.sh            build if absent or out of date
#   test/image/build.sh --force    build anew, the cached tar included
#
# Packages are unpacked, not configured: the 190 packages behind python3-torch
# need nothing from their maintainer scripts but the linker's cache and two
# links, and configuring them takes several times as long as all the rest.
#
# TRIMTAB_IMAGE    the image's name         (trimtab-train:1)
# TRIMTAB_CACHE    where the tar is kept    (.cache/image in the repository)
# TRIMTAB_MIRROR   the Debian mirror        (http://deb.debian.org/debian)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
image=${TRIMTAB_IMAGE:-trimtab-train:1}
cache=${TRIMTAB_CACHE:-$here/../../.cache/image}
mirror=${TRIMTAB_MIRROR:-http://deb.debian.org/debian}
suite=bookworm
packages=base-files,libc-bin,dash,coreutils,procps,python3-torch,python3-pil,python3-numpy,libblas3,liblapack3
label=org.trimtab.train.hash

say() { echo "image: $*"; }
die() {
	echo "image: $*" >&2
	exit 1
}

# unpack makes the root file system in directory $1. mmdebstrap runs no hooks
# when it only unpacks, so slim.sh comes after it.
unpack() {
	mmdebstrap --quiet --variant=extract --format=directory --aptopt='Apt::Install-Recommends "0"' \
		--include="$packages" "$suite" "$1" "$mirror" || die "mmdebstrap failed: is $mirror reachable?"
	"$here/slim.sh" "$1" || die "the unpacked PyTorch does not run: see above"
}

command -v docker >/dev/null || die "docker is not on PATH: run scripts/setup-host.sh"
docker version >/dev/null 2>&1 || die "no Docker daemon answers: run scripts/setup-host.sh"

hash=$(cat "$here/build.sh" "$here/slim.sh" | sha256sum | cut -c1-16)
have=$(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
tar=$cache/train-$suite-$hash.tar
if [ "${1:-}" = --force ]; then
	rm -f "$tar"
elif [ "$have" = "$hash" ]; then
	say "$image is up to date"
	exit 0
fi

start=$(date +%s)
if [ ! -s "$tar" ]; then
	command -v mmdebstrap >/dev/null || die "mmdebstrap is not on PATH: run scripts/setup-host.sh"
	mkdir -p "$cache"
	say "unpacking Debian $suite's PyTorch (about half a minute with a near mirror)"
	work=$(mktemp -d "$cache/root.XXXXXX")
	trap 'rm -rf "$work"' EXIT INT TERM
	chmod 755 "$work"
	unpack "$work"
	tar -C "$work" --numeric-owner -cf "$tar.part" .
	rm -f "$cache"/train-*.tar
	mv "$tar.part" "$tar"
fi
old=$(docker image inspect -f "{{.ID}}" "$image" 2>/dev/null || true)
docker import \
	--change "LABEL $label=$hash" \
	--change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' \
	--change 'ENV PYTHONUNBUFFERED=1' \
	--change 'ENV LC_ALL=C.UTF-8' \
	--change 'WORKDIR /workloads' \
	- "$image" <"$tar" >/dev/null || die "docker import of $tar failed: see above"
[ -z "$old" ] || docker rmi "$old" >/dev/null 2>&1 || true # superseded; it stays while a container uses it
say "built $image ($(du -m "$tar" | cut -f1) MB) in $(($(date +%s) - start)) s"
