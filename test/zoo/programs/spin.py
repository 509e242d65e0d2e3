"""Spins until a time has come, as a thread does that waits for a device; a step is a wait of 20 ms.

More CPU makes it no faster: under a quota its waits end as late as they were meant to."""

import time

import zoolog

log = zoolog.Log()
due = time.monotonic()
while True:
    due = max(due + 0.5, time.monotonic())
    while time.monotonic() < due:
        pass
    log.step()
