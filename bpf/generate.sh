#!/bin/sh
# Compiles one BPF program with the one compiler whose output is committed.
# Called by go:generate in a probe package: generate.sh IDENT SOURCE [bpf2go options]
# A program whose code is the same on both architectures is built once: -target bpfel.
set -eu

want=14
clang=${CLANG:-clang-$want}
strip=${LLVM_STRIP:-llvm-strip-$want}
hint="install it: apt-get install clang-$want llvm-$want libbpf-dev"

command -v "$clang" >/dev/null || { echo "generate: $clang not found; $hint" >&2; exit 1; }
command -v "$strip" >/dev/null || { echo "generate: $strip not found; $hint" >&2; exit 1; }
[ -e /usr/include/bpf/bpf_helpers.h ] || { echo "generate: libbpf headers not found; $hint" >&2; exit 1; }
have=$("$clang" -dumpversion | cut -d. -f1)
[ "$have" = "$want" ] || { echo "generate: $clang is version $have, objects are committed from $want; $hint" >&2; exit 1; }

ident=$1 source=$2
shift 2
go tool bpf2go -cc "$clang" -strip "$strip" -target amd64,arm64 -no-global-types -go-package "$GOPACKAGE" "$@" \
	"$ident" "$source" -- -I"$(dirname "$0")" -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Wpadded -Werror
go=${ident}_bpfel.go

# prune keeps of what bpf2go writes the types and the object. Loading and closing are the same for all probes
# (probes/bpf), and each names the programs and maps that it uses.
prune() {
	sed -i -e '/^\/\/ Names of all BPF objects/,/^)/d' \
		-e '/^\/\/ load[A-Za-z]* \(loads\|returns\)/,/^}/d' \
		-e '/^\/\/ [A-Za-z]*\(Specs\|Objects\|Maps\|Programs\|Variables\) contain/,/^}/d' \
		-e '/^func ([a-z] \*/,/^}/d' -e '/^func _[A-Za-z]*Close(/,/^}/d' \
		-e '/^\t"\(bytes\|fmt\|io\|github.com\/cilium\/ebpf\)"$/d' "$go"
	gofmt -w "$go"
}
case " $* " in *" -target "*) prune; exit ;; esac

# The Go of both architectures is the same but for the object that it embeds: it stands once, in IDENT_bpfel.go.
shared() { sed -e '/^\/\/go:build /d' -e '/^\/\/ Do not access this directly/,$d' "$1"; }
x86=${ident}_x86_bpfel arm=${ident}_arm64_bpfel
shared "$x86.go" >"$go"
shared "$arm.go" | cmp - "$go" || { echo "generate: the types of $ident differ between the architectures" >&2; exit 1; }
for one in "$x86" "$arm"; do
	{ sed -n '1,/^package /p' "$one.go"; printf '\nimport _ "embed"\n\n'; sed -n '/^\/\/go:embed /,$p' "$one.go"; } >"$one.tmp"
	mv "$one.tmp" "$one.go"
done
sed -i -e '2i //go:build 386 || amd64 || arm64' -e '/_ "embed"/d' "$go"
prune
