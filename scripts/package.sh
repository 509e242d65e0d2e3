#!/bin/bash
# Builds a .deb, an .rpm, a tarball and a bill of materials (CycloneDX) of each
# architecture into a folder.
#
#   scripts/package.sh [FOLDER [ARCH…]]      default: dist amd64 arm64
#
# SHA256SUMS beside them is signed if TRIMTAB_SIGNING_KEY names an SSH private key.
# The same commit gives the same bytes. NFPM names an nfpm that is there already;
# without it the version below is built from its Go module.
set -euo pipefail

nfpm_module=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

cd "$(dirname "$0")/.."
out=${1:-dist}
shift || true
archs=("$@")
[ ${#archs[@]} -gt 0 ] || archs=(amd64 arm64)

say() { echo "packages: $*"; }

# version_of makes of v1.2.3, v1.2.3-4-gabc or abc what both dpkg and rpm sort rightly:
# a release before what was built after it, and anything before the first release.
version_of() {
	local described
	described=$(git describe --tags --match 'v[0-9]*' 2>/dev/null || true)
	if [ -n "$described" ]; then
		sed -E 's/^v//; s/-([0-9]+)-g([0-9a-f]+)$/+\1.g\2/; s/-/~/g' <<<"$described"
	else
		echo "0~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short=7 HEAD)"
	fi
}

pinned=$(sed -n 's/^toolchain //p' go.mod) # the oldest that go takes; a newer one builds other bytes
[ "$(go env GOVERSION)" = "$pinned" ] || say "built by $(go env GOVERSION), and go.mod names $pinned: other bytes than by that"
scripts/checksums.sh # what signing needs is there, or nothing is built
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
PACKAGE_VERSION=${PACKAGE_VERSION:-$(version_of)}
PACKAGE_STAGE=$(mktemp -d)
trap 'rm -rf "$PACKAGE_STAGE"' EXIT
export PACKAGE_VERSION PACKAGE_STAGE PACKAGE_ARCH
# What else of an environment would make other bytes.
export GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT=
made=$PACKAGE_STAGE/made # apart from what is in the folder already: only what is built here is signed

# build_binary ARCH FILE [FLAG]
build_binary() {
	CGO_ENABLED=0 GOOS=linux GOARCH=$1 go build -trimpath ${3:-} \
		-ldflags "-s -w -X main.stampedVersion=$PACKAGE_VERSION" -o "$2" ./cmd/trimtab
}

# build_nvml ARCH FILE: the one part that needs a C compiler for that architecture.
build_nvml() {
	GOOS=linux GOARCH=$1 scripts/build-nvml.sh "$2" '-s -w'
}

# stage_notices writes down what the programs that were just built are made of.
stage_notices() {
	CGO_ENABLED=0 go run ./tools/notices -version "$PACKAGE_VERSION" \
		-notices "$PACKAGE_STAGE/THIRD-PARTY-NOTICES" -sbom "$PACKAGE_STAGE/trimtab.cdx.json" \
		"$PACKAGE_STAGE/trimtab" "$PACKAGE_STAGE/trimtab-nvml"
}

# stage_common makes what is the same on every architecture, by this machine's binary.
stage_common() {
	local shell
	build_binary "$(go env GOHOSTARCH)" "$PACKAGE_STAGE/host" -tags=man
	mkdir "$PACKAGE_STAGE/man" "$PACKAGE_STAGE/completion"
	"$PACKAGE_STAGE/host" man "$PACKAGE_STAGE/man"
	gzip -9n "$PACKAGE_STAGE"/man/*.1
	for shell in bash zsh fish; do "$PACKAGE_STAGE/host" completion $shell >"$PACKAGE_STAGE/completion/$shell"; done
	gzip -9n >"$PACKAGE_STAGE/changelog.gz" <<-END
		trimtab ($PACKAGE_VERSION) unstable; urgency=medium

		  * Built from $(git rev-parse HEAD 2>/dev/null || echo "a copy without its history").

		 -- $(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
	END
	cat >"$PACKAGE_STAGE/copyright" <<-END
		Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
		Upstream-Name: trimtab
		Source: $(sed -n 's/^homepage: //p' packaging/nfpm.yaml)

		Files: *
		Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) the authors of trimtab
		License: Apache-2.0
		 On Debian systems, the full text of the Apache License 2.0 is in
		 /usr/share/common-licenses/Apache-2.0.
		Comment: The BPF programs in the binary (bpf/) are under GPL-2.0 or
		 BSD-2-Clause as well, at the choice of who uses them.
		 THIRD-PARTY-NOTICES in this folder has the licences of the Go modules
		 in the programs, and of C headers that they were compiled with.
	END
}

# tarball ARCH: the binary, and what packaging/install.sh places around it.
tarball() {
	local name=trimtab-$PACKAGE_VERSION-linux-$1
	local top=$PACKAGE_STAGE/$name
	mkdir -p "$top/bin" "$top/tuner/config"
	cp "$PACKAGE_STAGE/trimtab" "$PACKAGE_STAGE/trimtab-nvml" "$top/bin/"
	cp -r "$PACKAGE_STAGE"/tree/{packaging,docs,LICENSE,README.md} "$PACKAGE_STAGE/THIRD-PARTY-NOTICES" "$PACKAGE_STAGE/trimtab.cdx.json" "$top/"
	cp tuner/config/example.yaml "$top/tuner/config/"
	rm -f "$top"/packaging/*_test.go
	rm -rf "$top/packaging/testdata"
	tar -C "$PACKAGE_STAGE" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner -c "$name" |
		gzip -9n >"$made/$name.tar.gz"
	rm -rf "$top"
}

# nfpm_is makes sure that there is an nfpm, built once for all packages.
nfpm_is() {
	if [ -n "${NFPM:-}" ]; then return; fi
	GOBIN=$PACKAGE_STAGE GOARCH='' CGO_ENABLED=0 go install "$nfpm_module"
	NFPM=$PACKAGE_STAGE/nfpm
}

umask 022
mkdir "$made"
nfpm_is
scripts/tracked.sh "$PACKAGE_STAGE/tree" packaging docs LICENSE README.md
stage_common
for PACKAGE_ARCH in "${archs[@]}"; do
	say "$PACKAGE_VERSION for $PACKAGE_ARCH"
	build_binary "$PACKAGE_ARCH" "$PACKAGE_STAGE/trimtab"
	build_nvml "$PACKAGE_ARCH" "$PACKAGE_STAGE/trimtab-nvml"
	stage_notices
	for packager in deb rpm; do
		"$NFPM" package --config packaging/nfpm.yaml --packager $packager --target "$made/"
	done
	tarball "$PACKAGE_ARCH"
	cp "$PACKAGE_STAGE/trimtab.cdx.json" "$made/trimtab-$PACKAGE_VERSION-linux-$PACKAGE_ARCH.cdx.json"
done
scripts/checksums.sh "$made"
mkdir -p "$out"
rm -f "$out/SHA256SUMS.sig" # of another SHA256SUMS
mv "$made"/* "$out/"
say "in $out"
