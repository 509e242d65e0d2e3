"""A job whose steps come at even times, as many a second as the first number in --file says.

A step takes a millisecond of CPU, which is far from idle. The rest is sleep till a time that is set, so runs agree
whatever else the machine does. A job reads its pace from a file where something that nobody sees gives it, as
storage does.
"""

import argparse
import time

import steplog

STEP_CPU_SECONDS = 0.001


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--file", required=True)
    args = parser.parse_args()
    with open(args.file, encoding="ascii") as f:
        seconds = 1 / float(f.read().split()[0])
    log = steplog.from_arguments(args)
    due = steplog.now()
    while not log.done():
        due += seconds
        worked = time.thread_time()
        while time.thread_time() < worked + STEP_CPU_SECONDS:
            pass
        time.sleep(max(0, due - steplog.now()))


if __name__ == "__main__":
    main()
