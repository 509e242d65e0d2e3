"""What every workload prints: one line for each N steps, flushed,

    step=123 t=8154.012345 dt=0.0421

t is CLOCK_MONOTONIC in seconds, which containers share with their host, dt the
mean seconds per step since the line before. So the true rate over any interval
is computable from the job's own output. Everything else printed begins with
"note ", once per fact.
"""

import time


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def note(text):
    print("note", text, flush=True)


def burn(cpu_seconds):
    """Uses that much CPU time of the calling thread, however long it takes."""
    end = time.thread_time() + cpu_seconds
    n = 0
    while time.thread_time() < end:
        for i in range(500):
            n += i * i
    return n


class StepLog:
    """Counts steps, prints their lines, and says when to end."""

    def __init__(self, every=1, steps=0, seconds=0.0):
        self.every, self.steps = max(1, every), steps
        self.start = self.last = now()
        self.end = self.start + seconds if seconds > 0 else float("inf")
        self.step = 0

    def done(self):
        """Call after each step; True if the job has done what was asked."""
        self.step += 1
        t = now()
        if self.step % self.every == 0:
            print(f"step={self.step} t={t:.6f} dt={(t - self.last) / self.every:.6f}", flush=True)
            self.last = t
        return (self.steps > 0 and self.step >= self.steps) or t >= self.end


def add_arguments(parser):
    parser.add_argument("--every", type=int, default=1, help="steps per printed line")
    parser.add_argument("--steps", type=int, default=0, help="end after so many steps (0: never)")
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so many seconds (0: never)")


def from_arguments(args):
    return StepLog(args.every, args.steps, args.seconds)
