"""A loader of threads inside the training process, as frameworks without worker
processes have it: decoding leaves the interpreter's lock, so threads run at once.

True class by construction: input/throttled under a quota below its need,
input/contended beside busier neighbours, input/workers with --threads-loading 1
and little device time, balanced with CPU enough. JPEGs, model and the declared
device wait are dataloader.py's. Threads take indices from a counter and put
batches into one bounded queue; the trainer waits on its lock (a futex).
"""

import argparse
import itertools
import queue
import threading
import time

import torch
from torch import nn

import dataloader
import steplog


def load(images, batch, counter, out):
    while True:
        start = next(counter) * batch  # next() of a count is one step of the interpreter
        pixels = [images[start + i] for i in range(batch)]
        out.put((torch.stack([p for p, _ in pixels]), torch.tensor([label for _, label in pixels])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--threads-loading", type=int, default=2)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--model-passes", type=int, default=1)
    parser.add_argument("--device-ms", type=float, default=55.0, help="declared device wait per step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images = dataloader.Images(dataloader.make_jpegs(48, args.image_size), 1 << 40, 64, 1)
    batches = queue.Queue(maxsize=2 * args.threads_loading)
    counter = itertools.count()
    for _ in range(args.threads_loading):
        threading.Thread(target=load, args=(images, args.batch, counter, batches), daemon=True).start()
    model = dataloader.make_model(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    steplog.note(f"threads loading={args.threads_loading} batch={args.batch} device_ms={args.device_ms:g}")
    log = steplog.from_arguments(args)
    while True:
        pixels, labels = batches.get()
        for _ in range(args.model_passes):
            optimizer.zero_grad()
            loss_of(model(pixels), labels).backward()
            optimizer.step()
        if args.device_ms > 0:
            time.sleep(args.device_ms / 1000)
        if log.done():
            return


if __name__ == "__main__":
    main()
