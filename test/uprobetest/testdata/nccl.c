// A stand-in for libnccl.so.2. Bodies differ, so that no two functions become one.
#include <stddef.h>

volatile unsigned long done;
typedef struct { char internal[128]; } ncclUniqueId;

int ncclCommInitRank(void **comm, int ranks, ncclUniqueId id, int rank) { return done += id.internal[0], 0; }
int ncclCommInitRankConfig(void **comm, int ranks, ncclUniqueId id, int rank, void *config) { return done += id.internal[1], 0; }
int ncclCommInitRankScalable(void **comm, int ranks, int rank, int ids, ncclUniqueId *id, void *config) { return done += 2, 0; }
int ncclCommInitAll(void **comms, int devices, const int *list) { return done += 3, 0; }

// As NCCL exports them: weak names of functions whose names begin with a p. A linker keeps one
// string for both.
#define COLLECTIVE(name, step) \
	int p##name(void *s, void *r, size_t n, int type, int op, void *comm, void *stream) { return done += step, 0; } \
	__attribute__((weak, alias("p" #name))) int name(void *s, void *r, size_t n, int type, int op, void *comm, void *stream);
COLLECTIVE(ncclAllReduce, 10)
COLLECTIVE(ncclReduceScatter, 11)
COLLECTIVE(ncclAllGather, 12)
COLLECTIVE(ncclBroadcast, 13)
COLLECTIVE(ncclReduce, 14)
COLLECTIVE(ncclAlltoAll, 15)
COLLECTIVE(ncclAllToAll, 16)
COLLECTIVE(ncclGather, 17)
COLLECTIVE(ncclScatter, 18)

int ncclSend(void *s, size_t n, int type, int peer, void *comm, void *stream) { return done += 20, 0; }
int ncclRecv(void *r, size_t n, int type, int peer, void *comm, void *stream) { return done += 21, 0; }
