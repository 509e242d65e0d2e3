"""A training job in NumPy alone: loader threads and trainer in one process.

Loaders fill a queue.Queue; the trainer waits on it (a futex) and, with
--kernels above 0, drives a CUDA device. With --kernels 0 there is no device and
no CUDA library: the model is NumPy on the CPU (--host-ms). The work is in ufuncs,
which release the interpreter's lock, so loaders do run beside the trainer.

    options                                                              truth
    --loaders 2 --loader-ms 100 --kernels 5 --kernel-us 2000             input/workers
    the same in a quota of 1.0 of 2                                      input/throttled
    the same beside busier neighbours                                    input/contended
    --loaders 2 --loader-ms 10 --kernels 20 --kernel-us 2000             compute/device
    --loaders 2 --loader-ms 10 --kernels 20 --kernel-us 100 --host-ms 60 compute/host
    --loaders 2 --loader-ms 10 --kernels 0 --host-ms 60                  compute/host, no device at all
    --loaders 2 --loader-ms 100 --kernels 0 --host-ms 20                 input/workers, no device at all
"""

import argparse
import os
import queue
import threading
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import cudart
import numpy
import steplog


def crunch(array, seconds):
    """Uses that much CPU time of the calling thread, without the interpreter's lock for most of it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        numpy.sqrt(array, out=array)
        numpy.add(array, 1.0, out=array)


def load(batches, args, seed):
    random = numpy.random.default_rng(seed)
    while True:
        batch = random.random((args.batch, 3 * 64 * 64), dtype=numpy.float32)
        crunch(batch, max(0.0, args.loader_ms / 1000))
        batches.put(batch)


def train(batches, device, args):
    feed = cudart.Feed(device, args.h2d_mib, True) if device else None
    weights = numpy.ones((64, 3 * 64 * 64), dtype=numpy.float32)
    log = steplog.from_arguments(args)
    while True:
        held = []  # what a copy may still read stays until the wait
        for _ in range(args.accumulate):
            batch = batches.get()
            held.append(batch)
            if args.host_ms > 0:
                crunch(weights, args.host_ms / 1000)
            if device:
                feed(batch.ctypes.data, batch.nbytes)
                device.launch(args.kernels)
        if device:
            device.wait()
        if log.done():
            return


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    cudart.add_arguments(parser)
    parser.add_argument("--loaders", type=int, default=2, help="threads")
    parser.add_argument("--loader-ms", type=float, default=10.0, help="CPU per batch")
    parser.add_argument("--queue", type=int, default=4, help="batches ready at most")
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


def main():
    args = parse()
    batches = queue.Queue(args.queue)
    device = cudart.Device(args.device, args.kernel_us, args.sync) if args.kernels > 0 else None
    for seed in range(args.loaders):
        threading.Thread(target=load, args=(batches, args, seed), daemon=True).start()
    steplog.note(f"numpy trainer loaders={args.loaders} loader_ms={args.loader_ms:g} kernels={args.kernels}")
    train(batches, device, args)


if __name__ == "__main__":
    main()
