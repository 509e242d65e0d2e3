"""A training job with PyTorch's real DataLoader before a CUDA device.

The loaders' processes, queues and hand-offs are PyTorch's; kernels, copies and
waits go through libcudart.so.12 by ctypes. --autograd adds a small backward
pass on the CPU to each micro-batch, so that autograd's engine ticks as in a
real job. --pin puts a thread between loaders and trainer, as pinned memory
does, and lets copies overlap; without it the copy to the device blocks.

With A micro-batches a step, W workers, on CPUs enough:

    step = A * max(decode-ms / W, host-ms + kernels * kernel-us + copies)     (host-ms hides behind the kernels
                                                                               of the micro-batch before it)
    options                                                          truth
    --workers 2 --decode-ms 10 --kernels 20 --kernel-us 2000         compute/device; any --sync, with or without --pin
    the same, two containers on one device                           compute/shared, both
    --workers 2 --decode-ms 120 --kernels 10 --kernel-us 2000        input/workers (a core for each loader)
    the same with --pin, with --accumulate 4                         input/workers (trainer waits on a futex; four
                                                                     hand-offs a step)
    the same in a quota of 1.0 of 2                                  input/throttled
    the same beside busier neighbours                                input/contended
    --workers 0 --decode-ms 60 --kernels 10 --kernel-us 2000         input/workers by where the time goes, though the
                                                                     one thread that works is the trainer: a judge that
                                                                     sees no loader says compute/host
    --workers 2 --decode-ms 5 --kernels 50 --kernel-us 100 --host-ms 60    compute/host
    --workers 2 --decode-ms 5 --kernels 1500 --kernel-us 2           compute/host: launch-bound by Python's own calls
    --workers 2 --decode-ms 30 --kernels 20 --kernel-us 2000         balanced or compute/device: loaders ahead
"""

import argparse

import cudart
import dataloader
import steplog
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Images that cost the loader decode_ms of CPU per batch."""

    def __init__(self, length, batch, decode_ms, side):
        self.length, self.seconds, self.side = length, decode_ms / 1000 / batch, side

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.seconds > 0:
            steplog.burn(self.seconds)
        return torch.full((3, self.side, self.side), float(index % 255)), index % 10


class Backward:
    """A model so small that it costs a millisecond; what counts is autograd's engine."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss_of = nn.CrossEntropyLoss()

    def __call__(self, images, labels):
        self.loss_of(self.model(images.flatten(1)[:, :64]), labels).backward()


def train(loader, device, args):
    feed = cudart.Feed(device, args.h2d_mib, args.pin)
    backward = Backward() if args.autograd else None
    log = steplog.from_arguments(args)
    micro, held = 0, []  # what a copy may still read stays until the wait
    while True:
        for images, labels in dataloader.batches(loader, args.pin):
            if args.host_ms > 0:
                steplog.burn(args.host_ms / 1000)
            feed(images.data_ptr(), images.numel() * 4)
            held.append(images)
            device.launch(args.kernels)
            if backward:
                backward(images, labels)
            micro += 1
            if micro % args.accumulate:
                continue
            device.launch(1)  # the optimizer
            device.wait()
            held.clear()
            if log.done():
                return


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    cudart.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--pin", action="store_true", help="a thread between loaders and trainer; copies do not block")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--side", type=int, default=64, help="of an image, pixels")
    parser.add_argument("--decode-ms", type=float, default=10.0, help="a loader's CPU per batch")
    parser.add_argument("--autograd", action="store_true", help="a small backward pass on the CPU per micro-batch")
    parser.add_argument("--epoch-steps", type=int, default=0, help="0: one endless epoch")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if args.pin and args.workers == 0:
        raise SystemExit("--pin needs --workers above 0")
    batches = args.epoch_steps * args.accumulate or 10_000_000
    loader = DataLoader(Samples(args.batch * batches, args.batch, args.decode_ms, args.side), batch_size=args.batch,
                        num_workers=args.workers, **({"prefetch_factor": args.prefetch} if args.workers else {}))
    device = cudart.Device(args.device, args.kernel_us, args.sync)
    steplog.note(f"gpu trainer workers={args.workers} pin={int(args.pin)} kernels={args.kernels} "
                 f"kernel_us={args.kernel_us:g} sync={args.sync} accumulate={args.accumulate}")
    train(loader, device, args)


if __name__ == "__main__":
    main()
