//go:build ignore

/* The calls of the virtual libnccl: arguments, groups, communicators. */
#define _GNU_SOURCE
#include "nccl_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct init { /* one communicator being made */
	struct init *next;
	ncclComm_t *out;
	int nranks, rank, device;
	ncclUniqueId id;
	ncclResult_t result;
	pthread_t thread;
};

/* What the thread's open group has gathered. */
static __thread int depth;
static __thread struct vgn_job *jobs, **jobs_end;
static __thread struct init *inits;
static __thread ncclResult_t group_error;

VGN_API ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

VGN_API const char *ncclGetErrorString(ncclResult_t r)
{
	static const char *const text[ncclNumResults] = {
	    "no error",
	    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
	    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
	    "internal error - please report this issue to the NCCL developers",
	    "invalid argument (run with NCCL_DEBUG=WARN for details)",
	    "invalid usage (run with NCCL_DEBUG=WARN for details)",
	    "remote process exited or there was a network error",
	    "NCCL operation in progress",
	};
	return (unsigned)r < ncclNumResults ? text[r] : "unknown result code";
}

VGN_API const char *ncclGetLastError(ncclComm_t c)
{
	return ncclGetErrorString(c ? (ncclResult_t)atomic_load(&c->async_error) : ncclSuccess);
}

VGN_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	return id ? vgn_new_id(id) : ncclInvalidArgument;
}

/* ---- communicators ---- */

static void comm_free(ncclComm_t c)
{
	for (int i = 0; c->fd && i < c->nranks; i++)
		if (c->fd[i] >= 0)
			close(c->fd[i]);
	if (c->wake >= 0)
		close(c->wake);
	free(c->fd);
	free(c);
}

static ncclResult_t make(struct init *in)
{
	const char *proxy = getenv("VGPU_NCCL_PROXY"); /* "spin": the thread never sleeps, as NCCL's own with work in hand */
	ncclComm_t c = calloc(1, sizeof *c);
	if (!c)
		return ncclSystemError;
	c->rank = in->rank;
	c->nranks = in->nranks;
	c->device = in->device;
	c->spin = proxy && strcmp(proxy, "spin") == 0;
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->fd = malloc((size_t)c->nranks * sizeof *c->fd);
	ncclResult_t r = c->fd && c->wake >= 0 ? ncclSuccess : ncclSystemError;
	for (int i = 0; c->fd && i < c->nranks; i++)
		c->fd[i] = -1;
	if (r == ncclSuccess)
		r = vgn_connect_ranks(c, &in->id);
	if (r == ncclSuccess)
		r = vgn_proxy_start(c);
	if (r != ncclSuccess) {
		comm_free(c);
		return r;
	}
	*in->out = c;
	return ncclSuccess;
}

static void *make_main(void *arg)
{
	struct init *in = arg;
	in->result = vgn_set_device(in->device);
	if (in->result == ncclSuccess)
		in->result = make(in);
	return NULL;
}

/* make_all makes a group's communicators side by side: each waits for the others. */
static ncclResult_t make_all(struct init *list)
{
	ncclResult_t result = ncclSuccess;
	for (struct init *i = list; i; i = i->next)
		if (pthread_create(&i->thread, NULL, make_main, i)) {
			i->result = ncclSystemError;
			i->thread = 0;
		}
	while (list) {
		struct init *i = list;
		list = i->next;
		if (i->thread)
			pthread_join(i->thread, NULL);
		if (result == ncclSuccess)
			result = i->result;
		free(i);
	}
	return result;
}

VGN_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	struct init one = {.out = comm, .nranks = nranks, .rank = rank, .id = id};
	if (!comm || nranks < 1 || nranks > VGN_MAX_RANKS || rank < 0 || rank >= nranks)
		return ncclInvalidArgument;
	*comm = NULL;
	ncclResult_t r = vgn_device(&one.device);
	if (r != ncclSuccess || depth == 0)
		return r != ncclSuccess ? r : make(&one);
	struct init *later = malloc(sizeof *later);
	if (!later)
		return ncclSystemError;
	*later = one;
	later->next = inits;
	inits = later;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, void *config)
{
	(void)config; /* blocking communicators only */
	return ncclCommInitRank(comm, nranks, id, rank);
}

