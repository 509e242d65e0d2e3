"""Loaders that read files cold from disk.

True class by construction: input/storage. Each sample is a file of its own,
read in small pieces without read-ahead and dropped from the page cache after
(posix_fadvise), so that every reading is a first touch from the device. --dir
must lie on a disk, not on tmpfs: /data by default, inside the container's
layer. A fast disk calls for more bytes per sample: --file-kib.
"""

import argparse
import os

import steplog
from torch.utils.data import Dataset

import feed

PIECE = 16 << 10  # bytes per read


class ColdFiles(Dataset):
    def __init__(self, folder, files, size):
        self.paths = [os.path.join(folder, f"{i:05d}.bin") for i in range(files)]
        os.makedirs(folder, exist_ok=True)
        for path in self.paths:
            with open(path, "wb") as f:
                f.write(os.urandom(size))
                f.flush()
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        fd = os.open(self.paths[index * 7919 % len(self.paths)], os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            pieces = []
            while piece := os.read(fd, PIECE):
                pieces.append(piece)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        return b"".join(pieces)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    feed.add_arguments(parser, batch=32, device_ms=5)
    parser.add_argument("--dir", default="/data/cold")
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--file-kib", type=int, default=512)
    args = parser.parse_args()
    data = ColdFiles(args.dir, args.files, args.file_kib << 10)
    steplog.note(f"storage files={args.files} kib={args.file_kib} dir={args.dir}")
    feed.train(data, args)


if __name__ == "__main__":
    main()
