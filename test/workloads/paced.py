"""A job whose pace a file says: the first number in it, times --scale, is the seconds of each step. What is
none (no quota is "max", or -1), and what is less than 10 ms, counts as 10 ms.

The file may be one that a test writes, as data comes that is more work, or the job's own quota, as a
program makes more threads than do it good because it counts its CPUs. With --burn it wants all the CPU
that it may use, beside its steps.
"""

import argparse
import os
import time

import steplog


def pace(files):
    for file in files:
        try:
            with open(file, encoding="ascii") as f:
                said = f.read().split()[0]
            return float(said) if said.isdigit() else 0.0
        except FileNotFoundError:
            continue
    raise SystemExit(f"none of {files} is there")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--file", action="append", required=True, help="of several the first that is there")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--cpu-share", type=float, default=0.0, help="of each step that is CPU time")
    parser.add_argument("--burn", action="store_true")
    args = parser.parse_args()
    if args.burn and os.fork() == 0:
        while True:
            steplog.burn(1.0)
    log = steplog.from_arguments(args)
    while not log.done():
        seconds = max(0.01, pace(args.file) * args.scale)
        steplog.burn(seconds * args.cpu_share)
        time.sleep(seconds * (1 - args.cpu_share))


if __name__ == "__main__":
    main()
