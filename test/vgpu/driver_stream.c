//go:build ignore

/* Streams and events. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread struct CUstream_st *mine[VGPU_MAX_DEVICES];

struct vgpu_counts *counts(void) { return &drv.node->proc[drv.proc].counts; }

CUresult stream_make(struct CUctx_st *ctx, unsigned flags, int legacy, struct CUstream_st **out)
{
	struct vgpu_node *n = drv.node;
	struct CUstream_st *s = calloc(1, sizeof *s);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node_lock(n);
	int i = sim_stream_new(n, drv.proc, (uint32_t)ctx->device, !(flags & CU_STREAM_NON_BLOCKING), (uint32_t)legacy);
	if (i >= 0)
		s->epoch = n->stream[i].epoch;
	node_unlock(n);
	if (i < 0) {
		free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->index = (uint32_t)i;
	s->ctx = ctx;
	s->flags = flags;
	*out = s;
	return CUDA_SUCCESS;
}

static void stream_drop(struct CUstream_st *s)
{
	struct vgpu_node *n = drv.node;
	node_lock(n);
	if (n->stream[s->index].epoch == s->epoch)
		sim_stream_free(n, s->index);
	node_unlock(n);
	free(s);
}

static void thread_ends(void *arg)
{
	struct CUstream_st **all = arg;
	for (int i = 0; i < VGPU_MAX_DEVICES; i++)
		if (all[i] && !drv.forked)
			stream_drop(all[i]);
}

static void make_key(void) { pthread_key_create(&key, thread_ends); }

static CUresult own_stream(struct CUctx_st *ctx, struct CUstream_st **s)
{
	pthread_once(&key_once, make_key);
	CUresult r = CUDA_SUCCESS;
	if (!mine[ctx->device]) {
		pthread_setspecific(key, mine);
		r = stream_make(ctx, 0, 0, &mine[ctx->device]);
	}
	*s = mine[ctx->device];
	return r;
}

CUresult stream_of(CUstream handle, int by_default, struct CUstream_st **s)
{
	struct CUctx_st *ctx;
	if (handle > CU_STREAM_PER_THREAD) {
		*s = handle;
		return CUDA_SUCCESS;
	}
	CUresult r = current(&ctx);
	if (r)
		return r;
	if (handle == CU_STREAM_PER_THREAD || (!handle && by_default == DEFAULT_PER_THREAD))
		return own_stream(ctx, s);
	pthread_mutex_lock(&making);
	if (!ctx->legacy)
		r = stream_make(ctx, 0, 1, &ctx->legacy);
	*s = ctx->legacy;
	pthread_mutex_unlock(&making);
	return r;
}

static void push_wait(struct vgpu_node *n, struct CUstream_st *s, uint32_t on, uint64_t on_seq)
{
	struct vgpu_op w = {.kind = OP_WAIT, .on_stream = on, .on_epoch = n->stream[on].epoch, .on_seq = on_seq};
	uint64_t seq;
	if (sim_push(n, s->index, &w, &seq) == 0)
		s->hold = seq + 1;
}

/* behind_default makes the default stream and the blocking ones wait for each other. */
static void behind_default(struct vgpu_node *n, struct CUstream_st *s)
{
	struct vgpu_stream *own = &n->stream[s->index];
	uint32_t behind[VGPU_SPARE], k = 0;
	if (!own->blocking)
		return;
	for (uint32_t i = 0; i < n->nactive && k < VGPU_SPARE; i++) {
		struct vgpu_stream *o = &n->stream[n->active[i]];
		if (o != own && o->proc == own->proc && o->device == own->device && o->blocking && o->legacy != own->legacy)
			behind[k++] = n->active[i];
	}
	for (uint32_t i = 0; i < k; i++)
		push_wait(n, s, behind[i], n->stream[behind[i]].tail - 1);
}

/* room waits until the stream can take more; it returns with the lock held. */
static CUresult room(struct CUstream_st *s)
{
	struct vgpu_node *n = drv.node;
	for (;;) {
		node_lock(n);
		struct vgpu_stream *v = &n->stream[s->index];
		CUresult r = v->epoch != s->epoch ? CUDA_ERROR_INVALID_HANDLE
		             : n->device[s->ctx->device].lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
		struct place at = {s->index, s->epoch, v->done, 1};
		if (r == CUDA_SUCCESS && v->tail - v->done < VGPU_LAUNCHES)
			return CUDA_SUCCESS;
		node_unlock(n);
		if (r || (r = wait_for(s->ctx, &at, 0)))
			return r;
	}
}

CUresult push(struct CUstream_st *s, struct vgpu_op *op, struct place *at, uint64_t *count)
{
	struct vgpu_node *n = drv.node;
	uint64_t seq;
	CUresult r = room(s);
	if (r)
		return r;
	behind_default(n, s);
	sim_push(n, s->index, op, &seq);
	if (op->kind == OP_OPEN)
		s->hold = seq + 1;
	if (count)
		++*count;
	node_unlock(n);
	if (at)
		*at = (struct place){s->index, s->epoch, seq, 1};
	return CUDA_SUCCESS;
}

