#!/bin/bash
# Makes what gpu-check needs on a machine that has nothing but a GPU, its driver and
# PyTorch: the folder dist/gpu-check, and dist/gpu-check.tar.zst of it. Needs Go, gcc,
# g++, make, libc6-dev, and once the module proxy, for containerd and runc.
set -euo pipefail
cd "$(dirname "$0")/../.."

limit=$((48 << 20))
out=dist/gpu-check
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)

for tool in go gcc g++ make tar; do
	command -v $tool >/dev/null || { echo "gpu-bundle: needs $tool: apt-get install gcc g++ make libc6-dev tar" >&2; exit 1; }
done
make --no-print-directory vgpu
flock test/vgpu/build/.lock make -s -C test/workloads/gpu VGPU="$PWD/test/vgpu/build"

rm -rf $out
mkdir -p $out/vgpu
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.stampedVersion=$version" -o $out/trimtab ./cmd/trimtab
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $out/gpucheck ./test/gpucheck
scripts/build-nvml.sh $out/trimtab-nvml '-s -w'
programs="containerd containerd-shim-runc-v2 runc"
scripts/build-runtimes.sh .cache/runtimes $programs >&2
for f in $programs; do install -m 0755 .cache/runtimes/bin/$f $out/$f; done
install -m 0644 test/gpucheck/train.py test/gpucheck/programs.py $out/
for f in libcuda.so.1 libcudart.so.12 libnccl.so.2 libnvidia-ml.so.1; do install -m 0644 test/vgpu/build/$f $out/vgpu/$f; done
for f in vgpu-node trainer; do install -m 0755 test/vgpu/build/$f $out/vgpu/$f; done
install -m 0755 test/vgpu/build/plain $out/plain

if command -v zstd >/dev/null; then
	packed=dist/gpu-check.tar.zst
	tar -C dist --owner=0 --group=0 -cf - gpu-check | zstd -q -19 -f -o $packed
else
	packed=dist/gpu-check.tar.gz
	tar -C dist --owner=0 --group=0 -czf $packed gpu-check
fi
size=$(stat -c %s $packed)
echo "gpu-bundle: $packed, $((size >> 20)) MiB; unpack it there and run gpu-check/gpucheck as root"
[ "$size" -le $limit ] || { echo "gpu-bundle: $packed is over $((limit >> 20)) MiB" >&2; exit 1; }
