#!/bin/sh
# Makes an unpacked, unconfigured root ($1) run PyTorch, and drops what a
# training job never opens. Called by build.sh after mmdebstrap.
set -eu
root=$1

# What the packages' maintainer scripts would have done.
lib=$(cd "$root" && echo usr/lib/*-linux-gnu)
ln -sf blas/libblas.so.3 "$root/$lib/libblas.so.3"
ln -sf lapack/liblapack.so.3 "$root/$lib/liblapack.so.3"
mkdir -p "$root/root" "$root/tmp" "$root/workloads" "$root/data" "$root/etc"
chmod 1777 "$root/tmp"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"

# Documentation, translations, display drivers, PyTorch's own tests: half of the size.
cd "$root"
rm -rf usr/share/doc usr/share/man usr/share/locale usr/share/proj usr/share/perl usr/share/X11 \
	usr/share/fonts usr/share/mime usr/share/gdal usr/share/iso-codes usr/share/libwacom \
	usr/share/tesseract-ocr usr/lib/libtorch-test \
	usr/lib/python3/dist-packages/torch/test usr/lib/python3/dist-packages/torch/include \
	"$lib/dri" "$lib/mfx" "$lib"/libLLVM-*.so* "$lib"/perl* var/cache var/lib/apt/lists
mkdir -p var/cache var/lib/apt/lists

find usr/lib/python3/dist-packages/torch/bin -type f ! -name torch_shm_manager -delete

chroot "$root" ldconfig
# Imports once: proves that nothing needed is gone, and leaves byte code, without
# which each start of a job would compile two thousand modules.
chroot "$root" /usr/bin/python3 - <<'PY'
import io, json, multiprocessing, queue, socket
import numpy, torch, torch.utils.data, torch.nn.functional
import torch.multiprocessing, torch.optim
from PIL import Image

image = Image.new("RGB", (64, 64))
buffer = io.BytesIO()
image.save(buffer, "JPEG")
Image.open(io.BytesIO(buffer.getvalue())).convert("RGB").resize((32, 32))
layer = torch.nn.Conv2d(3, 4, 3)
layer(torch.zeros(1, 3, 32, 32)).sum().backward()
torch.optim.SGD(layer.parameters(), lr=0.1).step()
torch.linalg.inv(torch.eye(3))
PY
