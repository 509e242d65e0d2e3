/* What the files of the virtual libnccl share.
 *
 * Roads: nccl.c (nccl_comm.c for communicators) takes the calls and, at the end of a group, gives each
 * communicator's job queue (nccl_proxy.c) one job for each collective. Before
 * that, nccl_node.c puts a kernel of open end on the caller's stream: the device
 * is busy from the moment the stream reaches it, as with NCCL's kernels, which
 * spin on the SMs. The proxy thread waits for that moment, moves the bytes
 * (nccl_ring.c over nccl_net.c), and ends the kernel.
 */
#ifndef VGPU_NCCL_INT_H
#define VGPU_NCCL_INT_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "nccl.h"

#define VGN_HIDDEN __attribute__((visibility("hidden")))
#define VGN_API __attribute__((visibility("default")))
#define VGN_MAX_RANKS 1024

#pragma GCC visibility push(hidden)

enum vgn_kind { VGN_ALLREDUCE, VGN_REDUCESCATTER, VGN_ALLGATHER, VGN_BROADCAST, VGN_REDUCE, VGN_P2P };

struct vgn_open; /* a kernel of open end on a stream, see nccl_node.c */

struct vgn_p2p {
	int out; /* 1: send */
	int peer;
	char *buf;
	size_t bytes;
	struct CUstream_st *stream;
};

struct vgn_job {
	struct vgn_job *next;
	struct ncclComm *comm;
	enum vgn_kind kind;
	const char *send;
	char *recv;
	size_t count; /* as the call gave it */
	ncclDataType_t type;
	ncclRedOp_t op;
	int root;
	struct CUstream_st *stream;
	struct vgn_p2p *p2p; /* VGN_P2P: the group's sends and receives, in order of call */
	int np2p;
	struct vgn_open **open; /* one for each stream that the job holds */
	int nopen;
};

struct ncclComm {
	int rank, nranks, device;
	uint64_t nonce; /* of the unique ID: strangers on our ports are sent away */
	int *fd;        /* one full-duplex TCP connection to each peer; -1 for ourselves */
	int wake;       /* eventfd: the communicator is aborted */
	uint32_t seq;   /* of collectives */
	uint64_t sent, got; /* bytes of the job that is carried out */
	atomic_int async_error;
	atomic_int aborted;
	int spin; /* the proxy polls without sleeping */

	pthread_t proxy;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct vgn_job *head, **tail; /* under lock */
	int closing;                  /* under lock: no more jobs come */
};

/* nccl.c, nccl_comm.c: a group's communicators are made at its end */
int vgn_in_group(void);
ncclResult_t vgn_make_pending(void);

/* nccl_net.c */
struct vgn_xfer {
	int fd;
	int out; /* 1: send */
	char *buf;
	size_t bytes, done;
};
int vgn_listen(const struct sockaddr_in *want, struct sockaddr_in *got);
int vgn_connect(const struct sockaddr_in *to, int timeout_ms);
int vgn_accept(int listener, int timeout_ms);
int vgn_local_address(struct sockaddr_in *out);
/* vgn_move drives all transfers together until all are done; those of one socket
 * and direction follow one another. wake may be -1, timeout_ms -1 (for ever). */
ncclResult_t vgn_move(struct vgn_xfer *x, int n, int wake, int timeout_ms, int spin);

/* nccl_bootstrap.c */
ncclResult_t vgn_new_id(ncclUniqueId *id);
ncclResult_t vgn_connect_ranks(struct ncclComm *c, const ncclUniqueId *id);

/* nccl_ring.c */
ncclResult_t vgn_run(struct ncclComm *c, struct vgn_job *j);

/* nccl_math.c */
size_t vgn_type_size(ncclDataType_t t);
void vgn_reduce(void *into, const void *from, size_t count, ncclDataType_t t, ncclRedOp_t op);
void vgn_divide(void *buf, size_t count, ncclDataType_t t, int by);

/* nccl_proxy.c */
ncclResult_t vgn_proxy_start(struct ncclComm *c);
void vgn_proxy_submit(struct vgn_job *j);
void vgn_proxy_stop(struct ncclComm *c);
void vgn_job_free(struct vgn_job *j);

/* nccl_node.c */
int vgn_fault(const char *call); /* 1 if it is to be refused, as ordered */
ncclResult_t vgn_device(int *ordinal);
ncclResult_t vgn_set_device(int ordinal);
/* vgn_captured: the stream is captured into a graph, each launch of which calls again. */
int vgn_captured(struct CUstream_st *s, int (*again)(void *arg, struct CUstream_st *s), void *arg);
ncclResult_t vgn_open_enqueue(struct CUstream_st *s, const char *name, struct vgn_open **op);
/* vgn_open_wait returns 1 once the stream reached it, 0 after timeout_ms, -1 if it never will. */
int vgn_open_wait(struct vgn_open *op, int timeout_ms);
void vgn_open_moved(struct vgn_open *op, uint64_t out, uint64_t in);
void vgn_open_finish(struct vgn_open *op);

#pragma GCC visibility pop
#endif
