"""Training on CUDA whose bottleneck is known because it was built so; what
gpu-check runs on a real device. Prints one line a step,

    step=123 t=8154.012345 dt=0.0421

with t of CLOCK_MONOTONIC, and lines that begin with "note ". Ends when killed.

    --job device      matrix products of about 40 ms a step, nothing else
    --job input       the same of 10 ms; one loader process needs 60 ms of CPU a batch
    --job launch      a deep and narrow network: hundreds of tiny kernels a step
    --job checkpoint  as device; every 80 steps 256 MiB of state go to --save
    --job async       as device, and waits for nothing: the full launch queue paces it
    --job each50      as device, and reads its loss every 50 steps
    --job graph       a whole step is one graph launch; its loss is read every 50 steps
    --job compiled    as device, by torch.compile's reduce-overhead with 40 compile workers
    --job copies      as device; a second stream copies 32 MiB a step from pinned memory ahead
    --job saver       as device; a second thread copies the state out and saves it every 5 s
    --job polling     as device, and waits by asking an event again and again
    --job memory      moves memory, 40 ms a step, and computes little
    --job collective  a kernel that spins on one multiprocessor for 60 ms, as a collective
                      does whose peer is late, beside NCCL's own calls; 5 ms of work a step
    --job starved     10 ms on the device; --workers loaders need 40 ms of CPU a batch each
    --job paced       --rate launches a second, of one thread that works on the CPU all the time
    --job count       for counting: quiet, 100 steps, quiet, 100 steps under PyTorch's
                      profiler, quiet; three all-reduces a step
"""

import argparse
import os
import threading
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


def repeats_of(ms, work, times=5):
    """How often the device does it in so many ms; work(n) does it n times."""
    work(3)
    torch.cuda.synchronize()
    begin = now()
    work(times)
    torch.cuda.synchronize()
    return max(1, round(ms / 1000 / ((now() - begin) / times)))


class Wide:
    """Steps that take about so many ms of the device: real training of a wide network,
    repeated until it takes so long. wait follows a step; compile wraps its network."""

    def __init__(self, ms, wait=None, compile=None):
        self.model = wide() if compile is None else compile(wide())
        self.wait = wait
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.x = torch.randn(2048, 4096, device="cuda")
        self.repeats, self.n = 1, 0
        self.repeats = repeats_of(ms, lambda n: [self() for _ in range(n)])

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.repeats):
            loss = self.model(self.x).square().mean()
            loss.backward()
        self.optimizer.step()
        self.n += 1
        if self.wait is None:
            return loss.item()  # waits for the device, as logging a loss does
        return self.wait(self.n, loss)


def never(n, loss):
    """Waits for nothing."""


def each50(n, loss):
    if n % 50 == 0:
        loss.item()


def polling(n, loss):
    event = torch.cuda.Event()
    event.record()
    while not event.query():
        pass


def graph():
    """One graph launch is a step of 40 ms."""
    model, x = wide(), torch.randn(2048, 4096, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loss = torch.zeros((), device="cuda")

    def work(repeats):
        for _ in range(repeats):
            optimizer.zero_grad(set_to_none=True)
            out = model(x).square().mean()
            out.backward()
            optimizer.step()
        loss.copy_(out.detach())

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        repeats = repeats_of(40, work)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        work(repeats)
    n = 0

    def do():
        nonlocal n
        n += 1
        captured.replay()
        each50(n, loss)

    return do


def compiled():
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "40"
    return Wide(40, compile=lambda model: torch.compile(model, mode="reduce-overhead"))


def copies():
    work, side = Wide(40), torch.cuda.Stream()
    host = torch.empty(32 << 20, dtype=torch.uint8).pin_memory()

    def do():
        with torch.cuda.stream(side):
            host.to("cuda", non_blocking=True)
        work()
        torch.cuda.current_stream().wait_stream(side)

    return do


def save_beside(folder):
    """Saves in a thread of its own."""
    state = {"moments": torch.zeros(64 << 20, device="cuda")}

    def loop():
        while True:
            time.sleep(5)
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.save({k: v.cpu() for k, v in state.items()}, os.path.join(folder, "checkpoint.pt"))

    threading.Thread(target=loop, daemon=True).start()


def moving():
    """40 ms a step of memory's bandwidth."""
    a, b = (torch.ones(1 << 30, dtype=torch.float32, device="cuda") for _ in range(2))

    def work(times):
        for _ in range(times):
            torch.add(a, 1.0, out=b)

    times = repeats_of(40, work, 10)

    def do():
        work(times)
        torch.cuda.synchronize()

    return do


def alone():
    """NCCL with one rank: with one device there can be no peer."""
    import torch.distributed as dist

    dist.init_process_group("nccl", init_method="file:///dev/shm/rendezvous", rank=0, world_size=1)
    return dist


def collective():
    """Between NCCL's calls a kernel spins, as NCCL's does while a peer is late."""
    dist = alone()
    work, gradients = Wide(5, wait=never), torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    begin = now()
    torch.cuda._sleep(100_000_000)
    torch.cuda.synchronize()
    cycles = round(100_000_000 * 0.060 / (now() - begin))

    def do():
        work()
        dist.all_reduce(gradients)
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize()

    return do


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
    batches = iter(loader) if loader is not None else None
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


def paced(rate):
    """250 launches a step; what is done between two of them takes the rest of 1 / rate."""
    x = torch.zeros(64, device="cuda")

    def some(n, idle):
        for _ in range(n):
            x.add_(1.0)
            for _ in range(idle):
                pass

    def took(idle):
        some(500, idle)
        torch.cuda.synchronize()
        begin = now()
        some(3000, idle)
        return (now() - begin) / 3000

    took(0)
    low, high = 0, 20000
    while high - low > 1:
        idle = (low + high) // 2
        low, high = (low, idle) if took(idle) > 1 / rate else (idle, high)
    print("note paced at %.0f launches a second" % (1 / took(low)), flush=True)
    return lambda: some(250, low)


def count(quiet):
    dist, narrow, sums = alone(), Narrow(), torch.zeros(1024, device="cuda")

    def do():
        narrow()
        for _ in range(3):
            dist.all_reduce(sums)

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
    simple = {"device": lambda: Wide(40), "launch": Narrow, "async": lambda: Wide(40, wait=never), "each50": lambda: Wide(40, wait=each50),
              "graph": graph, "compiled": compiled, "copies": copies, "polling": lambda: Wide(40, wait=polling), "memory": moving,
              "collective": collective, "paced": lambda: paced(a.rate)}
    p.add_argument("--job", required=True, choices=[*simple, "input", "checkpoint", "saver", "starved", "count"])
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--save", default="/run/checkpoints")
    p.add_argument("--rate", type=float, default=20000)
    p.add_argument("--quiet-s", type=float, default=5.0)
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.job in simple:
        steps(simple[a.job]())
    elif a.job == "input":
        steps(Wide(10), loader(1, 60))
    elif a.job == "checkpoint":
        steps(Wide(40), each=saver(a.save))
    elif a.job == "saver":
        save_beside(a.save)
        steps(Wide(40))
    elif a.job == "starved":
        steps(Wide(10), loader(a.workers, 40))
    else:
        count(a.quiet_s)


if __name__ == "__main__":
    main()
