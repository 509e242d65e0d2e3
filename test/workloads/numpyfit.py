"""A trainer in NumPy, without PyTorch: least squares by gradient steps.

Loader processes fill a multiprocessing.Queue. What a batch and a step cost is
given in CPU milliseconds, so the true class is known by construction: with T =
--trainer-ms, D = --device-ms (a declared wait, a sleep) and L = --loader-ms, on
--loaders processes

    L / loaders > T + D        input/workers while cores are free, input/throttled
                               under a quota below (T + L) / step
    T + D > L / loaders        compute/host for large T, balanced for large D

--source file   loaders read --sample-kib cold from disk instead: input/storage.
--loaders 0     the trainer makes its batches itself.
--leak-mib      MiB a second that the trainer keeps: memory/risk below a limit.
"""

import argparse
import multiprocessing
import os
import threading
import time

import numpy

import steplog


def make(random, rows, cpu_seconds):
    """A batch that cost so much CPU: smoothed noise and its labels."""
    end = time.thread_time() + cpu_seconds
    x = random.standard_normal((rows, 256), dtype=numpy.float32)
    while time.thread_time() < end:
        x = numpy.sort(x, axis=1) * 0.5 + random.standard_normal((rows, 256), dtype=numpy.float32)
    return x, x.sum(axis=1, keepdims=True)


def load(out, args, seed):
    random = numpy.random.default_rng(seed)
    while True:
        if args.source == "file":
            read_cold(args.file, args.sample_kib << 10, random)
        out.put(make(random, 32, args.loader_ms / 1000))


def read_cold(path, size, random):
    fd = os.open(path, os.O_RDONLY)
    try:
        start = int(random.integers(0, os.fstat(fd).st_size - size)) & ~4095
        os.posix_fadvise(fd, start, size, os.POSIX_FADV_DONTNEED)
        os.pread(fd, size, start)
        os.posix_fadvise(fd, start, size, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def make_file(path, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def leak(mib_per_second, held):
    while True:
        held.append(numpy.ones(mib_per_second << 17))  # 8 bytes each
        time.sleep(1)


def step(weights, x, y, cpu_seconds):
    end = time.thread_time() + cpu_seconds
    while True:
        error = x @ weights - y
        weights -= 1e-4 * (x.T @ error)
        if time.thread_time() >= end:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--loaders", type=int, default=2)
    parser.add_argument("--loader-ms", type=float, default=30.0)
    parser.add_argument("--trainer-ms", type=float, default=10.0)
    parser.add_argument("--device-ms", type=float, default=30.0)
    parser.add_argument("--source", choices=["cpu", "file"], default="cpu")
    parser.add_argument("--file", default="/data/numpy.bin")
    parser.add_argument("--file-mib", type=int, default=512)
    parser.add_argument("--sample-kib", type=int, default=2048)
    parser.add_argument("--leak-mib", type=int, default=0)
    parser.add_argument("--base-mib", type=int, default=0, help="held from the start")
    args = parser.parse_args()
    if args.source == "file":
        make_file(args.file, args.file_mib << 20)
    batches = multiprocessing.Queue(maxsize=2 * max(1, args.loaders))
    for i in range(args.loaders):
        multiprocessing.Process(target=load, args=(batches, args, i), daemon=True).start()
    held = [numpy.ones(args.base_mib << 17)]
    if args.leak_mib:
        threading.Thread(target=leak, args=(args.leak_mib, held), daemon=True).start()
    random = numpy.random.default_rng(99)
    weights = numpy.zeros((256, 1), dtype=numpy.float32)
    steplog.note(f"numpy loaders={args.loaders} source={args.source}")
    log = steplog.from_arguments(args)
    while True:
        x, y = batches.get() if args.loaders else make(random, 32, args.loader_ms / 1000)
        step(weights, x, y, args.trainer_ms / 1000)
        if args.device_ms > 0:
            time.sleep(args.device_ms / 1000)
        if log.done():
            return


if __name__ == "__main__":
    main()
