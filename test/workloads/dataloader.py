"""A training job whose data loaders decode and augment JPEG images.

True class by construction: input/throttled under a quota below its need,
input/contended beside busier neighbours, balanced or compute/device with CPU
enough. The loaders keep ahead of the trainer when there is CPU for both.

The model is real and trained on the CPU with a backward pass. --device-ms is a
*declared device wait*: a sleep in each step that stands for an accelerator's
share of it, in which the host's CPU is free. With C the CPU seconds per step
of loaders (l), trainer (t) and others (o), D that wait, w a loader's time for a
batch and W the loaders, on c CPUs

    step(c) = max(C_t + D, w / W, (C_l + C_t + C_o) / c)

and the defaults put the knee, where the first and the third are equal, just
below one CPU on the machine that they were set on. --knee CPUS measures C_l and
C_t first, in steps that are not counted, and declares the wait that puts the knee
there on any machine.

--threaded puts a thread of the trainer's process between loaders and trainer,
as pinned memory does: the trainer then waits on a futex, not on a pipe. It is
the structure of PyTorch's own _pin_memory_loop, which needs CUDA.
--workers 0 loads in the trainer itself: class compute/host or input, whichever
way the rank's only thread is looked at; there is no wait between processes.
--epoch-steps ends an epoch after so many steps: its loaders exit, new ones start.
"""

import argparse
import io
import multiprocessing
import os
import queue
import threading
import time

import numpy
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset

import steplog


def make_jpegs(count, size):
    """Photograph-like JPEGs: smooth colour with some grain, each its own."""
    random = numpy.random.default_rng(1)
    jpegs = []
    for _ in range(count):
        coarse = random.integers(0, 256, (12, 12, 3), dtype=numpy.uint8)
        image = Image.fromarray(coarse).resize((size, size), Image.BICUBIC)
        grain = random.integers(-12, 13, (size, size, 3), dtype=numpy.int16)
        pixels = numpy.clip(numpy.asarray(image, dtype=numpy.int16) + grain, 0, 255)
        buffer = io.BytesIO()
        Image.fromarray(pixels.astype(numpy.uint8)).save(buffer, "JPEG", quality=90)
        jpegs.append(buffer.getvalue())
    return jpegs


class Images(Dataset):
    """Decodes and augments; sample i is the same in every run."""

    def __init__(self, jpegs, length, crop, passes):
        self.jpegs, self.length, self.crop, self.passes = jpegs, length, crop, passes

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        random = numpy.random.default_rng(index)
        for _ in range(self.passes):
            image = Image.open(io.BytesIO(self.jpegs[index % len(self.jpegs)])).convert("RGB")
            pixels = self.augment(image, random)
        return pixels, index % 10

    def augment(self, image, random):
        width, height = image.size
        side = int(min(width, height) * random.uniform(0.6, 1.0))
        left, top = random.integers(0, width - side + 1), random.integers(0, height - side + 1)
        image = image.resize((self.crop, self.crop), Image.BILINEAR, box=(left, top, left + side, top + side))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        image = ImageEnhance.Brightness(image).enhance(random.uniform(0.8, 1.2))
        image = ImageEnhance.Color(image).enhance(random.uniform(0.8, 1.2))
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        return pixels.float().div_(255).sub_(0.5)


def make_model(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )


def hand_over(source, target):
    """PyTorch's _pin_memory_loop without the pinning."""
    while True:
        try:
            target.put(source.get())
        except (EOFError, OSError, ValueError):
            return  # the loaders are gone


def batches(loader, threaded):
    """One epoch's batches, through the extra thread if asked for."""
    iterator = iter(loader)
    if threaded:
        iterator._data_queue = queue.Queue()
        threading.Thread(
            target=hand_over, args=(iterator._worker_result_queue, iterator._data_queue), daemon=True
        ).start()
    return iterator


def cpu_of(pid):
    """CPU seconds that a process has used."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class KneeFinder:
    """Finds the device wait that puts the knee at so many CPUs: D = C / knee - C_t.

    Batches asked of the loaders ahead of time hide what they cost, so the first
    steps only fill that queue, and the measured ones outnumber it.
    """

    FILL, MEASURED = 8, 32

    def __init__(self, knee):
        self.knee, self.steps, self.ms = knee, 0, None

    def use(self):
        return time.process_time(), sum(cpu_of(p.pid) for p in multiprocessing.active_children())

    def step(self):
        """Call after each step; True while it measures."""
        self.steps += 1
        if self.steps == self.FILL:
            self.before = self.use()
        if self.steps < self.FILL + self.MEASURED:
            return True
        trainer, loaders = ((now - then) / self.MEASURED for now, then in zip(self.use(), self.before))
        self.ms = max(0.0, 1000 * ((trainer + loaders) / self.knee - trainer))
        steplog.note(f"a step costs {1000 * trainer:.0f} + {1000 * loaders:.0f} ms of CPU: "
                     f"device_ms={self.ms:.0f} puts the knee at {self.knee:g} CPUs")
        return False


def train(loader, args):
    finder = KneeFinder(args.knee) if args.knee else None
    model = make_model(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    log = None
    while True:
        for images, labels in batches(loader, args.threaded):
            for _ in range(args.model_passes):
                optimizer.zero_grad()
                loss_of(model(images), labels).backward()
                optimizer.step()
            if finder:
                if finder.step():
                    continue
                args.device_ms, finder = finder.ms, None
            if args.device_ms > 0:
                time.sleep(args.device_ms / 1000)
            log = log or steplog.from_arguments(args)
            if log.done():
                return


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2, help="batches asked of each loader ahead of time")
    parser.add_argument("--threaded", action="store_true", help="hand over through a thread, as pinned memory does")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--image-size", type=int, default=640, help="side of the JPEGs, pixels")
    parser.add_argument("--crop", type=int, default=64, help="side of what the model sees, pixels")
    parser.add_argument("--passes", type=int, default=1, help="decodes per image: loader CPU per step")
    parser.add_argument("--model-passes", type=int, default=1, help="updates per step: trainer CPU per step")
    parser.add_argument("--width", type=int, default=32, help="channels of the model's first layer")
    parser.add_argument("--device-ms", type=float, default=55.0, help="declared device wait per step")
    parser.add_argument("--knee", type=float, default=0.0, help="CPUs: find the device wait that puts the knee there")
    parser.add_argument("--epoch-steps", type=int, default=0, help="0: one endless epoch")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads within an operation")
    parser.add_argument("--images", type=int, default=48, help="JPEGs to make at the start")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    if args.threaded and args.workers == 0:
        raise SystemExit("--threaded needs --workers above 0")
    data = Images(make_jpegs(args.images, args.image_size), args.batch * (args.epoch_steps or 10_000_000),
                  args.crop, args.passes)
    loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers,
                        **({"prefetch_factor": args.prefetch} if args.workers else {}))
    steplog.note(f"dataloader workers={args.workers} threaded={int(args.threaded)} "
                 f"batch={args.batch} device_ms={args.device_ms:g}")
    train(loader, args)


if __name__ == "__main__":
    main()
