"""A job whose life has phases: checkpoints, evaluations, a change of bottleneck.

--checkpoint-every N   after N steps write --checkpoint-mib and sync it: the job
                       stands still, which is evidence of nothing
--eval-every N         after N steps run --eval-steps of inference without loaders' data
--change-after S       S seconds after its first step the job becomes another one:
    --then storage     loaders read cold files (limit the device: --device-read-bps)
    --then host        the model costs --then-passes updates per step instead of one
    --then workers     decoding costs --then-passes times as much

True class by construction: that of dataloader.py with the same options until the
change, what --then says after it; checkpoints and evaluations change nothing.
The CPU work and the declared device wait are dataloader.py's.
"""

import argparse
import multiprocessing
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import dataloader
import steplog


class Changing(Dataset):
    """dataloader.Images, until the trainer says otherwise."""

    def __init__(self, args, changed):
        self.args, self.changed = args, changed
        self.images = dataloader.Images(dataloader.make_jpegs(48, args.image_size), 1 << 40, 64, 1)
        self.path = "/data/change.bin"
        if args.then == "storage":
            os.makedirs("/data", exist_ok=True)
            with open(self.path, "wb") as f:
                for _ in range(args.file_mib):
                    f.write(os.urandom(1 << 20))
                f.flush()
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        if self.changed.value and self.args.then == "storage":
            self.read(index)
        if self.changed.value and self.args.then == "workers":
            for _ in range(self.args.then_passes - 1):
                self.images[index]
        return self.images[index]

    def read(self, index):
        size = 256 << 10
        start = index * 7919 * size % (self.args.file_mib << 20)
        fd = os.open(self.path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, start, size, os.POSIX_FADV_DONTNEED)
            os.pread(fd, size, start)
        finally:
            os.close(fd)


def checkpoint(model, mib):
    with open("/data/checkpoint.pt", "wb") as f:
        torch.save(model.state_dict(), f)
        for _ in range(mib):
            f.write(bytes(1 << 20))
        f.flush()
        os.fsync(f.fileno())


def evaluate(model, steps):
    with torch.no_grad():
        for _ in range(steps):
            model(torch.rand(20, 3, 64, 64))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--model-passes", type=int, default=1)
    parser.add_argument("--device-ms", type=float, default=80.0)
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--checkpoint-mib", type=int, default=256)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--eval-steps", type=int, default=100)
    parser.add_argument("--change-after", type=float, default=0.0)
    parser.add_argument("--then", choices=["storage", "host", "workers"], default="host")
    parser.add_argument("--then-passes", type=int, default=8)
    parser.add_argument("--then-device-ms", type=float, default=5.0)
    parser.add_argument("--file-mib", type=int, default=512)
    return parser.parse_args()


def train(loader, changed, args):
    model = dataloader.make_model(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    log = steplog.from_arguments(args)
    begun, passes, device_ms = 0.0, args.model_passes, args.device_ms
    for images, labels in loader:
        begun = begun or steplog.now()
        if args.change_after and not changed.value and steplog.now() - begun >= args.change_after:
            changed.value = 1
            device_ms = args.then_device_ms
            passes = args.then_passes if args.then == "host" else passes
        for _ in range(passes):
            optimizer.zero_grad()
            loss_of(model(images), labels).backward()
            optimizer.step()
        time.sleep(device_ms / 1000)
        if log.done():
            return
        if args.checkpoint_every and log.step % args.checkpoint_every == 0:
            checkpoint(model, args.checkpoint_mib)
        if args.eval_every and log.step % args.eval_every == 0:
            evaluate(model, args.eval_steps)


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    changed = multiprocessing.Value("i", 0)
    loader = DataLoader(Changing(args, changed), batch_size=args.batch, num_workers=args.workers)
    steplog.note(f"phases checkpoint={args.checkpoint_every} eval={args.eval_every} change={args.change_after:g}")
    train(loader, changed, args)


if __name__ == "__main__":
    main()
