#!/bin/sh
# Builds trimtab-nvml, which reads NVIDIA's devices for the daemon, by NVIDIA's own bindings:
#
#   build-nvml.sh FILE [LDFLAGS]
#
# It needs a C compiler: gcc, or for GOARCH of another machine that one's (aarch64-linux-gnu-gcc).
# Symbols are bound when they are first called, for no driver has all of them.
set -eu
cd "$(dirname "$0")/.."
cc=gcc
if [ "$(go env GOARCH)" != "$(go env GOHOSTARCH)" ]; then
	case $(go env GOARCH) in
	arm64) cc=aarch64-linux-gnu-gcc package=gcc-aarch64-linux-gnu ;;
	amd64) cc=x86_64-linux-gnu-gcc package=gcc-x86-64-linux-gnu ;;
	esac
fi
cc=${CC:-$cc}
if ! command -v "${cc%% *}" >/dev/null; then
	rm -f "$1" # an old one would not fit the daemon
	echo "build-nvml: $cc is missing (apt-get install ${package:-gcc libc6-dev}): trimtab-nvml is not built; without it the daemon reads no NVIDIA device" >&2
	exit 3
fi
CC=$cc CGO_ENABLED=1 CGO_CFLAGS="-O1 -Wno-deprecated-declarations" \
	go build -buildmode=pie -trimpath -ldflags "${2:-} -extldflags=-Wl,-z,lazy" -o "$1" ./cmd/trimtab-nvml
