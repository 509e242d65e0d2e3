// A stand-in for libnccl.so.2.
#include <stddef.h>

volatile unsigned long done;
typedef struct { char internal[128]; } ncclUniqueId;

int ncclCommInitRank(void **comm, int ranks, ncclUniqueId id, int rank) { return done += id.internal[0], 0; }
int ncclAllReduce(void *s, void *r, size_t n, int type, int op, void *comm, void *stream) { return done++, 0; }
int ncclSend(void *s, size_t n, int type, int peer, void *comm, void *stream) { return done++, 0; }
