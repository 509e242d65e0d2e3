//go:build ignore

/* A kernel of open end: what the virtual libnccl puts on a stream while a collective
 * runs. Not part of CUDA's driver interface. */
#include "driver.h"

#include <stdlib.h>
#include <time.h>

struct vgpuOpenOp {
	struct place at;
	struct CUctx_st *ctx;
};

/* vgpuFault tells whether a fault is ordered for a call of the virtual libnccl; one that
 * hangs is waited for. */
API vgpuFault(const char *call) { return drv.node ? enter(call) : CUDA_SUCCESS; }

/* vgpuOpenOpCapture makes a kernel of open end a node of the graph that a stream is captured
 * into: again puts it on the stream of each launch. CUDA_ERROR_ILLEGAL_STATE: it is captured
 * into none. */
API vgpuOpenOpCapture(CUstream handle, CUresult (*again)(void *arg, CUstream s), void *arg)
{
	ENTER();
	struct CUstream_st *s;
	CUresult r = stream_of(handle, DEFAULT_LEGACY, &s);
	if (r)
		return r;
	if (!s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	return capture_add(s->capture, &(struct node_desc){.kind = OP_OPEN, .again = again, .arg = arg});
}

API vgpuOpenOpEnqueue(CUstream handle, const char *name, struct vgpuOpenOp **out)
{
	struct CUstream_st *s;
	CUresult r = enter(name);
	if (r || (r = stream_of(handle, DEFAULT_LEGACY, &s)))
		return r;
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct vgpuOpenOp *o = calloc(1, sizeof *o);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct vgpu_op op = {.kind = OP_OPEN};
	o->ctx = s->ctx;
	r = push(s, &op, &o->at, &counts()->collectives);
	if (r)
		free(o);
	else
		*out = o;
	return r;
}

/* started: 1 if the stream reached it, else 0, with a bound on the time until then. */
static int started(struct vgpuOpenOp *o, uint64_t *ns)
{
	struct vgpu_node *n = drv.node;
	node_lock(n);
	struct vgpu_stream *s = &n->stream[o->at.stream];
	int yes = s->epoch != o->at.epoch || s->done >= o->at.seq;
	*ns = yes || o->at.seq == 0 ? 0 : sim_least_ns(n, o->at.stream, o->at.seq - 1);
	node_unlock(n);
	return yes;
}

API vgpuOpenOpWaitStart(struct vgpuOpenOp *o, int timeout_ms)
{
	uint64_t ns, end = node_clock_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
	while (!started(o, &ns)) {
		uint64_t now = node_clock_ns();
		if (device_of(o->ctx)->lost)
			return CUDA_ERROR_LAUNCH_FAILED;
		if (timeout_ms >= 0 && now >= end)
			return CUDA_ERROR_NOT_READY;
		ns = ns < 100000 ? 100000 : ns > 10000000 ? 10000000 : ns;
		if (timeout_ms >= 0 && ns > end - now)
			ns = end - now;
		nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
	}
	late_copies();
	return CUDA_SUCCESS;
}

/* vgpuOpenOpMoved tells what the kernel sent and got over NVLink, if its device has links. */
API vgpuOpenOpMoved(struct vgpuOpenOp *o, uint64_t out, uint64_t in)
{
	struct vgpu_device *d = device_of(o->ctx);
	if (d->nvlinks) {
		__atomic_fetch_add(&d->link_out, out, __ATOMIC_RELAXED);
		__atomic_fetch_add(&d->link_in, in, __ATOMIC_RELAXED);
	}
	return CUDA_SUCCESS;
}

API vgpuOpenOpFinish(struct vgpuOpenOp *o)
{
	struct vgpu_node *n = drv.node;
	node_lock(n);
	struct vgpu_stream *s = &n->stream[o->at.stream];
	if (s->epoch == o->at.epoch && s->done <= o->at.seq) {
		sim_op(n, o->at.stream, o->at.seq)->flags |= VGPU_OP_FINISHED;
		node_advance(n, n->now_ns);
	}
	node_unlock(n);
	free(o);
	wake_all();
	return CUDA_SUCCESS;
}
