// A stand-in for libmpi: the names of its calls that wait. They wait as they are told, and one calls another.
#define _GNU_SOURCE
#include <time.h>

volatile unsigned long done;
static long wait_ns, spin;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

void fake_wait(long ns, long by_spinning) { wait_ns = ns, spin = by_spinning; }

int __attribute__((noinline)) PMPI_Barrier(void *comm)
{
	long end = now() + wait_ns;
	struct timespec t = {wait_ns / 1000000000L, wait_ns % 1000000000L};

	if (!spin)
		return nanosleep(&t, NULL);
	while (now() < end)
		done++;
	return 0;
}

// Two waits of the library's own inside one of the program's.
int PMPI_Allreduce(void *comm) { return PMPI_Barrier(comm) + PMPI_Barrier(comm); }

int PMPI_Recv(void *comm)
{
	int err = PMPI_Barrier(comm);

	return done++, err; // no jump to the other
}

int PMPI_Isend(void *comm) { return done++, 0; } // does not wait

// Each has two names, as in the real ones. A linker stores "MPI_Send" as the end of "PMPI_Send".
#define ALIAS(name) int name(void *comm) __attribute__((weak, alias("P" #name)));
#define WAITS(name, step) \
	int P##name(void *comm) { return done += step, 0; } \
	ALIAS(name)
ALIAS(MPI_Barrier)
ALIAS(MPI_Allreduce)
ALIAS(MPI_Isend)
ALIAS(MPI_Recv)
WAITS(MPI_Allgather, 2)
WAITS(MPI_Allgatherv, 3)
WAITS(MPI_Alltoall, 4)
WAITS(MPI_Alltoallv, 5)
WAITS(MPI_Alltoallw, 6)
WAITS(MPI_Bcast, 7)
WAITS(MPI_Exscan, 8)
WAITS(MPI_Gather, 9)
WAITS(MPI_Gatherv, 10)
WAITS(MPI_Neighbor_allgather, 11)
WAITS(MPI_Neighbor_alltoall, 12)
WAITS(MPI_Probe, 13)
WAITS(MPI_Reduce, 15)
WAITS(MPI_Reduce_scatter, 16)
WAITS(MPI_Reduce_scatter_block, 17)
WAITS(MPI_Rsend, 18)
WAITS(MPI_Scan, 19)
WAITS(MPI_Scatter, 20)
WAITS(MPI_Scatterv, 21)
WAITS(MPI_Send, 22)
WAITS(MPI_Sendrecv, 23)
WAITS(MPI_Sendrecv_replace, 24)
WAITS(MPI_Ssend, 25)
WAITS(MPI_Wait, 26)
WAITS(MPI_Waitall, 27)
WAITS(MPI_Waitany, 28)
WAITS(MPI_Waitsome, 29)
WAITS(MPI_Win_fence, 30)
WAITS(MPI_Mprobe, 60)
WAITS(MPI_Mrecv, 61)
WAITS(MPI_Neighbor_allgatherv, 62)
WAITS(MPI_Neighbor_alltoallv, 63)
WAITS(MPI_Neighbor_alltoallw, 64)
WAITS(MPI_Win_complete, 65)
WAITS(MPI_Win_flush, 66)
WAITS(MPI_Win_lock, 67)
WAITS(MPI_Win_unlock, 68)
WAITS(MPI_Win_wait, 69)
