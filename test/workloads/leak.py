"""A PyTorch job that keeps what it should drop: each step's loss with its graph.

True class by construction: memory/risk under a limit that it reaches within half
a minute; the steps themselves go on as if nothing were the matter. --mib-per-s
bounds the growth whatever the rate of steps. The first SIGUSR1 makes it drop all of
that but --ebb-mib and grow no more, the second grow again, by --again-mib-per-s.
"""

import argparse
import signal
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
    parser.add_argument("--ebb-mib", type=int, default=0)
    parser.add_argument("--again-mib-per-s", type=float, default=16.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device-ms", type=float, default=30.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    base = torch.ones(args.base_mib << 18)
    history, begun, kept, pace = [], steplog.now(), 0.0, args.mib_per_s
    told = 0

    def tell(*_):
        nonlocal told
        told += 1

    signal.signal(signal.SIGUSR1, tell)
    heard = 0
    steplog.note(f"leak base={base.numel() >> 18} mib_per_s={args.mib_per_s:g}")
    log = steplog.from_arguments(args)
    for batch in DataLoader(Rows(), batch_size=16, num_workers=args.workers):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if told > heard:
            heard = told
            begun, kept, pace = steplog.now(), 0.0, args.again_mib_per_s if heard > 1 else 0.0
            if heard == 1:
                del history[2 * args.ebb_mib:]
            steplog.note(f"told {heard} holds={len(history) // 2}")
        while kept < (steplog.now() - begun) * pace:
            history.append(torch.ones(1 << 17))  # half a MiB of what a kept graph holds
            kept += 0.5
        time.sleep(args.device_ms / 1000)
        if log.done():
            return


if __name__ == "__main__":
    main()
