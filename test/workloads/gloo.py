"""Data-parallel training on CPUs: real PyTorch, gloo's all-reduce over TCP.

Each step a rank computes for --compute-ms of its own CPU time, then all ranks
average --mib MiB of gradients. Exposed, as there is nothing to hide it behind.

    options                                                  truth
    --compute-ms 20 --mib 24, link of 200 Mbit/s             communication/network, every rank
    --compute-ms 20 --mib 24, link with 2 % loss             communication/network (retransmits)
    --compute-ms 20 --mib 0.25 --slow-rank 1 --slow-ms 120   rank 1 compute/host, all others
                                                             communication/straggler
    the same, all ranks in one container (--spawn)           the container: compute/host of rank 1 behind
                                                             communication/straggler of the rest
    --compute-ms 80 --mib 0.25, no slow rank                 compute/host, every rank

A step of W ranks moves 2(W-1)/W times --mib from each rank.

One container:        gloo.py --spawn 4 ...
Several containers:   gloo.py --rank R --world W --master HOST:PORT ... in each; GLOO_SOCKET_IFNAME names the
                      interface if the host name does not.
The slow rank burns --slow-ms of CPU more; with --slow-sleep it sleeps instead, as one that waits for its own device
or disk. With --log PATH each rank writes its step lines to PATH.RANK; rank 0's are printed in any case.
"""

import argparse
import contextlib
import multiprocessing
import os
import socket
import sys
import time

import steplog
import torch
import torch.distributed as dist


def compute(matrix, seconds):
    """Small matrix products until the thread has used that much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        matrix = torch.tanh(matrix @ matrix)
    return matrix


def train(args, rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{args.master}", rank=rank, world_size=args.world)
    gradients = torch.ones(max(1, int(args.mib * 2**20 / 4)))
    matrix = torch.rand(96, 96)
    slow = args.slow_ms / 1000 if rank == args.slow_rank else 0.0
    steplog.note(f"gloo rank={rank} world={args.world} mib={args.mib:g} compute_ms={args.compute_ms:g} slow={slow:g}")
    stop = torch.zeros(1)
    log = steplog.from_arguments(args)
    while True:
        matrix = compute(matrix, args.compute_ms / 1000)
        if slow and args.slow_sleep:
            time.sleep(slow)
        elif slow:
            matrix = compute(matrix, slow)
        dist.all_reduce(gradients)
        gradients /= args.world
        stop[0] = log.done()
        if args.steps or args.seconds:
            dist.broadcast(stop, 0)  # rank 0's clock ends all, or the last one would wait for ever
        if stop[0]:
            break
    dist.destroy_process_group()


def run(args, rank):
    """One rank; what it prints goes where its options say."""
    with contextlib.ExitStack() as stack:
        if args.log:
            own = stack.enter_context(open(f"{args.log}.{rank}", "w", buffering=1))
            stack.enter_context(contextlib.redirect_stdout(Tee(own, sys.stdout) if rank == 0 else own))
        elif rank != 0:
            stack.enter_context(contextlib.redirect_stdout(Notes(sys.stdout)))
        train(args, rank)


class Tee:
    def __init__(self, *files):
        self.files = files

    def write(self, text):
        for f in self.files:
            f.write(text)

    def flush(self):
        for f in self.files:
            f.flush()


class Notes:
    """Lets through what is no step line: one rank's steps are the job's."""

    def __init__(self, file):
        self.file, self.line = file, ""

    def write(self, text):
        self.line += text
        *whole, self.line = self.line.split("\n")
        for line in whole:
            if line.startswith("note "):
                self.file.write(line + "\n")

    def flush(self):
        self.file.flush()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def spawn(args):
    args.world, args.master = args.spawn, f"127.0.0.1:{free_port()}"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=run, args=(args, r), daemon=True) for r in range(1, args.spawn)]
    for process in others:
        process.start()
    run(args, 0)
    for process in others:
        process.join(10)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--spawn", type=int, default=0, help="that many ranks as processes of this one")
    parser.add_argument("--rank", type=int, default=int(os.environ.get("RANK", 0)))
    parser.add_argument("--world", type=int, default=int(os.environ.get("WORLD_SIZE", 1)))
    parser.add_argument("--master", default=os.environ.get("MASTER_ADDR", "127.0.0.1") + ":" +
                        os.environ.get("MASTER_PORT", "29500"), help="HOST:PORT of rank 0")
    parser.add_argument("--mib", type=float, default=8.0, help="gradients, MiB")
    parser.add_argument("--compute-ms", type=float, default=20.0, help="CPU of each rank per step")
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-ms", type=float, default=0.0, help="what the slow rank needs beyond the others")
    parser.add_argument("--slow-sleep", action="store_true", help="the slow rank sleeps instead of computing")
    parser.add_argument("--log", default="", help="write each rank's step lines to LOG.RANK")
    return parser.parse_args()


def main():
    args = parse()
    if args.spawn:
        spawn(args)
    else:
        run(args, args.rank)


if __name__ == "__main__":
    main()
