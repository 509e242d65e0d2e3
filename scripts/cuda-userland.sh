#!/bin/bash
# Unpacks NVIDIA's own libraries, of the generations that Debian has, into FOLDER/SUITE, and of
# the oldest its compiler too (a download of 0.9 GB, of which 0.2 GB are kept): for tests, never
# shipped. Nothing is installed. Needs apt and the network.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)

# The driver and CUDA's runtime; NCCL from trixie on, with the C library that it wants.
declare -A packages=(
	[bookworm]="libcuda1 libnvidia-ml1 libcudart11.0 nvidia-cuda-toolkit nvidia-cuda-dev"
	[trixie]="libcuda1 libnvidia-ml1 libcudart12 libnccl2 libc6 libstdc++6 libgcc-s1"
	[sid]="libcuda1 libnvidia-ml1 libcudart12 libnccl2 libc6 libstdc++6 libgcc-s1"
)

# part unpacks of a package the files that match.
part() {
	dpkg --fsys-tarfile "$1" | tar -x -C "$out" --wildcards "${@:2}"
}

for suite in bookworm trixie sid; do
	out=$folder/$suite
	[ "$(cat "$out/.complete" 2>/dev/null)" = "${packages[$suite]}" ] && continue
	rm -rf "$out" && mkdir -p "$out/.apt/lists/partial" "$out/.apt/cache/archives/partial" "$out/.deb"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main contrib non-free" >"$out/.apt/sources.list"
	: >"$out/.apt/status" # what this host has installed, and prefers, says nothing of the suite
	apt=(apt-get -q -o "Dir::State::status=$out/.apt/status" -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o "Dir::Etc::sourcelist=$out/.apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$out/.apt/lists"
		-o "Dir::Cache=$out/.apt/cache" -o APT::Sandbox::User=root)
	"${apt[@]}" update >&2 || { echo "cuda-userland: $suite: apt-get update failed: see above" >&2; exit 1; }
	(cd "$out/.deb" && "${apt[@]}" download ${packages[$suite]} >&2)
	for deb in "$out"/.deb/*.deb; do
		case $deb in
		*/nvidia-cuda-dev_*) part "$deb" './usr/include/*' './usr/lib/*/libcuda?*.a' ;;
		*/nvidia-cuda-toolkit_*) part "$deb" './usr/bin/*' './usr/lib/nvidia-cuda-toolkit/bin/*' './usr/lib/nvidia-cuda-toolkit/libdevice/*' ;;
		*) dpkg -x "$deb" "$out" ;;
		esac
		basename "$deb" >>"$out/versions"
	done
	rm -rf "$out/.apt" "$out/.deb"
	echo "${packages[$suite]}" >"$out/.complete"
done
