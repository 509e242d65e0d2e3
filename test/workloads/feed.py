"""A DataLoader whose samples are bytes from somewhere, and a small trainer.

The workloads that differ only in where their loaders wait share this: each
gives a dataset whose items are byte strings; the trainer makes a tensor of them
and learns a little.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import steplog


def tensors(samples):
    """Collates byte strings into one batch; only their first KiB is learnt from."""
    rows = [torch.frombuffer(bytearray(s[:1024]), dtype=torch.uint8) for s in samples]
    return torch.stack(rows).float().div_(255)


def add_arguments(parser, batch, device_ms):
    steplog.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--device-ms", type=float, default=device_ms, help="declared device wait per step")


def train(dataset, args):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(dataset, batch_size=args.batch, num_workers=args.workers, collate_fn=tensors)
    log = steplog.from_arguments(args)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if args.device_ms > 0:
            time.sleep(args.device_ms / 1000)
        if log.done():
            return
