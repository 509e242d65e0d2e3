"""A PyTorch trainer that saves its model too often: --each steps, --mib of it, with a second's work around it.

Steps are printed as by every workload; a step that saved is one that took longer.
"""

import argparse
import os

import torch
from torch import nn

import steplog


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--mib", type=int, default=64, help="size of the model")
    parser.add_argument("--file", default="/tmp/model.pt")
    steplog.add_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    ballast = torch.rand(args.mib << 18)  # embeddings that are saved as well
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log = steplog.from_arguments(args)
    while True:
        loss = model(torch.randn(64, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steplog.burn(0.03)
        if log.step % args.each == args.each - 1:
            with open(args.file + ".new", "wb") as f:
                torch.save({"model": model.state_dict(), "ballast": ballast}, f)
                f.flush()
                os.fsync(f.fileno())
            steplog.burn(1.0)  # optimizer states, metrics, an upload that is waited for
            os.replace(args.file + ".new", args.file)
        if log.done():
            break


if __name__ == "__main__":
    main()
