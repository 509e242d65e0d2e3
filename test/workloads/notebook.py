"""A notebook's kernel: waits on a socket for its user, then computes for a moment.

True class by construction: interactive. A second process plays the user: it
sends a cell every --think seconds (with some spread, seeded) over loopback TCP
and waits for the answer. A line for each cell, so "steps" here are no progress
that could be made faster: their rate is the user's.
"""

import argparse
import multiprocessing
import random
import socket
import time

import steplog
import torch


def user(port, think):
    spread = random.Random(1)
    with socket.create_connection(("127.0.0.1", port)) as link:
        while True:
            time.sleep(think * spread.uniform(0.3, 1.7))
            link.sendall(b"x")
            if not link.recv(1):
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--think", type=float, default=4.0, help="mean seconds between two cells")
    parser.add_argument("--burst", type=float, default=0.5, help="CPU seconds per cell")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        multiprocessing.Process(target=user, args=(server.getsockname()[1], args.think), daemon=True).start()
        link, _ = server.accept()
    steplog.note(f"notebook think={args.think:g} burst={args.burst:g}")
    log = steplog.from_arguments(args)
    matrix = torch.rand(128, 128)
    while link.recv(1):
        end = time.thread_time() + args.burst
        while time.thread_time() < end:
            matrix = torch.tanh(matrix @ matrix)
        link.sendall(b"y")
        if log.done():
            return


if __name__ == "__main__":
    main()
