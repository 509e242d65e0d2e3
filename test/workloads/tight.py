"""A model so small that it makes about a thousand steps a second on one core.

True class by construction: compute/host; each step is one backward pass and one
step of an optimizer. What counts steps costs such a job the most.
"""

import argparse

import torch

import steplog


def step(model, optimizer, data, target):
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.mse_loss(model(data), target).backward()
    optimizer.step()


def seconds_per_step(model, optimizer, batch, steps=300):
    data, target = torch.rand(batch, 64), torch.rand(batch, 64)
    for _ in range(20):
        step(model, optimizer, data, target)
    began = steplog.now()
    for _ in range(steps):
        step(model, optimizer, data, target)
    return (steplog.now() - began) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1000, help="steps per second to size the batch for")
    steplog.add_arguments(parser)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = 16
    while seconds_per_step(model, optimizer, batch) < 1 / args.rate and batch < 65536:
        batch = batch * 5 // 4
    steplog.note(f"batches of {batch}")
    data, target = torch.rand(batch, 64), torch.rand(batch, 64)
    log = steplog.from_arguments(args)
    while True:
        step(model, optimizer, data, target)
        if log.done():
            return


if __name__ == "__main__":
    main()
