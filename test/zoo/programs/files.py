"""Goes round and round 1.2 GiB of files, and computes a little on each piece; a step is 4 MiB of them.

Under a memory limit below that nothing that it reads stays in the page cache."""

import os
import sys

import numpy

import zoolog

MIB = 1 << 20
FOLDER = "/tmp/files"
PIECE = 4 * MIB

os.makedirs(FOLDER, exist_ok=True)
block = os.urandom(PIECE)
paths = [os.path.join(FOLDER, f"{i:04d}") for i in range(int(sys.argv[1]) * MIB // PIECE)]
for path in paths:
    with open(path, "wb") as f:
        f.write(block)
        f.flush()
        os.fsync(f.fileno())

log = zoolog.Log()
while True:
    for path in paths:
        with open(path, "rb") as f:
            numpy.frombuffer(f.read(), dtype=numpy.uint8).sum()
        log.step()