/* ---- streams ---- */

API cuStreamCreate(CUstream *out, unsigned flags)
{
	ENTER();
	struct CUctx_st *ctx;
	CUresult r = current(&ctx);
	return r ? r : stream_make(ctx, flags, 0, out);
}

API cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	ENTER();
	struct CUctx_st *ctx;
	CUresult r = current(&ctx);
	(void)priority;
	return r ? r : stream_make(ctx, flags, 0, out);
}

API cuStreamDestroy_v2(CUstream s)
{
	ENTER();
	if (s <= CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	late_copies();
	stream_drop(s);
	return CUDA_SUCCESS;
}

static CUresult query(struct CUstream_st *s)
{
	struct vgpu_node *n = drv.node;
	node_lock(n);
	node_unlock(n);
	if (device_of(s->ctx)->lost)
		return CUDA_ERROR_LAUNCH_FAILED;
	struct place at = last_place(s);
	if (at.valid && !reached(&at))
		return CUDA_ERROR_NOT_READY;
	late_copies();
	return CUDA_SUCCESS;
}

API cuStreamQuery(CUstream handle)
{
	ENTER();
	struct CUstream_st *s;
	CUresult r = stream_of(handle, DEFAULT_LEGACY, &s);
	return r ? r : query(s);
}

API cuStreamQuery_ptsz(CUstream handle)
{
	ENTER();
	struct CUstream_st *s;
	CUresult r = stream_of(handle, DEFAULT_PER_THREAD, &s);
	return r ? r : query(s);
}

/* ---- events ---- */

static int event_slot(struct vgpu_node *n)
{
	for (int i = 0; i < VGPU_MAX_EVENTS; i++)
		if (!n->event[i].used) {
			n->event[i].used = drv.proc + 1;
			n->event[i].done_record = 0;
			return i;
		}
	return -1;
}

API cuEventCreate(CUevent *out, unsigned flags)
{
	ENTER();
	struct CUctx_st *ctx;
	CUresult r = current(&ctx);
	struct CUevent_st *e = r ? NULL : calloc(1, sizeof *e);
	if (!e)
		return r ? r : CUDA_ERROR_OUT_OF_MEMORY;
	node_lock(drv.node);
	int i = event_slot(drv.node);
	node_unlock(drv.node);
	if (i < 0) {
		free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e->index = (uint32_t)i;
	e->flags = flags;
	e->ctx = ctx;
	*out = e;
	return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent e)
{
	ENTER();
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	node_lock(drv.node);
	atomic_store(&drv.node->event[e->index].used, 0);
	node_unlock(drv.node);
	free(e);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent e, CUstream handle, int by_default)
{
	struct CUstream_st *s;
	CUresult r = e ? stream_of(handle, by_default, &s) : CUDA_ERROR_INVALID_HANDLE;
	if (r)
		return r;
	e->capture = s->capture;
	if (s->capture)
		return CUDA_SUCCESS;
	struct vgpu_op op = {.kind = OP_MARK, .event = e->index, .record = ++e->records};
	return push(s, &op, &e->at, NULL);
}

API cuEventRecord(CUevent e, CUstream s)
{
	ENTER();
	return record(e, s, DEFAULT_LEGACY);
}

API cuEventRecord_ptsz(CUevent e, CUstream s)
{
	ENTER();
	return record(e, s, DEFAULT_PER_THREAD);
}

API cuEventQuery(CUevent e)
{
	ENTER();
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	node_lock(drv.node);
	node_unlock(drv.node);
	if (e->at.valid && !reached(&e->at))
		return CUDA_ERROR_NOT_READY;
	late_copies();
	return CUDA_SUCCESS;
}

API cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	ENTER();
	if (!from || !to || !from->at.valid || !to->at.valid || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!reached(&from->at) || !reached(&to->at))
		return CUDA_ERROR_NOT_READY;
	struct vgpu_event *a = &drv.node->event[from->index], *b = &drv.node->event[to->index];
	*ms = (float)((double)(int64_t)(b->end_ns - a->end_ns) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream handle, CUevent e, int by_default)
{
	struct vgpu_node *n = drv.node;
	struct CUstream_st *s;
	CUresult r = e ? stream_of(handle, by_default, &s) : CUDA_ERROR_INVALID_HANDLE;
	if (r)
		return r;
	if (e->capture) {
		capture_join(e->capture, s);
		return CUDA_SUCCESS;
	}
	if (s->capture || !e->at.valid || reached(&e->at) || (r = room(s)))
		return r;
	if (n->stream[e->at.stream].epoch == e->at.epoch)
		push_wait(n, s, e->at.stream, e->at.seq);
	node_unlock(n);
	return CUDA_SUCCESS;
}

API cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
	ENTER();
	(void)flags;
	return stream_wait(s, e, DEFAULT_LEGACY);
}

API cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned flags)
{
	ENTER();
	(void)flags;
	return stream_wait(s, e, DEFAULT_PER_THREAD);
}