VGN_API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
	ncclUniqueId id;
	int before;
	if (!comms || n < 1)
		return ncclInvalidArgument;
	ncclResult_t r = vgn_device(&before);
	if (r == ncclSuccess)
		r = ncclGetUniqueId(&id);
	if (r != ncclSuccess)
		return r;
	ncclGroupStart();
	for (int i = 0; i < n && r == ncclSuccess; i++) {
		r = vgn_set_device(devices ? devices[i] : i);
		if (r == ncclSuccess)
			r = ncclCommInitRank(&comms[i], n, id, i);
	}
	ncclResult_t end = ncclGroupEnd();
	vgn_set_device(before);
	return r != ncclSuccess ? r : end;
}

VGN_API ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	return c ? ncclSuccess : ncclInvalidArgument; /* ncclCommDestroy waits for what is under way */
}

VGN_API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	if (!c)
		return ncclSuccess;
	vgn_proxy_stop(c);
	comm_free(c);
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommAbort(ncclComm_t c)
{
	uint64_t one = 1;
	if (!c)
		return ncclSuccess;
	atomic_store(&c->aborted, 1);
	ssize_t n = write(c->wake, &one, sizeof one);
	(void)n; /* an eventfd that is set already says the same */
	return ncclCommDestroy(c);
}

VGN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
	if (!c || !error)
		return ncclInvalidArgument;
	*error = (ncclResult_t)atomic_load(&c->async_error);
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommCount(ncclComm_t c, int *count)
{
	if (!c || !count)
		return ncclInvalidArgument;
	*count = c->nranks;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommUserRank(ncclComm_t c, int *rank)
{
	if (!c || !rank)
		return ncclInvalidArgument;
	*rank = c->rank;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclCommCuDevice(ncclComm_t c, int *device)
{
	if (!c || !device)
		return ncclInvalidArgument;
	*device = c->device;
	return ncclSuccess;
}

/* ---- groups and jobs ---- */

static const char *const kernel_name[] = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    "ncclDevKernel_AllGather_RING_LL",         "ncclDevKernel_Broadcast_RING_LL",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL",    "ncclDevKernel_SendRecv",
};

static ncclResult_t open_on(struct vgn_job *j, struct CUstream_st *s)
{
	struct vgn_open **grown = realloc(j->open, (size_t)(j->nopen + 1) * sizeof *grown);
	if (!grown)
		return ncclSystemError;
	j->open = grown;
	ncclResult_t r = vgn_open_enqueue(s, kernel_name[j->kind], &grown[j->nopen]);
	if (r == ncclSuccess)
		j->nopen++;
	return r;
}

/* submit puts the job's kernels on its streams and hands it to the proxy. */
static ncclResult_t submit(struct vgn_job *j)
{
	ncclResult_t r = ncclSuccess;
	if (j->kind != VGN_P2P)
		r = open_on(j, j->stream);
	for (int i = 0; i < j->np2p && r == ncclSuccess; i++) {
		int seen = 0;
		for (int k = 0; k < i; k++)
			seen |= j->p2p[k].stream == j->p2p[i].stream;
		if (!seen)
			r = open_on(j, j->p2p[i].stream);
	}
	if (r == ncclSuccess) {
		vgn_proxy_submit(j);
		return r;
	}
	for (int i = 0; i < j->nopen; i++)
		vgn_open_finish(j->open[i]);
	vgn_job_free(j);
	return r;
}

static struct vgn_job *pending_p2p(ncclComm_t c)
{
	for (struct vgn_job *j = jobs; j; j = j->next)
		if (j->comm == c && j->kind == VGN_P2P)
			return j;
	return NULL;
}

static void gather(struct vgn_job *j)
{
	if (!jobs)
		jobs_end = &jobs;
	j->next = NULL;
	*jobs_end = j;
	jobs_end = &j->next;
}

VGN_API ncclResult_t ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

VGN_API ncclResult_t ncclGroupEnd(void)
{
	if (depth == 0)
		return ncclInvalidUsage;
	if (--depth > 0)
		return ncclSuccess;
	ncclResult_t r = group_error;
	struct init *made = inits;
	struct vgn_job *j = jobs;
	group_error = ncclSuccess;
	inits = NULL;
	jobs = NULL;
	if (made) {
		ncclResult_t m = make_all(made);
		r = r != ncclSuccess ? r : m;
	}
	while (j) {
		struct vgn_job *next = j->next;
		if (r == ncclSuccess)
			r = submit(j);
		else
			vgn_job_free(j);
		j = next;
	}
	return r;
}

static ncclResult_t refuse(ncclResult_t r)
{
	if (depth > 0)
		group_error = r;
	return r;
}

static ncclResult_t enqueue(struct vgn_job want)
{
	size_t in = want.count * vgn_type_size(want.type);
	int root_reads = want.kind != VGN_BROADCAST || !want.comm || want.root == want.comm->rank;
	int root_writes = want.kind != VGN_REDUCE || !want.comm || want.root == want.comm->rank;
	if (!want.comm || vgn_type_size(want.type) == 0 || (unsigned)want.op >= ncclNumOps || want.root < 0 ||
	    want.root >= want.comm->nranks || (in && ((root_reads && !want.send) || (root_writes && !want.recv))))
		return refuse(ncclInvalidArgument);
	struct vgn_job *j = malloc(sizeof *j);
	if (!j)
		return refuse(ncclSystemError);
	*j = want;
	if (depth == 0)
		return submit(j);
	gather(j);
	return ncclSuccess;
}

static ncclResult_t enqueue_p2p(ncclComm_t c, struct vgn_p2p p, int valid)
{
	if (!c || !valid || p.peer < 0 || p.peer >= c->nranks || (p.bytes && !p.buf))
		return refuse(ncclInvalidArgument);
	struct vgn_job *j = depth > 0 ? pending_p2p(c) : NULL;
	if (!j) {
		j = calloc(1, sizeof *j);
		if (!j)
			return refuse(ncclSystemError);
		j->comm = c;
		j->kind = VGN_P2P;
		if (depth > 0)
			gather(j);
	}
	struct vgn_p2p *grown = realloc(j->p2p, (size_t)(j->np2p + 1) * sizeof *grown);
	if (!grown) {
		if (depth == 0)
			vgn_job_free(j);
		return refuse(ncclSystemError);
	}
	grown[j->np2p] = p;
	j->p2p = grown;
	j->np2p++;
	return depth == 0 ? submit(j) : ncclSuccess;
}

/* ---- the calls themselves ---- */

VGN_API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op,
                                   ncclComm_t c, struct CUstream_st *s)
{
	return enqueue((struct vgn_job){
	    .comm = c, .kind = VGN_ALLREDUCE, .send = send, .recv = recv, .count = count, .type = t, .op = op, .stream = s});
}

