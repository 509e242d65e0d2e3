"""A job that each CPU it is given slows: the CPU time of a step is --scale times the square of the first number
in a file. Its quota is such a file: there are programs that count their CPUs, and make more threads than do
them good. No quota is "max", or -1, and counts as 0. A step takes 10 ms at least.
"""

import argparse

import steplog


def number(files):
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
    parser.add_argument("--scale", type=float, default=1.0, help="s of CPU time")
    args = parser.parse_args()
    log = steplog.from_arguments(args)
    while not log.done():
        steplog.burn(max(0.01, args.scale * number(args.file) ** 2))


if __name__ == "__main__":
    main()
