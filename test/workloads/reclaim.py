"""Jobs that spend their time on getting memory back at their limit.

Beside the training, memory is taken and given back all the time while the page
cache fills what the limit leaves, so that each allocation has to reclaim pages
first. Nothing that was read is read again: a larger cache would not help, more
room for what is allocated would. True class under a limit little above what the
job holds: memory/reclaim; without a limit the same steps are shorter, by what
`--unlimited` runs tell.

--kind step     the trainer allocates --churn-mib anew in each step
--kind loaders  DataLoader workers do, and their batches wait for it
--kind numpy    NumPy and no PyTorch in the trainer's loop
"""

import argparse
import os
import threading

import numpy

import steplog


def make_file(path, mib):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        for _ in range(mib):
            f.write(os.urandom(1 << 20))
        f.flush()
        os.fsync(f.fileno())


def fill_cache(path):
    """Reads a file round and round: its pages fill the room that the limit leaves."""
    while True:
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 20):
                pass


def churn(mib):
    """Takes memory, touches each page, gives it back to the kernel."""
    block = numpy.empty(mib << 17)  # above malloc's mmap threshold: fresh pages each time
    block[:: 4096 // 8] = 1.0
    return float(block[-1])


def train_numpy(args):
    log = steplog.from_arguments(args)
    weights = numpy.zeros((256, 1), dtype=numpy.float32)
    x = numpy.ones((64, 256), dtype=numpy.float32)
    while not log.done():
        churn(args.churn_mib)
        weights -= 1e-4 * (x.T @ (x @ weights - 1))


def train_torch(args, in_loaders):
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Batches(Dataset):
        def __len__(self):
            return 1 << 40

        def __getitem__(self, index):
            if in_loaders:
                churn(args.churn_mib)
            return torch.rand(256)

    torch.set_num_threads(1)
    model = torch.nn.Linear(256, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log = steplog.from_arguments(args)
    for batch in DataLoader(Batches(), batch_size=1, num_workers=2):
        if not in_loaders:
            churn(args.churn_mib)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if log.done():
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--kind", choices=["step", "loaders", "numpy"], default="step")
    parser.add_argument("--churn-mib", type=int, default=64)
    parser.add_argument("--file-mib", type=int, default=1024)
    args = parser.parse_args()
    path = "/data/stream.bin"
    make_file(path, args.file_mib)
    threading.Thread(target=fill_cache, args=(path,), daemon=True).start()
    steplog.note(f"reclaim kind={args.kind} churn_mib={args.churn_mib}")
    if args.kind == "numpy":
        train_numpy(args)
    else:
        train_torch(args, args.kind == "loaders")


if __name__ == "__main__":
    main()
