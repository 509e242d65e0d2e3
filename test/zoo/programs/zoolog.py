"""How programs of ours tell their own truth: step=N t=SECONDS dt=SECONDS, twice a second at most."""

import time


class Log:
    def __init__(self):
        self.n = self.told = 0
        self.at = time.clock_gettime(time.CLOCK_MONOTONIC)

    def step(self):
        self.n += 1
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        if now - self.at >= 0.5:
            print(f"step={self.n} t={now:.6f} dt={(now - self.at) / (self.n - self.told):.6f}", flush=True)
            self.told, self.at = self.n, now
