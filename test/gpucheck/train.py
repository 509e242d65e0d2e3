"""Training on CUDA whose bottleneck is known because it was built so; what
gpu-check runs on a real device. Prints one line a step,

    step=123 t=8154.012345 dt=0.0421

with t of CLOCK_MONOTONIC, and lines that begin with "note ". Ends when killed.

    --job device      matrix products of about 40 ms a step, nothing else
    --job input       the same of 10 ms; one loader process needs 60 ms of CPU a batch
    --job launch      a deep and narrow network: hundreds of tiny kernels a step
    --job checkpoint  as device; every 80 steps 256 MiB of state go to --save
    --job starved     10 ms on the device; --workers loaders need 40 ms of CPU a batch each
    --job count       for counting launches: quiet, 100 steps, quiet, 100 steps
                      under PyTorch's profiler, quiet
"""

import argparse
import os
import time

import torch
from torch import nn


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def burn(cpu_seconds):
    end = time.thread_time() + cpu_seconds
    n = 0
    while time.thread_time() < end:
        for i in range(500):
            n += i * i
    return n


class Decoded(torch.utils.data.IterableDataset):
    """Batches that cost CPU, as decoding images does."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __iter__(self):
        while True:
            burn(self.seconds)
            yield torch.zeros(64, 256)


def wide(width=4096, depth=2):
    return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(depth)]).cuda()


def narrow():
    layers = []
    for _ in range(60):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers).cuda()


class Wide:
    """Steps that take about so many ms of the device: real training of a wide network,
    repeated until it takes so long."""

    def __init__(self, ms):
        self.model = wide()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.x = torch.randn(2048, 4096, device="cuda")
        self.repeats = 1
        for _ in range(3):
            self()
        begin = now()
        for _ in range(5):
            self()
        self.repeats = max(1, round(ms / 1000 / ((now() - begin) / 5)))

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.repeats):
            loss = self.model(self.x).square().mean()
            loss.backward()
        self.optimizer.step()
        return loss.item()  # waits for the device, as logging a loss does


class Narrow:
    def __init__(self):
        self.model = narrow()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6, foreach=False)
        self.x = torch.randn(8, 64, device="cuda")

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def steps(do, loader=None, each=None):
    """Trains for ever."""
    batches = iter(loader) if loader else None
    last, n = now(), 0
    while True:
        if batches is not None:
            next(batches).to("cuda", non_blocking=True)
        do()
        n += 1
        if each:
            each(n)
        t = now()
        print(f"step={n} t={t:.6f} dt={t - last:.6f}", flush=True)
        last = t


def loader(workers, ms):
    return torch.utils.data.DataLoader(Decoded(ms / 1000), batch_size=None, num_workers=workers, pin_memory=True)


def saver(folder):
    """256 MiB of state beside the model's, so that saving takes a while."""
    state = {"moments": torch.zeros(64 << 20, device="cuda")}

    def each(n):
        if n % 80 == 0:
            torch.save(state, os.path.join(folder, "checkpoint.pt"))

    return each


def launch_calls(profile):
    """Launches that the host made, of kernels and of graphs, and kernels that the device ran."""
    from torch.autograd import DeviceType

    calls = kernels = 0
    for e in profile.events():
        if e.device_type == DeviceType.CPU:
            name = e.name.lower()
            calls += name.startswith(("cudalaunchkernel", "cudalaunchcooperativekernel", "culaunchkernel",
                                      "culaunchcooperativekernel", "cudagraphlaunch", "cugraphlaunch"))
        elif not e.name.lower().startswith(("memcpy", "memset")):
            kernels += 1
    return calls, kernels


def count(quiet):
    do = Narrow()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        do()  # the profiler's own start loads and launches things; not to be counted
    for _ in range(5):
        do()
    torch.cuda.synchronize()
    print("note started", flush=True)
    time.sleep(quiet)  # trimtab finds the process and attaches
    time.sleep(quiet)
    print("note quiet 0", flush=True)
    time.sleep(quiet)
    for _ in range(100):
        do()
        time.sleep(0.1)  # a storm of launches makes trimtab leave the probe off for a while
    torch.cuda.synchronize()
    print("note quiet 1", flush=True)
    time.sleep(quiet)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(100):
            do()
            time.sleep(0.1)
        torch.cuda.synchronize()
    print("note quiet 2", flush=True)
    time.sleep(quiet)
    print("note profiled calls=%d kernels=%d" % launch_calls(profile), flush=True)
    time.sleep(3600)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--job", required=True, choices=["device", "input", "launch", "checkpoint", "starved", "count"])
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--save", default="/run/checkpoints")
    p.add_argument("--quiet-s", type=float, default=5.0)
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.job == "device":
        steps(Wide(40))
    elif a.job == "input":
        steps(Wide(10), loader(1, 60))
    elif a.job == "launch":
        steps(Narrow())
    elif a.job == "checkpoint":
        steps(Wide(40), each=saver(a.save))
    elif a.job == "starved":
        steps(Wide(10), loader(a.workers, 40))
    else:
        count(a.quiet_s)


if __name__ == "__main__":
    main()
