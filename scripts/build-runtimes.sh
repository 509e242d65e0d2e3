#!/bin/sh
# Builds current container runtimes from their Go modules, for `make test-runtimes` and
# `make gpu-bundle`: Debian's are years behind, and runtimes differ in what an update
# does. NVIDIA's container toolkit is built for a test, on request. Nothing is installed; what was built before is kept. The first run takes minutes.
#
#   scripts/build-runtimes.sh [DIR [NAME...]]
#
# DIR is .cache/runtimes if it is not given, NAMEs are runc, containerd-shim-runc-v2,
# containerd, dockerd, which need no library of the machine. By name alone: nvidia-ctk,
# nvidia-cdi-hook, nvidia-container-runtime.
#
# The versions stand here, and only here. Needs Go, and gcc for runc and NVIDIA's.
set -eu

containerd=v2.4.2
runc=v1.5.2
dockerd=v2.0.0-beta.24
toolkit=v1.20.2

cd "$(dirname "$0")/.."
dir=${1:-.cache/runtimes}
[ $# -eq 0 ] || shift
names=${*:-runc containerd-shim-runc-v2 containerd dockerd}
all="runc containerd-shim-runc-v2 containerd dockerd nvidia-ctk nvidia-cdi-hook nvidia-container-runtime"
for name in $names; do
	case " $all " in *" $name "*) ;; *) echo "build-runtimes: there is no $name: $all" >&2; exit 2 ;; esac
done
mkdir -p "$dir/bin"
dir=$(cd "$dir" && pwd)
exec 9>"$dir/lock"
flock 9

# build NAME VERSION CGO TAGS PACKAGE LDFLAGS: into DIR/bin, if it was asked for, unless it is there.
build() {
	case " $names " in *" $1 "*) ;; *) return 0 ;; esac
	stamp="$dir/$1-$2-$(printf %s "$*" | cksum | cut -d ' ' -f 1)"
	[ ! -e "$stamp" ] || [ ! -x "$dir/bin/$1" ] || return 0
	echo "building $1 $2 (into $dir/bin)"
	(cd / && GOBIN="$dir/bin" GOFLAGS= CGO_ENABLED="$3" nice -n 19 go install -p "${BUILD_P:-1}" -trimpath \
		-tags "$4" -ldflags "-s -w $6" "$5@$2")
	rm -f "$dir/$1"-v*
	touch "$stamp"
}

# runc starts containers by C code that runs before Go's. It has no seccomp without
# libseccomp's headers: engines under test run without profiles.
case " $names " in *" runc "* | *" nvidia-"*) command -v gcc >/dev/null ;; esac || { echo "runc and NVIDIA's are built with gcc: install it (Debian: gcc, libc6-dev)" >&2; exit 1; }
build runc "$runc" 1 "netgo osusergo" github.com/opencontainers/runc \
	"-X main.version=${runc#v} -linkmode external -extldflags '-static -w'"

# Without CRI and the snapshotters that need libraries: the task service is what is tested.
tags="no_cri no_btrfs no_devmapper no_zfs no_aufs"
v=github.com/containerd/containerd/v2/version
build containerd-shim-runc-v2 "$containerd" 0 "$tags" github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 "-X $v.Version=$containerd"
build containerd "$containerd" 0 "$tags" github.com/containerd/containerd/v2/cmd/containerd "-X $v.Version=$containerd"

build dockerd "$dockerd" 0 "exclude_graphdriver_btrfs" github.com/moby/moby/v2/cmd/dockerd "-X github.com/moby/moby/v2/dockerversion.Version=${dockerd#v}"
# NVML's functions are looked for when they are called.
for name in nvidia-ctk nvidia-cdi-hook nvidia-container-runtime; do
	CGO_CFLAGS="-O1 -Wno-deprecated-declarations" build $name "$toolkit" 1 "" github.com/NVIDIA/nvidia-container-toolkit/cmd/$name "-extldflags=-Wl,-z,lazy"
done
echo "$dir/bin"