VGN_API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op, int root,
                                ncclComm_t c, struct CUstream_st *s)
{
	return enqueue((struct vgn_job){.comm = c, .kind = VGN_REDUCE, .send = send, .recv = recv, .count = count, .type = t,
	                                .op = op, .root = root, .stream = s});
}

VGN_API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op,
                                       ncclComm_t c, struct CUstream_st *s)
{
	return enqueue((struct vgn_job){.comm = c, .kind = VGN_REDUCESCATTER, .send = send, .recv = recv, .count = count,
	                                .type = t, .op = op, .stream = s});
}

VGN_API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t t, ncclComm_t c,
                                   struct CUstream_st *s)
{
	return enqueue((struct vgn_job){
	    .comm = c, .kind = VGN_ALLGATHER, .send = send, .recv = recv, .count = count, .type = t, .stream = s});
}

VGN_API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t t, int root, ncclComm_t c,
                                   struct CUstream_st *s)
{
	return enqueue((struct vgn_job){.comm = c, .kind = VGN_BROADCAST, .send = send, .recv = recv, .count = count, .type = t,
	                                .root = root, .stream = s});
}

VGN_API ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t t, int root, ncclComm_t c,
                               struct CUstream_st *s)
{
	return ncclBroadcast(buffer, buffer, count, t, root, c, s);
}

VGN_API ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t t, int peer, ncclComm_t c,
                              struct CUstream_st *s)
{
	struct vgn_p2p p = {1, peer, (char *)send, count * vgn_type_size(t), s};
	return enqueue_p2p(c, p, vgn_type_size(t) > 0);
}

VGN_API ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t t, int peer, ncclComm_t c, struct CUstream_st *s)
{
	struct vgn_p2p p = {0, peer, recv, count * vgn_type_size(t), s};
	return enqueue_p2p(c, p, vgn_type_size(t) > 0);
}
