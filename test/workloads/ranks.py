"""Data-parallel training with real gloo collectives: several ranks, in one
container or in one each.

Each rank computes --rank-ms of CPU and a declared device wait of --device-ms,
then all-reduces --mib of gradients and updates. True class by construction:

  --slow-rank R --slow-ms M   rank R's declared device wait is M longer: the others
                              wait for it, communication/straggler
  a shaped link               the all-reduce takes longer than all else:
                              communication/network
  neither                     balanced

Without --rank all ranks are processes of this container. With it this is one of
--world, and --master names the container of rank 0. Rank 0's steps are printed,
or, with --rank, this rank's.
"""

import argparse
import multiprocessing
import os
import time

import torch
import torch.distributed as dist

import steplog


def train(rank, args):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ.update(MASTER_ADDR=args.master, MASTER_PORT="29500")
    dist.init_process_group("gloo", rank=rank, world_size=args.world)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = torch.zeros(int(args.mib * (1 << 18)))
    quiet = args.rank < 0 and rank != 0
    log = steplog.StepLog(1 << 60 if quiet else args.every, args.steps, args.seconds)
    wait = args.device_ms + (args.slow_ms if rank == args.slow_rank else 0)
    while True:
        compute(model, optimizer, args.rank_ms / 1000)
        if wait > 0:
            time.sleep(wait / 1000)
        dist.all_reduce(gradients)
        if log.done():
            return


def compute(model, optimizer, cpu_seconds):
    end = time.thread_time() + cpu_seconds
    while True:
        optimizer.zero_grad()
        model(torch.rand(64, 256)).square().mean().backward()
        optimizer.step()
        if time.thread_time() >= end:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--rank", type=int, default=-1, help="this container's rank; all of them if not given")
    parser.add_argument("--master", default="127.0.0.1")
    parser.add_argument("--mib", type=float, default=0.25, help="all-reduced per step")
    parser.add_argument("--rank-ms", type=float, default=5.0)
    parser.add_argument("--device-ms", type=float, default=40.0)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-ms", type=float, default=100.0)
    args = parser.parse_args()
    steplog.note(f"ranks world={args.world} mib={args.mib:g} slow_rank={args.slow_rank}")
    if args.rank >= 0:
        train(args.rank, args)
        return
    others = [multiprocessing.Process(target=train, args=(r, args), daemon=True) for r in range(1, args.world)]
    for p in others:
        p.start()
    train(0, args)


if __name__ == "__main__":
    main()
