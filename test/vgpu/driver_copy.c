//go:build ignore

/* Copies: their time passes on the device, their bytes are moved by the caller, at once
 * where nothing on the stream could still change them, else when the stream is there and
 * somebody looks (late_copies). */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_START_NS = 3000, STAGED_AT_ONCE = 64 << 10 };

struct late {
	struct late *next;
	struct place at;
	void *to;
	const void *from;
	size_t n;
	int value; /* of a memset, where from is NULL */
	char kept[]; /* pageable memory may be used again once the call returned */
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct late *first, **last = &first;
static _Atomic int nlate;

/* most is how many bytes of a copy are moved: programs that never look at them can
 * save the CPU time that a real device's DMA does not take. */
static size_t most(size_t n)
{
	static _Atomic long long limit = -2;
	if (limit == -2) {
		const char *text = getenv("TRIMTAB_VGPU_COPY_MAX");
		limit = text ? atoll(text) : -1;
	}
	return limit >= 0 && (size_t)limit < n ? (size_t)limit : n;
}

static void move(void *to, const void *from, size_t n, int value)
{
	if (from)
		memcpy(to, from, most(n));
	else
		memset(to, value, most(n));
}

void late_copies(void)
{
	if (!nlate)
		return;
	pthread_mutex_lock(&guard);
	for (struct late **p = &first; *p;) {
		struct late *l = *p;
		if (!reached(&l->at)) {
			p = &l->next;
			continue;
		}
		move(l->to, l->from, l->n, l->value);
		*p = l->next;
		if (!*p)
			last = p;
		nlate--;
		free(l);
	}
	pthread_mutex_unlock(&guard);
}

static CUresult later(struct CUstream_st *s, const struct place *at, void *to, const void *from, size_t n, int value, int keep)
{
	size_t kept = keep && from ? most(n) : 0;
	struct late *l = malloc(sizeof *l + kept);
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*l = (struct late){.at = *at, .to = to, .from = kept ? l->kept : from, .n = n, .value = value};
	if (kept)
		memcpy(l->kept, from, kept);
	s->hold = at->seq + 1;
	pthread_mutex_lock(&guard);
	*last = l;
	last = &l->next;
	nlate++;
	pthread_mutex_unlock(&guard);
	return CUDA_SUCCESS;
}

/* held: something ahead on the stream may still read or write the bytes. */
static int held(struct CUstream_st *s)
{
	struct vgpu_stream *v = &drv.node->stream[s->index];
	return s->hold && v->epoch == s->epoch && v->done < s->hold;
}

static int kind_of(const void *to, const void *from, int kind)
{
	if (kind != COPY_ANY)
		return kind;
	return is_device(to) ? (is_device(from) ? COPY_ON : COPY_IN) : is_device(from) ? COPY_OUT : COPY_HOST;
}

static uint64_t copy_ns(struct CUstream_st *s, size_t n, int kind)
{
	double bps = (double)device_of(s->ctx)->pcie_bps * (kind == COPY_ON ? 60 : 1); /* HBM */
	return COPY_START_NS + (uint64_t)((double)n * 1e9 / bps);
}

/* An asynchronous copy waits where its memory is pageable. On its way out the real call returns
 * when the bytes are there. On its way in it returns when they are staged, for which an H100 waited
 * until the stream had come to the copy (docs/gpu.md). What fits into 64 KiB is staged at once. */
static int waits_anyway(const void *to, const void *from, size_t n, int kind)
{
	return (kind == COPY_OUT && !is_pinned(to)) || (kind == COPY_IN && n > STAGED_AT_ONCE && !is_pinned(from));
}

CUresult copy(struct CUstream_st *s, void *to, const void *from, size_t n, int kind, int wait)
{
	static const int op_of[] = {[COPY_IN] = OP_COPY_IN, [COPY_OUT] = OP_COPY_OUT, [COPY_ON] = OP_COPY_ON};
	struct place at;
	CUresult r;
	if (n == 0)
		return CUDA_SUCCESS;
	int asked = kind;
	kind = kind_of(to, from, kind);
	if (kind == COPY_HOST) {
		memmove(to, from, n);
		return CUDA_SUCCESS;
	}
	struct vgpu_op op = {.kind = (uint32_t)op_of[kind], .left_ns = copy_ns(s, n, kind), .bytes = n};
	if (s->capture)
		return capture_add(s->capture, &(struct node_desc){.kind = op_of[kind], .to = to, .from = from, .bytes = n, .copy_kind = kind});
	late_copies();
	int late = held(s);
	if ((r = push(s, &op, &at, &counts()->copies[asked])))
		return r;
	__atomic_fetch_add(&counts()->copy_bytes[asked], n, __ATOMIC_RELAXED);
	if (!late && !held(s))
		move(to, from, n, 0);
	else if ((r = later(s, &at, to, from, n, 0, kind == COPY_IN && !wait && !is_pinned(from))))
		return r;
	if (wait ? kind != COPY_ON : waits_anyway(to, from, n, kind))
		r = wait_for(s->ctx, &at, 0);
	late_copies();
	return r;
}

static CUresult copy_call(CUstream handle, int by_default, void *to, const void *from, size_t n, int kind, int wait)
{
	struct CUstream_st *s;
	CUresult r = stream_of(handle, by_default, &s);
	return r ? r : copy(s, to, from, n, kind, wait);
}

#define P(d) ((void *)(uintptr_t)(d))

/* Each copy of the driver's interface, with the default stream and with the thread's own. */
#define COPY(name, to_type, from_type, kind)                                   \
	API name(to_type to, from_type from, size_t n)                               \
	{                                                                            \
		ENTER();                                                                   \
		return copy_call(NULL, DEFAULT_LEGACY, P(to), P(from), n, kind, 1);        \
	}                                                                            \
	API name##_ptds(to_type to, from_type from, size_t n)                        \
	{                                                                            \
		ENTER();                                                                   \
		return copy_call(NULL, DEFAULT_PER_THREAD, P(to), P(from), n, kind, 1);    \
	}
#define COPY_ASYNC(name, to_type, from_type, kind)                             \
	API name(to_type to, from_type from, size_t n, CUstream s)                   \
	{                                                                            \
		ENTER();                                                                   \
		return copy_call(s, DEFAULT_LEGACY, P(to), P(from), n, kind, 0);           \
	}                                                                            \
	API name##_ptsz(to_type to, from_type from, size_t n, CUstream s)            \
	{                                                                            \
		ENTER();                                                                   \
		return copy_call(s, DEFAULT_PER_THREAD, P(to), P(from), n, kind, 0);       \
	}

COPY(cuMemcpy, CUdeviceptr, CUdeviceptr, COPY_ANY)
COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void *, COPY_IN)
COPY(cuMemcpyDtoH_v2, void *, CUdeviceptr, COPY_OUT)
COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, COPY_ON)
COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, COPY_ANY)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, COPY_IN)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, COPY_OUT)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, COPY_ON)

static CUresult set(CUstream handle, CUdeviceptr to, int value, size_t n)
{
	struct CUstream_st *s;
	struct place at;
	CUresult r = stream_of(handle, DEFAULT_LEGACY, &s);
	if (r || n == 0)
		return r;
	struct vgpu_op op = {.kind = OP_KERNEL, .left_ns = copy_ns(s, n, COPY_ON)}; /* a kernel, as it is */
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	late_copies();
	int late = held(s);
	if ((r = push(s, &op, &at, NULL)))
		return r;
	if (late || held(s))
		return later(s, &at, P(to), NULL, n, value, 0);
	move(P(to), NULL, n, value);
	return CUDA_SUCCESS;
}

API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n)
{
	ENTER();
	return set(NULL, to, value, n);
}

API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream s)
{
	ENTER();
	return set(s, to, value, n);
}
