"""Jobs whose own pages do not fit their memory limit.

What the job holds fills its limit but for --room-mib, and what it works with, a
mapped file of frozen weights and the code of its libraries, takes more than that:
pages go out and come back with every step, by page faults of the thread that
computes. No sample is read from a disk. True class: memory/reclaim; more limit
ends it. Run it with docker's --memory: it reads its limit from its own cgroup.

--kind step     PyTorch, the trainer goes through the weights
--kind loaders  DataLoader workers do (a lookup table), and the trainer waits for them
--kind numpy    NumPy, no PyTorch
"""

import argparse
import mmap
import os
import time

import numpy

import steplog

PATH = "/data/weights.bin"


def cgroup_value(*names):
    """The first of the files that is there, v1's or v2's."""
    for name in names:
        try:
            with open(name) as f:
                return f.read()
        except OSError:
            continue
    raise SystemExit("reclaim.py needs to read its own cgroup's memory files")


def anonymous():
    text = cgroup_value("/sys/fs/cgroup/memory/memory.stat", "/sys/fs/cgroup/memory.stat")
    fields = dict(line.split() for line in text.splitlines())
    return int(fields.get("total_rss", fields.get("anon", "0")))


def fill(room):
    """Holds memory until only so much of the limit is left; returns what it holds."""
    limit = int(cgroup_value("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"))
    held = []
    while limit - anonymous() > room + (4 << 20):
        held.append(numpy.ones(4 << 17))
    return held


class Weights:
    """A mapped file of which each step uses a part, round and round."""

    def __init__(self, mib, per_step_mib):
        os.makedirs(os.path.dirname(PATH), exist_ok=True)
        if not os.path.exists(PATH):
            with open(PATH, "wb") as f:
                for _ in range(mib):
                    f.write(os.urandom(1 << 20))
                f.flush()
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.size, self.step, self.at, self.map = mib << 20, per_step_mib << 20, 0, None

    def use(self):
        if self.map is None:  # mapped in the process that reads
            fd = os.open(PATH, os.O_RDONLY)
            self.map = mmap.mmap(fd, self.size, prot=mmap.PROT_READ)
            self.map.madvise(mmap.MADV_RANDOM)
            os.close(fd)
        start = self.at
        self.at = (self.at + self.step) % self.size
        return sum(self.map[start : start + self.step : 4096])


def train_numpy(args, weights):
    model = numpy.zeros((256, 1), dtype=numpy.float32)
    x = numpy.ones((64, 256), dtype=numpy.float32)
    held = fill(args.room_mib << 20)
    log = steplog.from_arguments(args)
    while True:
        weights.use()
        model -= 1e-4 * (x.T @ (x @ model - 1))
        time.sleep(args.device_ms / 1000)
        if log.done():
            return held


def train_torch(args, weights, in_loaders):
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Batches(Dataset):
        def __len__(self):
            return 1 << 40

        def __getitem__(self, index):
            if in_loaders:
                weights.use()
            return torch.rand(256)

    torch.set_num_threads(1)
    model = torch.nn.Linear(256, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log, held = steplog.from_arguments(args), []
    for batch in DataLoader(Batches(), batch_size=4, num_workers=2):
        if not in_loaders:
            weights.use()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(args.device_ms / 1000)
        held = held or fill(args.room_mib << 20)
        if log.done():
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--kind", choices=["step", "loaders", "numpy"], default="step")
    parser.add_argument("--weights-mib", type=int, default=96)
    parser.add_argument("--step-mib", type=int, default=4)
    parser.add_argument("--room-mib", type=int, default=48)
    parser.add_argument("--device-ms", type=float, default=5.0)
    args = parser.parse_args()
    weights = Weights(args.weights_mib, args.step_mib)
    steplog.note(f"reclaim kind={args.kind} weights_mib={args.weights_mib} room_mib={args.room_mib}")
    if args.kind == "numpy":
        train_numpy(args, weights)
    else:
        train_torch(args, weights, args.kind == "loaders")


if __name__ == "__main__":
    main()
