"""Computes for a second and writes a checkpoint of 40 MiB, synced; a step is a tenth of a second of work."""

import os
import time

import numpy

import zoolog

log = zoolog.Log()
state = numpy.random.default_rng(1).standard_normal(5 << 20)
while True:
    for _ in range(10):
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            state[:1000].sum()
        time.sleep(0.08)
        log.step()
    with open("/tmp/checkpoint", "wb") as f:
        state.tofile(f)
        f.flush()
        os.fsync(f.fileno())
