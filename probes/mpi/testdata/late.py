"""late.c by mpi4py: two ranks meet in barriers, rank 1 20 ms late each time. Each says its process, and how long it waited."""

import os
import sys
import time

from mpi4py import MPI

folder = sys.argv[1]
comm = MPI.COMM_WORLD
rank = comm.Get_rank()


def path(name, of):
    return os.path.join(folder, f"{name}.{of}")


def tell(name, ns):
    with open(path(name, rank) + ".part", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {ns}")
    os.rename(path(name, rank) + ".part", path(name, rank))


def until(name):
    while not os.path.exists(path(name, 0)):
        time.sleep(0.01)


tell("ready", 0)
until("go")
waited = 0
for _ in range(50):
    began = time.monotonic_ns()
    while rank == 1 and time.monotonic_ns() < began + 20_000_000:
        pass
    began = time.monotonic_ns()
    comm.Barrier()
    waited += time.monotonic_ns() - began
tell("done", waited)
until("end")
