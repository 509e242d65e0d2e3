"""A loader of multiprocessing.Pool before a PyTorch model: tasks are handed out one by
one, a few ahead of the trainer, and what comes back passes two threads of the pool's
in the training process.

What a batch and a step cost is given in milliseconds, as in numpyfit.py, so the true
class is known by construction: with T = --trainer-ms of CPU beside the model's own few,
D = --device-ms (a declared wait, a sleep) and L = --loader-ms of CPU, on --loaders
processes

    L / loaders > T + D        input/workers while cores are free, input/throttled
                               under a quota below (T + L) / step
    T + D > L / loaders        compute/host for large T, balanced for large D

--source file   tasks read --sample-kib cold from disk as well: input/storage.
"""

import argparse
import collections
import multiprocessing
import time

import numpy
import torch
from torch import nn

import numpyfit
import steplog


def load(task):
    args, seed = task
    random = numpy.random.default_rng(seed)
    if args.source == "file":
        numpyfit.read_cold(args.file, args.sample_kib << 10, random)
    return numpyfit.make(random, 32, args.loader_ms / 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--loaders", type=int, default=2)
    parser.add_argument("--ahead", type=int, default=4, help="tasks handed out before they are needed")
    parser.add_argument("--loader-ms", type=float, default=30.0)
    parser.add_argument("--trainer-ms", type=float, default=5.0)
    parser.add_argument("--device-ms", type=float, default=30.0)
    parser.add_argument("--source", choices=["cpu", "file"], default="cpu")
    parser.add_argument("--file", default="/data/pool.bin")
    parser.add_argument("--file-mib", type=int, default=512)
    parser.add_argument("--sample-kib", type=int, default=2048)
    args = parser.parse_args()
    if args.source == "file":
        numpyfit.make_file(args.file, args.file_mib << 20)
    pool = multiprocessing.Pool(args.loaders)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loss_of = nn.MSELoss()
    steplog.note(f"pool loaders={args.loaders} source={args.source}")
    log = steplog.from_arguments(args)
    tasks, seed = collections.deque(), 0
    while True:
        while len(tasks) < args.ahead:
            tasks.append(pool.apply_async(load, ((args, seed),)))
            seed += 1
        x, y = (torch.from_numpy(a) for a in tasks.popleft().get())
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        steplog.burn(args.trainer_ms / 1000)
        if args.device_ms > 0:
            time.sleep(args.device_ms / 1000)
        if log.done():
            return


if __name__ == "__main__":
    main()
