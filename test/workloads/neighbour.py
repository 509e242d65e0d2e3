"""A busy neighbour: processes that spin, one by default.

Its "steps" are turns of a fixed amount of arithmetic, so its loss of CPU shows
in its own output as a loss of rate: a line for each second or so. True class:
compute/host, were it enrolled; it is meant not to be.
"""

import argparse
import multiprocessing

import steplog


def spin(args):
    log = steplog.StepLog(every=args.every, seconds=args.seconds)
    while True:
        n = 0
        for i in range(30_000):  # about 1.5 ms
            n += i * i
        if log.done():
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=1, help="only the first one prints")
    args = parser.parse_args()
    for _ in range(args.processes - 1):
        silent = argparse.Namespace(every=1 << 60, seconds=args.seconds)
        multiprocessing.Process(target=spin, args=(silent,), daemon=True).start()
    spin(args)


if __name__ == "__main__":
    main()
