"""A PyTorch job that keeps what it should drop: each step's loss with its graph.

True class by construction: memory/risk under a limit that it reaches within half
a minute; the steps themselves go on as if nothing were the matter. --mib-per-s
bounds the growth whatever the rate of steps.
"""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

import steplog


class Rows(Dataset):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        return torch.full((1024,), (index % 97) / 97.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steplog.add_arguments(parser)
    parser.add_argument("--mib-per-s", type=float, default=16.0)
    parser.add_argument("--base-mib", type=int, default=0, help="held from the start")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device-ms", type=float, default=30.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    base = torch.ones(args.base_mib << 18)
    history, begun, kept = [], steplog.now(), 0.0
    steplog.note(f"leak base={base.numel() >> 18} mib_per_s={args.mib_per_s:g}")
    log = steplog.from_arguments(args)
    for batch in DataLoader(Rows(), batch_size=16, num_workers=args.workers):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        while kept < (steplog.now() - begun) * args.mib_per_s:
            history.append(torch.ones(1 << 17))  # half a MiB of what a kept graph holds
            kept += 0.5
        time.sleep(args.device_ms / 1000)
        if log.done():
            return


if __name__ == "__main__":
    main()
