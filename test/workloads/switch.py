"""A job whose need for CPU changes while it runs: by the clock, or when told.

Heavy and light take turns. In the heavy phase loaders decode and augment each image
as dataloader.py's do; in the light one they hand out what they decoded before. Model
and declared device wait stay the same, so the rate does not change where there is
CPU enough for the heavy phase.

--period S   heavy for the first half of every S seconds of CLOCK_MONOTONIC, light for
             the second; --late swaps the halves, so that two jobs take turns
without it   begins as --begin says, and changes over with each SIGUSR1

True class by construction: dataloader.py's with the same options while heavy,
balanced.py's while light.
"""

import argparse
import multiprocessing
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import dataloader
import steplog


class Turns(Dataset):
    """dataloader.Images, decoded anew or not."""

    def __init__(self, args, heavy):
        self.args, self.heavy, self.known = args, heavy, {}
        self.images = dataloader.Images(dataloader.make_jpegs(16, args.image_size), 1 << 40, 64, 1)

    def __len__(self):
        return 1 << 40

    def is_heavy(self):
        if self.args.period <= 0:
            return bool(self.heavy.value)
        early = steplog.now() % self.args.period < self.args.period / 2
        return early != self.args.late

    def __getitem__(self, index):
        if self.is_heavy():
            return self.images[index]
        key = index % 16
        if key not in self.known:
            self.known[key] = self.images[key]
        return self.known[key]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--device-ms", type=float, default=55.0, help="declared device wait per step")
    parser.add_argument("--period", type=float, default=0.0, help="seconds of a heavy and a light phase together")
    parser.add_argument("--late", action="store_true", help="light first")
    parser.add_argument("--begin", choices=["heavy", "light"], default="heavy")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    heavy = multiprocessing.Value("i", int(args.begin == "heavy"), lock=False)

    def change(_number, _frame):
        heavy.value = 1 - heavy.value

    signal.signal(signal.SIGUSR1, change)
    loader = DataLoader(Turns(args, heavy), batch_size=args.batch, num_workers=args.workers)
    model = dataloader.make_model(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    steplog.note(f"switch period={args.period:g} begin={args.begin}")
    log = steplog.from_arguments(args)
    for images, labels in loader:
        optimizer.zero_grad()
        loss_of(model(images), labels).backward()
        optimizer.step()
        time.sleep(args.device_ms / 1000)
        if log.done():
            return


if __name__ == "__main__":
    main()
