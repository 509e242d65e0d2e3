//go:build ignore

/* The calls of the virtual libnccl that move bytes: arguments, groups, jobs. */
#define _GNU_SOURCE
#include "nccl_int.h"

#include <stdlib.h>

/* What the thread's open group has gathered. */
static __thread int depth;
static __thread struct vgn_job *jobs, **jobs_end;
static __thread ncclResult_t group_error;

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

static ncclResult_t submit(struct vgn_job *j);

/* again submits a captured job at a graph's launch, on the stream of that. */
static int again(void *arg, struct CUstream_st *s)
{
	struct vgn_job *j = malloc(sizeof *j);
	if (!j)
		return ncclSystemError;
	*j = *(const struct vgn_job *)arg;
	j->stream = s;
	return submit(j);
}

/* submit puts the job's kernels on its streams and hands it to the proxy. What a stream that is
 * captured is given belongs to the graph, and stays as long as the process; sends and receives
 * are refused there. */
static ncclResult_t submit(struct vgn_job *j)
{
	ncclResult_t r = ncclSuccess;
	if (j->kind != VGN_P2P && vgn_captured(j->stream, again, j))
		return ncclSuccess;
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

int vgn_in_group(void) { return depth > 0; }

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
	struct vgn_job *j = jobs;
	group_error = ncclSuccess;
	jobs = NULL;
	ncclResult_t made = vgn_make_pending();
	r = r != ncclSuccess ? r : made;
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

static ncclResult_t enqueue(const char *call, struct vgn_job want)
{
	if (vgn_fault(call))
		return refuse(ncclSystemError);
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

static ncclResult_t enqueue_p2p(const char *call, ncclComm_t c, struct vgn_p2p p, int valid)
{
	if (vgn_fault(call))
		return refuse(ncclSystemError);
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
	return enqueue(__func__, (struct vgn_job){
	    .comm = c, .kind = VGN_ALLREDUCE, .send = send, .recv = recv, .count = count, .type = t, .op = op, .stream = s});
}

VGN_API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op, int root,
                                ncclComm_t c, struct CUstream_st *s)
{
	return enqueue(__func__, (struct vgn_job){.comm = c, .kind = VGN_REDUCE, .send = send, .recv = recv, .count = count, .type = t,
	                                .op = op, .root = root, .stream = s});
}

VGN_API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op,
                                       ncclComm_t c, struct CUstream_st *s)
{
	return enqueue(__func__, (struct vgn_job){.comm = c, .kind = VGN_REDUCESCATTER, .send = send, .recv = recv, .count = count,
	                                .type = t, .op = op, .stream = s});
}

VGN_API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t t, ncclComm_t c,
                                   struct CUstream_st *s)
{
	return enqueue(__func__, (struct vgn_job){
	    .comm = c, .kind = VGN_ALLGATHER, .send = send, .recv = recv, .count = count, .type = t, .stream = s});
}

VGN_API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t t, int root, ncclComm_t c,
                                   struct CUstream_st *s)
{
	return enqueue(__func__, (struct vgn_job){.comm = c, .kind = VGN_BROADCAST, .send = send, .recv = recv, .count = count, .type = t,
	                                .root = root, .stream = s});
}

VGN_API ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t t, int root, ncclComm_t c,
                               struct CUstream_st *s)
{
	return enqueue(__func__, (struct vgn_job){.comm = c, .kind = VGN_BROADCAST, .send = buffer, .recv = buffer, .count = count,
	                                          .type = t, .root = root, .stream = s});
}

VGN_API ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t t, int peer, ncclComm_t c,
                              struct CUstream_st *s)
{
	struct vgn_p2p p = {1, peer, (char *)send, count * vgn_type_size(t), s};
	return enqueue_p2p(__func__, c, p, vgn_type_size(t) > 0);
}

VGN_API ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t t, int peer, ncclComm_t c, struct CUstream_st *s)
{
	struct vgn_p2p p = {0, peer, recv, count * vgn_type_size(t), s};
	return enqueue_p2p(__func__, c, p, vgn_type_size(t) > 0);
}
