"""MPI ranks that hand a token round; all but one spin in their receive; a step is a round."""

from mpi4py import MPI
import numpy

import zoolog

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
token = numpy.zeros(1024)
log = zoolog.Log()
while True:
    if rank == 0:
        comm.Send(token, dest=1 % size)
        comm.Recv(token, source=size - 1)
        log.step()
    else:
        comm.Recv(token, source=rank - 1)
        token += 1
        comm.Send(token, dest=(rank + 1) % size)
