"""A neighbour that works when it is told to: SIGUSR1 begins its work, SIGUSR2 ends it.

--kind spin    processes of arithmetic; a step is a fixed amount of it
--kind stream  processes that read a piece of a file and copy arrays far larger than any
               cache; a step is one of both. What it reads is what tells how much it gets done.
--kind wake    processes that sleep 4 ms and compute 1 ms; a step is one such turn, so that
               its rate falls by what it is woken late
--kind hold    allocates --mib of memory and touches it, over and over; a step is 16 MiB

True class: compute/host, were it enrolled; it is mostly not.
"""

import argparse
import multiprocessing
import os
import signal
import tempfile
import time

import steplog


def spin(_args):
    n = 0
    for i in range(30_000):  # about 1.5 ms
        n += i * i


def wake(_args):
    time.sleep(0.004)
    steplog.burn(0.001)


def streamer(args):
    import numpy

    size = args.mib << 20
    a, b = numpy.ones(size, dtype=numpy.uint8), numpy.ones(size, dtype=numpy.uint8)
    data = tempfile.TemporaryFile()
    data.write(bytes(256 << 10))

    def turn(_args):
        os.pread(data.fileno(), 256 << 10, 0)
        numpy.copyto(a, b)

    return turn


def holder(_args):
    held, at = [], 0

    def turn(args):
        nonlocal at
        if args is None:
            held.clear()
        elif len(held) * 16 < args.mib:
            held.append(bytearray(b"x") * (16 << 20))
        else:
            at = (at + 1) % len(held)
            held[at][::4096] = bytes(4096)

    return turn


def work(args, busy, counts, index):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    turn = {"spin": lambda _: spin, "wake": lambda _: wake, "stream": streamer, "hold": holder}[args.kind](args)
    while True:
        if not busy.value:
            if args.kind == "hold":
                turn(None)
            time.sleep(0.02)
            continue
        turn(args)
        counts[index] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=["spin", "stream", "wake", "hold"], default="spin")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--busy", action="store_true", help="from the beginning")
    args = parser.parse_args()
    busy = multiprocessing.Value("i", int(args.busy), lock=False)
    counts = multiprocessing.Array("l", args.processes, lock=False)

    def change(number, _frame):
        busy.value = int(number == signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, change)
    signal.signal(signal.SIGUSR2, change)
    for index in range(args.processes):
        multiprocessing.Process(target=work, args=(args, busy, counts, index), daemon=True).start()
    last, at = 0, steplog.now()
    while True:
        time.sleep(0.1)
        done, now = sum(counts), steplog.now()
        if done > last:
            print(f"step={done} t={now:.6f} dt={(now - at) / (done - last):.6f}", flush=True)
            last, at = done, now


if __name__ == "__main__":
    main()
