"""Looks every 10 ms whether there is work, and finds some now and then; a step is a look."""

import time

import zoolog

log = zoolog.Log()
while True:
    time.sleep(0.01)
    log.step()
    if log.n % 100 == 0:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
