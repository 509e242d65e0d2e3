"""Loaders that read long stretches of a few large files, or of one mapped file.

True class by construction: input/storage, where the disk gives less than the
trainer takes. Run it with a limit on the device (docker run
--device-read-bps), so that the truth does not hang on how fast a disk is: each
sample is --sample-kib, read in order from a random place, cold.

--kind read   read() with the kernel's read-ahead
--kind map    a mapped file: loaders sleep in page faults, not in system calls
--kind small  many files of --sample-kib each, opened, read whole and closed
"""

import argparse
import mmap
import os
import random

import steplog
from torch.utils.data import Dataset

import feed


class Cold(Dataset):
    def __init__(self, kind, folder, files, size, sample):
        self.kind, self.sample, self.size = kind, sample, size
        self.paths = [os.path.join(folder, f"{i:05d}.bin") for i in range(files)]
        self.maps = {}
        os.makedirs(folder, exist_ok=True)
        block = os.urandom(min(size, 1 << 20))
        for path in self.paths:
            with open(path, "wb") as f:
                for _ in range(size // len(block)):
                    f.write(block)
        os.sync()
        for path in self.paths:
            self.drop(path, 0, 0)

    def __len__(self):
        return 1 << 40

    def drop(self, path, start, length):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, start, length, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def __getitem__(self, index):
        path = self.paths[index * 7919 % len(self.paths)]
        start = random.Random(index).randrange(0, self.size - self.sample + 1) & ~4095
        self.drop(path, start, self.sample)
        if self.kind == "map":
            return self.mapped(path, start)
        fd = os.open(path, os.O_RDONLY)
        try:
            return os.pread(fd, self.sample, start)
        finally:
            os.close(fd)

    def mapped(self, path, start):
        # Mapped anew for each sample: pages that are mapped are not dropped.
        fd = os.open(path, os.O_RDONLY)
        try:
            with mmap.mmap(fd, self.sample, prot=mmap.PROT_READ, offset=start) as view:
                return bytes(view)
        finally:
            os.close(fd)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    feed.add_arguments(parser, batch=4, device_ms=5)
    parser.add_argument("--kind", choices=["read", "map", "small"], default="read")
    parser.add_argument("--dir", default="/data/big")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--file-mib", type=int, default=128)
    parser.add_argument("--sample-kib", type=int, default=1024)
    args = parser.parse_args()
    size = args.sample_kib << 10 if args.kind == "small" else args.file_mib << 20
    data = Cold(args.kind, args.dir, args.files, size, args.sample_kib << 10)
    steplog.note(f"bigfiles kind={args.kind} files={args.files}")
    feed.train(data, args)


if __name__ == "__main__":
    main()
