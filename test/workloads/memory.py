"""Jobs that want more memory than their limit.

--kind cache: loaders read the same files again and again; their sum is above
the container's memory limit and below the machine's memory. True class by
construction under such a limit: input/cache (refaults, not first touches);
with the limit raised above the files' sum the waits end. Start it with, say,
`docker run --memory 320m` and --data-mib 500.

--kind grow: anonymous memory grows by --grow-mib a second until --grow-max-mib,
every page touched; the steps go on. True class under a limit near that:
memory/risk, and memory/reclaim where page cache is squeezed out meanwhile.
"""

import argparse
import os
import threading
import time

import steplog
from torch.utils.data import Dataset

import feed

PIECE = 4 << 10  # bytes per read: a page, so that a refault costs a whole access
FILE = 4 << 20  # bytes per file


class WarmFiles(Dataset):
    """Reads --sample-kib of one file per sample, through the page cache."""

    def __init__(self, folder, total, sample):
        self.sample = sample
        self.paths = [os.path.join(folder, f"{i:05d}.bin") for i in range(total // FILE)]
        os.makedirs(folder, exist_ok=True)
        block = os.urandom(FILE)
        # What was written is cached, as far as the limit allows: the first pass already reads
        # again what was evicted. Dropped, it would be a first touch, which is storage.
        for path in self.paths:
            with open(path, "wb") as f:
                f.write(block)
                f.flush()
                os.fsync(f.fileno())

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        # A cycle over all the data: the pattern for which an LRU that is too small keeps nothing.
        per_file = FILE // self.sample
        index %= len(self.paths) * per_file
        fd = os.open(self.paths[index // per_file], os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            start = index % per_file * self.sample
            return b"".join(os.pread(fd, PIECE, start + at) for at in range(0, self.sample, PIECE))
        finally:
            os.close(fd)


def grow(step_bytes, limit_bytes, held):
    while sum(map(len, held)) < limit_bytes:
        block = bytearray(step_bytes)
        for at in range(0, step_bytes, 4096):
            block[at] = 1
        held.append(block)
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    feed.add_arguments(parser, batch=16, device_ms=5)
    parser.add_argument("--kind", choices=["cache", "grow"], default="cache")
    parser.add_argument("--dir", default="/data/warm")
    parser.add_argument("--data-mib", type=int, default=500)
    parser.add_argument("--sample-kib", type=int, default=256)
    parser.add_argument("--grow-mib", type=int, default=8, help="per second")
    parser.add_argument("--grow-max-mib", type=int, default=1024)
    args = parser.parse_args()
    data = WarmFiles(args.dir, max(args.data_mib << 20, FILE), args.sample_kib << 10)
    held = []
    if args.kind == "grow":
        threading.Thread(target=grow, args=(args.grow_mib << 20, args.grow_max_mib << 20, held), daemon=True).start()
    steplog.note(f"memory kind={args.kind} data_mib={args.data_mib}")
    feed.train(data, args)


if __name__ == "__main__":
    main()
